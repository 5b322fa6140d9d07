"""Failure modes compared case by case: a mode is a value of 0 or 1, less is better, and the figures are those of any paired difference."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from ragpipe.comparison.history import HistoryRun, history_rows, run_drops
from ragpipe.comparison.settings import CompareSettings
from ragpipe.core.score import ScoreSpec
from ragpipe.score.settings import ScoringSettings
from ragpipe.store.run_folder import RunFolder
from tests.support.compared_runs import IDENTITY, compared, scored_run, side_of
from tests.support.run_tables import Row

pytestmark = pytest.mark.slow
GRADE = ScoreSpec("grade", metric="grade")
SCORING = ScoringSettings(
    weights={"grade": 1.0},
    thresholds={"grade": 0.5},
    failure_modes={"low": {"score": "grade", "below": 0.5}, "long": {"field": "answer_chars", "above": 100}},  # type: ignore[dict-item]
    fill_defaults=False,
)
FAILED = ("error", "unparsable: no JSON")


def run(root: Path, grades: Sequence[Any], *, long: int = 0, says: str | None = None, **identity: Any) -> RunFolder:
    """A case per grade, of which the first `long` have an answer of more than 100 characters; the others are `says`, or by the grade."""
    answers = [f"{n} " * 60 if n < long else says or f"Worth {grade}." for n, grade in enumerate(grades)]
    rows = [
        Row(f"q{n:03}", "m", {"grade": grade}, {"category": "xy"[n % 2]}, {"answer": answer})
        for n, (grade, answer) in enumerate(zip(grades, answers, strict=True))
    ]
    own = {**IDENTITY, "scoring": SCORING.identity(), **identity}
    return scored_run(root, rows, specs=[GRADE], scoring=SCORING, identity=own, run_id=root.name * 12)


def modes_of(base: RunFolder, candidate: RunFolder, **settings: Any) -> Mapping[str, Any]:
    return compared(base, candidate, **settings).document["failure_modes"]


def test_a_mode_is_a_paired_difference_of_zeros_and_ones(tmp_path: Path) -> None:
    """Of 40 cases 12 are low, then 3 of these and 1 other: the interval is Student's of the 40 differences."""
    before = [0.0] * 12 + [1.0] * 28
    after = [0.0] * 3 + [0.75] * 9 + [0.25] + [0.75] * 27
    mode = modes_of(run(tmp_path / "a", before), run(tmp_path / "b", after))["low"]
    differences = np.array([0.0] * 3 + [-1.0] * 9 + [1.0] + [0.0] * 27)
    interval = stats.t.interval(0.95, 39, differences.mean(), stats.sem(differences))
    assert (mode["base_mean"], mode["candidate_mean"], mode["difference"]) == (0.3, 0.1, pytest.approx(-0.2))
    assert (mode["base_n"], mode["candidate_n"], mode["n"], mode["higher_is_better"]) == (12, 4, 40, False)
    assert (mode["interval"]["low"], mode["interval"]["high"]) == (pytest.approx(interval[0]), pytest.approx(interval[1]))
    assert mode["p_value"] == pytest.approx(stats.binomtest(1, 10).pvalue), "10 changed: the signs are tried"
    assert (mode["state"], mode["wins"], mode["losses"]) == ("better", 9, 1)
    assert (mode["flips"]["to_failed"], len(mode["flips"]["to_passed"])) == ([["q012", "m", 1]], 9)
    rate = stats.binomtest(12, 40).proportion_ci(method="wilson")
    assert (mode["base_interval"]["low"], mode["base_interval"]["high"]) == (pytest.approx(rate.low), pytest.approx(rate.high))


@pytest.mark.parametrize(("before", "after", "state", "reason"), [
    pytest.param(200, 200, "same", None, id="nothing changed in 200 cases"),
    pytest.param(40, 40, "inconclusive", "few_changed", id="nothing changed in 40: .98^40 = .45 had hidden a rise of .02"),
    pytest.param(200, 195, "inconclusive", "few_changed", id="5 of 200 rose"),
    pytest.param(200, 188, "worse", None, id="12 of 200 rose, by more than .02"),
])  # fmt: skip
def test_two_points_are_the_smallest_rise_that_matters(tmp_path: Path, before: int, after: int, state: str, reason: str | None) -> None:
    grades = [0.25] * (before - after) + [1.0] * after
    mode = modes_of(run(tmp_path / "a", [1.0] * before), run(tmp_path / "b", grades))["low"]
    assert (mode["state"], mode["reason"], mode["smallest_effect"]) == (state, reason, 0.02)


@pytest.mark.parametrize(("base", "candidate", "reason"), [
    pytest.param({"grades": [1.0] * 60}, {"grades": [FAILED] * 12 + [0.0] * 20 + [1.0] * 28}, "values_lost", id="judgements that failed"),
    pytest.param({"grades": [1.0] * 60, "says": "."}, {"grades": [0.0] * 60, "says": "."}, "judge_moved", id="equal answers"),
])  # fmt: skip
def test_what_takes_the_verdict_on_a_score_takes_that_on_its_modes(tmp_path, base, candidate, reason) -> None:
    modes = modes_of(run(tmp_path / "a", **base), run(tmp_path / "b", **candidate))
    assert (modes["low"]["state"], modes["low"]["reason"]) == ("inconclusive", reason)
    assert modes["long"]["state"] in ("same", "inconclusive"), "no judge decides how long an answer is"
    assert modes["long"]["lost"] == {"base": {}, "candidate": {}}


def test_another_rule_is_no_judge_that_moved(tmp_path: Path) -> None:
    """The answers and grades are the same, the limit is another: the mode rose by what is counted."""
    other = {**SCORING.identity(), "failure_modes": {"low": {"score": ["grade"], "below": 0.9}}}
    base = run(tmp_path / "a", [0.25] * 10 + [1.0] * 50)
    candidate = run(tmp_path / "b", [0.25] * 10 + [1.0] * 50, scoring=other)
    assert modes_of(base, candidate)["low"]["reason"] != "judge_moved"


LOW, HIGH = [0.25, 0.25, 0.75, 1.0] * 15, [0.5, 0.5, 0.9, 1.0] * 15
SAME = [1.0, 0.75] * 30


@pytest.mark.parametrize(("base", "candidate", "code", "words"), [
    pytest.param({"grades": SAME}, {"grades": SAME, "long": 20}, "mode_rose", "long rose from 0.0 % to 33.3 %", id="only a mode rose"),
    pytest.param({"grades": SAME, "long": 20}, {"grades": SAME}, "mode_fell", "long fell from 33.3 % to 0.0 %", id="only a mode fell"),
    pytest.param({"grades": LOW}, {"grades": HIGH, "long": 20}, "mode_rose", "long rose", id="the score rose, and a mode too"),
    pytest.param({"grades": LOW, "long": 20}, {"grades": HIGH}, None, "better: grade", id="the score says it"),
    pytest.param({"grades": HIGH}, {"grades": LOW, "long": 20}, None, "worse: grade", id="the score says it, of a fall"),
])  # fmt: skip
def test_the_first_line_names_a_mode_where_no_score_says_it(tmp_path, base, candidate, code, words) -> None:
    verdict = compared(run(tmp_path / "a", **base), run(tmp_path / "b", **candidate)).document["verdict"]
    codes = [reason["code"] for reason in verdict["reasons"] if reason["code"].startswith("mode_")]
    assert codes == ([code] if code else [])
    assert words in verdict["sentence"]
    assert verdict["score"] == "grade"


def test_several_modes_are_decided_together_and_slices_say_where(tmp_path: Path) -> None:
    """6 of 6 changes to the worse have p .03125: enough for one mode, not for two (Holm)."""
    base = run(tmp_path / "a", [1.0] * 60)
    alone = modes_of(base, run(tmp_path / "b", [0.25] * 6 + [1.0] * 54))
    both = modes_of(base, run(tmp_path / "c", [0.25] * 6 + [1.0] * 54, long=6))
    assert (alone["low"]["state"], alone["low"]["p_adjusted"]) == ("worse", pytest.approx(2 / 2**6))
    assert (both["low"]["state"], both["low"]["reason"]) == ("inconclusive", "several_scores")
    assert both["low"]["p_adjusted"] == pytest.approx(4 / 2**6)
    found = modes_of(base, run(tmp_path / "d", [0.25, 1.0] * 30))["low"]["slices"]
    assert [(row["value"], row["base_mean"], row["candidate_mean"], row["state"]) for row in found] == [
        ("x", 0.0, 1.0, "worse"), ("y", 0.0, 0.0, "inconclusive"),
    ]  # fmt: skip


def history_run(folder: RunFolder, day: int, **identity: Any) -> HistoryRun:
    manifest = json.loads(folder.manifest.read_text())
    manifest |= {"created_at": f"2026-01-{day:02d}T00:00:00.000+00:00", "identity": {**manifest["identity"], **identity}}
    folder.manifest.write_text(json.dumps(manifest))
    return HistoryRun(folder, manifest)


def test_a_history_has_a_row_per_mode_against_the_run_before(tmp_path: Path) -> None:
    """12, 4 and 4 of 40 are low; the third run was judged by another model."""
    grades = [0.25] * 12 + [1.0] * 28, [0.25] * 4 + [0.75] * 36, [0.25] * 4 + [0.75] * 36
    folders = [run(tmp_path / name, values) for name, values in zip("abc", grades, strict=True)]
    runs = [history_run(folder, day) for day, folder in enumerate(folders[:2], 1)]
    runs.append(history_run(folders[2], 3, judge_identity={"model": "m-2"}))
    rows = [row for row in history_rows(runs, CompareSettings()) if row["kind"] == "failure_mode" and row["score"] == "low"]
    assert [(row["mean"], row["before_mean"], row["before_state"], row["headline"]) for row in rows] == [
        (0.3, None, None, False), (0.1, 0.3, "better", False), (0.1, None, None, False),
    ]  # fmt: skip
    assert [row["before_difference"] for row in rows][1] == pytest.approx(-0.2)


@pytest.mark.parametrize(("before", "after", "rose"), [
    ({"grades": [1.0] * 60}, {"grades": [0.25] * 12 + [1.0] * 48}, ["low"]),
    ({"grades": [0.25] * 12 + [1.0] * 48}, {"grades": [1.0] * 60}, []),
    ({"grades": [1.0] * 60, "long": 10}, {"grades": [1.0] * 60, "long": 12}, []),
    ({"grades": [1.0] * 60}, {"grades": [1.0] * 60, "long": 12}, ["long"]),
])  # fmt: skip
def test_a_mode_that_rose_is_a_drop_of_its_own_kind(tmp_path: Path, before: dict[str, Any], after: dict[str, Any], rose: list[str]) -> None:
    folders = run(tmp_path / "a", **before), run(tmp_path / "b", **after)
    with side_of(folders[0]) as base, side_of(folders[1]) as candidate:
        drops = run_drops(base, candidate, CompareSettings()).drops
    found = [drop for drop in drops if drop.kind == "failure_mode"]
    assert [drop.score for drop in found] == rose
    for drop in found:
        assert (drop.base, drop.candidate, drop.difference) == (0.0, 0.2, pytest.approx(0.2))
        assert list(drop.lowest[:3]) == [0, 1, 2], "the cases that have it now come first"
