"""The scores of a block of cases as columns: one array per score, aligned with the cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ragpipe.core.errors import RagpipeError
from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.case_blocks import CaseBlock
from ragpipe.scoring.composites import OVERALL, mean_column, specs_of
from ragpipe.scoring.dimensions import Fields
from ragpipe.scoring.normalisation import (
    ERROR,
    MISSING,
    OK,
    SKIPPED,
    STATUSES,
    UNJUDGED,
    Column,
    Verdicts,
    normalised,
    pass_fail,
)
from ragpipe.scoring.settings import ScoringSettings

__all__ = ["ERROR", "MISSING", "OK", "SKIPPED", "STATUSES", "Column", "Scored", "score_block"]


@dataclass(frozen=True)
class Scored:
    """A block of cases, scored: a column per declared score and composite, then the overall score and verdict.

    `overall.passed` is the verdict on the case: see `_overall`.
    """

    columns: dict[str, Column]
    overall: Column


def score_block(block: CaseBlock, fields: Fields, specs: Sequence[ScoreSpec], settings: ScoringSettings) -> Scored:
    """Normalise, judge and weigh the scores of a block; `specs` are those of the metrics.

    Raises RagpipeError for a score that no spec declares.
    """
    places, cells = _places(block, [spec.name for spec in specs]), _Cells.of(block.scores)
    columns = {spec.name: _column(cells, places[spec.name], spec, settings) for spec in specs}
    measured = dict(columns)
    composites = settings.active_composites()
    for spec in specs_of(composites, specs):  # those alone that the run has: an unseen one must decide nothing
        weights, threshold = composites[spec.name].weights, settings.thresholds.get(spec.name)
        columns[spec.name] = mean_column(measured, weights, spec, threshold, len(block))
    lacking = settings.missing_dependencies(columns)
    for name in settings.passing_order():
        if name in lacking:  # a score that decides it is not in this run, so whether a case passes is unknown
            columns[name] = replace(columns[name], passed=np.full(len(block), UNJUDGED, dtype=np.int8))
        elif name in columns:
            passed = _all_pass([columns[required].passed for required in settings.passes_with[name]])
            passed[columns[name].status != OK] = UNJUDGED
            columns[name] = replace(columns[name], passed=passed)
    return Scored(columns, _overall(columns, fields, settings, len(block)))


def _overall(columns: Mapping[str, Column], fields: Fields, settings: ScoringSettings, n: int) -> Column:
    """The weighted mean of the scores, passed when it reaches its threshold and every gate score of the case passed."""
    overall = mean_column(columns, settings.weight_shares(), OVERALL, settings.thresholds.get(OVERALL.name), n)
    failed, unknown = np.zeros(n, dtype=np.bool_), np.zeros(n, dtype=np.bool_)
    for name, concerned in gated(fields, settings).items():
        if column := columns.get(name):
            failed |= concerned & (column.passed == 0)
            unknown |= concerned & ((column.status == ERROR) | (column.status == MISSING))
    passed = overall.passed.copy()
    passed[failed & (passed == 1)] = 0
    passed[unknown] = UNJUDGED
    return replace(overall, passed=passed)


def gated(fields: Fields, settings: ScoringSettings) -> dict[str, NDArray[np.bool_]]:
    """The scores that critical gates are on, each with the cases that those gates are about."""
    return {
        name: np.any([fields.matching(gate.labels()) for gate in gates], axis=0)
        for name, gates in settings.case_gates().items()
    }


def _all_pass(verdicts: Sequence[Verdicts]) -> Verdicts:
    """1 where all pass, 0 where one fails, -1 where none fails and one is unknown."""
    lowest, highest = np.min(verdicts, axis=0), np.max(verdicts, axis=0)
    return np.where(np.any(np.equal(verdicts, 0), axis=0), 0, np.where(lowest < 0, -1, highest)).astype(lowest.dtype)


def _places(block: CaseBlock, names: Sequence[str]) -> Mapping[str, NDArray[np.int64]]:
    """For each score name the row of `block.scores` that belongs to each case, -1 for none."""
    rows_by_score = {name: np.full(len(block), -1, dtype=np.int64) for name in names}
    encoded = block.scores["score_name"].combine_chunks().dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    for code, name in enumerate(encoded.dictionary.to_pylist()):
        if name not in rows_by_score:
            raise RagpipeError(
                f"scores.parquet holds {name!r}, which no metric of this configuration declares; expected one of "
                f"{', '.join(names)}. To fix: score with the configuration that the run was made with."
            )
        rows = np.flatnonzero(codes == code)
        cases = block.cases[rows]
        if np.any(cases[1:] == cases[:-1]):  # the rows are in the order of the cases
            raise RagpipeError(f"scores.parquet holds {name!r} twice for one case; expected one row per case and score")
        rows_by_score[name][cases] = rows
    return rows_by_score


class _Cells(NamedTuple):
    """The rows of a block of `scores.parquet`: values (NaN is null), numbers of STATUSES (MISSING for any other), reasons."""

    values: NDArray[np.float64]
    status: NDArray[np.int8]
    reasons: pa.Array

    @classmethod
    def of(cls, scores: pa.Table) -> _Cells:
        named = pc.index_in(scores["status"].combine_chunks(), value_set=pa.array(STATUSES))
        return cls(
            scores["value"].combine_chunks().to_numpy(zero_copy_only=False).astype(np.float64),
            pc.fill_null(named, MISSING).to_numpy(zero_copy_only=False).astype(np.int8),
            scores["reason"].combine_chunks(),
        )


def _column(cells: _Cells, places: NDArray[np.int64], spec: ScoreSpec, settings: ScoringSettings) -> Column:
    """One score: the cells of the rows `places`, -1 for a case without one."""
    has_row, n = places >= 0, len(places)
    values, status = np.full(n, np.nan), np.full(n, MISSING, dtype=np.int8)
    values[has_row], status[has_row] = cells.values[places[has_row]], cells.status[places[has_row]]
    if np.any((status == OK) & ~np.isfinite(values)):
        raise RagpipeError(f"scores.parquet: {spec.name!r} has status ok without a finite value")
    values[status != OK] = np.nan  # a value beside another status is never used
    judged = pass_fail(values, spec, settings.thresholds.get(spec.name))
    reasons = cells.reasons.take(pa.array(places, mask=~has_row))
    return Column(values, normalised(values, spec), judged, status, reasons)
