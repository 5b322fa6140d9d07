"""Signals: how long an end takes, its exit code, and that what was answered is never asked again."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable

import pytest

from ragpipe.engine.event_loop import TERM_EXIT_S
from tests.support.checks import Bench, Ran
from tests.support.harness import ROOT, start

Make = Callable[..., Bench]


def _ended(b: Bench, process: subprocess.Popen[str]) -> Ran:
    """The process ended by itself, well before the 60 s for which the server hangs."""
    text, _ = process.communicate(timeout=30)
    return b.ran(process.returncode, text)


def _resumed(b: Bench, cases: int) -> None:
    """The same command on a healthy server: everything answered, nothing of it twice."""
    answered = {r["body"] for r in b.server.log if r["status"] == 200 and r["written"]}
    b.fault()
    ran = b.run()
    assert ran.code == 0
    assert not answered & set(ran.bodies)
    assert [row["status"] for row in ran.rows()] == ["ok"] * cases


@pytest.mark.slow
def test_two_interrupts_end_it_at_once(bench: Make) -> None:
    b = bench(cases=40)
    b.fault("hang:after=20,seconds=60")
    process = start(b.args(), b.folder)
    b.until(26, process)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None, "after one it waits for calls in flight"
    process.send_signal(signal.SIGINT)
    ran = _ended(b, process)
    assert ran.code == 130
    assert "interrupt again" in ran.text
    assert "python -m ragpipe" in ran.text
    _resumed(b, 40)


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "word"), [(signal.SIGTERM, "terminated"), (signal.SIGHUP, "the terminal was closed")]
)
def test_a_termination_ends_it_before_a_container_is_killed(bench: Make, number: signal.Signals, word: str) -> None:
    """`docker stop` kills after ten seconds."""
    assert TERM_EXIT_S < 10
    b = bench(cases=40)
    b.fault("hang:after=20,seconds=60")
    process = start(b.args(), b.folder)
    b.until(26, process)
    process.send_signal(number)
    ran = _ended(b, process)
    assert ran.code == 128 + number
    assert f"{word}: no new calls" in ran.text
    assert "python -m ragpipe" in ran.text
    _resumed(b, 40)


@pytest.mark.thorough
@pytest.mark.slow
def test_an_interrupt_after_a_termination_ends_it_at_once(bench: Make) -> None:
    b = bench(cases=40)
    b.fault("hang:after=20,seconds=60")
    process = start(b.args(), b.folder)
    b.until(26, process)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    assert _ended(b, process).code == 143
    _resumed(b, 40)


@pytest.mark.slow
def test_a_hang_up_that_is_ignored_stays_so(bench: Make) -> None:
    """What `nohup` does: the run goes on without its terminal."""
    b = bench(cases=40)
    b.server.latency_ms = 50
    process = start(b.args(), b.folder, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    b.until(20, process)
    process.send_signal(signal.SIGHUP)
    assert _ended(b, process).code == 0


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_there_is_a_run(bench: Make, number: signal.Signals) -> None:
    """While it is composed: the same code, a line, the command to start again, no traceback."""
    b = bench(cases=3)
    (b.folder / "slow_plugin.py").write_text("import pathlib, time\npathlib.Path('here').touch()\ntime.sleep(30)\n")
    process = start(
        b.args("plugins=[slow_plugin]", "+metrics.mine.class=slow_plugin.Mine"),
        b.folder,
        env={"PYTHONPATH": f"{b.folder}{os.pathsep}{ROOT}"},
    )
    deadline = time.monotonic() + 30
    while not (b.folder / "here").exists():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(number)
    text, _ = process.communicate(timeout=20)
    assert process.returncode == 128 + number, text
    assert "Traceback" not in text
    assert {2: "interrupted", 15: "terminated", 1: "the terminal was closed"}[number] in text
    assert "to go on where it stopped: python -m ragpipe" in text


@pytest.mark.slow
def test_a_termination_lets_short_calls_land(bench: Make) -> None:
    b = bench(cases=60)
    b.server.latency_ms = 150
    process = start(b.args(), b.folder)
    b.until(20, process)
    process.send_signal(signal.SIGTERM)
    ran = _ended(b, process)
    assert ran.code == 143
    assert all(r["written"] for r in b.server.log)
    _resumed(b, 60)


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("fault", ["429:after=20,retry_after=35", pytest.param("500:after=20", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_an_interrupt_does_not_wait_for_tries_to_come(bench: Make, fault: str) -> None:
    """Calls that wait for their next try are not in flight: an interrupt does not sit the pause out."""
    b = bench(cases=40)
    b.fault(fault)
    process = start(b.args("judge.retries=20"), b.folder)
    b.until(21, process)  # one refusal holds everybody back
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    ran = _ended(b, process)
    assert ran.code == 130
    b.options = ["judge.retries=20"]
    _resumed(b, 40)


@pytest.mark.slow
def test_an_interrupt_does_not_wait_for_another_run(bench: Make) -> None:
    """Two runs with the same questions: the second waits for what the first is asking for, but not when it is told to end."""
    b = bench(cases=30)
    b.fault("hang:after=10,seconds=60")
    first = start([*b.args(), "name=one"], b.folder)
    b.until(16, first)  # eight in flight, of which one or two may wait for the first answer of their kind
    second = start([*b.args(), "name=two"], b.folder)
    try:
        deadline = time.monotonic() + 30
        while not list((b.folder / "out" / "two").glob("*/iteration-1/journal.jsonl")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.5)
        second.send_signal(signal.SIGINT)
        assert _ended(b, second).code == 130
    finally:
        first.kill()
        first.wait()


@pytest.mark.thorough(tried=2)
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("wait_s", [0.3, 0.8, 1.2, 1.6, 2.0, 2.5, 3.0])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_any_moment(bench: Make, wait_s: float, number: signal.Signals) -> None:
    """Also before there is a run, and while it is being written: no traceback, a code that says so, resumable."""
    b = bench(cases=30)
    b.server.latency_ms = 20
    process = start(b.args(), b.folder)
    time.sleep(wait_s)
    process.send_signal(number)
    text, _ = process.communicate(timeout=30)
    # the interpreter itself may still be starting, or ending after the last word was said
    alone = wait_s < 0.5 or "next:" in text or "report:" in text
    assert process.returncode in (0, 128 + number, *([-number] if alone else [])), text
    swallowed = (
        "Exception ignored in" in text
    )  # outside of the judging a SIGINT may hit a finalizer: Python drops it there
    if not swallowed and (number != signal.SIGINT or process.returncode >= 0):
        assert "Traceback" not in text
    _resumed(b, 30)
