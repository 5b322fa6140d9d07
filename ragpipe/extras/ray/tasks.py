"""What a worker of Ray does: it opens a run once, and measures one slice per task.

Its orders and answers are plain data, the answers those of `messages.py`. It says nothing else to anybody.
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
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

from ragpipe.core.errors import ConfigError, Problem, RagpipeError
from ragpipe.core.settings import NoOrigins
from ragpipe.extras.ray.messages import failure_message, measured_message, packed_message
from ragpipe.runs.case_measuring import MeasuredSlice, Slice, measure_slice
from ragpipe.runs.finished_run import read_config, run_prompts
from ragpipe.runs.identity import metric_signatures
from ragpipe.runs.iteration_judging import case_measuring, case_window
from ragpipe.runs.judge_access import open_judge
from ragpipe.runs.load_dataset import references_of
from ragpipe.runs.measured_cases import CaseReader
from ragpipe.runs.validation import validate_finished_config
from ragpipe.runs.workers import WorkerStart
from ragpipe.store.processes import collect_new_garbage
from ragpipe.store.run_folder import RunFolder

NO_FOLDER = "absent"
_APPEARS_S = 10.0
"""Seconds in which a file system over a network shows a new folder to all nodes."""
_END = 64 << 10
"""Bytes at the end of a table that tell it from others: its footer, with counts, places and bounds."""

Send = Callable[[bytes | None], None]
Measure = Callable[[Slice], Coroutine[Any, Any, MeasuredSlice]]
"""Measures one slice; several may be under way at once."""


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
    """The messages about one slice, as they come: notices, then what came of it, or what went wrong. The order has `start`
    (`WorkerStart.values`), `digest` (`digest_of_tables` of the driver) and `slice` (a `Slice` as a list)."""
    answers = queue.SimpleQueue[bytes | None]()
    asyncio.run_coroutine_threadsafe(_worker().answer(order, answers.put), _worker().loop)
    while (message := answers.get()) is not None:
        yield message


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


_worker = cache(_Worker)


def _check_folder(folder: Path, digest: str) -> None:
    """Raises ConfigError where this node does not see the run folder that the driver sees."""
    end = time.monotonic() + _APPEARS_S
    while (seen := digest_of_tables(folder)) != digest:
        if time.monotonic() > end:
            state = f"no run in {folder}" if seen == NO_FOLDER else f"other files in {folder}"
            expected = "the run folder that the driver sees: on a file system that all nodes share, by the same path"
            fix = "set output_dir to a shared folder"
            problem = Problem(f"node {platform.node()}", "output_dir", state, expected, fix)
            raise ConfigError("runner=ray: a node does not see the run", [problem])
        time.sleep(0.2)


@asynccontextmanager
async def open_measuring(start: WorkerStart, warn: Callable[[str], None]) -> AsyncIterator[Measure]:
    """What measures slices of the run that a worker was told of. Raises RagpipeError where the folder describes other metrics than the
    driver has, and what opening the judge raises."""
    folder = RunFolder(start.folder)
    plain = read_config(folder)
    prompts = run_prompts(folder, [Path(name).absolute() for name in plain.get("prompt_dirs") or ()])  # those that were copied
    config = validate_finished_config(plain, NoOrigins(), prompts=prompts)
    if metric_signatures(config) != start.signatures:
        raise RagpipeError(f"{folder.config} describes other metrics than the run that is under way")
    reader = CaseReader(folder.samples, folder.outputs, start.iteration)
    try:
        async with open_judge(config, start.run_id, warn=warn) as session:
            session.corpus = references_of(folder.samples)
            measuring, room = case_measuring(config, session), asyncio.Semaphore(case_window(config))
            yield partial(measure_slice, reader, measuring=measuring, room=room, keep_messages=config.keep_messages)
    finally:
        reader.close()
