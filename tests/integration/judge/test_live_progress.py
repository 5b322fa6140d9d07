"""Progress of whole runs against a slow local server: the stream and the progress file while they go on, and the server's log."""

import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ragpipe.cli.command_line import main
from ragpipe.store.progress import CallCounts, ProgressState, read_progress
from tests.support.bench import bench, server
from tests.support.checks import Bench

__all__ = ["bench", "server"]

Make = Callable[..., Bench]
SYSTEM = """
import time
def answer(sample):
    time.sleep(0.05)
    if sample["id"] == "q1":
        raise ConnectionError("the index is down")
    return {"answer": "Paris is the capital.", "contexts": ["Paris is the capital of France."]}
"""


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that takes half a second or five takes a tenth of one."""
    for name in ("TICK_S", "FIRST_PLAIN_S", "PLAIN_S"):
        monkeypatch.setattr(f"ragpipe.report.console.{name}", 0.1)
    monkeypatch.setattr("ragpipe.store.progress.EVERY_S", 0.05)


@contextmanager
def watched(out: Path) -> Iterator[list[ProgressState]]:
    seen: list[ProgressState] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.01):
            for path in out.glob("*/*/iteration-1/.progress.json"):
                state = None if path.parent.parent.is_symlink() else read_progress(path)
                if state is not None and (not seen or seen[-1] != state):
                    seen.append(state)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


@pytest.mark.slow
def test_a_slow_judge_shows_numbers_before_a_case_is_finished(bench: Make) -> None:
    """4 cases of 2 questions, 0.3 s a reply, the first alone: 3 rounds of replies."""
    b = bench(cases=4)
    b.server.latency_ms = 300
    with watched(b.folder / "out") as seen:
        ran = b.run(concurrency=4)
    lines = [line for line in ran.text.splitlines() if line.startswith("judging")]
    asking = next(line for line in lines if "sent" in line)  # a busy machine shows a line before the first call
    assert asking.startswith("judging 0/4 cases | estimating | 1 sent, 0 answered | 1 in flight")
    assert re.match(r"judging 4/4 cases \| \d+:\d\d", lines[-1])
    assert "8 sent, 8 answered |" in lines[-1]
    assert len(ran.requests) == 8
    judging = [state for state in seen if state.phase == "judging"]
    early = [state for state in judging if state.cases.done == 0]
    assert any(state.calls.in_flight for state in early)
    assert [state.calls.sent for state in judging] == sorted(state.calls.sent for state in judging)
    assert all(state.calls.sent <= b.server.arrivals for state in seen)
    assert seen[-1].phase == "done"
    assert (seen[-1].calls, seen[-1].cases.done) == (CallCounts(sent=8, answered=8), 4)


@pytest.mark.thorough
@pytest.mark.slow
def test_retries_count_as_sent_and_stored_replies_do_not(bench: Make) -> None:
    """The counts are those of the server's own log, of a run that is refused and cut, and of a second start that asks nothing."""
    b = bench(cases=10)
    b.fault("429:rate=0.2,retry_after=0.3", "empty_content:rate=0.2")
    with watched(b.folder / "out") as seen:
        ran = b.run(concurrency=4)
    good = sum(line["status"] == 200 and line["fault"] is None for line in ran.requests)
    assert len(ran.requests) > good == 20
    assert seen[-1].calls == CallCounts(sent=len(ran.requests), answered=good, failed=len(ran.requests) - good)
    held = [state for state in seen if state.calls.waiting]
    assert {state.waiting_for for state in held} & {"429"}
    assert all(state.waiting_until for state in held if state.waiting_for)
    b.fault()
    again = b.run("name=other", concurrency=4)
    assert again.requests == []
    last = [line for line in again.text.splitlines() if line.startswith("judging 10/10")][-1]
    assert "sent" not in last


@pytest.mark.slow
def test_an_interrupted_run_ends_with_its_true_totals(bench: Make) -> None:
    """Interrupted with calls in flight, which are still answered: all that was sent is said."""
    b = bench(cases=40)
    b.server.latency_ms = 150
    ran = b.meanwhile(10, lambda: os.kill(os.getpid(), signal.SIGINT), concurrency=4)
    assert ran.code == 130
    (last,) = [line for line in ran.text.splitlines() if "stopped after" in line]
    sent = len(ran.requests)
    assert f"| {sent} sent, {sent} answered |" in last
    (path,) = {p.resolve() for p in (b.folder / "out").glob("*/*/iteration-1/.progress.json")}
    state = read_progress(path)
    assert (state.phase, state.calls.sent, state.calls.in_flight) == ("judging", sent, 0)


@pytest.mark.slow
def test_outputs_of_a_live_system_are_counted_while_they_are_collected(code_here, capfd) -> None:
    (code_here / "countedsystem.py").write_text(SYSTEM)
    (code_here / "q.jsonl").write_text("".join(f'{{"id": "q{n}", "question": "Capital?"}}\n' for n in range(12)))
    with watched(code_here / "outputs") as seen:
        main(["dataset=jsonl", "dataset.path=q.jsonl", "metrics=[faithfulness]", "system=python", "plugins=[countedsystem]",
              "system.callable=countedsystem:answer", "system.concurrency=2", "system.retries=0"])  # fmt: skip
    collecting = [state for state in seen if state.phase == "collecting"]
    assert any(0 < state.cases.done < 12 for state in collecting)
    for state in collecting:  # which of them are seen is a matter of time; the last line below has all
        assert state.cases.done <= state.calls.sent <= 12
        assert state.errors == sum(state.error_groups.values()) <= 1
    assert seen[-1].phase == "done"
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("collecting")]
    assert any("left" in line for line in lines[:-1])
    assert lines[-1].startswith("collecting 12/12 outputs | 0:0")
    assert "12 sent, 11 answered, 1 without a reply" in lines[-1]
