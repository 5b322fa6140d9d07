"""The files of a draw: what is written is read back, and what is damaged is refused by name."""

import json

import pyarrow as pa
import pytest

from ragpipe.calibration.label_files import (
    DRAW,
    LABEL_COLUMNS,
    LABELS,
    Draw,
    LabelGrade,
    StratumSize,
    draw_folders,
    read_draw,
    read_labels,
    write_draw,
    write_rows,
)
from ragpipe.core.errors import DataError, FormatMismatch
from ragpipe.store.table_rows import table_of

LABEL = {
    "sample_id": "s1", "method": "a", "repeat": 1, "answer_sha256": "0" * 64, "annotator": "ann", "label": 0.5, "grade": "partly",
    "note": None, "part": "random", "stratum": "all", "probability": 0.25, "at": "2026-01-01T00:00:00Z",
}  # fmt: skip


def a_draw(**changes):
    fields = {
        "draw_id": "faithfulness-1", "run_id": "r", "metric": "faithfulness", "score": "faithfulness", "question": "All?",
        "grades": [LabelGrade(name="all", value=1.0)], "low": 0.0, "high": 1.0, "seed": 0, "cases": 8,
        "strata": [StratumSize(name="all", cases=8, drawn=2)], "settings": {"n": 2},
    }  # fmt: skip
    return Draw.model_validate(fields | changes)


def test_labels_are_read_back_with_exactly_the_columns(tmp_path):
    rows = [LABEL, LABEL | {"annotator": "bob", "label": None, "grade": None, "note": "unclear"}]
    write_rows(tmp_path / LABELS, table_of(rows, LABEL_COLUMNS))
    assert read_labels(tmp_path).to_pylist() == rows


def test_a_draw_without_labels_says_how_to_get_them(tmp_path):
    with pytest.raises(DataError, match=r"label\.import"):
        read_labels(tmp_path)


def test_a_table_with_other_columns_is_refused(tmp_path):
    table = table_of([LABEL], LABEL_COLUMNS)
    write_rows(tmp_path / LABELS, table.drop_columns(["label"]))
    with pytest.raises(DataError, match="no column label"):
        read_labels(tmp_path)
    write_rows(tmp_path / LABELS, table.set_column(5, "label", pa.array(["half"])))
    with pytest.raises(DataError, match="columns of"):
        read_labels(tmp_path)


@pytest.mark.parametrize(("change", "message"), [
    ({"format": 3}, "format 3"),
    ({"cases": "eight"}, "cases"),
    ({"more": 1}, "more"),
])  # fmt: skip
def test_a_damaged_draw_is_refused(tmp_path, change, message):
    (tmp_path / DRAW).write_text(json.dumps(a_draw().model_dump() | change))
    with pytest.raises(DataError, match=message) as error:
        read_draw(tmp_path)
    assert isinstance(error.value, FormatMismatch) == ("format" in change)


def test_the_draws_of_a_run(tmp_path):
    assert draw_folders(tmp_path) == []
    for name in ("b", "a", "empty"):
        (tmp_path / "labels" / name).mkdir(parents=True)
    for name in ("b", "a"):
        write_draw(tmp_path / "labels" / name, a_draw(draw_id=name))
    (tmp_path / "labels" / "c").symlink_to(tmp_path / "labels" / "a")
    assert [folder.name for folder in draw_folders(tmp_path)] == ["a", "b"]
