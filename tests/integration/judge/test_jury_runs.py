"""Whole runs by several judges at a local server: who is asked what, what is paid, and what the tasks after the run make of it.

Calls are counted from the server's own log.
"""

import json
import re
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ragpipe.cli.command_line import main
from ragpipe.testing.openai_server import OpenAIServer, serving
from tests.support.harness import rows, start, write_cases
from tests.support.waiting import wait_for_hang_up, wait_until

pytestmark = pytest.mark.slow

CASES = 12
MODELS = {name: f"m-{name}-2026-01-01" for name in "abc"}


def graded(name: str, score: int, match: str = "Criteria of the rubric", **options: Any) -> dict[str, Any]:
    """What member `name` replies to a question about the rubric."""
    return {"match": match, "model": f"^m-{name}", "reply": json.dumps({"reason": "r", "score": score}), **options}


class Court:
    def __init__(self, folder: Path, server: OpenAIServer):
        self.folder, self.server = folder, server
        self.data = write_cases(folder / "cases.jsonl", CASES)

    def words(self, *extra: str, members: str = "abc", metrics: str = "rubric") -> list[str]:
        words = ["dataset=jsonl", f"dataset.path={self.data}", f"metrics=[{metrics}]", "name=court", "output_dir=out"]
        for name in members:
            words.append(f"+judge@jury.members.{name}=llm")
            words += [f"jury.members.{name}.{word}" for word in self.model(name)]
        return [*words, *extra]

    def model(self, name: str) -> list[str]:
        return [
            f"model=openai/{MODELS[name]}", f"api_base={self.server.url}", "endpoint=test", "api_key_env=RAGPIPE_TEST_KEY",
            "prices={input: 1.0, output: 2.0}",
        ]  # fmt: skip

    def run(self, *words: str) -> int:
        return main(list(words))

    @property
    def latest(self) -> Path:
        return self.folder / "out" / "court" / "latest"

    def calls(self) -> Counter[str]:
        """Requests by model; no body was sent twice."""
        assert max(Counter((line["model"], line["body"]) for line in self.server.log).values(), default=0) <= 1
        return Counter(line["model"] for line in self.server.log)

    def metrics(self) -> dict[str, Any]:
        return json.loads((self.latest / "iteration-1" / "metrics.json").read_text())

    def scores(self, metric: str = "rubric") -> list[dict[str, Any]]:
        found = [row for row in rows(self.latest / "iteration-1" / "scores.parquet") if row["metric"] == metric]
        return [{**row, "details": json.loads(row["details"] or "{}")} for row in found]


@pytest.fixture
def court(here: Path) -> Iterator[Court]:
    with serving(script=[graded("a", 4), graded("b", 2), graded("c", 5)]) as server:
        yield Court(here, server)


def test_each_member_judges_every_case_and_later_tasks_ask_nothing(court: Court, capsys: pytest.CaptureFixture[str]) -> None:
    assert court.run("task=plan", *court.words()) == 0
    assert "member b: 12 cases, about 12 new calls" in capsys.readouterr().out
    assert court.run(*court.words()) == 0
    assert court.calls() == dict.fromkeys(MODELS.values(), CASES)
    assert {row["value"] for row in court.scores()} == {11 / 3}
    jury = court.metrics()["jury"]
    assert jury["members"]["b"] == "openai/m-b-2026-01-01@test"
    assert jury["scores"]["rubric"]["means"] == {"a": 4, "b": 2, "c": 5}
    assert jury["scores"]["rubric"]["unanimous"] == 0
    costs = json.loads((court.latest / "iteration-1" / "cost.json").read_text())
    replies = {name: cost["replies"] for name, cost in costs["used"]["by_judge"].items()}
    assert replies == {f"openai/{model}@test": CASES for model in MODELS.values()}
    spent = sum(line["usage"]["prompt_tokens"] + 2 * line["usage"]["completion_tokens"] for line in court.server.log)
    assert costs["spent"]["usd"] == pytest.approx(spent / 1e6)
    assert court.run(*court.words()) == 0
    assert court.run("task=rescore", f"run={court.latest}", "scoring.thresholds.rubric=3") == 0
    assert court.run("task=verify", f"run={court.latest}") == 0
    capsys.readouterr()
    assert court.run("task=explain", f"run={court.latest}", "case=q00003", "metric=rubric") == 0
    assert "mean of a 4, b 2, c 5" in capsys.readouterr().out
    # a member alone finds its replies, because a jury asks what it would ask alone
    alone = [f"judge.{word}" for word in court.model("b")]
    assert court.run(*court.words("judge=llm", *alone, members="")) == 0
    assert {row["value"] for row in court.scores()} == {2}
    assert sum(court.calls().values()) == 3 * CASES


def test_a_killed_jury_goes_on_and_asks_nothing_twice(court: Court, tmp_path: Path) -> None:
    court.server.latency_ms = 60
    words = court.words(*(f"jury.members.{name}.concurrency=3" for name in MODELS), metrics="rubric,faithfulness")
    process = start(words, tmp_path)
    wait_until(lambda: court.server.arrivals >= 40, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_for_hang_up(court.server.url)
    wait_until(lambda: not court.server.in_flight)
    answered = {(line["model"], line["body"]) for line in court.server.log if line["written"]}
    before = len(court.server.log)
    court.server.latency_ms = 0
    assert court.run(*words) == 0
    again = [(line["model"], line["body"]) for line in court.server.log[before:]]
    assert len(again) == len(set(again))
    assert len(answered.intersection(again)) <= 9, "only what was in flight, nine requests at most"
    assert {row["status"] for row in court.scores() + court.scores("faithfulness")} == {"ok"}


def test_the_members_are_shown_items_in_orders_of_their_own(court: Court, capsys: pytest.CaptureFixture[str]) -> None:
    write_cases(court.data, CASES, chunks=4)
    assert court.run(*court.words("jury.members.b.shuffle_seed=7", members="ab", metrics="context_precision")) == 0
    shown: dict[str, set[tuple[str, ...]]] = {"a": set(), "b": set()}
    for row in rows(court.latest / "iteration-1" / "judge_inputs.parquet"):
        text = json.loads(row["messages"])[-1]["content"]
        shown["a" if MODELS["a"] in row["judge"] else "b"].add(tuple(re.findall(r"Passage (\d) of case", text)))
    assert shown["a"] == {tuple("0123")}
    assert len(shown["b"]) > 4
    capsys.readouterr()
    assert court.run("task=explain", f"run={court.latest}", "case=q00000", "metric=context_precision") == 0
    assert "jury.members.b.shuffle_seed=7" in capsys.readouterr().out
    assert court.run("task=verify", f"run={court.latest}") == 0


def test_a_metric_may_have_one_judge_and_a_rule_of_its_own(court: Court) -> None:
    words = court.words("+metrics.rubric.aggregation=min", "+metrics.faithfulness.judge=c", metrics="rubric,faithfulness")
    assert court.run(*words) == 0
    assert {row["value"] for row in court.scores()} == {2}
    assert court.calls()[MODELS["a"]] == court.calls()[MODELS["b"]] == CASES
    assert court.calls()[MODELS["c"]] > CASES
    assert {tuple(row["details"]["jury"]["members"]) for row in court.scores("faithfulness")} == {("c",)}


def test_one_judge_is_asked_several_times_and_flagged_where_it_wavers(court: Court) -> None:
    court.server.script.insert(0, graded("a", 1, "Case 3 says", times=1))
    alone = [f"judge.{word}" for word in court.model("a")]
    assert court.run(*court.words("judge=llm", *alone, "jury.repeats=3", members="")) == 0
    assert court.server.arrivals == 3 * CASES
    keys = [row["key"] for row in rows(court.latest / "iteration-1" / "judge_inputs.parquet")]
    assert len(set(keys)) == 3 * CASES
    flagged = [row["sample_id"] for row in court.scores() if "flags" in row["details"]["jury"]]
    assert flagged == ["q00003"]
    assert court.scores()[3]["value"] == 3
    metrics = court.metrics()
    assert metrics["jury"]["scores"]["rubric"]["self_inconsistent"] == 1
    assert any("contradicts itself over its repeats in 1 of 12 cases" in w["text"] for w in metrics["warnings"])
    assert court.run("task=verify", f"run={court.latest}") == 0


def test_a_member_that_fails_leaves_the_others_to_decide(court: Court) -> None:
    court.server.script.insert(0, {"match": ".", "model": "^m-c", "reply": "I would rather not say"})
    assert court.run(*court.words()) == 0
    assert {row["value"] for row in court.scores()} == {3}
    assert court.run(*court.words("jury.min_members=3", "report.formats=[]")) == 4
    assert {row["details"]["kind"] for row in court.scores()} == {"no_majority"}


def test_a_cascade_asks_the_second_where_the_first_is_unsure_and_measures_its_bias(court: Court) -> None:
    court.data = write_cases(court.folder / "cases.jsonl", 120)
    sure = "says (?:[0-9]*[02468]) things"  # even answers, and these are what the first is sure of
    court.server.script[:] = [graded("a", 5, sure), graded("a", 3), graded("b", 4, sure), graded("b", 2)]
    cascade = "jury.cascade={first: a, then: b, near: 0.5, within: 0.2, random_share: 0.7}"
    assert court.run(*court.words(cascade, members="ab")) == 0
    found = court.metrics()["jury"]["scores"]["rubric"]["cascade"]
    assert found["decided_by_second"] == 0.5
    assert court.calls() == {MODELS["a"]: 120, MODELS["b"]: 60 + found["drawn"]}
    by = {row["sample_id"]: row["value"] for row in court.scores()}
    assert set(by.values()) == {5, 2}, "of drawn cases the first counts"
    # the second alone: (4 + 2) / 2 = 3; the cascade: (5 + 2) / 2 = 3.5
    assert found["bias"] == pytest.approx(0.5)
    low, high = found["bias_interval"]
    assert low <= 0.5 <= high


def test_members_are_held_against_people_and_the_best_alone_is_named(court: Court, capsys: pytest.CaptureFixture[str]) -> None:
    records = [json.loads(line) for line in court.data.read_text().splitlines()]
    people = [{**record, "recorded": {"human": 3 + place % 2}} for place, record in enumerate(records)]
    court.data.write_text("".join(json.dumps(record) + "\n" for record in people))
    takes = "metrics.recorded.take={human: {low: 1, high: 5}}"
    assert court.run(*court.words(takes, metrics="rubric,recorded")) == 0
    capsys.readouterr()
    assert court.run("task=calibrate", f"run={court.latest}", "calibrate.recorded={rubric: human}") == 0
    text = " ".join(capsys.readouterr().out.split())
    # people 3 or 4: a 4 is off by .5 of 4 on average, b 2 by 1.5, c 5 by 1.5, their mean 11/3 by .5
    assert "agreement with people on 12 cases: a 0.88, b 0.62, c 0.62, jury 0.88" in text
    assert "a alone is likely better than the jury" in text
    assert "(metrics.rubric.judge=a)" in text
    calibration = json.loads((court.latest / "calibration" / "calibration.json").read_text())
    assert calibration["judge"]["label"] == "jury(a, b, c)"


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize(("words", "said"), [
    (["+metrics.rubric.judge=d"], ["metrics.rubric.judge", "a member: a, b"]),
    (["jury.min_members=3"], ["jury.min_members", "at most the number of members, 2"]),
    (["jury.members.b.model=openai/m-a-2026-01-01"], ["jury.members.b", "the same judge as a"]),
    (["jury.members.a.budget.calls=3"], ["jury.members.a.budget.calls", "jury.budget.calls"]),
    (["jury.cascade={first: a, then: e}"], ["jury.cascade.then", "a member: a, b"]),
    (["jury.members.a.temprature=1"], ["jury.members.a.temprature", "did you mean temperature"]),
    (["+judge@jury.members.d=llm"], ["jury.members.d.model"]),
    (["+judge@jury.members.d=rules", "jury.cascade={first: a, then: b}"], ["jury.members.d", "never asked"]),
])  # fmt: skip
def test_what_cannot_be_is_refused_before_anything_is_asked(court, capsys, words: list[str], said: list[str]) -> None:
    assert court.run(*court.words(*words, members="ab")) == 2
    text = capsys.readouterr().err
    assert all(part in text for part in said), text
    assert not court.server.log


def test_a_metric_cannot_name_a_judge_without_a_jury(court: Court, capsys: pytest.CaptureFixture[str]) -> None:
    assert court.run(*court.words("+metrics.rubric.judge=a", members="")) == 2
    assert "+judge@jury.members.NAME=..." in capsys.readouterr().err


@pytest.mark.thorough
def test_a_folder_judged_by_a_jury_names_no_address_for_a_call(court: Court, capsys: pytest.CaptureFixture[str]) -> None:
    assert court.run(*court.words(members="ab")) == 0
    asked = len(court.server.log)
    for task in ("task=rejudge", "task=selftest", "task=spot_check"):
        assert court.run(task, f"run={court.latest}") == 2
        assert "a judge that you name" in capsys.readouterr().err
    assert len(court.server.log) == asked


def test_one_budget_holds_for_all_members(court: Court) -> None:
    assert court.run(*court.words("jury.budget.calls=20")) == 4
    assert len(court.server.log) == 20
    assert court.run(*court.words("jury.budget.calls=40")) == 0
    assert sum(court.calls().values()) == 3 * CASES


def test_other_members_are_another_judge_for_a_comparison(court: Court, capsys: pytest.CaptureFixture[str]) -> None:
    assert court.run(*court.words(members="ab")) == 0
    first = court.latest.resolve().name
    assert court.run(*court.words(members="ac")) == 0
    capsys.readouterr()
    assert court.run("task=compare", f"base={first}", f"candidate={court.latest.resolve().name}", "output_dir=out") == 2
    assert "members" in capsys.readouterr().err
