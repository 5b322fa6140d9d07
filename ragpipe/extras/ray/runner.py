"""Tasks of Ray that measure the slices of one iteration, on this machine or on a cluster.

Between this process and Ray stands `process.py`. When this process dies, that one sees the end of its input and ends, with
the tasks and a cluster that was started for them.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from ragpipe.core.errors import RagpipeError
from ragpipe.core.secrets import is_secret_name
from ragpipe.extras.ray.messages import HEAD, WorkerDied, WorkerFailure, measured_of, packed_message, parted_message
from ragpipe.extras.ray.process import end_session
from ragpipe.extras.ray.settings import RaySettings
from ragpipe.extras.ray.tasks import digest_of_tables
from ragpipe.runs.case_measuring import MeasuredSlice, Slice
from ragpipe.runs.workers import WorkerStart
from ragpipe.store.processes import usable_cores

_START_S = 180.0  # for a cluster to start, or to answer
_END_S = 10.0  # for it to end
_LONGEST = 40
"""Characters of a temporary folder: Ray's sockets lie 65 deeper, and their names end at 107."""


class RayRunner:
    """Has slices measured by Ray. It belongs to one event loop; made by `open_ray_runner`."""

    def __init__(self, process: Process, largest: int, warn: Callable[[str], None], log: Path):
        self._process, self._warn, self._log = process, warn, log
        self.largest, self.width = largest, 1
        self._results: dict[int, asyncio.Future[MeasuredSlice]] = {}
        self._count = 0
        self._stopped: RagpipeError | None = None
        self._notices: set[str] = set()

    async def measure(self, part: Slice) -> MeasuredSlice:
        """What came of a slice. Raises what went wrong with it, and what stopped this runner."""
        if self._stopped is not None:
            raise self._stopped
        self._count = number = self._count + 1
        result: asyncio.Future[MeasuredSlice] = asyncio.get_running_loop().create_future()
        self._results[number] = result
        try:
            await self._write([number, *part])
            return await result
        finally:
            self._results.pop(number, None)

    def stop(self, why: RagpipeError) -> None:
        """Start no slice, and end the tasks."""
        self._stopped = self._stopped or why
        self.cancel()

    def cancel(self) -> None:
        """End the tasks at once."""
        self._stopped = self._stopped or RagpipeError("the run was cancelled")
        for result in self._results.values():
            if not result.done():
                result.set_exception(self._stopped)
        assert self._process.stdin is not None
        self._process.stdin.close()

    async def start(self, order: dict[str, Any]) -> None:
        """Wait until Ray can be used. Raises WorkerFailure where it cannot."""
        await self._write(order)
        try:
            values, content = await asyncio.wait_for(self._message(), _START_S)
        except (TimeoutError, EOFError) as error:
            why = "does not answer" if isinstance(error, TimeoutError) else "could not be started"
            raise WorkerFailure(f"runner=ray: Ray {why}{self._last_lines()}", 2) from error
        if "failure" in values:
            measured_of(values, content)
        self.width = values["width"]

    async def listen(self) -> None:
        """Hand over what comes, until this runner is stopped."""
        try:
            while True:
                values, content = await self._message()
                if "notice" in values:
                    self._warn(values["notice"])
                elif "failure" in values:
                    self.stop(WorkerFailure(values["failure"], values["exit_code"]))
                else:
                    self._answer(values["slice"], *parted_message(content))
        except EOFError:
            self.stop(WorkerDied(f"the process that speaks to Ray died{self._last_lines()}"))
        except Exception as error:
            self.stop(RagpipeError(f"runner=ray: {type(error).__name__}: {error}"))

    def _answer(self, number: int, values: dict[str, Any], content: bytes) -> None:
        if "notice" in values:
            if values["notice"] not in self._notices:  # each worker may meet the same
                self._notices.add(values["notice"])
                self._warn(values["notice"])
            return
        if (result := self._results.get(number)) is None or result.done():
            return
        try:
            result.set_result(measured_of(values, content))
        except Exception as error:
            result.set_exception(error)

    async def _message(self) -> tuple[dict[str, Any], bytes]:
        """The next message, and the bytes behind it. Raises EOFError where the other side is gone."""
        stream = self._process.stdout
        assert stream is not None
        values_size, size = HEAD.unpack(await stream.readexactly(HEAD.size))
        return json.loads(await stream.readexactly(values_size)), await stream.readexactly(size)

    async def _write(self, values: Any) -> None:
        stream = self._process.stdin
        assert stream is not None
        with suppress(OSError):  # it has ended: that is noticed where its messages are read
            stream.write(packed_message(values))
            await stream.drain()

    def _last_lines(self) -> str:
        with suppress(OSError):
            lines = self._log.read_text(errors="replace").strip().splitlines()[-5:]
            return "".join(f"\n  {line}" for line in lines)
        return ""


@asynccontextmanager
async def open_ray_runner(start: WorkerStart, settings: RaySettings, warn: Callable[[str], None]) -> AsyncIterator[RayRunner]:
    """Ray for one iteration; at the end of the block nothing of it is left. `start` is what workers are told, `warn` prints
    what the user should know. Raises WorkerFailure where it cannot be used."""
    base = tempfile.gettempdir()
    files = Path(tempfile.mkdtemp(prefix="ragpipe-ray-", dir=base if len(base) < _LONGEST else "/tmp"))
    process: Process | None = None
    listening: asyncio.Task[None] | None = None
    try:
        paths = [os.path.abspath(path or os.curdir) for path in sys.path]
        process = await _new_process(files / "output.log", paths)
        runner = RayRunner(process, settings.slice, warn, files / "output.log")
        digest = await asyncio.to_thread(digest_of_tables, start.folder)
        task = {"start": start.values(), "digest": digest, "paths": paths, "folder": os.getcwd()}
        order = {"settings": settings.model_dump(mode="json"), "cores": usable_cores(), "files": str(files), "task": task}
        await runner.start(order)
        listening = asyncio.create_task(runner.listen())
        yield runner
    finally:
        if listening is not None:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
        if process is not None:
            await _end(process)
        await asyncio.to_thread(shutil.rmtree, files, ignore_errors=True)


async def _new_process(log: Path, paths: list[str]) -> Process:
    """It imports what this process imports: `-P`, because the current folder may have a `queue.py`."""
    # keys stay here: workers of a cluster that it starts have its environment, and ask no server
    environment = {
        name: value
        for name, value in os.environ.items()
        if name != "RAY_ADDRESS" and (name.startswith("RAY_") or not is_secret_name(name))
    }
    # a session of its own: Ctrl-C is for the driver, and what Ray starts is known by it
    with await asyncio.to_thread(open, log, "wb") as output:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "ragpipe.extras.ray.process"),
            stdin=PIPE,
            stdout=PIPE,
            stderr=output,
            env={**environment, "PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,
        )


async def _end(process: Process) -> None:
    """End the process that speaks to Ray, which ends by itself when its input does, and what it may have left."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    rest = asyncio.create_task(_discard(process.stdout))  # asyncio knows of its end once the pipe is read to the end
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _END_S)
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()
    rest.cancel()
    await asyncio.to_thread(end_session, process.pid)


async def _discard(stream: asyncio.StreamReader) -> None:
    """Read what is left, for nobody."""
    while await stream.read(1 << 16):
        pass
