"""Worker processes on this machine that measure the slices of one iteration.

A worker that dies is replaced, and its slices are handed out again: what was answered stands in the call store, so that only calls
in flight are asked again. When this process dies, its workers see the end of their input: they ask nothing more, and end.
"""

from __future__ import annotations

import asyncio
import time
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ragpipe.core.errors import RagpipeError
from ragpipe.engine.runners.slice_messages import MOST_DEATHS, WorkerDied, WorkerStart, measured_of
from ragpipe.engine.runners.slice_process import DRAIN_S
from ragpipe.engine.session_figures import without_open_calls
from ragpipe.engine.workers.plain_messages import awaited_message, packed_message
from ragpipe.engine.workers.process_sessions import end_session
from ragpipe.engine.workers.python_processes import import_environment, module_words
from ragpipe.stages.slices import MeasuredSlice, Slice

_END_S = DRAIN_S + 2
"""Seconds without a word after which a worker that is to end is ended: one that waits for calls reports them twice per second."""

_MEMORY_HINT = "out of memory? fewer runner.workers or a smaller runner.slice need less"
_EXIT_HINT = "does a metric, or a library that it uses, end the process? runner=local shows what it prints"


@dataclass(slots=True)
class _Job:
    """A slice to measure, what waits for it, and how many workers have died over it."""

    part: Slice
    result: asyncio.Future[MeasuredSlice]
    deaths: int = 0

    def fail(self, error: Exception) -> None:
        if not self.result.done():
            self.result.set_exception(error)


@dataclass(slots=True, eq=False)
class _Worker:
    """A worker with the slices that it has. `figures` are the last ones of its calls, None before; `heard` is when it last said
    something, in monotonic seconds; one that `is_dead` gets no more slices."""

    jobs: dict[Slice, _Job] = field(default_factory=dict)
    process: Process | None = None
    task: asyncio.Task[None] | None = None
    figures: Mapping[str, Any] | None = None
    heard: float = field(default_factory=time.monotonic)
    is_dead: bool = False

    @property
    def has_suspect(self) -> bool:
        """Whether it measures a slice that a worker has died over: then that slice alone."""
        return any(job.deaths for job in self.jobs.values())

    def tell(self, order: Mapping[str, Any]) -> None:
        """Send an order, where the process has started."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.write(packed_message(order))


class SliceWorkers:
    """A number of worker processes, started as slices come. It belongs to one event loop.

    Args:
        start: what workers are told first.
        workers: how many there are.
        largest: the most cases of a slice.
        at_once: the slices that one worker has at once: the next one is there when it ends one, and more where it waits for a server.
        warn: prints what the user should know.
        on_figures: called when a worker has told figures of its calls.
    """

    def __init__(
        self,
        start: WorkerStart,
        *,
        workers: int,
        largest: int,
        warn: Callable[[str], None],
        at_once: int = 1,
        on_figures: Callable[[], None] = lambda: None,
    ):
        self._start, self._warn, self.on_figures = start, warn, on_figures
        self._most, self._at_once = workers, at_once
        self.width, self.largest = workers * at_once, largest
        self._jobs: deque[_Job] = deque()
        self._workers: list[_Worker] = []
        self._ended: list[Mapping[str, Any]] = []  # the figures of the workers that have died
        self._notices: set[str] = set()
        self._stopped: RagpipeError | None = None
        self._is_ending = False

    async def measure(self, part: Slice) -> MeasuredSlice:
        """What came of a slice. Raises what went wrong in the worker, and WorkerDied."""
        if self._stopped is not None:
            raise self._stopped
        job = _Job(part, asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        self._hand_out()
        return await job.result

    def figures(self) -> list[Mapping[str, Any]]:
        """The figures of all workers so far (`session_figures`), those that have died included."""
        return [*self._ended, *(worker.figures for worker in self._workers if worker.figures is not None)]

    def stop(self, why: RagpipeError) -> None:
        """Start no slice and no call: calls in flight finish, their replies are kept, and their slices end with an error. A worker
        that asks no server, or has not begun, is ended."""
        self._stopped = self._stopped or why
        for job in self._jobs:
            job.fail(self._stopped)
        self._jobs.clear()
        for worker in self._workers:
            worker.tell({"stop": str(why)})
            if worker.figures is None:
                self._give_up(worker, self._stopped)

    def cancel(self) -> None:
        """End the workers at once."""
        why = self._stopped or RagpipeError("the run was cancelled")
        self.stop(why)
        for worker in self._workers:
            self._give_up(worker, why)

    async def settle(self) -> None:
        """Wait until the calls that slices have left in flight have ended, and the workers with them. None measures anything any more."""
        self._is_ending = True
        for worker in self._workers:
            worker.heard = time.monotonic()
            worker.tell({"end": True})
        while tasks := [worker.task for worker in self._workers if worker.task is not None and not worker.task.done()]:
            await asyncio.wait(tasks, timeout=0.5)
            for worker in self._workers:
                if time.monotonic() - worker.heard > _END_S:
                    self._give_up(worker, self._stopped or RagpipeError("the worker does not answer"))

    async def close(self) -> None:
        """End the workers that are left."""
        await asyncio.gather(*(_end(worker.process) for worker in self._workers if worker.process is not None))
        for worker in self._workers:
            if worker.task is not None:
                worker.task.cancel()
        await asyncio.gather(*filter(None, (worker.task for worker in self._workers)), return_exceptions=True)
        self._workers.clear()

    def _give_up(self, worker: _Worker, why: Exception) -> None:
        for job in worker.jobs.values():
            job.fail(why)
        if worker.process is not None:
            with suppress(ProcessLookupError):
                worker.process.kill()

    def _hand_out(self) -> None:
        """Give waiting slices to the workers that have room for them."""
        while self._jobs and (worker := self._free_worker(self._jobs[0])) is not None:
            job = self._jobs.popleft()
            worker.jobs[job.part] = job
            worker.tell({"slice": job.part})

    def _free_worker(self, job: _Job) -> _Worker | None:
        """The worker to measure a slice: one with nothing to do, a new one, or that with the fewest slices. A slice that a worker
        has died over gets one for itself, so that the next death shows which slice it was."""
        alive = [each for each in self._workers if not each.is_dead]
        worker = min(alive, key=lambda each: len(each.jobs), default=None)
        if worker is not None and not worker.jobs:
            return worker
        if len(self._workers) < self._most:
            return self._new_worker()
        if job.deaths:
            return None
        room = (each for each in alive if len(each.jobs) < self._at_once and not each.has_suspect)
        return min(room, key=lambda each: len(each.jobs), default=None)

    def _new_worker(self) -> _Worker:
        worker = _Worker()
        self._workers.append(worker)
        worker.task = asyncio.create_task(self._serve(worker))
        return worker

    async def _serve(self, worker: _Worker) -> None:
        """Start a worker, and take its answers until it ends."""
        try:
            worker.process = await self._new_process()
        except OSError as error:
            self._not_started(worker, error)
            return
        worker.heard = time.monotonic()
        if self._stopped is not None or self._is_ending:  # meanwhile
            self._give_up(worker, self._stopped or RagpipeError("the run has ended"))
        for part in worker.jobs:
            worker.tell({"slice": part})
        try:
            async for values, content in _messages(worker.process):
                worker.heard = time.monotonic()
                self._take(worker, values, content)
        except (EOFError, OSError):
            await self._died(worker)
        except Exception as error:  # a message that cannot be read: nobody would wait for the next one
            self._give_up(worker, error)
            await self._died(worker)

    def _take(self, worker: _Worker, values: dict[str, Any], content: bytes) -> None:
        """Take one message of a worker."""
        if "notice" in values:
            if values["notice"] not in self._notices:  # each worker may meet the same
                self._notices.add(values["notice"])
                self._warn(values["notice"])
        elif "figures" in values:
            worker.figures = values["figures"]
            self.on_figures()
        else:
            job = worker.jobs.pop(Slice(*values["slice"]))
            try:
                measured = measured_of(values, content)
            except Exception as error:
                job.fail(error)
            else:
                if not job.result.done():
                    job.result.set_result(measured)
            self._hand_out()

    async def _new_process(self) -> Process:
        # a session of its own: Ctrl-C is for the driver, which then ends its workers
        process = await asyncio.create_subprocess_exec(
            *module_words("ragpipe.engine.runners.slice_process"),
            stdin=PIPE,
            stdout=PIPE,
            env=import_environment(),
            start_new_session=True,
        )
        assert process.stdin is not None
        process.stdin.write(packed_message(self._start.values()))
        return process

    def _not_started(self, worker: _Worker, error: OSError) -> None:
        """Go on with the workers that there are; without any, nothing can be measured."""
        self._workers.remove(worker)
        if self._workers:
            self._most = min(self._most, len(self._workers))
            self._warn(f"no more than {self._most} workers: {error}")
            self._jobs.extendleft(reversed(worker.jobs.values()))
            self._hand_out()
            return
        for job in worker.jobs.values():
            job.fail(WorkerDied(f"a worker could not be started: {error}"))

    async def _died(self, worker: _Worker) -> None:
        """Hand the slices of a dead worker out again, or end one where it has taken too many with it."""
        assert worker.process is not None
        worker.is_dead = True  # and still one of the workers, until all that it has started has ended
        code = await _end(worker.process)
        self._workers.remove(worker)
        if worker.figures is not None:
            self._ended.append(without_open_calls(worker.figures))
            self.on_figures()
        left = [job for job in worker.jobs.values() if not job.result.done()]
        if self._stopped is not None:
            for job in left:
                job.fail(self._stopped)
        else:
            self._measure_again(left, code)
        self._hand_out()

    def _measure_again(self, left: list[_Job], code: int | None) -> None:
        """Queue the slices of a dead worker again, but for those that have taken too many with them: these fail."""
        how = f"exit code {code}" if code is None or code >= 0 else f"signal {-code}"
        again = [job for job in left if job.deaths + 1 < MOST_DEATHS]
        for job in left:
            job.deaths += 1
        for job in left:
            if job not in again:
                hint = _MEMORY_HINT if code == -9 else _EXIT_HINT
                job.fail(WorkerDied(f"{job.part}: {job.deaths} workers died over them, by {how} ({hint})"))
        if again:
            parts = ", ".join(str(job.part) for job in again)
            self._warn(f"a worker died ({how}); {parts} are measured again by another")
            self._jobs.extendleft(reversed(again))


async def _messages(process: Process) -> AsyncIterator[tuple[dict[str, Any], bytes]]:
    """The messages of a worker, each with the bytes behind it. Raises EOFError and OSError when it has died."""
    assert process.stdout is not None
    while True:
        yield await awaited_message(process.stdout)


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
    finally:
        await asyncio.to_thread(end_session, process.pid)  # what code of the user's has started there
