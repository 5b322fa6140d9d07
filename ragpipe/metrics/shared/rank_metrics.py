"""Rank metrics over arrays: many queries at once, each value independent of the other queries in the block.

All sums run along the ranks by `cumsum`, which adds one after another: a value is bit-equal whatever else is in the
block and however wide the block is padded. With `order_by_score` first, the values are those of trec_eval.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Ranking:
    """Judged rankings of n queries, padded to the longest. Arrays are (n, width), `gold` is (n,), `ideal` (n, most gold).

    `hits`: the item at this rank matches a gold item. `counted`: precision counts it: a hit, or another support that
    the question requires. `earned`: the gain it earns, which is only that of a gold item not met before. `new_items`:
    how many gold items are matched here for the first time. `gold`: number of gold items. `ideal`: their gains, largest first,
    padded with 0.
    """

    hits: NDArray[np.bool_]
    counted: NDArray[np.bool_]
    earned: Floats
    new_items: Floats
    gold: NDArray[np.int64]
    ideal: Floats


def from_ids(
    retrieved: Sequence[Sequence[str]],
    gold: Sequence[Mapping[str, float]],
    scores: Sequence[Sequence[float]] | None = None,
) -> Ranking:
    """Judge lists of ids against gains by id (0 and less: not relevant). With `scores` they are first put in trec order.

    An id that comes twice earns its gain once, at its best rank, and is a hit both times.
    """
    gains = _padded((map(g.get, ids, repeat(0.0)) for ids, g in zip(retrieved, gold, strict=True)), retrieved)
    np.maximum(gains, 0.0, out=gains)
    repeated = _repeated(retrieved, gains)
    order: NDArray[np.int64] | None = None
    if scores is not None:
        order = order_by_score(retrieved, scores)
        gains = np.take_along_axis(gains, order, axis=1)
    hits = gains > 0
    earned = gains.copy() if repeated else gains
    for row in repeated:
        seen: set[str] = set()
        places = range(len(retrieved[row])) if order is None else order[row, : len(retrieved[row])].tolist()
        for rank, place in enumerate(places):
            if (name := retrieved[row][place]) in seen:
                earned[row, rank] = 0.0
            seen.add(name)
    ideal = _padded((g.values() for g in gold), gold)
    np.maximum(ideal, 0.0, out=ideal)
    ideal = -np.sort(-ideal, axis=1)
    return Ranking(hits, hits, earned, (earned > 0).astype(np.float64), (ideal > 0).sum(axis=1), ideal)


def _repeated(retrieved: Sequence[Sequence[str]], gains: Floats) -> list[int]:
    """The rows in which some relevant id comes more than once. Only relevant ids are looked at: they are few."""
    rows, places = (index.tolist() for index in np.nonzero(gains))
    matches = [(row, retrieved[row][place]) for row, place in zip(rows, places, strict=True)]
    if len(set(matches)) == len(matches):
        return []
    return sorted({row for (row, _), times in Counter(matches).items() if times > 1})


def from_rows(rows: Sequence[Sequence[tuple[bool, bool, float, int]]], ideal: Sequence[Sequence[float]]) -> Ranking:
    """From rows of (hit, counted by precision, gain earned, gold items found) by rank, and the gains of all gold
    items."""
    parts = [_padded([[float(item[part]) for item in row] for row in rows], rows) for part in range(4)]
    best = _padded([sorted(gains, reverse=True) for gains in ideal], ideal)
    return Ranking(
        parts[0] > 0, parts[1] > 0, parts[2], parts[3], np.array([len(g) for g in ideal], dtype=np.int64), best
    )


def order_by_score(ids: Sequence[Sequence[str]], scores: Sequence[Sequence[float]]) -> NDArray[np.int64]:
    """Places in trec order, (n, width): score descending, ties by id descending. Scores are single precision, as there."""
    single = _padded(scores, scores, fill=-np.inf).astype(np.float32)
    order = np.argsort(-single, axis=1, kind="stable")
    ranked = np.take_along_axis(single, order, axis=1)
    lengths = np.fromiter(map(len, ids), dtype=np.int64, count=len(ids))
    tied = (ranked[:, 1:] == ranked[:, :-1]) & (np.arange(1, ranked.shape[1]) < lengths[:, None])
    for row in np.flatnonzero(tied.any(axis=1)).tolist():
        keys = list(zip(single[row].tolist(), ids[row], range(len(ids[row])), strict=False))
        keys.sort(key=lambda key: (key[0], key[1], -key[2]), reverse=True)
        order[row, : len(keys)] = [key[2] for key in keys]
    return order


def rank_values(ranking: Ranking, cuts: Iterable[int]) -> dict[str, Floats]:
    """`hit@k`, `recall@k`, `precision@k`, `ndcg@k`, `map@k` for every cut-off k, and `mrr`: arrays of n values.

    recall and map divide by the number of gold items, precision by k even when fewer came back, ndcg by the gain of
    the ideal order of min(k, gold items), discounted by log2(rank + 1). Without gold items they are 0.
    """
    width = ranking.hits.shape[1]
    ranks = np.arange(1, max(width, ranking.ideal.shape[1]) + 1)
    discounts = 1.0 / np.log2(ranks + 1)
    gold = np.maximum(ranking.gold, 1)
    hits = np.cumsum(ranking.hits, axis=1)
    counted = hits if ranking.counted is ranking.hits else np.cumsum(ranking.counted, axis=1)
    new_items = np.cumsum(ranking.new_items, axis=1)
    gained = np.cumsum(ranking.earned * discounts[:width], axis=1)
    best = np.cumsum(ranking.ideal * discounts[: ranking.ideal.shape[1]], axis=1)
    news = ranking.earned > 0
    precisions = np.cumsum(np.cumsum(news, axis=1) / ranks[:width] * news, axis=1)
    values: dict[str, Floats] = {}
    for k in cuts:
        ideal = _at(best, k)
        values[f"hit@{k}"] = (_at(hits, k) > 0).astype(np.float64)
        values[f"recall@{k}"] = _at(new_items, k) / gold
        values[f"precision@{k}"] = _at(counted, k) / k
        values[f"ndcg@{k}"] = np.divide(_at(gained, k), ideal, out=np.zeros(len(gold)), where=ideal > 0)
        values[f"map@{k}"] = _at(precisions, k) / gold
    first = np.argmax(ranking.hits, axis=1) if width else np.zeros(len(gold), dtype=np.int64)
    values["mrr"] = np.where(ranking.hits.any(axis=1), 1.0 / (first + 1), 0.0)
    return values


def _at(sums: NDArray[np.generic], k: int) -> Floats:
    """The running sums up to rank k, as floats; k may lie beyond the last rank."""
    if not sums.shape[1]:
        return np.zeros(len(sums))
    return sums[:, min(k, sums.shape[1]) - 1].astype(np.float64)


def _padded(
    rows: Iterable[Iterable[float]], sized: Sequence[Sequence[object] | Mapping[str, float]], fill: float = 0.0
) -> Floats:
    """Rows of unequal lengths (those of `sized`) as one array."""
    lengths = np.fromiter(map(len, sized), dtype=np.int64, count=len(sized))
    flat = np.fromiter(chain.from_iterable(rows), dtype=np.float64, count=int(lengths.sum()))
    width = int(lengths.max()) if len(lengths) else 0
    if int(lengths.sum()) == width * len(lengths):
        return flat.reshape(len(lengths), width)
    table = np.full((len(lengths), width), fill)
    table[np.arange(width) < lengths[:, None]] = flat
    return table
