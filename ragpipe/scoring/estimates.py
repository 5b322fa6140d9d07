"""A mean or a rate of a score with its interval, as the JSON files hold it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragpipe.stats.intervals import Estimate, estimate_mean, estimate_rate


def estimate_of(
    values: NDArray[np.float64], samples: NDArray[np.int64], scale: Mapping[str, Any], level: float
) -> Estimate:
    """The mean of some values, clustered by question, on the scale that is declared of the score (`declared`)."""
    if scale["binary"]:
        return estimate_rate(values, samples, level=level)
    return estimate_mean(values, samples, level=level, low=scale["low"], high=scale["high"])


def figures_of(mean: Estimate, rate: Estimate) -> dict[str, Any]:
    """`mean` and `interval`; and where anything is judged `pass_rate` and `pass_interval`."""
    figures = {"mean": mean.mean, **interval_of("interval", mean)}
    return figures if rate.mean is None else {**figures, "pass_rate": rate.mean, **interval_of("pass_interval", rate)}


def interval_of(name: str, estimate: Estimate) -> dict[str, Any]:
    """The interval, `too_few` with fewer than 5 questions; or null with the reason beside it."""
    if estimate.interval is None:
        return {name: None, f"{name}_reason": estimate.reason}
    bounds = estimate.interval
    few = {"too_few": True} if bounds.too_few else {}
    return {name: {"low": bounds.low, "high": bounds.high, "method": bounds.method, **few}}
