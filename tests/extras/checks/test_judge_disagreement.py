"""Two judges of the same cases: what counts as a disagreement, by hand."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragpipe.core.score import ScoreSpec
from ragpipe.extras.checks.spot_check import judge_reliability, sections
from ragpipe.report.model import Note, Table, plain_text

GRADE = ScoreSpec("grade", 1, 5)


def records(path: Path, cases: dict[str, tuple[float | None, bool | None]]) -> Path:
    rows = [
        {"sample_id": name, "method": "m", "repeat": 1, "grade": value, "grade.passed": passed} for name, (value, passed) in cases.items()
    ]
    kinds = [("sample_id", pa.string()), ("method", pa.string()), ("repeat", pa.int64())]
    schema = pa.schema([*kinds, ("grade", pa.float64()), ("grade.passed", pa.bool_())])
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    return path


def reliability(tmp_path: Path, first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    return judge_reliability(records(tmp_path / "1", first), records(tmp_path / "2", second), [GRADE])


def notes(found: dict[str, Any]) -> list[str]:
    return [plain_text(part.text) for part in sections(found)[0].parts if isinstance(part, Note)][1:]


def test_with_a_threshold_the_verdicts_count(tmp_path: Path) -> None:
    first = {"a": (5.0, True), "b": (4.0, True), "c": (2.0, False), "d": (3.9, False), "not drawn": (5.0, True)}
    second = {"a": (4.0, True), "b": (3.9, False), "c": (1.0, False), "d": (None, None)}
    found = reliability(tmp_path, first, second)
    (grade,) = found["results"]
    assert (found["judge_reliability"]["spot_check_n"], grade["n"], grade["one_sided"], grade["rule"]) == (4, 3, 1, "verdict")
    assert found["judge_reliability"]["disagreement_rate"] == grade["share"] == pytest.approx(1 / 3)
    assert grade["kappa"] == pytest.approx((2 / 3 - 4 / 9) / (1 - 4 / 9))  # by chance 2/3 x 1/3 + 1/3 x 2/3
    assert grade["difference"] == pytest.approx((-1 - 0.1 - 1) / 3)
    assert [case["sample_id"] for case in found["cases"]] == ["b"]
    *listed, result = notes(found)
    assert listed == ["b / m grade: 4, then 3.9"]
    (table,) = (part for part in sections(found)[0].parts if isinstance(part, Table))
    assert [*map(plain_text, table.rows[0].cells)] == [
        "as it was", "grade", "same", "1 of 3", "33 [6, 79]", "-0.70", "kappa 0.40, 1 left out, few questions",
    ]  # fmt: skip
    assert "more than 0.2" in result
    assert "label these cases" in result


def test_without_a_threshold_a_tenth_of_the_range_and_nothing_to_compare(tmp_path: Path) -> None:
    first = {"a": (5.0, None), "b": (4.0, None), "c": (2.0, None)}
    (grade,) = reliability(tmp_path, first, {"a": (4.6, None), "b": (3.5, None), "c": (2.0, None)})["results"]
    assert (grade["rule"], grade["kappa"]) == ("distance", None)
    assert grade["share"] == pytest.approx(1 / 3)
    found = reliability(tmp_path, {"a": (None, None)}, {"a": (4.0, True)})
    assert found["judge_reliability"]["disagreement_rate"] is None
    assert notes(found) == ["spot check: no score has a value from both judges in 1 case"]
