"""Faults of a provider, met by a whole run: exit code, bounded requests, what is recorded, and what the next start asks."""

import re
from collections import Counter
from collections.abc import Callable

import pytest

from tests.support.checks import Bench, Ran
from tests.support.harness import environment

pytestmark = pytest.mark.slow  # whole runs, several per test
Make = Callable[..., Bench]
KEY = environment()["RAGPIPE_TEST_KEY"]


def _status(ran: Ran, **wanted: int) -> None:
    reasons = [row["reason"] for row in ran.rows() if row["status"] == "error"]
    assert Counter(row["status"] for row in ran.rows()) == wanted, reasons[:3]


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize(("fault", "words"), [
    ("401", ["RAGPIPE_TEST_KEY", "401"]),
    ("403", ["RAGPIPE_TEST_KEY", "403"]),
    ("404", ["test-model-2026-01-01", "http://127.0.0.1:", "judge.model"]),
    ("quota", ["quota"]),
    ("redirect:to=http://127.0.0.2:9/v1", ["redirect", "127.0.0.2"]),
    ("redirect_loop", ["redirect"]),
    ("429:retry_after=86400", ["86,400", "come back after"]),
    ("503:retry_after=86400", ["86,400", "come back after"]),
])  # fmt: skip
def test_an_unusable_provider_ends_the_run_at_once(bench: Make, fault: str, words: list[str]) -> None:
    b = bench()
    b.fault(fault)
    ran = b.run()
    assert ran.code == 5
    assert len(ran.requests) == 1, "the first call goes alone"
    assert [word for word in words if word not in ran.text] == [], ran.text
    assert KEY not in ran.text
    assert "to go on where it stopped" in ran.text
    b.fault()
    again = b.run()
    assert (again.code, max(again.bodies.values())) == (0, 1)
    _status(again, ok=12)


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("fault", ["401", "404", "quota", "429:retry_after=86400"])
def test_a_provider_that_turns_unusable_keeps_what_it_answered(bench: Make, fault: str) -> None:
    """From the 11th request on: at most those already under way are refused, and none of the answered is asked again."""
    b = bench(cases=24)
    b.fault(f"{fault}{',' if ':' in fault else ':'}after=10")
    ran = b.run(concurrency=4)
    answered = {r["body"] for r in ran.requests if r["status"] == 200}
    assert (ran.code, len(answered)) == (5, 10)
    assert len(ran.requests) <= 10 + 4
    assert max(ran.bodies.values()) == 1, "no try is repeated"
    b.fault()
    again = b.run(concurrency=4)
    assert again.code == 0
    assert not answered & set(again.bodies)
    _status(again, ok=24)


def test_a_bad_request_costs_one_try_and_stays_until_asked_for(bench: Make) -> None:
    b = bench(cases=24, zebras=(3,))
    b.fault("400:match=zebra")
    ran = b.run()
    assert ran.code == 0, ran.text  # 23 of 24 stand above the floor of 0.95
    assert sum(r["status"] == 400 for r in ran.requests) == 1
    _status(ran, ok=23, error=1)
    (row,) = [r for r in ran.rows() if r["status"] == "error"]
    assert row["sample_id"] == "q00003"
    assert "Invalid value for 'messages[0].content'" in row["reason"]
    assert "bad_request" in row["details"]
    assert (ran.coverage["faithfulness"], ran.state) == (pytest.approx(23 / 24), "complete")
    assert b.run().requests == [], "a permanent failure is that case's result"
    b.fault()
    assert b.run().requests == [], "and stays so"
    retried = b.run("retry_errors=true")
    assert retried.code == 0
    assert 1 <= len(retried.requests) <= 3, "the case that failed: its claims, then their verdicts"
    _status(retried, ok=24)
    assert b.run("retry_errors=true").requests == []


def test_a_start_that_has_only_failing_questions_left_gives_its_figures(bench: Make) -> None:
    b = bench(zebras=(1, 5))
    b.fault("500:match=zebra")
    for _ in range(2):
        ran = b.run("judge.retries=1")
        assert ran.code == 4, "the server answered all others: it is not unreachable"
        _status(ran, ok=10, error=2)
        assert Counter(line["status"] for line in ran.requests)[500] == 4, "two questions, two tries each"


def test_too_many_bad_requests_are_incomplete(bench: Make) -> None:
    b = bench(zebras=(1, 5))
    b.fault("422:match=zebra")
    ran = b.run()
    assert ran.code == 4, "10 of 12 stand below the floor of 0.95"
    assert "10 of 12" in ran.text
    assert "exit code 4, by scoring.coverage_floor=0.95: too few of the judgements asked for came out: faithfulness 10 of 12" in ran.text
    assert "retry_errors=true asks again" in ran.text
    _status(ran, ok=10, error=2)
    assert ran.coverage["faithfulness"] == pytest.approx(10 / 12)
    again = b.run()
    assert (again.code, again.requests) == (4, [])


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(("fault", "kind", "words"), [
    ("context_length", "too_long", "maximum context length is 8192"), ("refusal", "refused", "I cannot help with that"),
    ("content_filter", "refused", "content filter"), ("content_filter_400", "refused", "content management policy"),
    ("length", "cut_short", "judge.max_tokens=2048"),
])  # fmt: skip
def test_a_permanent_failure_is_recorded_with_its_kind(bench: Make, fault: str, kind: str, words: str) -> None:
    b = bench(zebras=(2,))
    b.fault(f"{fault}:match=zebra")
    ran = b.run()
    assert ran.code == 4
    _status(ran, ok=11, error=1)
    (row,) = [r for r in ran.rows() if r["status"] == "error"]
    assert row["reason"].startswith(kind)
    assert words in row["reason"]
    assert sum(r["fault"] is not None for r in ran.requests) == 1, "one try"
    assert {r["status"] for r in ran.rows("judge_inputs") if r["sample_id"] == "q00002"} == {kind}
    assert ran.state == "complete"
    assert re.search(r"^to go on where it stopped: .* retry_errors=true$", ran.text, re.MULTILINE)
    assert b.run().requests == []


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("fault", ["not_json", "nan", "wrong_type", "null_value", "missing_keys"])
def test_an_unreadable_reply_gets_one_repair_turn(bench: Make, fault: str) -> None:
    b = bench(zebras=(2,))
    b.fault(f"{fault}:match=zebra")
    ran = b.run()
    assert ran.code == 4
    _status(ran, ok=11, error=1)
    assert sum(r["fault"] is not None for r in ran.requests) == 2, "the question and one repair, never a third"
    (row,) = [r for r in ran.rows() if r["status"] == "error"]
    assert row["reason"].startswith("unparsable")
    turns = [(r["turn"], "unparsable" in r["flags"]) for r in ran.rows("judge_inputs") if r["sample_id"] == "q00002"]
    assert sorted(turns) == [("ask", True), ("repair", True)]
    assert b.run().requests == []


def test_a_repair_that_works_gives_the_score(bench: Make) -> None:
    b = bench(zebras=(2,))
    b.server.script = [{"match": "(?s).*zebra.*", "reply": "no JSON at all", "times": 1}]
    ran = b.run()
    assert ran.code == 0
    _status(ran, ok=12)
    turns = {r["turn"] for r in ran.rows("judge_inputs") if r["sample_id"] == "q00002"}
    assert turns == {"ask", "repair"}


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize("fault", [
    "500", "reset", "html", "502_html", "504", "529", "408", "close_body", "invalid_json", "error_200", "429:retry_after=0",
])  # fmt: skip
def test_a_passing_fault_leaves_the_run_incomplete_and_is_asked_again(bench: Make, fault: str) -> None:
    b = bench(zebras=(2,))
    b.fault(f"{fault}{',' if ':' in fault else ':'}match=zebra")
    ran = b.run("judge.retries=1")
    assert ran.code == 4
    _status(ran, ok=11, error=1)
    assert ran.state == "incomplete"
    assert sum(r["fault"] is not None for r in ran.requests) == 2, "1 + judge.retries"
    assert ran.json("iteration-1/cost.json")["saved"]["calls"] == 0, "a failure saves nothing"
    assert "<html>" not in ran.text
    assert not any("<html>" in (r["reason"] or "") and "502" in r["reason"] for r in ran.rows())
    b.fault()
    again = b.run("judge.retries=1")
    assert again.code == 0
    assert set(again.bodies) & {r["body"] for r in ran.requests if r["fault"]}
    assert not set(again.bodies) & {r["body"] for r in ran.requests if not r["fault"]}, "only what failed"
    _status(again, ok=12)
    assert again.state == "complete"
    assert b.run("judge.retries=1").requests == []


def test_every_request_of_a_flaky_server_is_answered_in_the_end(bench: Make) -> None:
    b = bench(cases=16)
    b.fault("500:rate=0.3,times=4", "reset:rate=0.1,seed=2,times=4")  # no question is unlucky for ever
    ran = b.run("judge.retries=8", metrics="faithfulness,chunk_faithfulness")
    assert ran.code == 0
    _status(ran, ok=32)
    assert max(ran.bodies.values()) <= 9
    answered = [r["body"] for r in ran.requests if r["status"] == 200]
    assert len(answered) == len(set(answered)), "an answered body is not asked again"
    recorded = {r["key"]: r["attempts"] for r in ran.rows("judge_inputs")}
    assert sum(recorded.values()) == len(ran.requests), "the record says how many tries there were"


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("fault", ["hang:match=zebra", "drip:match=zebra,every=0.1"])
def test_a_reply_that_does_not_come_is_given_up_in_time(bench: Make, fault: str) -> None:
    b = bench(zebras=(2,))
    b.fault(fault)
    ran = b.run("judge.timeout_s=1.5", "judge.retries=1")
    assert ran.code == 4
    _status(ran, ok=11, error=1)
    (row,) = [r for r in ran.rows() if r["status"] == "error"]
    assert "judge.timeout_s=1.5" in row["reason"]
    assert ran.state == "incomplete"
    b.fault()
    assert b.run("judge.timeout_s=1.5", "judge.retries=1").code == 0
