"""Worker processes over PostgreSQL: limits and replies of all of them stand in one database."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.support.harness import Server, surplus
from tests.support.live_runs import CONCURRENCY, Place, wait_for_calls
from tests.support.postgres_server import PostgresServer
from tests.support.slice_runs import until
from tests.support.waiting import HANGS_AFTER_S
from tests.support.worker_processes import workers_of

WORKERS = ["runner=processes", "runner.workers=3", "runner.slice=4"]


@pytest.mark.thorough
def test_a_worker_is_killed_and_its_calls_in_flight_alone_are_asked_again(
    server: PostgresServer, tmp_path: Path
) -> None:
    with Server(tmp_path / "log", ("--latency-ms", "60")) as judge:
        place = Place(tmp_path, judge, f"{server.url}?schema=killed_worker")
        process = place.started("out", *WORKERS)
        wait_for_calls(place, process, 60)
        os.kill(until(lambda: workers_of(process.pid))[0], signal.SIGKILL)
        killed = time.time()
        text, _ = process.communicate(timeout=HANGS_AFTER_S)
        assert process.returncode == 0, text
        assert surplus(judge) <= CONCURRENCY
        # the server still works for half a second on what the killed worker had sent
        counted = [r for r in judge.requests() if not killed - 0.1 < r["arrived"] < killed + 0.5]
        assert max(request["in_flight"] for request in counted) <= CONCURRENCY
        place.same_as_one_process("out")


@pytest.mark.thorough
def test_a_budget_is_exact_over_workers_and_starts(server: PostgresServer, tmp_path: Path) -> None:
    with Server(tmp_path / "log", ("--latency-ms", "20")) as judge:
        place = Place(tmp_path, judge, f"{server.url}?schema=budget")
        place.ended("out", *WORKERS, "judge.budget.calls=70", code=4)
        assert len(judge.requests()) == 70
        place.ended("out", *WORKERS, "judge.budget.calls=90", code=4)
        assert len(judge.requests()) == 90
