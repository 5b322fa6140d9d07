"""Two runs that judged the same cases twice: rows are judgements, each paired with the same case of the same iteration."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragpipe.comparing.run_agreement import agreement, verdict_changes

DECLARED = {"low": 0.0, "high": 1.0, "higher_is_better": True, "threshold": 0.5, "n_ok": 4}
SCORES = {"old_scores": {"grade": DECLARED}, "new_scores": {"grade": DECLARED}}
OLD = {1: [("q1", 0.0), ("q2", 0.5)], 2: [("q1", 1.0), ("q2", 0.5)]}
NEW = {1: [("q2", 1.0), ("q1", 0.0)], 2: [("q2", 0.5), ("q1", 0.0), ("q3", 1.0)]}
"""The new run in another order: pairs of (old, new) are (0, 0), (.5, 1), (1, 0), (.5, .5); q3 has no partner."""


def records(folder: Path, iterations: dict[int, list[tuple[str, float]]]) -> dict[int, Path]:
    """A table of records per iteration; a value from .5 on passed."""
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
    found = agreement(records(tmp_path / "old", OLD), records(tmp_path / "new", NEW), **SCORES)
    assert found["cases"] == {"both": 4, "only_old": 0, "only_new": 1}
    score = found["scores"]["grade"]
    assert (score["n_both"], score["mean_old"], score["mean_new"], score["equal_share"]) == (4, 0.5, 0.375, 0.5)
    assert (score["difference"]["mean"], score["difference"]["clusters"]) == (-0.125, 2)
    passed = score["passed"]
    assert (passed["n"], passed["agreement"], passed["kappa"]["value"]) == (4, 0.75, pytest.approx(0.5))
    assert score["flips"]["to_passed"] == {"n": 0, "examples": []}
    flipped = {"sample_id": "q1", "method": "default", "repeat": 1, "iteration": 2, "old": 1.0, "new": 0.0}
    assert score["flips"]["to_failed"] == {"n": 1, "examples": [flipped]}


def test_another_scoring_has_the_same_flips_and_no_more(tmp_path: Path) -> None:
    old, new = records(tmp_path / "old", OLD), records(tmp_path / "new", NEW)
    changed = verdict_changes(old, new, **SCORES)["scores"]["grade"]
    assert set(changed) == {"old", "new", "higher_is_better", "flips"}
    assert changed["flips"] == agreement(old, new, **SCORES)["scores"]["grade"]["flips"]


def test_scores_on_other_scales_have_a_difference_without_a_scale(tmp_path: Path) -> None:
    """A value off the old scale is no error: the runs have no scale in common."""
    wide = {1: [("q1", 5.0), ("q2", 3.0)], 2: [("q1", 4.0), ("q2", 4.0)]}
    old, new = records(tmp_path / "old", OLD), records(tmp_path / "new", wide)
    found = agreement(old, new, old_scores=SCORES["old_scores"], new_scores={"grade": {**DECLARED, "high": 5.0}})
    assert found["scores"]["grade"]["difference"]["mean"] == (5 + 2.5 + 3 + 3.5) / 4
    assert found["scores"]["grade"]["quadratic_kappa"]["reason"] == "not_graded"
