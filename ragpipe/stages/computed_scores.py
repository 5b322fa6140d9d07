"""The scores of computed metrics for one block of cases."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ragpipe.core.errors import RagpipeError
from ragpipe.metrics.base import Computed, run_skip_reason
from ragpipe.schema.sample import Case, CaseKey
from ragpipe.schema.score import Score, ScoreColumns
from ragpipe.stages.table_rows import scores_by_name

OnBug = Callable[[CaseKey, BaseException], list[Score]]
"""What becomes of an unexpected exception about a case: its scores. Raises what ends the run instead."""
_BUGS = (Exception, SystemExit, asyncio.CancelledError)
"""What a metric may raise: nothing of it ends this process, or cancels what runs here, in the name of the metric."""


@dataclass(frozen=True, slots=True)
class _Failed:
    """The preparation of a case failed."""

    error: BaseException


class ComputedScores:
    """The scores of one metric: it takes from each case what it needs, and computes them together."""

    def __init__(self, metric: Computed, on_bug: OnBug):
        self._metric, self._on_bug = metric, on_bug
        self._reasons: list[str | None] = []
        self._keys: list[CaseKey] = []
        self._prepared: list[Any] = []

    def add(self, case: Case) -> None:
        """Add the next case. What the metric does not need of it is not kept."""
        reason = run_skip_reason(self._metric, case, embedder=False)
        self._reasons.append(reason)
        if reason is None:
            self._keys.append(case.key)
            try:
                self._prepared.append(self._metric.prepare(case))
            except _BUGS as error:
                self._prepared.append(_Failed(error))

    def columns(self) -> ScoreColumns:
        """The scores of all cases, in their order. Raises what `on_bug` raises."""
        return self._computed(self._keys, self._prepared).with_skipped(self._reasons)

    def _computed(self, keys: Sequence[CaseKey], prepared: Sequence[Any]) -> ScoreColumns:
        try:
            for part in prepared:
                if isinstance(part, _Failed):
                    raise part.error
            return self._at_once(prepared)
        except _BUGS as error:
            return ScoreColumns.of(self._metric.score_names, self._one_by_one(keys, prepared, error))

    def _one_by_one(self, keys: Sequence[CaseKey], prepared: Sequence[Any], error: BaseException) -> list[list[Score]]:
        """The scores of each case by itself, after an error of all: that finds the cases at fault, and keeps the others. Where no case
        fails alone, the metric depends on which cases come together, and the error is that of all."""
        if len(keys) == 1:
            return [self._on_bug(keys[0], error)]
        rows, failed = list[list[Score]](), 0
        for key, part in zip(keys, prepared, strict=True):
            try:
                if isinstance(part, _Failed):
                    raise part.error
                rows += self._at_once([part]).rows()
            except _BUGS as alone:
                failed += 1
                rows.append(self._on_bug(key, alone))
        return rows if failed else [self._on_bug(key, error) for key in keys]

    def _at_once(self, prepared: Sequence[Any]) -> ScoreColumns:
        names = self._metric.score_names
        columns = self._metric.compute_columns(prepared) if prepared else None
        if columns is None:
            results = self._metric.compute(prepared) if prepared else ()
            if len(results) != len(prepared):
                raise RagpipeError(
                    f"compute gave {len(results)} results for {len(prepared)} cases: one each is expected"
                )
            scores = [scores_by_name(self._metric, result) for result in results]
            return ScoreColumns.of(names, scores)
        if (columns.names, columns.cases) != (names, len(prepared)):
            raise RagpipeError(f"the metric gave {columns.cases} x {columns.names} for {len(prepared)} cases")
        return columns
