"""Why a score changed: its change attributed to what the two runs differ in, from stored scores alone.

Each part is swapped in turn from the base's to the candidate's, in every order, and the means are averaged (Shapley). Weights are
swapped by making composites anew from the stored scores. Answers, judge, prompts and the like have no stored scores of
their own: a third run that has one of them from the base and another from the candidate gives them. Without such a run they
stay one part.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ragpipe.comparison.run_differences import setting_differences
from ragpipe.comparison.side import Pairs, Side, data_differences, paired_cases, same_answers
from ragpipe.core.digest import sha256_file
from ragpipe.score.normalisation import MISSING, OVERALL, STATUSES, UNJUDGED, Column, Composite, mean_column
from ragpipe.store.run_tables import reading_table

Floats = NDArray[np.float64]
Parts = frozenset[str]

_MEASURED = ("judge", "embedder", "prompts", "parser", "metrics")
_SCORING = "scoring"
CASES = "cases"
"""What cases of one run only, or with a value in one only, add to the difference of the means."""


class ChangeSources:
    """What the scores of two runs differ by, part by part. `others` are further runs, of which those are used that have some
    parts of the base and all others of the candidate."""

    def __init__(self, base: Side, candidate: Side, pairs: Pairs, others: Sequence[Side]):
        self._pairs = pairs
        self._scorings = base.metrics["scoring"], candidate.metrics["scoring"]
        self._sides = base, candidate
        measured = _measured_parts(base, candidate)
        if "answers" in measured and base.folder != candidate.folder and same_answers(base, candidate, pairs).all():
            measured -= {"answers"}
        self._corners: dict[Parts, tuple[Side, NDArray[np.int64]]] = {
            frozenset(): (base, pairs.base),
            measured: (candidate, pairs.candidate),
        }
        for side in others:
            swapped = _measured_parts(base, side)
            if swapped <= measured and _measured_parts(side, candidate) == measured - swapped:
                self._corners.setdefault(swapped, (side, _rows_of(side, pairs)))
        self._blocks = _finest_blocks(measured, self._corners.keys())

    def of(self, name: str) -> dict[str, Any] | None:
        """`why` of a score in `comparison.json`: `total` is the candidate's mean over all its cases less the base's, `parts` add
        up to it, `interaction` is what the parts do together beyond each alone. None where no case has all values."""
        players = [*self._blocks, *([frozenset({_SCORING})] if self._is_weighed(name) else [])]
        swaps = [frozenset(chosen) for k in range(len(players) + 1) for chosen in combinations(range(len(players)), k)]
        values = {swapped: self._values(name, frozenset().union(*(players[i] for i in swapped))) for swapped in swaps}
        known = np.all([np.isfinite(column) for column in values.values()], axis=0)
        if not np.any(known):
            return None
        means = {swapped: float(np.mean(column[known])) for swapped, column in values.items()}
        before, after = (column[np.isfinite(column)] for column in (side.values(name)[0] for side in self._sides))
        total = float(np.mean(after) - np.mean(before))
        shares = shapley_values(means, len(players))
        parts = [{"parts": sorted(player), "change": share} for player, share in zip(players, shares, strict=True)]
        unshared = total - (means[frozenset(range(len(players)))] - means[frozenset()])
        if not len(before) == len(after) == np.count_nonzero(known):
            parts.append({"parts": [CASES], "change": unshared})
        together = interaction(means, len(players)) if len(players) > 1 else 0.0
        return {"total": total, "n": int(np.count_nonzero(known)), "parts": parts, "interaction": together}

    def _is_weighed(self, name: str) -> bool:
        weights = [[scoring.get("weights"), scoring.get("composites")] for scoring in self._scorings]
        return weights[0] != weights[1] and any(depends_on_weights(name, scoring) for scoring in self._scorings)

    def _values(self, name: str, swapped: Parts) -> Floats:
        """The score of the shared cases with these parts from the candidate; NaN where there is none."""
        side, rows = self._corners[swapped - {_SCORING}]
        if self._is_weighed(name):
            values = rescored_values(side, name, self._scorings[_SCORING in swapped])
        else:
            values = side.values(name)[0] if name in side.declared else np.full(len(side.rows), np.nan)
        column = np.full(len(self._pairs), np.nan)
        column[rows >= 0] = values[rows[rows >= 0]]
        return column


def _rows_of(side: Side, pairs: Pairs) -> NDArray[np.int64]:
    """The case of a side for each pair, -1 for none."""
    rows = np.full(len(pairs), -1, dtype=np.int64)
    shared = paired_cases(pairs.cases, side.cases)
    rows[shared.base] = shared.candidate
    return rows


def _measured_parts(base: Side, candidate: Side) -> Parts:
    """What two runs differ in that their stored values depend on."""
    if base.folder == candidate.folder:
        return frozenset({"answers"} if base.method != candidate.method else ())
    parts = {difference.part for difference in setting_differences(base.manifest, candidate.manifest)} & set(_MEASURED)
    if _outputs_digest(base) != _outputs_digest(candidate):
        parts.add("answers")
    if any(difference.key != "samples" for difference in data_differences(base, candidate)):
        parts.add("data")
    return frozenset(parts)


def _outputs_digest(side: Side) -> str:
    frozen: Mapping[str, str] = side.manifest["data"].get("frozen", {})
    return frozen.get("outputs.parquet") or sha256_file(side.folder.outputs)


def _finest_blocks(parts: Parts, corners: Collection[Parts]) -> list[Parts]:
    """The parts in as many blocks as possible so that every union of blocks is a corner."""
    best: list[Parts] = [parts] if parts else []
    for blocks in _partitions(sorted(parts)):
        unions = (frozenset().union(*chosen) for k in range(len(blocks) + 1) for chosen in combinations(blocks, k))
        if len(blocks) > len(best) and all(union in corners for union in unions):
            best = blocks
    return best


def _partitions(names: Sequence[str]) -> Iterator[list[Parts]]:
    if not names:
        yield []
        return
    for blocks in _partitions(names[1:]):
        yield [frozenset({names[0]}), *blocks]
        for place, block in enumerate(blocks):
            yield [*blocks[:place], block | {names[0]}, *blocks[place + 1 :]]


def depends_on_weights(name: str, scoring: Mapping[str, Any]) -> bool:
    """Whether a score is made of others by weights of this scoring (`scoring` of metrics.json)."""
    return name == OVERALL.name or bool((scoring.get("composites") or {}).get(name))


def rescored_values(side: Side, name: str, scoring: Mapping[str, Any]) -> Floats:
    """A composite or the overall score of each case of a side, by the weights of `scoring`; NaN where it has none.

    Parts are the stored scores on 0 to 1; the mean is over the iterations that have a value, as in every comparison.
    """
    columns = []
    for path, table in side.tables.items():
        with reading_table(path):
            columns.append(_column(table, name, scoring).values)
    values = np.stack(columns)[:, side.rows]
    counts = np.sum(np.isfinite(values), axis=0)
    return np.where(counts > 0, np.nansum(values, axis=0) / np.maximum(counts, 1), np.nan)


def _column(table: pq.ParquetFile, name: str, scoring: Mapping[str, Any]) -> Column:
    """A score of one iteration; made anew where it is made of others."""
    if not depends_on_weights(name, scoring):
        return _stored(table, name)
    made = (scoring.get("composites") or {}).get(name)
    weights = scoring["weights"] if made is None else made["weights"]
    spec = OVERALL if made is None else Composite.model_validate(made, strict=False).spec(name)
    columns = set(table.schema_arrow.names)
    used = [part for part, weight in weights.items() if weight > 0 and f"{part}.score" in columns]
    parts = {part: _column(table, part, scoring) for part in used}
    return mean_column(parts, weights, spec, None, int(table.metadata.num_rows))


def _stored(table: pq.ParquetFile, name: str) -> Column:
    rows = table.read(columns=[f"{name}.score", f"{name}.status"])
    scores = rows[f"{name}.score"].combine_chunks().cast(pa.float64()).to_numpy(zero_copy_only=False)
    named = pc.index_in(rows[f"{name}.status"].combine_chunks(), value_set=pa.array(STATUSES))
    status = pc.fill_null(named, MISSING).to_numpy(zero_copy_only=False).astype(np.int8)
    passed = np.full(len(scores), UNJUDGED, dtype=np.int8)
    return Column(scores, scores, passed, status, pa.nulls(len(scores), pa.string()))


Swapped = frozenset[int]
"""The numbers of the parts that were swapped."""


def shapley_values(totals: Mapping[Swapped, float], parts: int) -> list[float]:
    """What each of `parts` parts adds, as the mean over all orders in which they can be swapped one after another.

    `totals` is the figure after each set of swaps, all 2^parts of them. The values add up to the total of all swaps less that
    of none. In the unit of the totals. (Shapley 1953; of at most 6 parts, 64 totals. More are a ValueError.)
    """
    if parts > 6:
        raise ValueError(f"at most 6 parts, found {parts}")
    values = []
    for part in range(parts):
        terms = [
            math.factorial(len(before)) * math.factorial(parts - len(before) - 1) * (totals[before | {part}] - total)
            for before, total in totals.items()
            if part not in before
        ]
        values.append(math.fsum(terms) / math.factorial(parts))
    return values


def interaction(totals: Mapping[Swapped, float], parts: int) -> float:
    """What all swaps together do beyond the sum of each alone; 0 where the parts do not depend on each other."""
    nothing = totals[frozenset()]
    alone = [totals[frozenset({part})] - nothing for part in range(parts)]
    return totals[frozenset(range(parts))] - nothing - math.fsum(alone)
