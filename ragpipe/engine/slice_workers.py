"""Worker processes on this machine that measure the slices of one iteration.

A worker that dies is replaced, and its slice handed out again: nothing of it was paid for, because such runs ask no provider. When
this process dies, its workers see the end of their input and end too.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from ragpipe.core.errors import RagpipeError
from ragpipe.engine.slice_messages import HEAD, WorkerStart, measured_of, packed_message
from ragpipe.stages.slices import MeasuredSlice, Slice

MOST_DEATHS = 3
"""Workers that a slice may take with it before the run ends."""
_END_S = 5.0  # for a worker to end by itself


class WorkerDied(RagpipeError):
    """A slice took its workers with it, one after the other."""


@dataclass(slots=True)
class _Job:
    """A slice to measure, what waits for it, and how many workers have died over it."""

    part: Slice
    result: asyncio.Future[MeasuredSlice]
    deaths: int = 0


class SliceWorkers:
    """A number of worker processes, each started with its first slice. It belongs to one event loop.

    Args:
        start: what workers are told first.
        width: how many there are.
        largest: the most cases of a slice.
        say: prints what the user should know.
    """

    def __init__(self, start: WorkerStart, *, width: int, largest: int, say: Callable[[str], None]):
        self._start, self._say = start, say
        self.width, self.largest = width, largest
        self._jobs: deque[_Job] = deque()
        self._wanted = asyncio.Condition()
        self._under_way: dict[int, _Job] = {}
        self._processes: dict[int, Process] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._stopped: RagpipeError | None = None

    async def measure(self, part: Slice) -> MeasuredSlice:
        """What came of a slice. Raises what went wrong in the worker, and WorkerDied."""
        if self._stopped is not None:
            raise self._stopped
        job = _Job(part, asyncio.get_running_loop().create_future())
        await self._hand_out(job)
        if len(self._tasks) < self.width:
            self._tasks.append(asyncio.create_task(self._serve(len(self._tasks))))
        return await job.result

    def stop(self, why: RagpipeError) -> None:
        """Give up what is being measured: it ends with this error, and the workers with it."""
        self._stopped = self._stopped or why
        for job in (*self._jobs, *self._under_way.values()):
            if not job.result.done():
                job.result.set_exception(self._stopped)
        self._jobs.clear()
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                process.kill()

    async def close(self) -> None:
        """End the workers."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*map(_end, self._processes.values()))
        self._processes.clear()

    async def _hand_out(self, job: _Job, *, first: bool = False) -> None:
        async with self._wanted:
            (self._jobs.appendleft if first else self._jobs.append)(job)
            self._wanted.notify()

    async def _serve(self, number: int) -> None:
        """Give slices to one worker, and to the next one when it died."""
        while True:
            async with self._wanted:
                await self._wanted.wait_for(lambda: bool(self._jobs))
                job = self._under_way[number] = self._jobs.popleft()
            try:
                measured = await self._answer(number, job.part)
            except (EOFError, OSError) as error:
                await self._died(number, job, error)
            except Exception as error:
                if not job.result.done():
                    job.result.set_exception(error)
            else:
                if not job.result.done():
                    job.result.set_result(measured)
            finally:
                self._under_way.pop(number, None)

    async def _answer(self, number: int, part: Slice) -> MeasuredSlice:
        """What the worker answers. Raises EOFError and OSError where it died, WorkerFailure for what went wrong in it."""
        process = self._processes.get(number)
        if process is None:
            process = self._processes[number] = await self._new_process()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(packed_message(part))
        await process.stdin.drain()
        while True:
            values_size, size = HEAD.unpack(await process.stdout.readexactly(HEAD.size))
            values = json.loads(await process.stdout.readexactly(values_size))
            content = await process.stdout.readexactly(size)
            if "notice" not in values:
                return measured_of(values, content)
            self._say(values["notice"])

    async def _new_process(self) -> Process:
        # a session of its own: Ctrl-C is for the driver, which then ends its workers
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "ragpipe.engine.slice_process",
            stdin=PIPE,
            stdout=PIPE,
            env=environment,
            start_new_session=True,
        )
        assert process.stdin is not None
        process.stdin.write(packed_message(self._start.values()))
        return process

    async def _died(self, number: int, job: _Job, error: Exception) -> None:
        """Hand the slice of a dead worker out again, or end it where it has taken too many with it."""
        process = self._processes.pop(number, None)
        code = None if process is None else await _end(process)
        if job.result.done() or self._stopped is not None:
            return
        job.deaths += 1
        how = f"exit code {code}" if code is None or code >= 0 else f"signal {-code}"
        if isinstance(error, OSError) and process is None:
            job.result.set_exception(WorkerDied(f"a worker could not be started: {error}"))
        elif job.deaths < MOST_DEATHS:
            self._say(f"a worker died ({how}); {job.part} are measured again by another")
            await self._hand_out(job, first=True)
        else:
            hint = " (out of memory? runner.workers and runner.slice make it less)" if code == -9 else ""
            job.result.set_exception(WorkerDied(f"{job.part}: {job.deaths} workers died over them, by {how}{hint}"))


async def _end(process: Process) -> int | None:
    """End a worker: it ends by itself when its input does. Returns its exit code."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        return await asyncio.wait_for(process.wait(), _END_S)
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        return await process.wait()
