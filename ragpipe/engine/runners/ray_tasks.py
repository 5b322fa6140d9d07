"""What a worker of Ray does: it opens a run once, and measures one slice per task.

Its orders and answers are plain data, the answers those of `slice_messages.py`. It says nothing else to anybody.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import os
import platform
import queue
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from ragpipe.core.errors import ConfigError, Problem, RagpipeError
from ragpipe.core.process_memory import collect_new_garbage
from ragpipe.engine.runners.plain_messages import packed_message
from ragpipe.engine.runners.slice_measuring import Measure, open_measuring
from ragpipe.engine.runners.slice_messages import WorkerStart, failure_message, measured_message
from ragpipe.stages.slices import Slice
from ragpipe.store.run.run_folder import RunFolder

NO_FOLDER = "absent"
_APPEARS_S = 10.0
"""Seconds in which a file system over a network shows a new folder to all nodes."""
_END = 64 << 10
"""Bytes at the end of a table that tell it from others: its footer, with counts, places and bounds."""

Send = Callable[[bytes | None], None]


def digest_of_tables(folder: Path) -> str:
    """What tells the frozen cases and the configuration in a run folder from those of others; `absent` where they are missing."""
    run = RunFolder(folder)
    digest = hashlib.sha256()
    try:
        digest.update(run.config.read_bytes())
        for path in (run.samples, run.outputs):
            with open(path, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _END))
                digest.update(b"%d " % size + file.read())
    except OSError:
        return NO_FOLDER
    return digest.hexdigest()


def slice_messages(order: dict[str, Any]) -> Iterator[bytes]:
    """The messages about one slice, as they come: notices, then what came of it, or what went wrong.

    Args:
        order: `start` (`WorkerStart.values`), `digest` (`digest_of_tables` of the driver) and `slice` (a `Slice` as a list).
    """
    answers = queue.SimpleQueue[bytes | None]()
    asyncio.run_coroutine_threadsafe(_worker().answer(order, answers.put), _worker().loop)
    while (message := answers.get()) is not None:
        yield message


@cache
def _worker() -> _Worker:
    return _Worker()


class _Worker:
    """The runs that are open in this process, on an event loop in a thread of its own: it outlives the tasks."""

    def __init__(self) -> None:
        gc.disable()  # until the first slice
        self.loop = asyncio.new_event_loop()
        self._open: dict[tuple[str, int], Measure] = {}
        self._holding: list[asyncio.Task[None]] = []
        self._send: Send = lambda _: None
        threading.Thread(target=self.loop.run_forever, name="ragpipe-slices", daemon=True).start()

    async def answer(self, order: dict[str, Any], send: Send) -> None:
        """Measure the slice of an order. What is sent last is None."""
        self._send, part = send, Slice(*order["slice"])
        try:
            measure = await self._opened(WorkerStart.of(order["start"]), order["digest"])
            send(measured_message(await measure(part), part))
        except Exception as error:
            send(failure_message(error, part))
        except BaseException as error:  # a metric that wants to end the process
            send(failure_message(RagpipeError(f"{type(error).__name__}: {error}"), part))
        finally:
            send(None)

    async def _opened(self, start: WorkerStart, digest: str) -> Measure:
        """The open run; it stays open. Raises what opening it raises."""
        key = (start.run_id, start.iteration)
        if key not in self._open:
            await asyncio.to_thread(_check_folder, start.folder, digest)
            opened: asyncio.Future[Measure] = self.loop.create_future()
            self._holding.append(asyncio.create_task(self._hold(start, opened)))
            self._open[key] = await opened
            collect_new_garbage()
        return self._open[key]

    async def _hold(self, start: WorkerStart, opened: asyncio.Future[Measure]) -> None:
        """Open a run, and keep it open as long as this process lives."""
        try:
            async with open_measuring(start, self._notice) as measure:
                opened.set_result(measure)
                await asyncio.Event().wait()
        except Exception as error:
            if not opened.done():
                opened.set_exception(error)

    def _notice(self, text: str) -> None:
        self._send(packed_message({"notice": text}))


def _check_folder(folder: Path, digest: str) -> None:
    """Raises ConfigError where this node does not see the run folder that the driver sees."""
    end = time.monotonic() + _APPEARS_S
    while (seen := digest_of_tables(folder)) != digest:
        if time.monotonic() > end:
            state = f"no run in {folder}" if seen == NO_FOLDER else f"other files in {folder}"
            expected = "the run folder that the driver sees: on a file system that all nodes share, by the same path"
            raise ConfigError(
                "runner=ray: a node does not see the run",
                [
                    Problem(
                        f"node {platform.node()}", "output_dir", state, expected, "set output_dir to a shared folder"
                    )
                ],
            )
        time.sleep(0.2)
