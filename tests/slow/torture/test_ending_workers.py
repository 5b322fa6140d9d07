"""Workers at their end: what is told them, what they tell, and how long it takes."""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragpipe.core.errors import Interrupted
from ragpipe.engine.runners import ray_runner, slice_workers
from ragpipe.engine.runners.ray_tasks import _Worker
from ragpipe.engine.runners.slice_messages import WorkerDied, WorkerFailure, WorkerStart
from ragpipe.engine.runners.slice_workers import SliceWorkers
from ragpipe.stages.slices import Slice

pytestmark = pytest.mark.slow
START = WorkerStart(Path("none"), "run", 1, {}, "start", began_at=0.0)


def of_workers(monkeypatch: pytest.MonkeyPatch, *command: str, **options: Any) -> tuple[SliceWorkers, list[str]]:
    """Workers that are started by this command of Python's, and what they warn of."""
    monkeypatch.setattr(slice_workers, "module_words", lambda _: [sys.executable, *command])
    warned: list[str] = []
    return SliceWorkers(START, largest=4, warn=warned.append, **options), warned


async def test_a_worker_whose_processes_are_being_ended_gets_no_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    ending: Callable[[int], None] = slice_workers.end_session
    loop, is_ending = asyncio.get_running_loop(), asyncio.Event()

    def slow(pid: int) -> None:
        loop.call_soon_threadsafe(is_ending.set)
        time.sleep(0.5)
        ending(pid)

    monkeypatch.setattr(slice_workers, "end_session", slow)
    dying = "import sys; sys.stdin.buffer.read(8)"  # it ends after the first words
    workers, warned = of_workers(monkeypatch, "-S", "-c", dying, workers=2, at_once=3)
    first = asyncio.create_task(workers.measure(Slice(0, 0, 4)))
    await is_ending.wait()
    late = [asyncio.create_task(workers.measure(Slice(0, start, start + 4))) for start in (4, 8)]
    ended = await asyncio.gather(first, *late, return_exceptions=True)
    await workers.close()
    assert [type(error) for error in ended] == [WorkerDied] * 3
    assert warned[0] == "a worker died (exit code 0); rows 0 to 3 of block 0 are measured again by another"
    assert "rows 4 to 7 of block 0: 3 workers died over them" in str(ended[1])


async def test_what_goes_wrong_at_the_end_of_a_worker_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    workers, warned = of_workers(monkeypatch, "-m", "tests.support.closing_worker", workers=1)
    with pytest.raises(WorkerFailure, match="not measured"):
        await workers.measure(Slice(0, 0, 4))
    began = time.monotonic()
    await workers.settle()
    assert time.monotonic() - began < slice_workers._END_S / 2
    await workers.close()
    assert warned == ["a worker ended with an error: OutputError: replies are kept in /tmp/replies.jsonl"]


class _AskingRun:
    """A run that asks something every 50 ms until it is stopped."""

    asks_servers = True

    def __init__(self) -> None:
        self.session, self.asked, self._why = self, 0, list[Exception]()

    def stop(self, why: Exception) -> None:
        self._why.append(why)

    async def drain(self) -> None: ...

    def figures(self) -> dict[str, Any]:
        return {}

    async def measure(self, _: object) -> None:
        while not self._why:
            self.asked += 1
            await asyncio.sleep(0.05)
        raise self._why[0]


@pytest.mark.thorough
async def test_a_slice_of_ray_that_comes_after_the_stop_asks_nothing(tmp_path: Path) -> None:
    stop, run = tmp_path / "stop", _AskingRun()
    stop.touch()
    with pytest.raises(Interrupted):
        await _Worker()._measured(run, Slice(0, 0, 4), stop)  # type: ignore[arg-type]
    assert run.asked == 0


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("unread", [1_000, 400_000])
async def test_what_is_not_read_does_not_keep_the_process_that_speaks_to_ray(unread: int) -> None:
    """It writes more than a pipe and its reader hold, and ends when its input does."""
    code = f"""
import os, sys, threading
def write():
    sys.stdout.buffer.write(b"x" * {unread})
    sys.stdout.buffer.flush()
threading.Thread(target=write, daemon=True).start()
sys.stdin.buffer.read()
os._exit(0)
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-S", "-c", code, stdin=PIPE, stdout=PIPE, start_new_session=True
    )
    await asyncio.sleep(0.3)
    began = time.monotonic()
    await ray_runner._end(process)
    assert time.monotonic() - began < ray_runner._END_S / 2
