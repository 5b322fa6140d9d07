"""The members of a jury, each alone, and the jury, against people's labels of the same cases."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragpipe.calibrating.run_calibration import CalibratedRun
from ragpipe.calibrating.score_calibration import ScoreEvidence, reference_of
from ragpipe.store.run.run_tables import batches

Floats = NDArray[np.float64]

POINTS_APART = 0.05
"""Agreement with people by which two members may differ: beyond it a majority was worse than its best member in simulations and on
recorded judges (docs/juries.md)."""


def member_lines(run: CalibratedRun, evidence: Mapping[str, ScoreEvidence]) -> Iterator[str]:
    """How far each member of a jury agrees with people, and the jury; then a warning where the members are more than 5 points apart.
    Nothing for a run by one judge. Agreement is one minus the mean distance as a share of the range, 0 to 1: for scores of 0 and 1
    the share of equal verdicts. The cases are those that all members judged."""
    for name, of_score in evidence.items():
        spec = of_score.spec
        values = _member_values(run, name, of_score)
        if len(values) < 2 or spec.low is None or spec.high is None:
            continue
        labels = reference_of(of_score.labels, spec, of_score.bound_to.threshold).labels
        judges = {**values, "jury": of_score.judged.values}
        usable = ~np.isnan(np.stack([labels, *judges.values()])).any(axis=0)
        if not usable.any():
            continue
        span = spec.high - spec.low
        agreement = {
            judge: 1 - float(np.mean(np.abs(labels - given)[usable])) / span for judge, given in judges.items()
        }
        listed = ", ".join(f"{judge} {share:.2f}" for judge, share in agreement.items())
        yield f"{name}: agreement with people on {int(usable.sum()):,} cases: {listed}"
        alone = {judge: share for judge, share in agreement.items() if judge in values}
        best = max(alone, key=lambda judge: alone[judge])
        if alone[best] - min(alone.values()) > POINTS_APART:
            yield (
                f"{name}: the members differ by more than 5 points: {best} alone is likely better than the jury, and costs less "
                f"(metrics.{of_score.metric}.judge={best})"
            )


def _member_values(run: CalibratedRun, score: str, evidence: ScoreEvidence) -> dict[str, Floats]:
    """By member its values of the labelled cases in the first iteration, NaN where it gave none."""
    places = {case.key: place for place, case in enumerate(evidence.labels.cases)}
    values: dict[str, Floats] = {}
    columns = ("sample_id", "method", "repeat", "score_name", "details")
    for batch in batches(run.folder.iteration(run.iterations[0]).scores, columns):
        for row in batch.to_pylist():
            place = places.get((row["sample_id"], row["method"], row["repeat"]))
            if place is None or row["score_name"] != score:
                continue
            jury: Mapping[str, Any] = json.loads(row["details"] or "{}").get("jury", {})
            for member, opinion in jury.get("members", {}).items():
                column = values.setdefault(member, np.full(len(places), np.nan))
                column[place] = np.nan if opinion.get("value") is None else opinion["value"]
    return values
