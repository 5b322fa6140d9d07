"""The files of a draw: `<run>/labels/<draw_id>/` with draw.json, draw.parquet and, after an import, labels.parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ragpipe.core.errors import DataError, Problem
from ragpipe.schema.format_version import FORMAT, format_mismatch
from ragpipe.schema.table_schemas import REAL, TEXT, TEXTS, WHOLE
from ragpipe.store.files.atomic import json_unless_same, open_unless_same
from ragpipe.store.run.run_tables import open_table, read_json, run_file_error

LABELS_FOLDER = "labels"
DRAW, DRAWN, LABELS = "draw.json", "draw.parquet", "labels.parquet"


def table_schema(*columns: tuple[str, pa.DataType, str]) -> pa.Schema:
    """A schema of columns with their descriptions."""
    return pa.schema([pa.field(name, kind, metadata={"description": text}) for name, kind, text in columns])


_CASE = (
    ("sample_id", TEXT, "the sample's id"),
    ("method", TEXT, "the RAG variant"),
    ("repeat", WHOLE, "which output of this method for this sample, from 1"),
    ("answer_sha256", TEXT, "digest of what the label is about: question, earlier turns, answer and chunk texts"),
)
_DESIGN = (
    ("part", TEXT, "random or stratified: the part of the draw that the case came in by"),
    ("stratum", TEXT, "the method of the case; all for a random draw"),
    ("probability", REAL, "drawn cases of the stratum / cases of the stratum"),
)
DRAWN_COLUMNS = table_schema(
    ("item", TEXT, "the opaque name of the case on the page and in the sheets"),
    *_CASE,
    *_DESIGN,
    ("annotators", TEXTS, "who is asked; null = everyone"),
)
LABEL_COLUMNS = table_schema(
    *_CASE,
    ("annotator", TEXT, "who gave the label"),
    ("label", REAL, "in the native scale of the score; null = cannot tell"),
    ("grade", TEXT, "the grade's name; null = cannot tell, or a number between the grades"),
    ("note", TEXT, "what the annotator wrote; null = nothing"),
    *_DESIGN,
    ("at", TEXT, "when it was given (UTC, ISO 8601); null = not recorded"),
)


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class LabelGrade(_Frozen):
    """A grade that a person may give, and its value in the native scale of the score."""

    name: str
    value: float


class StratumSize(_Frozen):
    """How many cases a stratum has, and how many of them are drawn."""

    name: str
    cases: Annotated[int, Field(ge=1)]
    drawn: Annotated[int, Field(ge=0)]


class Draw(_Frozen):
    """The whole of `draw.json`. `cases` counts the cases of the run that the score has a value for: what was drawn from.
    `settings` are those that the draw is made by."""

    format: Annotated[int, Field(ge=FORMAT, le=FORMAT)] = FORMAT
    draw_id: str
    run_id: str
    metric: str
    score: str
    question: str
    grades: list[LabelGrade]
    low: float | None
    high: float | None
    seed: int
    cases: int
    strata: list[StratumSize]
    settings: dict[str, Any]


def draw_folders(run: Path) -> list[Path]:
    """The folders of all draws of a run, by name; links are skipped."""
    root = run / LABELS_FOLDER
    if root.is_symlink() or not root.is_dir():
        return []
    return [path for path in sorted(root.iterdir()) if not path.is_symlink() and (path / DRAW).is_file()]


def read_draw(folder: Path) -> Draw:
    """The draw of a folder. Raises DataError for a file that is missing or damaged, FormatMismatch for another format."""
    path = folder / DRAW
    content = read_json(path)
    if content.get("format") != FORMAT:
        raise format_mismatch(
            "cannot read this draw", path, content.get("format"), None, "draw again with this ragpipe"
        )
    try:
        return Draw.model_validate(content)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        key = ".".join(map(str, fault["loc"])) or "draw"
        raise run_file_error(path, fault["msg"], "the draw.json that ragpipe wrote", key=key) from error


def write_draw(folder: Path, draw: Draw) -> None:
    """Write `draw.json`. Raises OutputError."""
    json_unless_same(folder / DRAW, draw.model_dump())


def read_drawn(folder: Path) -> pa.Table:
    """The cases of a draw (DRAWN_COLUMNS), in the order in which they were drawn. Raises DataError."""
    return read_columns_of(folder / DRAWN, DRAWN_COLUMNS)


def read_labels(folder: Path) -> pa.Table:
    """The imported labels of a draw (LABEL_COLUMNS). Raises DataError for a draw without labels, and a damaged table."""
    path = folder / LABELS
    if not path.exists():
        fix = "label its cases on label.html, then: python -m ragpipe task=label run=RUN 'label.import=[FILE]'"
        raise DataError("there are no labels", [Problem(str(folder), "labels", f"no {LABELS}", "imported labels", fix)])
    return read_columns_of(path, LABEL_COLUMNS)


def write_rows(path: Path, rows: pa.Table) -> None:
    """Write a table of the draw. A file with the same content stays as it is. Raises OutputError."""
    with open_unless_same(path) as file:
        pq.write_table(rows, file, compression="zstd")


def read_columns_of(path: Path, columns: pa.Schema) -> pa.Table:
    """A table with exactly these columns. Raises DataError for one that is missing, damaged or has other types."""
    with open_table(path, columns.names) as file:
        table = file.read(columns=columns.names)
    if table.schema.types != columns.types:
        raise run_file_error(path, f"columns of {table.schema.types}", f"columns of {columns.types}")
    return table
