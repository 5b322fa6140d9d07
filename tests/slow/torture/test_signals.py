"""Signals: how long an end takes, its exit code, and that what was answered is never asked again."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from ragpipe.runs.event_loop import TERM_EXIT_S
from tests.support.checks import Bench, Ran
from tests.support.harness import ROOT, start
from tests.support.waiting import HANGS_AFTER_S, wait_until

Make = Callable[..., Bench]


def _started(b: Bench, *words: str, **popen: Any) -> subprocess.Popen[str]:
    with open(b.folder / "said", "w", encoding="utf-8") as said:
        return start(b.args("judge.timeout_s=3600", *words), b.folder, stdout=said, **popen)


def _said(b: Bench) -> str:
    return (b.folder / "said").read_text(encoding="utf-8")


def _ended(b: Bench, process: subprocess.Popen[str]) -> Ran:
    process.wait(HANGS_AFTER_S)
    return b.ran(process.returncode, _said(b))


def _resumed(b: Bench, cases: int) -> None:
    answered = {r["body"] for r in b.server.log if r["status"] == 200 and r["written"]}
    b.fault()
    ran = b.run()
    assert ran.code == 0
    assert not answered & set(ran.bodies)
    assert [row["status"] for row in ran.rows()] == ["ok"] * cases


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@pytest.mark.parametrize(("first", "said"), [(signal.SIGINT, "interrupt again"), (signal.SIGTERM, "terminated: no new calls")])
def test_an_interrupt_after_a_first_signal_ends_it_at_once(bench: Make, first: signal.Signals, said: str) -> None:
    b = bench(cases=40)
    b.fault("hang:after=20")
    process = _started(b)
    b.until(26, process)
    process.send_signal(first)
    wait_until(lambda: said in _said(b), process)
    if first == signal.SIGINT:
        time.sleep(0.5)
        assert process.poll() is None, "after one it waits for calls in flight"
    process.send_signal(signal.SIGINT)
    ran = _ended(b, process)
    assert ran.code == 128 + first
    assert "python -m ragpipe" in ran.text
    _resumed(b, 40)


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@pytest.mark.parametrize(("number", "word"), [(signal.SIGTERM, "terminated"), (signal.SIGHUP, "the terminal was closed")])
def test_a_termination_ends_it_before_a_container_is_killed(bench: Make, number: signal.Signals, word: str) -> None:
    """`docker stop` kills after ten seconds."""
    assert TERM_EXIT_S < 10
    b = bench(cases=40)
    b.fault("hang:after=20")
    process = _started(b)
    b.until(26, process)
    process.send_signal(number)
    ran = _ended(b, process)
    assert ran.code == 128 + number
    assert f"{word}: no new calls" in ran.text
    assert "python -m ragpipe" in ran.text
    _resumed(b, 40)


@pytest.mark.slow
def test_a_hang_up_that_is_ignored_stays_so(bench: Make) -> None:
    """What `nohup` does: the run goes on without its terminal."""
    b = bench(cases=40)
    b.server.latency_ms = 50
    process = _started(b, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    b.until(20, process)
    process.send_signal(signal.SIGHUP)
    assert _ended(b, process).code == 0


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_there_is_a_run(bench: Make, number: signal.Signals) -> None:
    """While it is composed: the same code, a line, the command to start again, no traceback."""
    b = bench(cases=3)
    (b.folder / "slow_plugin.py").write_text("import pathlib, time\npathlib.Path('here').touch()\ntime.sleep(3600)\n")
    words = ("plugins=[slow_plugin]", "+metrics.mine.class=slow_plugin.Mine")
    process = _started(b, *words, env={"PYTHONPATH": f"{b.folder}{os.pathsep}{ROOT}"})
    wait_until(lambda: (b.folder / "here").exists(), process)
    process.send_signal(number)
    code, text = process.wait(HANGS_AFTER_S), _said(b)
    assert code == 128 + number, text
    assert "Traceback" not in text
    assert {2: "interrupted", 15: "terminated", 1: "the terminal was closed"}[number] in text
    assert "to go on where it stopped: python -m ragpipe" in text


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_an_end_lets_short_calls_land_and_says_how_to_go_on(bench: Make, number: signal.Signals) -> None:
    b = bench(cases=60)
    b.server.latency_ms = 150
    process = _started(b)
    b.until(20, process)
    process.send_signal(number)
    ran = _ended(b, process)
    assert ran.code == 128 + number
    assert "python -m ragpipe" in ran.text
    assert all(r["written"] for r in b.server.log)
    _resumed(b, 60)


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("fault", ["429:after=20,retry_after=60", pytest.param("500:after=20", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_an_interrupt_does_not_wait_for_tries_to_come(bench: Make, fault: str) -> None:
    """Calls that wait for their next try are not in flight: an interrupt does not sit the pause out."""
    b = bench(cases=40)
    b.fault(fault)
    process = _started(b, "judge.retries=20")
    wait_until(lambda: len(b.server.log) > 20, process)  # one refusal holds everybody back
    pause_ends = b.server.log[20]["done"] + 60
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    ran = _ended(b, process)
    assert time.time() < pause_ends
    assert ran.code == 130
    b.options = ["judge.retries=20"]
    _resumed(b, 40)


@pytest.mark.slow
def test_an_interrupt_does_not_wait_for_another_run(bench: Make) -> None:
    """Two runs with the same questions: the second waits for what the first is asking for, but not when it is told to end."""
    b = bench(cases=30)
    b.fault("hang:after=10")
    first = start([*b.args(), "name=one"], b.folder)
    b.until(16, first)  # eight in flight, of which one or two may wait for the first answer of their kind
    second = _started(b, "name=two")
    try:
        wait_until(lambda: list((b.folder / "out" / "two").glob("*/iteration-1/journal.jsonl")), second)
        time.sleep(0.5)
        second.send_signal(signal.SIGINT)
        assert _ended(b, second).code == 130
    finally:
        first.kill()
        first.wait()


@pytest.mark.thorough(tried=2)
@pytest.mark.slow
@pytest.mark.parametrize("wait_s", [0.3, 0.8, 1.2, 1.6, 2.0, 2.5, 3.0])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_any_moment(bench: Make, wait_s: float, number: signal.Signals) -> None:
    """Also before there is a run, and while it is being written: no traceback, a code that says so, resumable."""
    b = bench(cases=30)
    b.server.latency_ms = 20
    process = _started(b)
    time.sleep(wait_s)
    process.send_signal(number)
    process.wait(HANGS_AFTER_S)
    text = _said(b)
    # the interpreter itself may still be starting, before the first word is said, or ending after the last one
    alone = not text.partition("Traceback")[0].strip() or "next:" in text or "report:" in text
    assert process.returncode in (0, 128 + number, *([-number] if alone else [])), text
    swallowed = "Exception ignored in" in text  # outside of the judging a SIGINT may hit a finalizer: Python drops it there
    if not swallowed and (number != signal.SIGINT or process.returncode >= 0):
        assert "Traceback" not in text
    _resumed(b, 30)
