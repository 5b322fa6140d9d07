"""A run against the one before it: pairs where the questions are the same, two samples where they are not."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ragpipe.comparing.run_drops import RunDrops, run_drops
from ragpipe.comparing.settings import CompareSettings
from tests.support.compared_runs import IDENTITY, graded, scored_run, side_of

Values = Mapping[str, float]


def drops_of(tmp_path: Path, before: Values, after: Values, **candidate: Any) -> RunDrops:
    base = scored_run(tmp_path / "base", graded(before))
    new = scored_run(tmp_path / "new", graded(after), run_id="000000000002", **candidate)
    with side_of(base) as one, side_of(new) as other:
        return run_drops(one, other, CompareSettings())


def day(name: str, n: int, good: int) -> Values:
    """`n` questions of a day, of which the first `good` have the value 1 and the others 0."""
    return {f"{name}{number}": float(number < good) for number in range(n)}


@pytest.mark.slow
def test_the_same_questions_are_pairs(tmp_path: Path) -> None:
    """18 of 40 fell by 1: the paired interval is far below 0, and the cases that fell come first."""
    found = drops_of(tmp_path, day("q", 40, 38), day("q", 40, 20))
    (drop,) = found.drops
    assert (drop.score, drop.samples, drop.n) == ("grade", "paired", 40)
    assert drop.difference == pytest.approx(-18 / 40)
    assert (drop.base, drop.candidate) == (pytest.approx(38 / 40), pytest.approx(20 / 40))
    assert drop.interval.high < 0
    assert drop.lowest[:3] == [20, 21, 22]
    assert drop.values[20] == -1


@pytest.mark.slow
def test_other_questions_are_two_samples(tmp_path: Path) -> None:
    """95 of 100 and 70 of 100: by Newcombe's method 10 the difference is -.25, -.35 to -.15."""
    found = drops_of(tmp_path, day("monday", 100, 95), day("tuesday", 100, 70))
    (drop,) = found.drops
    assert (drop.samples, drop.n) == ("independent", 100)
    assert drop.difference == pytest.approx(-0.25)
    assert (drop.interval.low, drop.interval.high) == (pytest.approx(-0.35, abs=0.01), pytest.approx(-0.15, abs=0.01))
    assert drop.lowest[0] == 70


def even(name: str, mean: float) -> Values:
    """100 questions with nearly equal values around a mean."""
    return {f"{name}{number}": mean + (0.01 if number % 2 else -0.01) for number in range(100)}


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (day("a", 100, 95), day("b", 100, 90)),  # the interval holds 0
        pytest.param(day("a", 40, 38), day("a", 40, 35), marks=pytest.mark.slow),  # 3 of 40 changed: fewer than 6
        pytest.param(day("a", 100, 70), day("b", 100, 95), marks=pytest.mark.slow),  # better
        pytest.param(
            even("a", 0.90), even("b", 0.88), marks=pytest.mark.slow
        ),  # beyond chance (the interval is -.03 to -.01), and smaller than matters
        pytest.param(day("a", 4, 4), day("b", 4, 0), marks=pytest.mark.slow),  # of fewer than five questions
    ],
    ids=["chance", "few changed", "better", "too small", "few"],
)
def test_no_drop_is_told_where_there_may_be_none(tmp_path: Path, before: Values, after: Values) -> None:
    assert drops_of(tmp_path, before, after).drops == []


@pytest.mark.slow
def test_an_id_that_is_used_again_for_another_question_is_no_pair(tmp_path: Path) -> None:
    """Both days number their questions from 1; the questions differ."""
    base = scored_run(tmp_path / "base", graded(day("q", 60, 57), labels={"question": "Of Monday?"}))
    new = scored_run(tmp_path / "new", graded(day("q", 60, 30), labels={"question": "Of Tuesday?"}))
    with side_of(base) as one, side_of(new) as other:
        (drop,) = run_drops(one, other, CompareSettings()).drops
    assert drop.samples == "independent"


@pytest.mark.slow
def test_half_of_the_cases_shared_are_pairs_and_fewer_are_not(tmp_path: Path) -> None:
    before = day("q", 40, 38)
    for shared, kind in ((20, "paired"), (19, "independent")):
        old = {f"q{number}": 0.0 for number in range(shared)}
        after = {**old, **{f"new{number}": 0.0 for number in range(40 - shared)}}
        (drop,) = drops_of(tmp_path / str(shared), before, after).drops
        assert (drop.samples, drop.n) == (kind, 20 if kind == "paired" else 40)


@pytest.mark.slow
def test_what_another_judge_measured_is_not_compared(tmp_path: Path) -> None:
    identity = {**IDENTITY, "judge_identity": {"model": "m-2", "temperature": 0}}
    found = drops_of(tmp_path, day("a", 60, 57), day("b", 60, 20), identity=identity)
    assert (found.drops, found.apart) == ([], ["grade"])
