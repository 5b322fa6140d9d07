"""The line of progress in a real terminal, and what a killed process leaves of it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ragpipe.store.run.progress_file import read_progress
from ragpipe.store.run.progress_state import ProgressState
from tests.support.checks import Bench
from tests.support.harness import environment, start
from tests.support.waiting import HANGS_AFTER_S, wait_until

pytestmark = pytest.mark.slow

Make = Callable[..., Bench]
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def in_terminal(args: Sequence[str], cwd: Path, columns: int) -> str:
    """What ragpipe writes in a terminal of so many columns."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    env = {**environment(TERM="xterm-256color")}
    env.pop("COLUMNS", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "ragpipe", *args], cwd=cwd, env=env, stdin=follower, stdout=follower, stderr=follower
    )
    os.close(follower)
    written = b""
    while True:
        ready, _, _ = select.select([leader], [], [], 0.2)
        if not ready:
            if process.poll() is not None:
                break
            continue
        try:
            written += os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
    os.close(leader)
    process.wait(timeout=HANGS_AFTER_S)
    return _ESCAPES.sub("", written.decode(errors="replace"))


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("columns", [45, 80, 160])
def test_a_judge_of_three_seconds_shows_numbers_before_it_answers(bench: Make, columns: int) -> None:
    """8 calls, the first alone, then 4 at a time: no case is finished for six seconds."""
    b = bench(cases=4)
    b.server.latency_ms = 3000
    written = in_terminal(b.args(concurrency=4), b.folder, columns)
    drawn = [line for line in re.split(r"[\r\n]+", written) if "judging " in line]
    assert drawn, written
    assert "judging 0/4 cases | estimating" in drawn[0]
    changing = drawn[:-1]
    assert all(len(line) < columns for line in changing)
    assert not any("…" in line for line in changing)
    assert any(re.search(r"judging 0/4 cases \| \d+:\d\d left", line) for line in changing)
    if columns > 45:
        assert "1 sent, 0 answered" in "".join(changing)
    assert re.search(r"judging 4/4 cases \| \d+:\d\d \| 8 sent, 8 answered", drawn[-1])


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
