"""Comparisons of small runs by hand: differences, verdicts, flips, slices, what only one side has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ragpipe.comparing.comparison import COMPARED_CASES_SCHEMA, compare_sides, compared_cases, comparison_document
from ragpipe.comparing.score_differences import PairedScore
from ragpipe.comparing.settings import CompareSettings
from ragpipe.core.errors import ConfigError, DataError
from ragpipe.reports.comparison_summary import look_lines
from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.settings import ScoringSettings
from tests.support.compared_runs import GRADE, IDENTITY, compared, graded, scored_run, side_of
from tests.support.run_tables import Row

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

BASE = {f"q{n}": 0.25 for n in range(8)}
ACCEPTED: dict[str, Any] = {"accept": ["data"]}


@pytest.mark.slow
def test_a_run_that_is_better_everywhere(tmp_path: Path) -> None:
    """Differences .5 and .25 in turn: mean .375; all 8 signs alike: p = 2 / 2^8."""
    base = scored_run(tmp_path / "a", graded(BASE))
    values = {sample: 0.75 if n % 2 else 0.5 for n, sample in enumerate(BASE)}
    comparison = compared(base, scored_run(tmp_path / "b", graded(values)))
    score = comparison.document["scores"]["grade"]
    assert (score["n"], score["questions"], score["changed"]) == (8, 8, 8)
    assert (score["base_mean"], score["candidate_mean"], score["difference"]) == (0.25, 0.625, 0.375)
    assert (score["wins"], score["losses"], score["ties"], score["net_wins"]) == (8, 0, 0, 1.0)
    assert score["p_value"] == 2 / 2**8
    assert score["state"] == "better"
    assert score["verdicts"] == {"both_passed": 0, "both_failed": 0, "to_passed": 8, "to_failed": 0}
    assert comparison.document["flips"]["grade"]["to_passed"][0] == ["q0", "default", 1]
    assert comparison.document["verdict"]["state"] == "better"
    assert comparison.document["cases"] == {"both": 8, "only_base": 0, "only_candidate": 0, "questions": 8}


@pytest.mark.slow
def test_a_win_follows_the_direction_of_the_score(tmp_path: Path) -> None:
    """Where lower is better a rise is a loss, while `difference` stays candidate - base."""
    errors = ScoreSpec(name="grade", low=0, high=1, higher_is_better=False)
    base = scored_run(tmp_path / "a", graded(BASE), specs=[errors])
    new = scored_run(
        tmp_path / "b", graded({sample: 0.5 if n else 0.75 for n, sample in enumerate(BASE)}), specs=[errors]
    )
    score = compared(base, new).document["scores"]["grade"]
    assert score["difference"] == pytest.approx((7 * 0.25 + 0.5) / 8)
    assert (score["wins"], score["losses"], score["net_wins"], score["state"]) == (0, 8, -1.0, "worse")


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


def test_the_same_run_twice_is_inconclusive_with_what_it_could_have_shown(tmp_path: Path) -> None:
    base = scored_run(tmp_path / "a", graded(BASE))
    score = compared(base, base).document["scores"]["grade"]
    assert (score["difference"], score["changed"], score["ties"]) == (0.0, 0, 8)
    assert (score["state"], score["reason"]) == ("inconclusive", "few_changed")
    assert score["interval"]["low"] < 0 < score["interval"]["high"]


def test_shared_cases_alone_are_compared_and_the_others_counted(tmp_path: Path) -> None:
    base = scored_run(tmp_path / "a", graded({"q0": 0.0, "q1": 0.5, "q2": 1.0}))
    new = scored_run(tmp_path / "b", graded({"q1": 0.75, "q2": 1.0, "q3": 0.0, "q4": 0.0}))
    document = compared(base, new, **ACCEPTED).document
    assert document["cases"] == {"both": 2, "only_base": 1, "only_candidate": 2, "questions": 2}
    assert document["scores"]["grade"]["base_mean"] == 0.75
    assert document["scores"]["grade"]["difference"] == 0.125


def test_a_case_without_a_value_on_one_side_is_no_pair(tmp_path: Path) -> None:
    base = scored_run(tmp_path / "a", graded({"q0": 0.0, "q1": 0.5}))
    rows = [Row("q0", "default", {"grade": ("skipped", "no_context")}), Row("q1", "default", {"grade": 1.0})]
    comparison = compared(base, scored_run(tmp_path / "b", rows))
    assert comparison.document["scores"]["grade"]["n"] == 1
    rows_of_grade = [
        row for table in compared_cases([comparison]) for row in table.to_pylist() if row["score"] == "grade"
    ]
    assert [(row["sample_id"], row["base"], row["candidate"], row["difference"]) for row in rows_of_grade] == [
        ("q0", 0.0, None, None),
        ("q1", 0.5, 1.0, 0.5),
    ]
    assert [(row["base_passed"], row["candidate_passed"]) for row in rows_of_grade] == [(False, None), (True, True)]


def test_the_table_has_its_schema(tmp_path: Path) -> None:
    base = scored_run(tmp_path / "a", graded(BASE))
    table = pa.concat_tables(compared_cases([compared(base, base)]))
    assert table.schema == COMPARED_CASES_SCHEMA
    assert len(table) == 2 * len(BASE)  # grade and overall_score


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
    assert document["only_base_scores"] == ["more"]
    assert document["only_candidate_scores"] == []
    assert document["other_scale"] == ["stars"]
    assert list(document["scores"]) == ["grade", "overall_score"]


@pytest.mark.slow
def test_headline_scores_are_decided_together(tmp_path: Path) -> None:
    """Six of six questions up: p = 2/64 = .03125 alone. With a second score that moved at random, and the overall score of both,
    Holm's factor is at least 2."""
    specs = [GRADE, ScoreSpec(name="tone", low=0, high=1)]
    samples = [f"q{n}" for n in range(8)]
    old = [Row(sample, "default", {"grade": 0.5, "tone": 0.5}) for sample in samples]
    new = [
        Row(sample, "default", {"grade": 0.75 if n < 6 else 0.5, "tone": 0.75 if n % 2 else 0.25})
        for n, sample in enumerate(samples)
    ]
    for weights, state, adjusted in (
        ({"grade": 1.0}, "better", 2 / 64),
        ({"grade": 1.0, "tone": 1.0}, "inconclusive", 4 / 64),
    ):
        scoring = ScoringSettings(weights=weights, thresholds={}, fill_defaults=False)
        name = "-".join(weights)
        base, other = (
            scored_run(tmp_path / f"{part}-{name}", rows, specs=specs, scoring=scoring)
            for part, rows in (("a", old), ("b", new))
        )
        document = compared(base, other).document
        score = document["scores"]["grade"]
        assert (score["p_value"], score["headline"], score["state"]) == (2 / 64, True, state)
        family = [document["scores"][name]["p_value"] for name, item in document["scores"].items() if item["headline"]]
        assert len(family) == (1 if len(weights) == 1 else 3)  # the overall score of several parts is one of them
        assert score["p_adjusted"] >= adjusted
        assert document["scores"]["tone"]["headline"] == ("tone" in weights)


@pytest.mark.slow
def test_slices_name_their_field_and_keep_their_numbers(tmp_path: Path) -> None:
    def rows(value: float) -> list[Row]:
        return [
            Row(
                f"q{n}", "default", {"grade": value if n < 8 else 0.5}, labels={"category": "easy" if n < 8 else "hard"}
            )
            for n in range(16)
        ]

    document = compared(scored_run(tmp_path / "a", rows(0.25)), scored_run(tmp_path / "b", rows(0.75))).document
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

    document = compared(
        scored_run(tmp_path / "a", rows(1.0)), scored_run(tmp_path / "b", rows(0.9, cost_usd=0.5))
    ).document
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


def test_a_run_that_is_not_scored_is_no_side(tmp_path: Path) -> None:
    folder = scored_run(tmp_path / "a", graded(BASE))
    folder.final.metrics.unlink()
    with pytest.raises(DataError, match="not scored to its end"), side_of(folder):
        pass


@pytest.mark.slow
def test_where_nothing_is_weighted_or_judged_all_scores_are_the_headline(tmp_path: Path) -> None:
    """Recorded scores of people are diagnostic, weigh nothing and have no threshold: they are compared all the same."""
    people = ScoreSpec(name="grade", low=0, high=1, diagnostic=True)
    scoring = ScoringSettings(weights={"citation": 1.0}, fill_defaults=False)
    base = scored_run(tmp_path / "a", graded(BASE), specs=[people], scoring=scoring)
    new = scored_run(
        tmp_path / "b", graded({sample: 0.0 for sample in BASE} | {"q0": 0.125}), specs=[people], scoring=scoring
    )
    document = compared(base, new).document
    assert document["scores"]["grade"]["headline"]
    assert (document["verdict"]["state"], document["verdict"]["score"]) == ("worse", "grade")
    assert document["verdict"]["sentence"].startswith("worse: grade -0.234")


def test_a_smallest_effect_of_no_score_is_refused_with_the_nearest(tmp_path: Path) -> None:
    base = scored_run(tmp_path / "a", graded(BASE))
    with pytest.raises(ConfigError) as refused:
        compared(base, base, smallest_effect={"graed": 0.1})
    (problem,) = refused.value.problems
    assert (problem.key, problem.fix) == ("compare.smallest_effect.graed", "did you mean grade?")
    assert compared(base, base, smallest_effect={"grade": 0.1, "latency_ms": 5}).document["cases"]["both"] == 8


@pytest.mark.parametrize(
    ("planned", "line"),
    [
        (6, "8 of 6 planned cases: more than were planned, and all of them count"),
        (
            16,
            "8 of 16 planned cases: looked at as 50% of the plan, with intervals at 99.70%",
        ),  # 2.963 (O'Brien-Fleming)
        (100, "8 of 100 planned cases: nothing is decided below a quarter of the plan"),
    ],
)
def test_a_look_is_said(tmp_path: Path, planned: int, line: str) -> None:
    base = scored_run(tmp_path / "a", graded(BASE))
    assert list(look_lines(compared(base, base, planned=planned).document)) == [line]


def test_another_judge_that_was_accepted_is_in_the_verdict(tmp_path: Path) -> None:
    base = scored_run(tmp_path / "a", graded(BASE))
    other = {**IDENTITY, "judge_identity": {"model": "m-2", "temperature": 0}}
    new = scored_run(tmp_path / "b", graded({sample: 0.5 for sample in BASE}), identity=other)
    sentence = compared(base, new, accept=["judge"]).document["verdict"]["sentence"]
    assert sentence.endswith("; not by the answers alone: judge differs")
