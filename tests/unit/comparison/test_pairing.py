"""Pairing of cases: by sample, method and repeat; by sample and repeat where each side has one method."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragpipe.comparison.history import RunDrops, run_drops
from ragpipe.comparison.run_agreement import agreement
from ragpipe.comparison.settings import CompareSettings
from ragpipe.comparison.side import Pairs, paired_cases
from tests.support.compared_runs import IDENTITY, graded, scored_run, side_of


def table(keys: list[tuple[str, str, int]]) -> pa.Table:
    columns = list(zip(*keys, strict=True)) or [(), (), ()]
    kinds = pa.string(), pa.string(), pa.int64()
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.table(arrays, names=["sample_id", "method", "repeat"])


def keys_of(pairs: Pairs) -> list[tuple[str, str, int]]:
    return [tuple(row.values()) for row in pairs.cases.to_pylist()]


def test_cases_meet_by_their_key_and_iteration() -> None:
    base = [("q2", "old", 1), ("q1", "old", 1), ("q1", "new", 1), ("q1", "new", 2)]
    candidate = [("q1", "new", 2), ("q3", "old", 1), ("q1", "old", 1), ("q2", "new", 1)]
    pairs = paired_cases(table(base), table(candidate))
    assert keys_of(pairs) == [("q1", "old", 1), ("q1", "new", 2)]  # in the order of the base
    assert (pairs.base.tolist(), pairs.candidate.tolist()) == ([1, 3], [2, 0])
    assert (pairs.only_base, pairs.only_candidate) == (2, 2)
    assert pairs.questions[0] == pairs.questions[1]
    pairs = paired_cases(table([("q1", "bm25", 1), ("q2", "bm25", 1)]), table([("q2", "dense", 1), ("q1", "dense", 1)]))
    assert keys_of(pairs) == [("q1", "dense", 1), ("q2", "dense", 1)]  # as the candidate names them
    assert (pairs.only_base, pairs.only_candidate) == (0, 0)
    # the candidate's iterations stand in another order; iteration 2 lacks q1 there.
    keys = [("q1", "a", 1), ("q2", "a", 1)]
    base, candidate = table(keys * 2), table([*keys[1:], *keys[::-1]])
    pairs = paired_cases(base.append_column("iteration", [[1, 1, 2, 2]]), candidate.append_column("iteration", [[2, 1, 1]]))
    assert (pairs.base.tolist(), pairs.candidate.tolist()) == ([0, 1, 3], [2, 1, 0])
    assert (pairs.cases["iteration"].to_pylist(), pairs.questions.tolist()) == ([1, 1, 2], [0, 1, 1])
    assert (pairs.only_base, pairs.only_candidate) == (1, 0)


DECLARED = {"low": 0.0, "high": 1.0, "higher_is_better": True, "threshold": 0.5, "n_ok": 4}
SCORES = {"old_scores": {"grade": DECLARED}, "new_scores": {"grade": DECLARED}}
OLD = {1: [("q1", 0.0), ("q2", 0.5)], 2: [("q1", 1.0), ("q2", 0.5)]}
NEW = {1: [("q2", 1.0), ("q1", 0.0)], 2: [("q2", 0.5), ("q1", 0.0), ("q3", 1.0)]}
"""The new run in another order: pairs of (old, new) are (0, 0), (.5, 1), (1, 0), (.5, .5); q3 has no partner."""


def records(folder: Path, iterations: dict[int, list[tuple[str, float]]]) -> dict[int, Path]:
    folder.mkdir()
    paths = {}
    for number, rows in iterations.items():
        names, values = zip(*rows, strict=True)
        columns: dict[str, Any] = {
            "sample_id": names,
            "method": ["default"] * len(rows),
            "repeat": pa.array([1] * len(rows), pa.int64()),
            "grade": values,
            "grade.passed": [value >= 0.5 for value in values],
        }
        paths[number] = folder / f"records-{number}.parquet"
        pq.write_table(pa.table(columns), paths[number])
    return paths


def test_a_judgement_meets_the_same_case_of_the_same_iteration(tmp_path: Path) -> None:
    """Differences 0, .5, -1, 0. Verdicts 0 1 1 1 and 0 1 0 1: 3 of 4 equal, .5 by chance, so kappa is .5. Over the iterations together
    q1 passed once of two times in the old run: no verdict at all."""
    old, new = records(tmp_path / "old", OLD), records(tmp_path / "new", NEW)
    found = agreement(old, new, **SCORES)
    assert found["cases"] == {"both": 4, "only_old": 0, "only_new": 1}
    score = found["scores"]["grade"]
    assert (score["n_both"], score["mean_old"], score["mean_new"], score["equal_share"]) == (4, 0.5, 0.375, 0.5)
    assert (score["difference"]["mean"], score["difference"]["clusters"]) == (-0.125, 2)
    passed = score["passed"]
    assert (passed["n"], passed["agreement"], passed["kappa"]["value"]) == (4, 0.75, pytest.approx(0.5))
    assert score["flips"]["to_passed"] == {"n": 0, "examples": []}
    flipped = {"sample_id": "q1", "method": "default", "repeat": 1, "iteration": 2, "old": 1.0, "new": 0.0}
    assert score["flips"]["to_failed"] == {"n": 1, "examples": [flipped]}
    changed = agreement(old, new, **SCORES, verdicts_only=True)["scores"]["grade"]
    assert (set(changed), changed["flips"]) == ({"old", "new", "higher_is_better", "flips"}, score["flips"])


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
    (drop,) = drops_of(tmp_path, day("q", 40, 38), day("q", 40, 20)).drops
    assert (drop.score, drop.samples, drop.n) == ("grade", "paired", 40)
    assert drop.difference == pytest.approx(-18 / 40)
    assert (drop.base, drop.candidate) == (pytest.approx(38 / 40), pytest.approx(20 / 40))
    assert drop.interval.high < 0
    assert (drop.lowest[:3], drop.values[20]) == ([20, 21, 22], -1)


@pytest.mark.slow
def test_other_questions_are_two_samples(tmp_path: Path) -> None:
    """95 of 100 and 70 of 100: by Newcombe's method 10 the difference is -.25, -.35 to -.15."""
    (drop,) = drops_of(tmp_path, day("monday", 100, 95), day("tuesday", 100, 70)).drops
    assert (drop.samples, drop.n) == ("independent", 100)
    assert drop.difference == pytest.approx(-0.25)
    assert (drop.interval.low, drop.interval.high) == (pytest.approx(-0.35, abs=0.01), pytest.approx(-0.15, abs=0.01))
    assert drop.lowest[0] == 70


def even(name: str, mean: float) -> Values:
    return {f"{name}{number}": mean + (0.01 if number % 2 else -0.01) for number in range(100)}


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [
    pytest.param(day("a", 100, 95), day("b", 100, 90), id="the interval holds 0"),
    pytest.param(day("a", 40, 38), day("a", 40, 35), id="3 of 40 changed: fewer than 6"),
    pytest.param(day("a", 100, 70), day("b", 100, 95), id="better"),
    pytest.param(even("a", 0.90), even("b", 0.88), id="beyond chance (-.03 to -.01), and smaller than matters"),
    pytest.param(day("a", 4, 4), day("b", 4, 0), id="of fewer than five questions"),
])  # fmt: skip
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
