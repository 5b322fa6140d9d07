"""Limits hold over all processes that share a store: real processes and a real server, by the server's own log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ragpipe.testing.openai_server import read_log, serving_in_subprocess
from tests.support.asking import VARIABLE
from tests.support.harness import ROOT

Process = subprocess.Popen[str]


def start(folder: Path, url: str, **options: Any) -> Process:
    environment = {**os.environ, VARIABLE: "sk-none-0000", "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "tests.support.limited_process", str(folder), url, json.dumps(options)]
    return subprocess.Popen(words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


def ended(processes: Sequence[Process]) -> Counter[str]:
    """What became of the questions of all of them."""
    counts: Counter[str] = Counter()
    for process in processes:
        text, _ = process.communicate(timeout=60)
        assert process.returncode == 0, text
        counts += Counter(json.loads(text.splitlines()[-1]))
    return counts


def arrivals(log: Path) -> list[float]:
    return sorted(line["arrived"] for line in read_log(log))


def most_in(times: Sequence[float], seconds: float) -> int:
    """The most requests in any window of so many seconds."""
    return max(bisect_left(times, time + seconds) - place for place, time in enumerate(times))


def wait_for(log: Path, requests: int) -> None:
    while not log.exists() or len(read_log(log)) < requests:
        time.sleep(0.05)


def test_five_starts_a_second_over_four_processes_one_of_which_dies(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with serving_in_subprocess("--log", str(log), "--latency-ms", "100") as url:
        judge = {"rpm": 300, "concurrency": 16}
        busy = [start(tmp_path, url, seconds=16, width=4, judge=judge) for _ in range(3)]
        idle = start(tmp_path, url, seconds=16, width=1, idle_s=1.5, judge=judge)
        wait_for(log, 35)
        killed = busy.pop()
        killed.kill()
        killed.communicate()
        ended([*busy, idle])
    times = arrivals(log)
    steady = [time for time in times if times[0] + 3 <= time < times[0] + 15]  # all have started, none has ended
    # a busy machine lets a request arrive some hundredths of a second late: the shorter window allows for it
    assert most_in(times, 0.95) <= 5
    assert most_in(times, 5) <= 25
    # over 95 % on an idle machine; here other tests share the cores, and a start that comes late is not made up for
    assert len(steady) >= 0.9 * 12 * 5


@pytest.mark.thorough
def test_questions_and_requests_are_counted_over_all_processes(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with serving_in_subprocess("--log", str(log), "--latency-ms", "20") as url:
        counts = ended([start(tmp_path, url, seconds=20, width=6, judge={"max_calls": 203}) for _ in range(4)])
        assert len(arrivals(log)) == counts["ok"] == 203
        counts = ended(
            [start(tmp_path / "b", url, seconds=20, width=6, judge={}, budget={"calls": 151}) for _ in range(4)]
        )
        assert len(arrivals(log)) - 203 == counts["ok"] == 151


def test_a_process_that_is_killed_leaves_its_holds_spent(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with serving_in_subprocess("--log", str(log), "--latency-ms", "300") as url:
        options: dict[str, Any] = {"seconds": 30, "width": 4, "judge": {}, "budget": {"calls": 80}}
        processes = [start(tmp_path, url, **options) for _ in range(3)]
        wait_for(log, 20)
        processes[0].kill()
        processes[0].communicate()
        ended(processes[1:])
        time.sleep(0.5)  # what the killed one had sent is answered
    assert len(arrivals(log)) <= 80
    assert len(arrivals(log)) >= 80 - 4, "at most the requests that the killed process had under way"


@pytest.mark.thorough
def test_a_retry_after_that_one_process_meets_holds_all(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    fault = "429:nth=120,retry_after=3"
    with serving_in_subprocess("--log", str(log), "--latency-ms", "100", "--fault", fault) as url:
        ended([start(tmp_path, url, seconds=8, width=2, judge={}) for _ in range(4)])
    refused = next(line for line in read_log(log) if line["status"] == 429)
    waited = [time for time in arrivals(log) if refused["done"] + 0.4 < time < refused["done"] + 2.9]
    assert waited == []
    assert max(arrivals(log)) > refused["done"] + 3


@pytest.mark.thorough
def test_slots_are_shared_and_those_of_the_dead_are_freed(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with serving_in_subprocess("--log", str(log), "--latency-ms", "400") as url:
        processes = [start(tmp_path, url, seconds=10, width=8, judge={"concurrency": 8}) for _ in range(4)]
        wait_for(log, 80)
        processes[0].kill()
        processes[0].communicate()
        died = time.time()
        ended(processes[1:])
    lines = read_log(log)
    # the server still works on what the dead one had sent
    assert max(line["in_flight"] for line in lines if not died - 0.1 < line["arrived"] < died + 0.5) <= 8
    assert used(lines, died + 1, died + 4) >= 0.95 * used(lines, died - 3, died)


def used(lines: list[dict[str, Any]], begin: float, end: float) -> float:
    """The seconds of all requests under way between two times."""
    return sum(max(0.0, min(line["done"], end) - max(line["arrived"], begin)) for line in lines)
