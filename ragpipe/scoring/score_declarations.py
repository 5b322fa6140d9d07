"""What is the same for all cases of a run: scale, direction and threshold of each score, stated once in `metrics.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.settings import ScoringSettings


def score_declarations(specs: Sequence[ScoreSpec], settings: ScoringSettings) -> dict[str, dict[str, Any]]:
    """By score `low` and `high` of its native scale (null for a count), `higher_is_better`, `binary`, `diagnostic`, and
    its `threshold` in the native scale (null without one)."""
    return {
        spec.name: {
            "low": spec.low,
            "high": spec.high,
            "higher_is_better": spec.higher_is_better,
            "binary": spec.binary,
            "diagnostic": spec.diagnostic,
            "threshold": settings.thresholds.get(spec.name),
        }
        for spec in specs
    }


def unit_value(value: float | None, scale: Mapping[str, Any]) -> float | None:
    """A value of the native scale brought to 0 (worst) .. 1 (best); None without a value and for a count.

    `scale` is what `declared` says of the score.
    """
    low, high = scale["low"], scale["high"]
    if value is None or low is None or high is None:
        return None
    share = float((value - low) / (high - low))
    return share if scale["higher_is_better"] else 1.0 - share
