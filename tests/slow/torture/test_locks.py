"""Two starts at once: on one folder, on one call store; and what the dead leave behind."""

import os
import signal
import socket
import time
from collections.abc import Callable

import pytest

from tests.support.checks import Bench
from tests.support.harness import start
from tests.support.waiting import HANGS_AFTER_S, wait_until

Make = Callable[..., Bench]


def test_a_second_start_on_a_folder_is_refused_and_a_dead_ones_lock_is_not(bench: Make) -> None:
    b = bench(cases=30)
    b.fault("hang:after=10")
    first = start(b.args(), b.folder)
    try:
        b.until(14, first)
        before = len(b.server.log)
        second = b.run()
        assert second.code == 6
        assert f"process {first.pid} on {socket.gethostname()}" in second.text
        assert "started 20" in second.text
        assert len(b.server.log) == before
    finally:
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    answered = {r["body"] for r in b.server.log if r["status"] == 200 and r["written"]}
    b.fault()
    third = b.run()
    assert third.code == 0
    assert f"took over the lock of process {first.pid}" in third.text
    assert not answered & set(third.bodies)


@pytest.mark.slow
def test_two_runs_at_once_pay_each_question_once(bench: Make) -> None:
    """Other names, so other folders, but the same questions: the call store's claims keep one from asking what the
    other is asking for."""
    b = bench(cases=40)
    b.server.latency_ms = 40
    runs = [
        start([*b.args(concurrency=4), f"name={name}", *extra], b.folder)
        for name, extra in (("one", []), ("two", ["scoring.thresholds.faithfulness=0.5"]))
    ]
    for run in runs:
        text, _ = run.communicate(timeout=HANGS_AFTER_S)
        assert run.returncode == 0, text
    bodies = [r["body"] for r in b.server.log]
    assert len(bodies) == len(set(bodies))
    peers = {r["peer"] for r in b.server.log}
    assert len(peers) <= 2 * (4 + 1)
    alone = b.run(concurrency=4)
    assert (alone.code, alone.requests) == (0, [])


@pytest.mark.slow
def test_one_of_two_dies_and_the_other_asks_for_what_it_had_claimed(bench: Make) -> None:
    b = bench(cases=30)
    b.fault("hang:nth=11+12+13+14")
    first = start([*b.args(concurrency=4), "name=one"], b.folder)
    b.until(14, first)  # all four places of the first wait for a reply, and hold a claim
    second = start([*b.args(concurrency=4), "name=two"], b.folder)
    try:
        wait_until(lambda: list((b.folder / "out" / "two").glob("*/iteration-1/journal.jsonl")), second)
        time.sleep(0.5)
        assert second.poll() is None, "it waits for what the first asks for"
        assert b.server.arrivals == 14
    finally:
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    text, _ = second.communicate(timeout=HANGS_AFTER_S)
    assert second.returncode == 0, text
    twice = [body for body, n in b.ran(0, text).bodies.items() if n > 1]
    assert len(twice) <= 4
