"""A job of a sweep that submitit's signal ends at any moment: it is put into the queue again, and is no fault of a metric's."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.harness import Server, arguments, environment, write_cases
from tests.support.waiting import HANGS_AFTER_S

pytestmark = pytest.mark.slow
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
