"""Deadlines of a case and of a start, as the server's log and the files of the run show them."""

from collections import Counter
from collections.abc import Callable

import pytest

from tests.support.bench import bench, server
from tests.support.checks import ZEBRA, Bench, Ran

__all__ = ["bench", "server"]

pytestmark = pytest.mark.slow  # whole runs, several per test
Make = Callable[..., Bench]


def faithfulness(ran: Ran) -> dict[str, object]:
    return ran.json("iteration-1/metrics.json")["overall"]["scores"]["faithfulness"]


def asked_once(b: Bench) -> bool:
    """Whether no question was answered twice."""
    return set(Counter(line["body"] for line in b.server.log if line["status"] == 200).values()) == {1}


def test_a_start_ends_at_its_deadline_with_what_it_has(bench: Make) -> None:
    """120 cases of two questions at 0.2 s, four at once: 12 s. After 6 s nothing more is asked."""
    b = bench(cases=120)
    b.server.latency_ms = 200
    ran = b.run("judge.run_deadline_s=6", "scoring.coverage_floor=0", concurrency=4)
    assert ran.code == 4, ran.text
    arrived = [line["arrived"] for line in ran.requests]
    assert max(arrived) - min(arrived) <= 6.0
    score = faithfulness(ran)
    kinds = Counter(row["status"] for row in ran.rows() if row["metric"] == "faithfulness")
    assert (score["n_ok"], score["n_error"]) == (kinds["ok"], kinds["error"])
    assert 0 < kinds["ok"] < 120
    assert kinds["ok"] + kinds["error"] == 120
    assert score["errors"] == {"run_deadline": kinds["error"]}
    assert ran.state == "incomplete"
    assert "judge.run_deadline_s" in ran.text
    assert {line["status"] for line in ran.requests} == {200}, "what was in flight is waited for"
    again = b.run(concurrency=4)
    assert again.code == 0
    assert len(b.server.log) == 240
    assert asked_once(b)
    assert faithfulness(again)["n_ok"] == 120


def test_waiting_questions_end_at_the_deadline_too(bench: Make) -> None:
    b = bench(cases=6)
    b.fault("429:after=3,retry_after=3600")
    ran = b.run("judge.run_deadline_s=3", "judge.retry_after_cap_s=3600", concurrency=2)
    assert ran.code == 4
    assert "run_deadline" in faithfulness(ran)["errors"]


def test_a_later_iteration_of_the_start_has_no_time_of_its_own(bench: Make) -> None:
    """All calls of one iteration take 9 s at least: two deadlines would show. The first call comes after what has to be imported."""
    b = bench(cases=60)
    b.server.latency_ms = 150
    ran = b.run("judge.run_deadline_s=6", "iterations=2", concurrency=2)
    assert ran.code == 4
    arrived = [line["arrived"] for line in ran.requests]
    assert max(arrived) - min(arrived) <= 6.0


def test_a_case_that_takes_too_long_fails_alone(bench: Make) -> None:
    b = bench(cases=8, zebras=(3,))
    b.fault(f"hang:match={ZEBRA}")
    ran = b.run("judge.case_deadline_s=10", "judge.timeout_s=3600", concurrency=4)
    failed = [row for row in ran.rows() if row["status"] == "error"]
    assert len(failed) == 1
    assert faithfulness(ran)["errors"] == {"case_deadline": 1}
    assert "judge.case_deadline_s=10 s together" in failed[0]["reason"]
    assert (ran.code, ran.state) == (4, "incomplete")
    b.fault()
    again = b.run(concurrency=4)
    assert (again.code, faithfulness(again)["n_ok"]) == (0, 8)
    assert asked_once(b)


def test_the_case_deadline_stands_still_while_the_server_asks_to_wait(bench: Make) -> None:
    b = bench(cases=3)
    b.fault("429:nth=2+5,retry_after=9")
    ran = b.run("judge.case_deadline_s=8", concurrency=2)
    assert (ran.code, faithfulness(ran)["n_ok"]) == (0, 3), ran.text


def test_the_case_deadline_stands_still_while_the_budget_has_no_room(bench: Make) -> None:
    """A request is answered in 0.3 s and a case asks two or three times; twelve cases ask at once, and two or three requests fit."""
    b = bench(cases=12)
    b.server.latency_ms = 300
    words = ("judge.max_tokens=4000", "judge.budget.tokens=30000", "judge.case_deadline_s=1.5")
    ran = b.run(*words, concurrency=12)
    assert (ran.code, faithfulness(ran)["n_ok"]) == (0, 12), ran.text
