"""The rows of the page: the cases of the base that a candidate shares, with their values and verdicts as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragpipe.comparing.comparison import Comparison
from ragpipe.comparing.side import Side
from ragpipe.pages.page_address import case_name
from ragpipe.schema.sample import OUTPUT_KEY

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

CASES_MAX = 200_000
"""Cases on the page: of more, those whose main score changed most. All of them are in `comparison.parquet`."""
_NO_CASE = -1


@dataclass(frozen=True)
class ComparedRows:
    """`cases` are the numbers of the rows' cases in the base, in its order; `total` is how many are shared in all.

    `partners` has per candidate the number of its case of each row, or -1. `main` is the score that orders the rows.
    """

    base: Side
    candidates: Sequence[Side]
    comparisons: Sequence[Comparison]
    cases: Whole
    partners: Sequence[Whole]
    main: str
    total: int

    def __len__(self) -> int:
        return len(self.cases)

    @cached_property
    def names(self) -> list[str]:
        """The rows as addresses name them. The method is in it only where the base has several."""
        table = self.base.cases.take(self.cases).select(list(OUTPUT_KEY)).to_pylist()
        single = len(self.base.methods) == 1
        return [case_name(row["sample_id"], None if single else row["method"], row["repeat"]) for row in table]

    @cached_property
    def methods(self) -> list[str]:
        """The method of each row in the base."""
        methods: list[str] = self.base.cases["method"].take(self.cases).to_pylist()
        return methods

    def improvement(self) -> Floats:
        """The change of the main score of each row, positive is better: the lowest of the candidates'. NaN without a pair."""
        changes = [_change(comparison, self.main, len(self.base.rows))[self.cases] for comparison in self.comparisons]
        lowest: Floats = np.fmin.reduce(changes)
        return lowest

    def columns(self) -> dict[str, NDArray[Any]]:
        """The columns of the page: `b:<score>` and `c<n>:<score>` are values, `v<n>:<score>` verdicts (3 * the base's + the
        candidate's; each 0 none, 1 failed, 2 passed), `p<n>` whether candidate n has the case."""
        columns: dict[str, NDArray[Any]] = {}
        n_base = len(self.base.rows)
        for number, comparison in enumerate(self.comparisons):
            columns[f"p{number}"] = (self.partners[number] != _NO_CASE).astype(np.uint8)
            for score in comparison.scores:
                places = comparison.pairs.base
                before, after = (np.nan_to_num(side + 1).astype(np.int64) for side in score.passed())
                columns[f"c{number}:{score.name}"] = self._spread(score.candidate, places).astype(np.float32)
                columns[f"v{number}:{score.name}"] = _codes(3 * before + after, places, n_base)[self.cases]
                values = self._spread(score.base, places).astype(np.float32)
                known = columns.get(f"b:{score.name}", values)
                columns[f"b:{score.name}"] = np.where(np.isnan(known), values, known)
        return columns

    def slices(self) -> dict[str, NDArray[np.uint8]]:
        """The slices that a comparison has rows for, `field:value`, each with a flag per row."""
        wanted = dict.fromkeys(
            (row["field"], row["value"]) for item in self.comparisons for row in item.document["slices"]
        )
        by: Mapping[str, Any] = self.base.metrics["by"]
        groups = self.base.groups({field: by[field] for field, _ in wanted if field in by}) if wanted else {}
        flags = {}
        for field, value in wanted:
            if value in groups.get(field, {}):
                flags[f"{field}:{value}"] = np.isin(self.cases, groups[field][value]).astype(np.uint8)
        return flags

    def _spread(self, values: Floats, places: Whole) -> Floats:
        """Values of pairs as values of the rows; NaN where the row has no pair."""
        spread = np.full(len(self.base.rows), np.nan)
        spread[places] = values
        return spread[self.cases]


def compared_rows(
    base: Side, candidates: Sequence[Side], comparisons: Sequence[Comparison], main: str, limit: int = CASES_MAX
) -> ComparedRows:
    """The rows of a comparison.

    Args:
        base: the base.
        candidates: the candidates.
        comparisons: what was found for each candidate.
        main: the score that orders the rows.
        limit: at most so many rows: those in which it changed most, by any candidate.
    """
    n_base = len(base.rows)
    shared = np.unique(np.concatenate([item.pairs.base for item in comparisons]))
    cases = shared
    if len(shared) > limit:
        sizes = np.fmax.reduce([np.abs(_change(item, main, n_base)) for item in comparisons])[shared]
        order = np.argsort(-np.nan_to_num(sizes, nan=-1.0), kind="stable")[:limit]
        cases = np.sort(shared[order])
    partners = []
    for item in comparisons:
        of_base = np.full(n_base, _NO_CASE, dtype=np.int64)
        of_base[item.pairs.base] = item.pairs.candidate
        partners.append(of_base[cases])
    return ComparedRows(base, candidates, comparisons, cases, partners, main, len(shared))


def main_score(document: Mapping[str, Any]) -> str:
    """The score that orders the cases: that of the first verdict, else the first headline score, else the first of all."""
    first = document["comparisons"][0]
    return str(first["verdict"]["score"] or next(iter([*document["headline"], *first["scores"]]), ""))


def _change(comparison: Comparison, name: str, n_base: int) -> Floats:
    """The change of a score by case of the base, positive is better; NaN where there is no pair."""
    change = np.full(n_base, np.nan)
    for score in comparison.scores:
        if score.name == name:
            sign = 1 if score.declared["higher_is_better"] else -1
            change[comparison.pairs.base] = sign * (score.candidate - score.base)
    return change


def _codes(codes: Whole, places: Whole, n_base: int) -> NDArray[np.uint8]:
    spread = np.zeros(n_base, np.uint8)
    spread[places] = codes
    return spread
