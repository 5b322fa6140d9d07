"""Runs with a language model whose cases Ray measures: nothing is asked twice, and calls in flight finish when the run is stopped."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ragpipe.engine.workers.process_sessions import end_session
from tests.support.harness import Server, surplus
from tests.support.live_runs import CONCURRENCY, Place, wait_for_calls
from tests.support.postgres_server import postgres_server
from tests.support.ray_cluster import RayCluster

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]
pytest.importorskip("ray", reason="Ray is not installed: the extra `ray`")

RAY = ["runner=ray", "runner.workers=2", "runner.slice=6"]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with Server(tmp_path / "log", ("--latency-ms", "60")) as server:
        yield Place(tmp_path, server)


def test_tasks_of_ray_ask_each_question_once_and_obey_the_limits(place: Place) -> None:
    place.ended("out", *RAY)
    requests = place.server.requests()
    assert surplus(place.server) == 0
    assert len({request["peer"] for request in requests}) > 1
    assert max(request["in_flight"] for request in requests) <= CONCURRENCY
    calls = place.progress("out")
    assert (calls["sent"], calls["answered"], calls["inFlight"], calls["failed"]) == (
        len(requests),
        len(requests),
        0,
        0,
    )
    place.same_as_one_process("out")
    assert list((place.folder / "out").rglob(".stop-*")) == []


def test_ctrl_c_lets_the_calls_of_ray_finish(place: Place) -> None:
    process = place.started("out", *RAY)
    wait_for_calls(place, process, 60)
    os.kill(process.pid, signal.SIGINT)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 130, text
    assert "Traceback" not in text
    assert all(request["written"] for request in place.server.requests())
    place.ended("out", *RAY, "judge.budget.calls=1000")
    assert surplus(place.server) == 0
    place.same_as_one_process("out")


def test_a_budget_is_exact_over_tasks_of_ray(place: Place) -> None:
    text = place.ended("out", *RAY, "judge.budget.calls=70", code=4)
    assert len(place.server.requests()) == 70
    assert "judge.budget.calls=140" in text


def test_workers_on_several_machines_need_one_store(place: Place) -> None:
    text = place.ended("out", "runner=ray", "runner.address=127.0.0.1:1")
    assert "runner=ray: workers on several machines need one call store: set store.url" in text


def test_a_node_is_killed_and_the_others_go_on_over_one_database(tmp_path: Path) -> None:
    with (
        Server(tmp_path / "log", ("--latency-ms", "60")) as server,
        postgres_server() as database,
        tempfile.TemporaryDirectory(prefix="ray-") as short,
    ):
        place, cluster = Place(tmp_path, server, database.url), RayCluster(Path(short))
        try:
            cluster.add_node()
            lost = cluster.add_node()
            words = [
                "runner=ray",
                f"runner.address={cluster.address}",
                "runner.slice=5",
                "runner.env_vars=[RAGPIPE_TEST_KEY]",
            ]
            process = place.started("out", *words, **cluster.environment)
            wait_for_calls(place, process, 60)
            end_session(lost)
            text, _ = process.communicate(timeout=120)
        finally:
            cluster.close()
        assert process.returncode == 0, text
        assert "are measured again" in text
        assert surplus(server) <= CONCURRENCY
        assert "sk-sentinel" not in text
        place.same_as_one_process("out")
