"""What a gate by interval can tell with so many cases: the true values that it finds in 8 of 10 runs, in words.

The precision of a gate's value is that of its interval in a finished run. Before a run it is that of an earlier one, or of
cases that are as unlike and as much alike within a question as they can be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragpipe.stats.gate_resolution import (
    TYPICAL_SPREADS,
    effective_rows,
    resolve_drop,
    resolve_limit,
    resolve_mean,
    rows_for_drop,
    rows_to_tell,
    strictest_limit,
)
from ragpipe.stats.looks import look_at
from ragpipe.stats.student_t import normal_quantile

Whole = NDArray[np.int64]

_UNDECIDED = ("inconclusive", "uncalibrated")  # an uncalibrated judge hides that the interval holds the limit

_OUT_OF_REACH = 1000  # times the cases of the run: nobody collects so many

_LABEL_MORE = "task=label with a larger label.n adds to the draw, then task=calibrate again"


@dataclass(frozen=True, slots=True)
class Precision:
    """How precisely the value of a gate over `cases` cases is known.

    `rows` are effective rows of a value on 0 to 1; for a mean without a scale they are None and `error` is its standard error.
    `labels` of the cases correct the value, None where none do: then the labels limit the precision more than the cases.
    """

    cases: int
    rows: float | None = None
    error: float | None = None
    labels: int | None = None

    @property
    def sample(self) -> str:
        """What the value is known from: `99 cases`, `58 labels of 99 cases`."""
        return f"{self.cases:,} cases" if self.labels is None else f"{self.labels:,} labels of {self.cases:,} cases"

    def with_cases(self, cases: int) -> Precision:
        """The same of another number of cases that are alike, with labels of as large a part of them."""
        rows = None if self.rows is None else self.rows * cases / self.cases
        error = None if self.error is None else self.error * (self.cases / cases) ** 0.5
        labels = None if self.labels is None else round(self.labels * cases / self.cases)
        return replace(self, cases=cases, rows=rows, error=error, labels=labels)


def precision_of(gate: Mapping[str, Any], level: float) -> Precision | None:
    """The precision that the interval of a gate of `gates.json` says; None without an interval that says it.

    `level` is that of its interval. Several iterations are judgings of the same cases, so these count once.
    """
    interval, value = gate["interval"], gate["value"]
    measured = sum(figure is not None for figure in gate["values"])
    if "against" in gate:  # pairs of cases, each with its mean over the iterations
        measured = 1
    cases = round(gate["n_cases" if "failure_mode" in gate else "n_ok"] / measured) if measured else 0
    if interval is None or value is None or not cases:
        return None
    look = gate.get("paired", {}).get("look")
    z, labels = normal_quantile(look["level"] if look else level), gate.get("corrected", {}).get("labels")
    if "wilson" not in interval["method"]:
        error = (interval["high"] - interval["low"]) / 2 / z
        return Precision(cases, error=error, labels=labels) if error > 0 else None
    rows = effective_rows(value, interval["low"], interval["high"], quantile=z)
    return None if rows is None else Precision(cases, rows=rows, labels=labels)


def precision_before(samples: Whole) -> Precision | None:
    """The precision of a value on 0 to 1 before anything is measured, for cases of these questions; None for no case.

    The values are taken to be 0 or 1, and equal for all cases of a question: Dmax of `estimate_mean`. It will be better.
    """
    if not len(samples):
        return None
    sizes = np.unique(samples, return_counts=True)[1].astype(np.float64)
    return Precision(len(samples), rows=len(samples) ** 2 / float(np.sum(sizes * sizes)))


def power_words(gate: Mapping[str, Any], precision: Precision, level: float) -> str:
    """`with 30 cases "at least 0.85" fails 8 of 10 runs of a system at 0.65 or below and passes 8 of 10 at 0.99 or above`.

    A clause for each limit that an interval can keep; empty where there is none.
    """
    if "against" in gate:
        return _drop_words(gate, precision, level) if gate["by"] == "interval" else ""
    margin = gate.get("margin") or 0.0
    clauses = [_clause(limit, margin, precision, level, is_upper) for is_upper, limit in _limits(gate, precision)]
    return f"with {precision.sample} {'; '.join(clauses)}" if clauses else ""


def precision_before_comparison(samples: Whole, kind: str) -> Precision | None:
    """The precision of a difference between two runs on 0 to 1 before they are compared; None for no case.

    Its spread per case is the typical one of the `kind` of values (`TYPICAL_SPREADS`), the rows of a question are taken as alike.
    """
    before = precision_before(samples)
    if before is None or before.rows is None:
        return None
    return Precision(before.cases, error=TYPICAL_SPREADS[kind] / before.rows**0.5)


def _drop_words(gate: Mapping[str, Any], precision: Precision, level: float) -> str:
    """What a gate against a baseline finds, and how many cases it takes to pass an unchanged system."""
    error, max_drop = precision.error, gate["max_drop"]
    if error is None:
        return ""
    if planned := gate.get("planned"):
        cases = gate.get("paired", {}).get("look", {}).get("n", precision.cases)  # some have no value of the score
        look = look_at(cases, planned)
        if look is None:
            return f"{cases:,} cases are less than a quarter of the {planned:,} planned: it decides nothing yet"
        level = look.level
    drop = resolve_drop(error, 1.0, max_drop, level=level)
    words = f"with {precision.cases:,} cases it fails 8 of 10 runs of a system that dropped by {drop.finds:.2f} or more"
    if drop.smallest_max_drop <= max_drop:
        return f"{words}, and passes 8 of 10 of an unchanged one"
    words += f"; an unchanged one passes 8 of 10 only from max_drop {drop.smallest_max_drop:.2g} on"
    if max_drop == 0:
        return words
    needed = rows_for_drop(error * precision.cases**0.5, max_drop, level=level)
    return f"{words}, and max_drop {max_drop:.10g} takes about {_rounded(needed):,} cases"


def undecided_words(gate: Mapping[str, Any], precision: Precision, level: float) -> str:
    """`with 30 cases this gate cannot tell 0.88 from 0.85: that takes about 1,100`, where the interval holds a limit; else empty."""
    value, interval = gate["value"], gate["interval"]
    if "against" in gate and gate["verdict"] in _UNDECIDED:
        return power_words(gate, precision, level)
    if gate["verdict"] not in _UNDECIDED or interval is None:
        return ""
    held = [limit for _, limit in _limits(gate, precision) if interval["low"] <= limit <= interval["high"]]
    if not held:
        return ""
    limit = min(held, key=lambda end: abs(end - value))
    needed = _cases_to_tell(value, limit, precision, level)
    if needed is None:
        words = f"with {precision.sample} this gate cannot tell which side of {limit:.10g} the value is on"
        return words if precision.labels in (None, precision.cases) else f"{words}; {_LABEL_MORE}"
    words = f"with {precision.sample} this gate cannot tell {_apart(value, limit)} from {limit:.10g}"
    if needed > _OUT_OF_REACH * precision.cases:
        return f"{words}: the value is too near the limit for any practical number of cases"
    return f"{words}: that takes about {_needed_words(max(needed, precision.cases + 1), precision)}"


def _needed_words(cases: int, precision: Precision) -> str:
    """How many cases it takes; where labels correct the value how many labels, and more cases only where these run out.

    Labels and cases that both grow by a factor k divide the variance of a corrected value by k. Where labels are few among the
    cases, more labels alone do so nearly; where k times the labels are more than the cases, labelling all would not be enough.
    """
    if precision.labels is None:
        return f"{_rounded(cases):,}"
    labels = max(_rounded(-(-precision.labels * cases // precision.cases)), precision.labels + 1)
    if labels <= precision.cases:
        return f"{labels:,} labels; {_LABEL_MORE}"
    return f"{labels:,} labels of {_rounded(cases):,} cases, and the run has fewer cases"


def _limits(gate: Mapping[str, Any], precision: Precision) -> list[tuple[bool, float]]:
    """The limits (is it an upper one?) that an interval can keep or break; of a value on 0 to 1 those inside."""
    if gate["by"] != "interval":
        return []
    ends = [(is_upper, gate[key]) for is_upper, key in ((False, "min"), (True, "max")) if gate.get(key) is not None]
    return [(is_upper, end) for is_upper, end in ends if precision.rows is None or 0 < end < 1]


def _clause(limit: float, margin: float, precision: Precision, level: float, is_upper: bool) -> str:
    """What one limit finds; it is passed `margin` short of it."""
    passed_from = limit + margin if is_upper else limit - margin
    fails = _resolution(limit, precision, level, is_upper)[0]
    passes = (
        _resolution(passed_from, precision, level, is_upper)[1] if 0 < passed_from < 1 or not precision.rows else None
    )
    sign, beyond, within = ("at most", "above", "below") if is_upper else ("at least", "below", "above")
    failing = "fails no system reliably"
    if fails is not None:
        failing = f"fails 8 of 10 runs of a system at {_apart(fails, limit)} or {beyond}"
    passing = "passes none reliably"
    if passes is not None:
        passing = f"passes 8 of 10 at {_apart(passes, limit)} or {within}"
    elif precision.rows is not None:
        end = strictest_limit(precision.rows, level=level)
        bound = f"ends at {_apart(1 - end, limit)}" if is_upper else f"starts at {_apart(end, limit)}"
        passing += f" (even without a fault the interval {bound})"
    return f'"{sign} {limit:.10g}" {failing} and {passing}'


def _resolution(limit: float, precision: Precision, level: float, is_upper: bool) -> tuple[float | None, float | None]:
    """The true value from which it fails, and from which it passes."""
    if precision.rows is None:
        found = resolve_mean(limit, precision.error or 0.0, level=level)
        return (found.passes_at, found.fails_at) if is_upper else (found.fails_at, found.passes_at)
    if not is_upper:
        found = resolve_limit(limit, precision.rows, level=level)
        return found.fails_at, found.passes_at
    found = resolve_limit(1 - limit, precision.rows, level=level)
    return _mirrored(found.fails_at), _mirrored(found.passes_at)


def _mirrored(value: float | None) -> float | None:
    return None if value is None else 1 - value


def _cases_to_tell(value: float, limit: float, precision: Precision, level: float) -> int | None:
    if precision.rows is not None:
        return rows_to_tell(value, limit, precision.cases / precision.rows, level=level)
    if value == limit or precision.error is None:
        return None
    factor = normal_quantile(level) + normal_quantile(0.6)
    return int(precision.cases * (factor * precision.error / (value - limit)) ** 2) + 1


def _apart(value: float, limit: float) -> str:
    """The value with as many digits as it takes to differ from the limit."""
    return next((text for digits in range(2, 17) if float(text := f"{value:.{digits}f}") != limit), repr(value))


def _rounded(count: int) -> int:
    """Two leading digits: it is an estimate."""
    return round(count, -max(0, len(str(count)) - 2))
