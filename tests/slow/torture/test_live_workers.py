"""Runs with a language model whose cases are measured by worker processes: nothing is asked twice, and the tables are those of one
process over the same replies, whoever is killed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ragpipe.engine.runners.slice_process import DRAIN_S
from tests.support.harness import Server, asked_again, committed_in, surplus
from tests.support.live_runs import CONCURRENCY, Place, wait_for_calls
from tests.support.worker_processes import command_of, workers_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WORKERS = ["runner=processes", "runner.workers=3", "runner.slice=4"]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with Server(tmp_path / "log", ("--latency-ms", "60")) as server:
        yield Place(tmp_path, server)


@pytest.mark.thorough
def test_several_workers_ask_each_question_once(place: Place) -> None:
    place.ended("out", *WORKERS)
    requests = place.server.requests()
    assert surplus(place.server) == 0
    assert len({request["peer"] for request in requests}) > 1
    calls = place.progress("out")
    assert (calls["sent"], calls["answered"], calls["inFlight"], calls["failed"]) == (
        len(requests),
        len(requests),
        0,
        0,
    )
    place.same_as_one_process("out")
    place.ended("out", *WORKERS)
    assert len(place.server.requests()) == len(requests)


@pytest.mark.thorough
def test_any_number_of_workers_and_any_slices_give_the_same_bytes_over_the_same_replies(place: Place) -> None:
    place.ended("local")
    asked, local = len(place.server.requests()), place.content("local")
    for workers, largest in (2, 1), (8, 1000):
        place.ended("out", "runner=processes", f"runner.workers={workers}", f"runner.slice={largest}")
        assert place.content("out") == local
        shutil.rmtree(place.folder / "out")
    assert len(place.server.requests()) == asked


@pytest.mark.thorough
def test_workers_take_over_what_an_earlier_run_has_measured(place: Place) -> None:
    place.ended("out")
    asked = len(place.server.requests())
    words = ["metrics=[faithfulness,chunk_faithfulness,groundedness]", "judge.concurrency=4"]
    text = place.ended("out", *WORKERS, *words)
    assert "measured with faithfulness, chunk_faithfulness is taken over" in text
    assert "alone" not in text
    assert len(place.server.requests()) > asked
    assert surplus(place.server) == 0
    content = place.content("out")
    shutil.rmtree(place.folder / "out")
    place.ended("out", *words)
    assert place.content("out") == content


def test_workers_killed_at_random_cost_their_calls_in_flight(place: Place) -> None:
    chance = random.Random(7)
    process = place.started("out", *WORKERS)
    kills = []
    for _ in range(4):
        wait_for_calls(place, process, chance.randint(5, 30))
        if pids := workers_of(process.pid):
            os.kill(chance.choice(pids), signal.SIGKILL)
            kills.append((time.time(), committed_in(place.store)))
    text, _ = process.communicate(timeout=120)
    assert process.returncode == 0, text
    assert "a worker died (signal 9)" in text
    assert len(kills) >= 3
    assert surplus(place.server) <= len(kills) * CONCURRENCY
    assert asked_again(place.server.requests(), kills) == []
    place.same_as_one_process("out")


@pytest.mark.thorough
def test_a_killed_driver_stops_its_workers_and_the_next_start_goes_on(place: Place) -> None:
    process = place.started("out", *WORKERS)
    wait_for_calls(place, process, 60)
    workers = workers_of(process.pid)
    assert len(workers) == 3
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    killed = time.time()
    end = time.monotonic() + 20
    while any(map(command_of, workers)):
        assert time.monotonic() < end
        time.sleep(0.1)
    requests = place.server.requests()
    assert max(request["arrived"] for request in requests) < killed + 10
    assert all(request["written"] for request in requests)  # calls in flight were waited for
    place.ended("out", *WORKERS)
    assert surplus(place.server) == 0
    place.same_as_one_process("out")


@pytest.mark.thorough
def test_ctrl_c_lets_the_calls_of_all_workers_finish(place: Place) -> None:
    process = place.started("out", *WORKERS)
    wait_for_calls(place, process, 60)
    os.kill(process.pid, signal.SIGINT)
    text, _ = process.communicate(timeout=30)
    assert process.returncode == 130, text
    assert "Traceback" not in text
    assert all(request["written"] for request in place.server.requests())
    place.ended("out", *WORKERS)
    assert surplus(place.server) == 0
    place.same_as_one_process("out")


@pytest.mark.thorough
def test_ctrl_c_waits_for_slow_calls_as_one_process_does(tmp_path: Path) -> None:
    """They take longer than workers give them when the run has died."""
    with Server(tmp_path / "log", ("--latency-ms", str(1000 * (DRAIN_S + 3)))) as server:
        place = Place(tmp_path, server)
        process = place.started("out", *WORKERS)
        while place.progress("out").get("sent", 0) < CONCURRENCY - 2:
            assert process.poll() is None
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGINT)
        text, _ = process.communicate(timeout=60)
        assert process.returncode == 130, text
        assert "Traceback" not in text
        requests = server.requests()
        assert len(requests) >= CONCURRENCY - 2
        assert all(request["written"] for request in requests)
        assert f"{len(requests)} sent, {len(requests)} answered" in text


@pytest.mark.thorough
def test_a_provider_that_refuses_the_key_ends_the_run_as_in_one_process(tmp_path: Path) -> None:
    with Server(tmp_path / "log", ("--fault", "401:rate=1")) as server:
        place = Place(tmp_path, server)
        alone = place.ended("alone", code=5)
        text = place.ended("out", *WORKERS, code=5)
        errors = [next(line for line in each.splitlines() if "RAGPIPE_TEST_KEY" in line) for each in (alone, text)]
        assert errors[0] == errors[1]


@pytest.mark.thorough
def test_limits_hold_over_all_workers(place: Place) -> None:
    place.ended("out", *WORKERS)
    assert max(request["in_flight"] for request in place.server.requests()) <= CONCURRENCY


def test_a_budget_is_exact_over_all_workers(place: Place) -> None:
    text = place.ended("out", *WORKERS, "judge.budget.calls=70", code=4)
    assert len(place.server.requests()) == 70
    assert "judge.budget.calls=70 is used up: 70 calls spent in all starts of this run" in text
    assert "judge.budget.calls=140" in text
    text = place.ended("out", *WORKERS, "judge.budget.calls=100", code=4)
    assert len(place.server.requests()) == 100
    place.ended("out", *WORKERS)
    assert surplus(place.server) == 0
    place.same_as_one_process("out")
