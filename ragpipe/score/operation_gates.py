"""Gates on the figures of Operations: what the system under test takes and uses for an answer, and how often it gives none.

The figures are those of `operations` in `metrics.json`, over the cases that the gate is about. Lower is better for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragpipe.score.accumulators import Accumulators
from ragpipe.score.aggregate import LOST
from ragpipe.score.normalisation import interval_of
from ragpipe.score.system_usage import USD
from ragpipe.stats.intervals import estimate_mean, estimate_rate
from ragpipe.stats.limits import p_below

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

_ABSENT = {
    "latency_ms": "no case records its timings",
    "tokens_total": "no case records its tokens",
    USD: "no case has a known price: let `usage` hold cost_usd, or set system.prices",
    "empty_rate": "no case records an answer",
}


def measure_operation(gate: Mapping[str, Any], ledger: Accumulators, places: Whole) -> dict[str, Any]:
    """What one iteration says of a gate on an operation over the cases at `places`, with the keys of `measure_gate` and a `p_value`.

    Where some cases record the figure and others do not, the others count as not recorded; where none does, nothing is due and
    `without_cases` decides. An amount is due of every case without an error of the system, a rate of every case, and that of
    empty answers of every case that records an answer or an error.
    """
    name, is_rate = gate["score"], gate["of"] == "share"
    values = (_rate if is_rate else _amount)(ledger, name)[places]
    known = ~np.isnan(values)
    measured, samples = values[known], ledger.samples[places][known]
    due = known if is_rate else known | ~ledger.marks["error"][places]
    lacking = int(np.count_nonzero(due & ~known))
    counts = dict.fromkeys(("n_cases", "n_ok", "n_skipped", *LOST, "n_missing"), 0)
    counts |= {"n_cases": len(places), "n_ok": len(measured), "n_not_recorded": lacking if len(measured) else 0}
    counts["n_skipped"] = len(places) - counts["n_ok"] - counts["n_not_recorded"]
    if not len(measured):
        return {"value": None, "interval": None, **counts, "absent": _ABSENT.get(name, "no case is chosen"), "p_value": None}
    if gate["of"] in ("p50", "p95"):
        value = float(np.percentile(measured, int(gate["of"][1:])))
        return {"value": value, "interval": None, **counts, "absent": None, "p_value": None}
    estimate = (estimate_rate if is_rate else estimate_mean)(measured, samples, level=gate["level"])
    low, high = (0.0, 1.0) if is_rate else (None, None)
    p = p_below(measured, samples, gate["max"], low=low, high=high, binary=is_rate)
    figures = {"value": estimate.value, "interval": interval_of("interval", estimate)["interval"]}
    if estimate.reason == "no_spread":  # an amount that is equal in all cases is known
        figures["interval"] = {"low": estimate.value, "high": estimate.value, "method": "constant"}
    return {**figures, **counts, "absent": None, "p_value": None if p is None else 1 - p}


def _rate(ledger: Accumulators, name: str) -> Floats:
    """1 for a case that counts, 0 for another; NaN where nothing is recorded."""
    marks = ledger.marks
    if name != "empty_rate":
        return marks[name.removesuffix("_rate")].astype(np.float64)
    return np.where(marks["unrecorded"], np.nan, marks["empty"] & ~marks["error"])


def _amount(ledger: Accumulators, name: str) -> Floats:
    """The amount of each case, NaN where it has none."""
    return ledger.timings.values("total", ledger.n) if name == "latency_ms" else ledger.usage.values(name, ledger.n)
