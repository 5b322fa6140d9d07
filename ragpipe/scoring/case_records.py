"""`records.parquet`: one wide row per case, with everything a reader of results wants beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.composites import OVERALL
from ragpipe.scoring.dimensions import CASE, FLAG, REAL, TEXT, TEXTS
from ragpipe.scoring.scored_columns import STATUSES, Column, Scored

_SCORE = (
    ("", REAL, "value in the native scale; null unless status is ok"),
    (".score", REAL, "0 (worst) to 1 (best); null for counts and where there is no value"),
    (".passed", FLAG, "whether it reaches its threshold; null without one"),
    (".status", TEXT, "ok, skipped or error; null = not measured yet"),
    (".reason", TEXT, "why skipped, what failed, or the judge's feedback"),
)
_OVERALL = (
    (
        "overall_score",
        REAL,
        "weighted mean of the scores that are there; null when none with a weight is, or one of them failed",
    ),
    ("overall_passed", FLAG, "whether overall_score reaches its threshold and every gate score of the case passed"),
    ("overall_reason", TEXT, "why there is no overall_score: no_parts, or part_error with the scores that failed"),
    ("failed_by", TEXTS, "scores that did not pass, in the order of the columns"),
    ("failure_modes", TEXTS, "in which ways it went wrong (scoring.failure_modes)"),
    ("diagnosis", TEXTS, "what is wrong, the first one first (scoring.diagnosis)"),
    (
        "flags",
        TEXTS,
        "suspicious: a text addresses the judge; degenerate: the answer says nothing. No score depends on them",
    ),
    ("flag_reasons", TEXTS, "the part and the sign of each flag: answer: orders_to_judge"),
)


def records_schema(specs: Sequence[ScoreSpec]) -> pa.Schema:
    """Columns of `records.parquet` for these scores, each with its description."""
    scores = [(spec.name + suffix, kind, text) for spec in specs for suffix, kind, text in _SCORE]
    return pa.schema(
        [pa.field(name, kind, metadata={"description": text}) for name, kind, text in (*CASE, *scores, *_OVERALL)]
    )


def records_of(
    cases: Mapping[str, pa.Array], scored: Scored, findings: Mapping[str, pa.Array], schema: pa.Schema
) -> pa.Table:
    """The rows of a block; `cases` are its `case_columns`, `findings` its failure modes, diagnoses and flags."""
    columns: dict[str, Any] = {**cases, **findings}
    for name, column in scored.columns.items():
        columns |= _score_columns(name, column)
    columns["overall_score"] = _numbers(scored.overall.values)
    columns["overall_passed"] = _flags(scored.overall.passed)
    columns["overall_reason"] = scored.overall.reasons
    columns["failed_by"] = _failed_by(scored, len(cases["sample_id"]))
    return pa.Table.from_arrays([columns[field.name] for field in schema], schema=schema)


def verdict_column(name: str) -> str:
    """The column with the verdicts of a score, be it the overall one."""
    return "overall_passed" if name == OVERALL.name else f"{name}.passed"


def _score_columns(name: str, column: Column) -> dict[str, pa.Array]:
    status = pa.array(column.status, mask=column.status < 0)
    return {
        name: _numbers(column.values),
        f"{name}.score": _numbers(column.scores),
        f"{name}.passed": _flags(column.passed),
        f"{name}.status": pa.array(STATUSES).take(status),
        f"{name}.reason": column.reasons,
    }


def _failed_by(scored: Scored, n: int) -> pa.Array:
    """For each case the names of the scores that were judged and did not pass."""
    names = list(scored.columns)
    if not names:
        return pa.array([[]] * n, type=TEXTS)
    failed = np.stack([column.passed == 0 for column in scored.columns.values()], axis=1)
    offsets = np.concatenate([[0], np.cumsum(failed.sum(axis=1))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(names).take(pa.array(np.nonzero(failed)[1])))


def _numbers(values: Any) -> pa.Array:
    return pa.array(values, mask=np.isnan(values))


def _flags(passed: Any) -> pa.Array:
    return pa.array(passed == 1, mask=passed < 0)
