"""The methods of a run against the first one: the figures of `compare=methods`, from each column once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ragpipe.comparing.comparison import compare_sides, method_differences
from ragpipe.comparing.settings import CompareSettings
from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.settings import ScoringSettings
from ragpipe.store.run.run_folder import RunFolder
from tests.support.compared_runs import GRADE, graded, scored_run, side_of
from tests.support.run_tables import Row

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

BASE = {f"q{n}": 0.25 for n in range(8)}
NEW = {**{sample: 0.75 if n % 2 else 0.5 for n, sample in enumerate(BASE)}, "q8": 1.0}


def methods_of(run: RunFolder) -> dict | None:
    return method_differences([run.iteration(1).records], json.loads(run.final.metrics.read_text()))


def test_the_first_method_in_the_data_is_the_base(tmp_path: Path) -> None:
    """`z` comes first. Of `a` 8 cases are shared, with differences .5 and .25 in turn: mean .375; q8 has no partner."""
    run = scored_run(tmp_path, [*graded(BASE, "z"), *graded(NEW, "a")])
    found = methods_of(run)
    assert found is not None
    assert (found["base"], list(found["candidates"])) == ("z", ["a"])
    score = found["candidates"]["a"]["grade"]
    assert (score["n"], score["base_mean"], score["candidate_mean"], score["difference"]) == (8, 0.25, 0.625, 0.375)
    assert (score["wins"], score["ties"], score["losses"], score["state"]) == (8, 0, 0, "better")


@pytest.mark.slow
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
    assert found is not None
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


def test_a_score_that_the_first_method_never_has_is_not_compared(tmp_path: Path) -> None:
    rows = [Row(sample, "closed", {"grade": ("skipped", "retrieves_nothing")}) for sample in BASE]
    found = methods_of(scored_run(tmp_path, [*rows, *graded(NEW, "a")]))
    assert found is not None
    score = found["candidates"]["a"]["grade"]
    assert (score["n"], score["difference"], score["reason"]) == (0, None, "no_pairs")
