"""Signals: how long an end takes, its exit code, and that nothing answered is asked again; also for a job that is preempted."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragpipe.runs.event_loop import TERM_EXIT_S
from tests.support.checks import Bench, Ran
from tests.support.harness import ROOT, Server, arguments, environment, start, write_cases
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


def test_a_hang_up_that_is_ignored_stays_so(bench: Make) -> None:
    """What `nohup` does: the run goes on without its terminal."""
    b = bench(cases=40)
    b.server.latency_ms = 50
    process = _started(b, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    b.until(20, process)
    process.send_signal(signal.SIGHUP)
    assert _ended(b, process).code == 0


@pytest.mark.thorough(tried=1)
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
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
@pytest.mark.parametrize("fault", ["429:after=20,retry_after=60", "500:after=20"])
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


QUEUED = 144  # what submitit's local queue takes for "again"
JOB = f"""
import os, signal, sys, threading, time
import ragpipe.cli.command_line

def queue_again(number, frame):
    print("queued again", flush=True)
    sys.exit({QUEUED})

def preempt():
    time.sleep(float(os.environ["MOMENT"]))
    os.kill(os.getpid(), signal.SIGUSR2)

def run(*args, **named):
    if "MOMENT" in os.environ:
        threading.Thread(target=preempt, daemon=True).start()
    return task(*args, **named)

signal.signal(signal.SIGUSR2, queue_again)
task, ragpipe.cli.command_line._run_task = ragpipe.cli.command_line._run_task, run
sys.exit(ragpipe.cli.command_line.main(["-m", *sys.argv[1:]]))
"""
METRIC = """
import os, signal
from ragpipe import Computed, Metric, Score

def preempt(case):
    if case.sample.id == "q00003" and os.environ.get("PREEMPTED") == "1":
        os.kill(os.getpid(), signal.SIGUSR2)
    return Score(1.0)

class Computes(Computed):
    def compute(self, cases):
        return [preempt(case) for case in cases]

class Judges(Metric):
    async def measure(self, case, judge):
        return preempt(case)
"""


def job(folder: Path, words: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """One start of a sweep of one job, in the process that submitit would start."""
    variables = {"SUBMITIT_EXECUTOR": "local", **variables}
    return subprocess.run(
        [sys.executable, "-c", JOB, *words], cwd=folder, env=environment(**variables), text=True, capture_output=True, timeout=HANGS_AFTER_S
    )  # fmt: skip


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("kind", ["Computes", "Judges"])
def test_within_a_metric_it_is_no_fault_of_the_metric(tmp_path: Path, kind: str) -> None:
    (tmp_path / "odd.py").write_text(METRIC)
    data = write_cases(tmp_path / "cases.jsonl", 8)
    with Server(tmp_path / "server.jsonl") as server:
        words = arguments(data, tmp_path / "out", server.url, f"+metrics.odd.class=odd.{kind}", "plugins=[odd]", metrics="faithfulness")
        ended = job(tmp_path, words, PREEMPTED="1")
        assert ended.returncode == QUEUED, ended.stdout + ended.stderr
        assert ended.stdout.endswith("queued again\n")
        assert "this is a fault" not in ended.stdout + ended.stderr
        again = job(tmp_path, words, PREEMPTED="0")
        assert again.returncode == 0, again.stdout + again.stderr
        assert set(server.bodies().values()) == {1}, "nothing is asked twice"


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("row", range(30))
def test_at_any_moment_the_job_is_queued_again_or_done(tmp_path: Path, row: int) -> None:
    data, moments = write_cases(tmp_path / "cases.jsonl", 10), random.Random(row)
    with Server(tmp_path / "server.jsonl", ["--latency-ms", "30"]) as server:
        words = arguments(data, tmp_path / "out", server.url, concurrency=2, metrics="faithfulness,citation")
        codes = [QUEUED]
        while codes[-1] == QUEUED:
            # each start gets longer than the one before, so that a busy machine ends too
            ended = job(tmp_path, words, MOMENT=str(moments.uniform(0.2, 0.8) * 1.6 ** len(codes)))
            text = ended.stdout + ended.stderr
            codes.append(ended.returncode)
            assert codes[-1] in (0, QUEUED), text
            assert not re.search(r'Traceback.*File "[^"]*/ragpipe/', text, re.DOTALL), (
                text
            )  # an interrupted thread of Python may print its own
            assert "this is a fault" not in text
        twice = sum(count - 1 for count in server.bodies().values())
        assert twice == 0, f"{twice} asked twice in {len(codes) - 1} starts"


def test_what_cannot_be_stopped_is_queued_again_too(tmp_path: Path) -> None:
    """A call that never ends and cannot be cancelled: the process ends before its scheduler kills it."""
    script = f"""
import asyncio, os, signal, sys, time
from ragpipe.runs.event_loop import SignalHandlers, run_async
from ragpipe.runs.event_loop import preemptible

class Deaf:
    def stop(self, why): print(why.signal_number == signal.SIGUSR2)
    def cancel(self): print("cancelled")

async def work():
    with SignalHandlers(Deaf(), lambda text: print(text.split(":")[0], flush=True)):
        os.kill(os.getpid(), signal.SIGUSR2)
        await asyncio.to_thread(time.sleep, 3600)

signal.signal(signal.SIGUSR2, lambda number, frame: sys.exit({QUEUED}))
with preemptible() as preemption:
    print(preemption is not None)
    run_async(work())
"""
    ended = subprocess.run(
        [sys.executable, "-u", "-c", script], cwd=tmp_path, env=environment(SUBMITIT_EXECUTOR="slurm"), text=True,
        capture_output=True, timeout=HANGS_AFTER_S,
    )  # fmt: skip
    assert ended.returncode == QUEUED, ended.stderr
    assert ended.stdout.splitlines()[:4] == ["True", "preempted", "True", "cancelled"]


def test_without_submitit_the_signal_is_left_alone(tmp_path: Path) -> None:
    data = write_cases(tmp_path / "cases.jsonl", 8)
    with Server(tmp_path / "server.jsonl", ["--latency-ms", "100"]) as server:
        words = arguments(data, tmp_path / "out", server.url, concurrency=1, metrics="faithfulness")
        process = subprocess.Popen([sys.executable, "-m", "ragpipe", *words], cwd=tmp_path, env=environment())
        while len(server.requests()) < 2:
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGUSR2)
        assert process.wait(timeout=HANGS_AFTER_S) == -signal.SIGUSR2
