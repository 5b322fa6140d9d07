"""The line of progress in a real terminal, and what a killed process leaves of it."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from ragpipe.store.run.progress_file import read_progress
from ragpipe.store.run.progress_state import ProgressState
from tests.support.checks import Bench
from tests.support.harness import start
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

Make = Callable[..., Bench]


def test_a_killed_process_leaves_a_readable_and_recognisably_stale_file(bench: Make) -> None:
    run_state = pytest.importorskip("ragpipe.extras.view.listed_run", reason="the extra view is not here").run_state
    b = bench(cases=12)
    b.server.latency_ms = 400
    process = start(b.args(concurrency=4), b.folder)

    def going() -> tuple[Path, ProgressState] | None:
        path = next((b.folder / "out").glob("*/*/iteration-1/.progress.json"), None)
        seen = read_progress(path) if path else None
        return (path, seen) if path and seen and seen.calls.sent > 4 else None

    found = wait_until(going, process)
    assert found is not None
    path, seen = found
    root = path.parents[1]
    assert run_state(root, {}, has_figures=False).state == "running"
    assert (seen.phase, seen.process.pid) == ("judging", process.pid)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    left = read_progress(path)
    assert isinstance(left, ProgressState)
    assert left.phase == "judging"
    shown = run_state(root, {}, has_figures=False)
    assert (shown.state, shown.reason) == ("stalled", f"process {process.pid} is gone"), "at once"
    assert left.silent_s() < 30
    b.server.latency_ms = 0
    ran = b.run()
    assert ran.code == 0
    done = read_progress(path)
    assert done is not None
    assert (done.phase, done.process.pid) == ("done", os.getpid())
    assert run_state(root, {"1": "complete"}, has_figures=True).state == "complete"
