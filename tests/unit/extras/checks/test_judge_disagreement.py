"""Two judges of the same cases: what counts as a disagreement, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragpipe.extras.checks.judge_disagreement import judge_reliability
from ragpipe.extras.checks.spot_check import disagreeing_lines, spot_check_words
from ragpipe.schema.score import ScoreSpec

GRADE = ScoreSpec("grade", 1, 5)


def records(path: Path, cases: dict[str, tuple[float | None, bool | None]]) -> Path:
    rows = [
        {"sample_id": name, "method": "m", "repeat": 1, "grade": value, "grade.passed": passed}
        for name, (value, passed) in cases.items()
    ]
    kinds = [("sample_id", pa.string()), ("method", pa.string()), ("repeat", pa.int64())]
    schema = pa.schema([*kinds, ("grade", pa.float64()), ("grade.passed", pa.bool_())])
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    return path


def reliability(tmp_path: Path, first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    return judge_reliability(records(tmp_path / "1", first), records(tmp_path / "2", second), [GRADE])


def test_with_a_threshold_the_verdicts_count(tmp_path: Path) -> None:
    first = {"a": (5.0, True), "b": (4.0, True), "c": (2.0, False), "d": (3.9, False), "not drawn": (5.0, True)}
    second = {"a": (4.0, True), "b": (3.9, False), "c": (1.0, False), "d": (None, None)}
    found = reliability(tmp_path, first, second)
    grade = found["scores"]["grade"]
    assert (found["spot_check_n"], grade["n"], grade["one_sided"], grade["rule"]) == (4, 3, 1, "verdict")
    assert found["disagreement_rate"] == grade["disagreement_rate"] == pytest.approx(1 / 3)
    assert grade["kappa"] == pytest.approx((2 / 3 - 4 / 9) / (1 - 4 / 9))  # by chance 2/3 x 1/3 + 1/3 x 2/3
    assert grade["difference"] == pytest.approx((-1 - 0.1 - 1) / 3)
    assert [case["sample_id"] for case in found["cases"]] == ["b"]
    assert list(disagreeing_lines(found)) == [
        "  b/m grade: 4, then 3.9",
        "grade: 1 case with a value from one judge alone",
    ]


def test_without_one_a_tenth_of_the_range(tmp_path: Path) -> None:
    first = {"a": (5.0, None), "b": (4.0, None), "c": (2.0, None)}
    second = {"a": (4.6, None), "b": (3.5, None), "c": (2.0, None)}
    grade = reliability(tmp_path, first, second)["scores"]["grade"]
    assert (grade["rule"], grade["kappa"]) == ("distance", None)
    assert grade["disagreement_rate"] == pytest.approx(1 / 3)


def test_nothing_to_compare_is_said(tmp_path: Path) -> None:
    found = reliability(tmp_path, {"a": (None, None)}, {"a": (4.0, True)})
    assert found["disagreement_rate"] is None
    assert "no score has a value from both judges" in spot_check_words(found, 0.2)


@pytest.mark.parametrize(("rate", "said"), [(0.2, "not more than"), (0.21, "more than spot_check.warn_above=0.2")])
def test_a_warning_says_what_to_do(rate: float, said: str) -> None:
    words = spot_check_words({"spot_check_n": 30, "disagreement_rate": rate, "scores": {}, "cases": []}, 0.2)
    assert said in words
    assert ("label these cases" in words) == (rate > 0.2)
