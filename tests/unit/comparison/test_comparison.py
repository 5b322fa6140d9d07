"""Comparisons of small runs by hand: differences, verdicts, flips, slices, what only one side has."""

import json
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragpipe.comparison.comparison import compare_sides, compared_cases, comparison_document, method_differences
from ragpipe.comparison.headline import headline_scores
from ragpipe.comparison.score_differences import PairedScore
from ragpipe.comparison.settings import CompareSettings
from ragpipe.core.errors import ConfigError, DataError
from ragpipe.core.score import ScoreSpec
from ragpipe.score.settings import ScoringSettings
from ragpipe.store.run_folder import RunFolder
from tests.support.compared_runs import GRADE, IDENTITY, compared, graded, scored_run, side_of
from tests.support.run_tables import Row

pytestmark = pytest.mark.slow
BASE = {f"q{n}": 0.25 for n in range(8)}
ACCEPTED: dict[str, Any] = {"accept": ["data"]}


def test_a_run_that_is_better_everywhere(tmp_path: Path) -> None:
    """Differences .5 and .25 in turn: mean .375; all 8 signs alike: p = 2 / 2^8."""
    base = scored_run(tmp_path / "a", graded(BASE))
    values = {sample: 0.75 if n % 2 else 0.5 for n, sample in enumerate(BASE)}
    comparison = compared(base, scored_run(tmp_path / "b", graded(values)))
    score = comparison.document["scores"]["grade"]
    assert (score["n"], score["questions"], score["changed"]) == (8, 8, 8)
    assert (score["base_mean"], score["candidate_mean"], score["difference"]) == (0.25, 0.625, 0.375)
    assert (score["wins"], score["losses"], score["ties"], score["net_wins"]) == (8, 0, 0, 1.0)
    assert (score["p_value"], score["state"]) == (2 / 2**8, "better")
    assert score["verdicts"] == {"both_passed": 0, "both_failed": 0, "to_passed": 8, "to_failed": 0}
    assert comparison.document["flips"]["grade"]["to_passed"][0] == ["q0", "default", 1]
    assert comparison.document["verdict"]["state"] == "better"
    assert comparison.document["cases"] == {"both": 8, "only_base": 0, "only_candidate": 0, "questions": 8}


@pytest.mark.parametrize(("higher_is_better", "net_wins"), [(True, 0.5), (False, -0.5)])
def test_verdicts_flips_and_wins_of_four_cases(higher_is_better: bool, net_wins: float) -> None:
    """The first falls, the second rises; a case that passes in half of its iterations neither passed nor failed. Of the values three
    rise and one falls: (3 - 1) / 4."""
    nothing, values = np.full(4, np.nan), np.array([0.5, 0.25, 0.5, 0.25])
    score = PairedScore(
        "grade", {"low": 0.0, "high": 1.0, "higher_is_better": higher_is_better}, np.arange(4), values, np.array([0.25, 0.5, 0.75, 0.5]),
        np.array([1.0, 0.0, 0.5, 1.0]), np.array([0.0, 1.0, 1.0, 1.0]),
    )  # fmt: skip
    assert [cases.tolist() for cases in score.flips()] == [[1], [0]]
    verdict = score.decided(CompareSettings())
    assert score.document(verdict)["net_wins"] == net_wins
    assert score.document(verdict)["verdicts"] == {"both_passed": 1, "both_failed": 0, "to_passed": 1, "to_failed": 1}
    assert replace(score, candidate=nothing).decided(CompareSettings()) is None


def test_only_shared_cases_with_values_are_compared(tmp_path: Path) -> None:
    base = scored_run(tmp_path / "a", graded({"q0": 0.0, "q1": 0.5, "q2": 1.0}))
    new = scored_run(tmp_path / "b", graded({"q1": 0.75, "q2": 1.0, "q3": 0.0, "q4": 0.0}))
    document = compared(base, new, **ACCEPTED).document
    assert document["cases"] == {"both": 2, "only_base": 1, "only_candidate": 2, "questions": 2}
    assert document["scores"]["grade"]["base_mean"] == 0.75
    assert document["scores"]["grade"]["difference"] == 0.125
    base = scored_run(tmp_path / "a", graded({"q0": 0.0, "q1": 0.5}))
    rows = [Row("q0", "default", {"grade": ("skipped", "no_context")}), Row("q1", "default", {"grade": 1.0})]
    comparison = compared(base, scored_run(tmp_path / "b", rows))
    assert comparison.document["scores"]["grade"]["n"] == 1
    rows_of_grade = [row for table in compared_cases([comparison]) for row in table.to_pylist() if row["score"] == "grade"]
    names = ("sample_id", "base", "candidate", "difference", "base_passed", "candidate_passed")
    assert [tuple(row[name] for name in names) for row in rows_of_grade] == [
        ("q0", 0.0, None, None, False, None), ("q1", 0.5, 1.0, 0.5, True, True),
    ]  # fmt: skip


def by_category(cases: int, **values: float) -> list[Row]:
    """Eight cases of the first category, the others of the second, each with the value of its category."""
    names, answer = list(values), {"answer": f"Worth {values}."}
    categories = [names[n >= 8] for n in range(cases)]
    return [Row(f"q{n}", "default", {"grade": values[name]}, {"category": name}, answer) for n, name in enumerate(categories)]


def test_a_fallen_slice_is_in_the_first_line(tmp_path: Path) -> None:
    base, new = by_category(40, hard=1.0, easy=0.25), by_category(40, hard=0.5, easy=0.75)
    document = compared(scored_run(tmp_path / "a", base), scored_run(tmp_path / "b", new)).document
    assert document["verdict"]["state"] == "better"
    assert "; worse in category = hard: -0.500" in document["verdict"]["sentence"]


def _answered(values: Sequence[float], same: int, **more: Any) -> list[Row]:
    """A row per value; of the first `same` the answer does not depend on the value."""
    answers = ["An answer." if n < same else f"Worth {value}." for n, value in enumerate(values)]
    return [Row(f"q{n}", "default", {"grade": v}, output={"answer": answers[n]}, **more) for n, v in enumerate(values)]


@pytest.mark.parametrize(("same", "new", "state", "reason"), [
    pytest.param(40, [0.25] * 40, "inconclusive", "judge_moved", id="all answers equal, all grades lower"),
    pytest.param(40, [0.5] * 36 + [0.25, 0.75] * 2, "inconclusive", "few_changed", id="all equal, noise"),
    pytest.param(20, [0.25] * 40, "inconclusive", "judge_moved", id="half equal, all lower"),
    pytest.param(20, [0.5] * 20 + [0.25] * 20, "worse", None, id="half equal, the others lower"),
    pytest.param(20, [0.75, 0.25] * 10 + [0.25] * 20, "worse", None, id="half equal with noise, the others lower"),
])  # fmt: skip
def test_equal_answers_with_other_grades_are_the_judges_difference(tmp_path, same, new, state, reason) -> None:
    base, other = scored_run(tmp_path / "a", _answered([0.5] * 40, same)), scored_run(tmp_path / "b", _answered(new, same))
    document = compared(base, other).document
    score, sentence = document["scores"]["grade"], document["verdict"]["sentence"]
    assert (score["state"], score["reason"]) == (state, reason)
    assert score["equal_answers"]["n"] == same
    assert sentence.startswith(f"the judge moved: {same} of 40 answers are the same") == (reason == "judge_moved")


def test_recorded_scores_of_equal_answers_are_no_judges(tmp_path: Path) -> None:
    """A metric without a prompt asks no judge: its values come with the data."""
    recorded = deepcopy(dict(IDENTITY))
    recorded["metrics"]["grade"]["prompts"] = {}
    base, other = (scored_run(tmp_path / f"{value}", _answered([value] * 40, 40), identity=recorded) for value in (0.5, 0.25))
    assert compared(base, other).document["scores"]["grade"]["state"] == "worse"


@pytest.mark.parametrize(("silent", "rest", "state", "reason"), [
    pytest.param(24, 0.5, "inconclusive", "states_nothing", id="better only where nothing is stated"),
    pytest.param(24, 0.75, "better", None, id="better where both state something too"),
    pytest.param(24, 0.25, "worse", "states_nothing", id="better only by silence, worse where it speaks"),
    pytest.param(40, 0.5, "inconclusive", "states_nothing", id="states nothing at all"),
])  # fmt: skip
def test_refusing_does_not_win(tmp_path: Path, silent: int, rest: float, state: str, reason: str | None) -> None:
    def mute(n: int) -> Row:
        return Row(f"q{n}", "default", {"grade": (1.0, "no_factual_claims")}, output={"answer": "I do not know."})

    base = scored_run(tmp_path / "a", _answered([0.5] * 40, 0))
    speaking = [Row(f"q{n}", "default", {"grade": rest}, output={"answer": f"{rest}"}) for n in range(silent, 40)]
    document = compared(base, scored_run(tmp_path / "b", [*(mute(n) for n in range(silent)), *speaking])).document
    score = document["scores"]["grade"]
    assert (score["state"], score["reason"]) == (state, reason)
    assert (score["silent"]["base"], score["silent"]["candidate"], score["silent"]["n"]) == (0, silent, 40 - silent)
    assert document["verdict"]["sentence"].startswith(f"{silent} of 40 answers of the new run state nothing (0 of the base)")


def test_methods_of_one_run(tmp_path: Path) -> None:
    rows = [*graded({"q0": 0.0, "q1": 0.5, "q2": 0.5}, "old"), *graded({"q0": 0.5, "q1": 0.5}, "new")]
    folder = scored_run(tmp_path / "a", rows)
    with side_of(folder, "old") as old, side_of(folder, "new") as new:
        assert (len(old.cases), len(new.cases)) == (3, 2)
        assert new.values("grade")[0].tolist() == [0.5, 0.5]
        assert (old.document()["method"], new.document()["method"]) == ("old", "new")
    with pytest.raises(DataError, match="no method 'newer'"), side_of(folder, "newer"):
        pass


def test_scores_of_one_run_and_scores_on_another_scale_are_named(tmp_path: Path) -> None:
    specs = [GRADE, ScoreSpec(name="more", low=0, high=1), ScoreSpec(name="stars", low=0, high=5)]
    rows = [Row("q0", "default", {"grade": 0.5, "more": 1.0, "stars": 3.0})]
    base = scored_run(tmp_path / "a", rows, specs=specs)
    new_specs = [GRADE, ScoreSpec(name="stars", low=1, high=5)]
    new = scored_run(tmp_path / "b", [Row("q0", "default", {"grade": 0.5, "stars": 3.0})], specs=new_specs)
    document = compared(base, new).document
    assert (document["only_base_scores"], document["only_candidate_scores"]) == (["more"], [])
    assert document["other_scale"] == ["stars"]
    assert list(document["scores"]) == ["grade", "overall_score"]


def test_headline_scores_are_decided_together(tmp_path: Path) -> None:
    """Six of six questions up: p = 2/64 = .03125 alone. With a second score that moved at random, and the overall score of both,
    Holm's factor is at least 2."""
    specs = [GRADE, ScoreSpec(name="tone", low=0, high=1)]
    values = [{"grade": 0.75 if n < 6 else 0.5, "tone": 0.75 if n % 2 else 0.25} for n in range(8)]
    old = [Row(f"q{n}", "default", {"grade": 0.5, "tone": 0.5}) for n in range(8)]
    new = [Row(f"q{n}", "default", value, output={"answer": "New."}) for n, value in enumerate(values)]
    sides = (("a", old), ("b", new))
    for weights, state, adjusted in (({"grade": 1.0}, "better", 2 / 64), ({"grade": 1.0, "tone": 1.0}, "inconclusive", 4 / 64)):
        scoring = ScoringSettings(weights=weights, thresholds={}, fill_defaults=False)
        base, other = (scored_run(tmp_path / name, rows, specs=specs, scoring=scoring) for name, rows in sides)
        document = compared(base, other).document
        score = document["scores"]["grade"]
        assert (score["p_value"], score["headline"], score["state"]) == (2 / 64, True, state)
        family = [document["scores"][name]["p_value"] for name, item in document["scores"].items() if item["headline"]]
        assert len(family) == (1 if len(weights) == 1 else 3)  # the overall score of several parts is one of them
        assert score["p_adjusted"] >= adjusted
        assert document["scores"]["tone"]["headline"] == ("tone" in weights)


def test_slices_name_their_field_and_keep_their_numbers(tmp_path: Path) -> None:
    base, new = by_category(16, easy=0.25, hard=0.5), by_category(16, easy=0.75, hard=0.5)
    document = compared(scored_run(tmp_path / "a", base), scored_run(tmp_path / "b", new)).document
    slices = {(row["field"], row["value"], row["score"]): row for row in document["slices"]}
    easy, hard = slices["category", "easy", "grade"], slices["category", "hard", "grade"]
    assert (easy["n"], easy["questions"], easy["difference"], easy["state"]) == (8, 8, 0.5, "better")
    assert easy["p_value"] == 2 / 2**8
    assert easy["q_value"] == pytest.approx(2 / 2**8)  # of two that can decide, both alike (grade and overall_score)
    assert (hard["difference"], hard["p_value"], hard["q_value"], hard["state"]) == (0.0, None, None, "inconclusive")
    assert ("method", "default", "grade") not in slices  # one value only


def test_latency_and_cost_stand_beside_the_scores(tmp_path: Path) -> None:
    """Latency falls by 100 ms of 1,000 and 50 ms of 500; cost was recorded for the candidate alone."""

    def rows(factor: float, **usage: float) -> list[Row]:
        return [
            Row(f"q{n}", "default", {"grade": 0.5}, output={
                "timings": {"retrieval_ms": 600 * factor, "generation_ms": (400 if n % 2 else -100) * factor},
                "usage": usage,
            })
            for n in range(8)
        ]  # fmt: skip

    document = compared(scored_run(tmp_path / "a", rows(1.0)), scored_run(tmp_path / "b", rows(0.9, cost_usd=0.5))).document
    assert list(document["operations"]) == ["latency_ms"]
    latency = document["operations"]["latency_ms"]
    assert (latency["base_mean"], latency["difference"]) == (pytest.approx(750), pytest.approx(-75))
    assert (latency["wins"], latency["state"], latency["smallest_effect"]) == (8, "better", pytest.approx(75))
    assert "latency_ms" in document["verdict"]["sentence"]


def test_the_document_names_its_sides(tmp_path: Path) -> None:
    base = scored_run(tmp_path / "a", graded(BASE))
    settings = CompareSettings()
    with side_of(base) as old, side_of(base) as new:
        document = comparison_document("runs", old, [new], compare_sides(old, [new], settings), settings)
    assert document["base"]["run_id"] == "000000000001"
    assert document["headline"] == ["grade"]  # the overall score of one part is that part
    assert [item["candidate"] for item in document["comparisons"]] == [0]


def test_what_no_comparison_takes(tmp_path: Path) -> None:
    base = scored_run(tmp_path / "a", graded(BASE))
    base.final.metrics.unlink()
    with pytest.raises(DataError, match="not scored to its end"), side_of(base):
        pass
    base = scored_run(tmp_path / "a", graded(BASE))
    with pytest.raises(ConfigError) as refused:
        compared(base, base, smallest_effect={"graed": 0.1})
    (problem,) = refused.value.problems
    assert (problem.key, problem.fix) == ("compare.smallest_effect.graed", "did you mean grade?")
    assert compared(base, base, smallest_effect={"grade": 0.1, "latency_ms": 5}).document["cases"]["both"] == 8
    other = {**IDENTITY, "judge_identity": {"model": "m-2", "temperature": 0}}
    new = scored_run(tmp_path / "b", graded({sample: 0.5 for sample in BASE}), identity=other)
    sentence = compared(base, new, accept=["judge"]).document["verdict"]["sentence"]
    assert sentence.startswith("not by the answers alone: judge differs; ")


def test_where_nothing_is_weighted_or_judged_all_scores_are_the_headline(tmp_path: Path) -> None:
    """Recorded scores of people are diagnostic, weigh nothing and have no threshold: they are compared all the same."""
    people = ScoreSpec(name="grade", low=0, high=1, diagnostic=True)
    scoring = ScoringSettings(weights={"citation": 1.0}, fill_defaults=False)
    base = scored_run(tmp_path / "a", graded(BASE), specs=[people], scoring=scoring)
    new = scored_run(tmp_path / "b", graded({sample: 0.0 for sample in BASE} | {"q0": 0.125}), specs=[people], scoring=scoring)
    document = compared(base, new).document
    assert document["scores"]["grade"]["headline"]
    assert (document["verdict"]["state"], document["verdict"]["score"]) == ("worse", "grade")
    assert document["verdict"]["sentence"].startswith("worse: grade -0.234")


def methods_of(run: RunFolder) -> dict | None:
    return method_differences(run, [run.iteration(1).records], json.loads(run.final.metrics.read_text()))


def test_they_are_those_of_a_comparison_of_methods(tmp_path: Path) -> None:
    """Three methods in mixed order, two weighed scores, repeats, and cases without a value."""
    specs = [GRADE, ScoreSpec(name="other", low=0, high=1)]
    values = {"a": 0.2, "b": 0.5, "c": 0.3}
    rows = [
        Row(f"q{n}", method, {
            "grade": ("skipped", "none") if (n, method) == (3, "c") else value + n % 3 / 10, "other": 1 - value * (n % 4) / 4,
        }, repeat=repeat)
        for n in range(12) for method, value in values.items() for repeat in (1, 2) if (n, method) != (5, "b")
    ]  # fmt: skip
    settings = ScoringSettings(weights={"grade": 2, "other": 1}, thresholds={"grade": 0.5}, fill_defaults=False)
    run = scored_run(tmp_path, rows, specs=specs, scoring=settings)
    found = methods_of(run)
    with side_of(run, "a") as base, side_of(run, "b") as b, side_of(run, "c") as c:
        comparisons = compare_sides(base, [b, c], CompareSettings())
    for method, comparison in zip("bc", comparisons, strict=True):
        headline = {name: score for name, score in comparison.document["scores"].items() if score["headline"]}
        assert found["candidates"][method] == headline
        assert list(headline) == ["overall_score", "grade", "other"]


@pytest.mark.parametrize("methods", [("a",), ("a", "b")])
def test_one_method_is_compared_with_nobody(tmp_path: Path, methods: tuple[str, ...]) -> None:
    run = scored_run(tmp_path, [row for method in methods for row in graded(BASE, method)])
    assert (methods_of(run) is None) == (len(methods) == 1)


VALUES = {"q1": 0.25, "q2": 0.5, "q3": 0.75}


def changed(**parts: Any) -> dict[str, Any]:
    identity = deepcopy(dict(IDENTITY))
    metric = identity["metrics"]["grade"]
    for key, value in parts.items():
        (metric if key in metric else identity)[key] = value
    return identity


@pytest.fixture
def base(tmp_path: Path) -> RunFolder:
    return scored_run(tmp_path / "base", graded(VALUES))


JUDGE = {"judge_identity": {"model": "m-2", "temperature": 0}}
PROMPT = {"prompts": {"ask": "b" * 64}}


@pytest.mark.thorough(tried=3)
@pytest.mark.parametrize(("parts", "part", "says"), [
    (JUDGE, "judge", "judge.model"),
    (JUDGE, "judge", "m-1 -> m-2"),
    (PROMPT, "prompts", "grade/ask.v1@aaaaaaaa -> grade/ask.v1@bbbbbbbb"),
    ({"version": 2}, "metrics", "grade.version"),
    ({"parameters": {"history": False}}, "metrics", "grade.parameters.history"),
    ({"parser": 4}, "parser", "3 -> 4"),
    ({"embedder": {"kind": "minilm"}}, "embedder", "embedder.kind"),
])  # fmt: skip
def test_what_differs_is_refused_and_named(base: RunFolder, tmp_path: Path, parts: dict[str, Any], part: str, says: str) -> None:
    prompts = {"grade/ask.v1@bbbbbbbb": "b" * 64}
    other = scored_run(tmp_path / "other", graded(VALUES), identity=changed(**parts), prompts=prompts)
    with pytest.raises(ConfigError) as refused:
        compared(base, other)
    assert says in str(refused.value)
    assert f"compare.accept=[{part}]" in str(refused.value)
    assert refused.value.exit_code == 2
    document = compared(base, other, accept=[part]).document
    assert {(row["part"], row["accepted"]) for row in document["differs"]} == {(part, True)}


def test_what_is_no_difference_of_the_other(base: RunFolder, tmp_path: Path) -> None:
    other = scored_run(tmp_path / "other", graded(VALUES), identity=changed(**JUDGE, **PROMPT))
    with pytest.raises(ConfigError, match=r"compare.accept=\[judge,prompts\]"):
        compared(base, other)
    with pytest.raises(ConfigError, match=r"compare.accept=\[judge,prompts\]") as refused:
        compared(base, other, accept=["judge"])
    assert "m-1 -> m-2" not in str(refused.value)
    identity = changed(system={"kind": "http"}, scoring={"weights": {"grade": 2.0}})
    document = compared(base, scored_run(tmp_path / "other", graded(VALUES), identity=identity)).document
    differs = {("answers", "system.kind"), ("scoring", "scoring.weights.grade"), ("scoring", "scoring")}
    assert {(row["part"], row["key"]) for row in document["differs"]} == differs
    identity = changed()
    identity["metrics"] = {**identity["metrics"], "tone": {"class": "Tone", "version": 9, "parameters": {}, "prompts": {}}}
    assert compared(base, scored_run(tmp_path / "other", graded(VALUES), identity=identity)).document["differs"] == []
    other = scored_run(tmp_path / "other", graded(dict(reversed(VALUES.items()))))
    assert compared(base, other).document["differs"] == []


@pytest.mark.parametrize(("rows", "says"), [
    (graded({"q1": 0.25, "q2": 0.5}), "1 in the base only -> 0 in the candidate only"),
    (graded({**VALUES, "q4": 0.5}), "0 in the base only -> 1 in the candidate only"),
    (graded(VALUES, labels={"references": ["Paris"]}), "references"),
    (graded(VALUES, labels={"question": "Why?"}), "3 of 3 shared samples, first q1"),
])  # fmt: skip
def test_other_data_is_refused(base: RunFolder, tmp_path: Path, rows: list[Any], says: str) -> None:
    other = scored_run(tmp_path / "other", rows)
    with pytest.raises(ConfigError) as refused:
        compared(base, other)
    assert says in str(refused.value)
    assert "compare.accept=[data]" in str(refused.value)
    assert compared(base, other, accept=["data"]).document["differs"][0]["part"] == "data"


def test_a_weighted_score_without_a_value_is_no_headline() -> None:
    """Else the first sentence is about it, and says that nothing is known."""

    def spec(threshold: float | None) -> dict[str, Any]:
        return {"threshold": threshold, "low": 0.0, "diagnostic": False}

    metrics = {
        "scoring": {"weights_used": {"weighted": 1.0}}, "composite_parts": {},
        "declared": {"weighted": spec(None), "bounded": spec(0.8), "other": spec(None)},
        "overall": {"scores": {"weighted": {"n_ok": 0}, "bounded": {"n_ok": 3}, "other": {"n_ok": 3}}},
    }  # fmt: skip
    assert headline_scores(metrics, metrics, list(metrics["declared"])) == ["bounded"]
    metrics["scoring"]["gates"] = {"g": {"score": "weighted"}}
    assert headline_scores(metrics, metrics, list(metrics["declared"])) == ["weighted"]
