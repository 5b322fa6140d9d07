"""The headline scores within each slice: with the false discovery rate held, because there are many slices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragpipe.comparing.pairing import Pairs
from ragpipe.comparing.score_differences import PairedScore, interval_document
from ragpipe.comparing.settings import FALSE_SLICES, CompareSettings
from ragpipe.comparing.side import Side
from ragpipe.stats.multiple_testing import benjamini_hochberg

Whole = NDArray[np.int64]


def slice_differences(
    base: Side, candidate: Side, pairs: Pairs, scores: Sequence[PairedScore], settings: CompareSettings
) -> list[dict[str, Any]]:
    """One row per slice and score: difference, interval, and whether it is better or worse.

    Args:
        base, candidate: the sides; slices are the breakdowns of the candidate's `metrics.json` that the base has too.
        pairs: the shared cases.
        scores: the scores to compare within the slices.
        settings: levels and smallest effects.

    `better` and `worse` hold where the q-value of Benjamini and Hochberg over all slices and scores is at most
    `FALSE_SLICES`; slices in which fewer than 6 questions changed cannot decide and are no part of that count. A field with
    one value only is left out. A case with several tags is in several slices.
    """
    rows = []
    for field, value, places in _slices(base, candidate, pairs):
        for score in scores:
            if row := _row(field, value, score, places, settings):
                rows.append(row)
    for row, q_value in zip(rows, benjamini_hochberg([row["p_value"] for row in rows]), strict=True):
        row["q_value"] = q_value
        if row["state"] in ("better", "worse") and (q_value is None or q_value > FALSE_SLICES):
            row["state"] = "inconclusive"
    return rows


def _row(field: str, value: str, score: PairedScore, places: Whole, settings: CompareSettings) -> dict[str, Any] | None:
    verdict = score.decided(settings, places)
    if verdict is None:
        return None
    paired = verdict.paired
    return {
        "field": field,
        "value": value,
        "score": score.name,
        "n": paired.n,
        "questions": paired.clusters,
        "difference": paired.difference,
        "interval": interval_document(paired.interval),
        "p_value": paired.p_value if paired.can_decide else None,
        "q_value": None,
        "state": verdict.state,
    }


def _slices(base: Side, candidate: Side, pairs: Pairs) -> Iterator[tuple[str, str, Whole]]:
    """(field, value, places among the pairs) of every slice of the candidate."""
    known: Mapping[str, Any] = base.metrics["by"]
    one_method = len(candidate.methods) == 1
    fields = {
        name: groups
        for name, groups in candidate.metrics["by"].items()
        if name in known and not (one_method and "method" in name.split("*"))
    }
    pair_of_case = np.full(len(candidate.rows), -1, dtype=np.int64)
    pair_of_case[pairs.candidate] = np.arange(len(pairs))
    for field, groups in candidate.groups(fields).items():
        slices = {value: pair_of_case[cases] for value, cases in groups.items()}
        slices = {value: np.sort(places[places >= 0]) for value, places in slices.items()}
        slices = {value: places for value, places in slices.items() if len(places)}
        if len(slices) > 1:
            yield from ((field, value, places) for value, places in slices.items())
