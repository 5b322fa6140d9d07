"""What a gate can tell with so many cases: which true values it finds, and how many cases it would need.

A gate fails where the whole interval is beyond the limit and passes where the interval keeps it (`gate_rules.py`, `decide_drop`).
Between two true values it does neither most of the time. All values are on 0 (worst) to 1 (best) of the score.
Powers are 8 of 10 runs, by the normal approximation: exact ones for a rate of .85 are .78 to .86.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragpipe.stats.intervals import (
    POWER,
    clustered_variance,
    clustering,
    design_effect,
    normal_quantile,
    two_sided_tail,
    wilson_bounds,
)

TYPICAL_SPREADS = {"binary": 0.45, "share": 0.25, "grade": 0.29}
"""Standard deviation of the difference of two runs per case, on a scale of 1, where no earlier comparison says it."""


@dataclass(frozen=True, slots=True)
class LimitResolution:
    """What a limit on a value finds: `fails_at` or worse it fails 8 of 10 runs, `passes_at` or better it passes 8 of 10.

    None: it does so for no true value, not even the worst (the best) one.
    """

    fails_at: float | None
    passes_at: float | None


@dataclass(frozen=True, slots=True)
class DropResolution:
    """What a limit on the drop finds: a true drop of `finds` fails 8 of 10 runs; an unchanged system passes 8 of 10 only
    where the drop that is allowed is at least `smallest_max_drop`."""

    finds: float
    smallest_max_drop: float


def resolve_limit(limit: float, rows: float, *, level: float = 0.95) -> LimitResolution:
    """What a lower limit on a rate or a mean on 0 to 1 tells with so many rows.

    `rows` are effective ones: n / D with the design effect D of `estimate_mean`, which for a mean also holds how much less its
    values vary than 0 and 1 do. The true value X with limit - X = z sqrt(limit (1 - limit) / rows) + .84 sqrt(X (1 - X) / rows),
    and the same above. For an upper limit mirror it: `1 - limit`, and 1 less the results. The limit lies between 0 and 1, rows
    above 0; else a ValueError.
    """
    if not 0 < limit < 1 or not rows > 0:
        raise ValueError(f"expected a limit between 0 and 1 and rows above 0, found {limit!r} and {rows!r}")
    margin = normal_quantile(level) * math.sqrt(limit * (1 - limit) / rows)
    of_power = normal_quantile(2 * POWER - 1)
    below, above = limit - margin, limit + margin  # X solves below - X = .84 sqrt(X (1-X) / rows): a bound of Wilson's
    return LimitResolution(
        wilson_bounds(below, rows, of_power)[0] if below > 0 else None,
        wilson_bounds(above, rows, of_power)[1] if above < 1 else None,
    )


def resolve_mean(limit: float, error: float, *, level: float = 0.95) -> LimitResolution:
    """What a lower limit on a mean without a scale tells, by its standard error: limit -+ (z + .84) error."""
    margin = (normal_quantile(level) + normal_quantile(2 * POWER - 1)) * error
    return LimitResolution(limit - margin, limit + margin)


def strictest_limit(rows: float, *, level: float = 0.95) -> float:
    """The highest lower limit that a run without a single fault passes: rows / (rows + z^2), z^2 = 3.84 for 95 %."""
    return rows / (rows + normal_quantile(level) ** 2)


def rows_to_tell(value: float, limit: float, effect: float = 1.0, *, level: float = 0.95) -> int | None:
    """The rows with which a limit passes (or fails) a true `value` in 8 of 10 runs; None where the value is the limit.

    n = D ((z sqrt(limit (1 - limit)) + .84 sqrt(value (1 - value))) / (value - limit))^2 with the design effect D.
    Both lie on 0 to 1, the limit inside; else a ValueError.
    """
    if not 0 < limit < 1 or not 0 <= value <= 1:
        raise ValueError(f"expected a limit between 0 and 1 and a value on 0 to 1, found {limit!r} and {value!r}")
    if abs(value - limit) < 1e-12:
        return None
    spread = normal_quantile(level) * math.sqrt(limit * (1 - limit))
    spread += normal_quantile(2 * POWER - 1) * math.sqrt(value * (1 - value))
    return math.ceil(effect * (spread / (value - limit)) ** 2)


def resolve_drop(spread: float, rows: float, max_drop: float, *, level: float = 0.95) -> DropResolution:
    """What a limit on the drop against a baseline tells.

    Args:
        spread: the standard deviation of the difference per row; unit and scale are those of the result.
        rows: effective rows n / D, D the design effect of the differences.
        max_drop: the drop that is allowed, 0 or more.
        level: the level of the interval.

    With S = spread / sqrt(rows): finds .84 S + max(1.96 S, max_drop); an unchanged system passes from 2.80 S on.
    Raises ValueError for a spread or drop below 0, and for no rows.
    """
    if not (spread >= 0 and rows > 0 and max_drop >= 0):
        raise ValueError(f"expected spread and drop of 0 or more and rows above 0, found {spread}, {max_drop}, {rows}")
    error = spread / math.sqrt(rows)
    z, of_power = normal_quantile(level), normal_quantile(2 * POWER - 1)
    return DropResolution(of_power * error + max(z * error, max_drop), (z + of_power) * error)


def rows_for_drop(spread: float, max_drop: float, effect: float = 1.0, *, level: float = 0.95) -> int:
    """The rows with which an unchanged system passes a limit on the drop in 8 of 10 runs: D (2.80 spread / max_drop)^2.

    A drop of twice `max_drop` is found with fewer. `max_drop` must be above 0; else a ValueError.
    """
    if not max_drop > 0:
        raise ValueError(f"expected a drop above 0, found {max_drop!r}")
    factor = normal_quantile(level) + normal_quantile(2 * POWER - 1)
    return math.ceil(effect * (factor * spread / max_drop) ** 2)


def effective_rows(mean: float, low: float, high: float, *, quantile: float) -> float | None:
    """How many rows an interval of Wilson's stands on, read back from its bounds on 0 to 1; `quantile` is its z or t.

    Half its width h solves h^2 (1 + q)^2 = q mean (1 - mean) + q^2 / 4 with q = quantile^2 / rows. None for bounds that
    are none of Wilson's: of no width, or of the whole scale.
    """
    half = (high - low) / 2
    square, product = half * half, mean * (1 - mean)
    if not 0 < half < 0.5:
        return None
    # (1/4 - h^2) q^2 + (mean (1 - mean) - 2 h^2) q - h^2 = 0 has one root above 0
    a, b = 0.25 - square, product - 2 * square
    root = (-b + math.sqrt(b * b + 4 * a * square)) / (2 * a)
    return quantile**2 / root


Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


def p_below(
    values: Floats,
    clusters: Whole | None,
    limit: float,
    *,
    low: float | None = None,
    high: float | None = None,
    binary: bool = False,
) -> float | None:
    """The probability of a mean as low as that of `values`, or lower, if the true mean were `limit`.

    Args:
        values: the values, one per row.
        clusters: the number of each row's cluster; None where all rows are independent.
        limit: the true mean to hold against them.
        low, high: the ends of the scale; None for no scale.
        binary: whether the values are shares of hits, as for `estimate_rate`.

    0 to 1, one-sided; `1 - p_below` is that of a mean as high. It is below (1 - level) / 2 where the interval of
    `estimate_mean` or `estimate_rate` of that level ends below the limit: the same variance, design effect and degrees of
    freedom (Wilson 1927: the score test). None for fewer than two clusters, for a limit at an end of the scale, and without a
    scale for values that are all equal.
    """
    codes, groups = clustering(len(values), clusters)
    if groups < 2:
        return None
    mean = math.fsum(values.tolist()) / len(values)
    if low is None or high is None:
        variance = clustered_variance(values, mean, codes, groups)
        return lower_tail((mean - limit) / math.sqrt(variance), groups - 1) if variance > 0 else None
    unit = (values - low) / (high - low)
    place, centre = (limit - low) / (high - low), min(max((mean - low) / (high - low), 0.0), 1.0)
    if binary and codes is None and np.all((unit == 0) | (unit == 1)):
        return p_of_share(centre, place, len(values), None)
    return p_of_share(centre, place, len(values) / design_effect(unit, codes, groups), groups - 1)


def p_of_share(share: float, limit: float, rows: float, degrees: int | None) -> float | None:
    """The same for a share of `rows` independent rows (Wilson's score test), with Student's t of so many degrees of freedom, or
    normal for None. None for a limit that is not between 0 and 1."""
    if not 0 < limit < 1:
        return None
    return lower_tail((share - limit) / math.sqrt(limit * (1 - limit) / rows), degrees)


def lower_tail(t: float, degrees: int | None) -> float:
    """P(T <= t) for Student's T; for the standard normal where `degrees` is None."""
    tail = math.erfc(abs(t) / math.sqrt(2)) if degrees is None else two_sided_tail(abs(t), degrees)
    return tail / 2 if t <= 0 else 1 - tail / 2
