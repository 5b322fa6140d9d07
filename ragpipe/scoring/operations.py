"""How the system under test ran, whatever the metrics: failures, empty answers, latency by stage.

The judge's part is in `cost.json`, with the calls it comes from.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragpipe.scoring.accumulators import Accumulators
from ragpipe.scoring.rules.diagnosis import share

Places = NDArray[np.int64]

_NEVER_SENT = frozenset({"missing_reply", "breaker", "budget"})  # failures before anything went over the wire


def operations(ledger: Accumulators, places: Places) -> dict[str, Any]:
    """`operations` of a summary of `metrics.json`, over the cases at `places`.

    An error is a case with `error`; a timeout is an error whose text says so (`is_timeout`); an empty answer is a recorded
    one without a word and without an error; a retried case is one whose output took more than one request. Rates are shares of all cases, 0 to 1, null where there is no case; that of
    empty answers is one of the cases that record an answer or an error. `latency_ms` has for each stage of the system's own
    timings, and for `total`, the number of cases that name it, mean and percentiles (linear interpolation); the means of the
    stages add up, the percentiles do not. `usage` is what the system used (`UsageLedger.summary`).
    """
    errors = ledger.marks["error"][places]
    counts = {
        "n_error": int(np.count_nonzero(errors)),
        "n_timeout": int(np.count_nonzero(ledger.marks["timeout"][places])),
        "n_empty": int(np.count_nonzero(ledger.marks["empty"][places] & ~errors)),
        "n_abstained": int(np.count_nonzero(ledger.marks["abstained"][places])),
        "n_retried": int(np.count_nonzero(ledger.marks["retried"][places])),
    }
    known = len(places) - int(np.count_nonzero(ledger.marks["unrecorded"][places]))
    rates = {f"{name}_rate": share(counts[f"n_{name}"], len(places)) for name in ("error", "timeout")}
    rates["empty_rate"] = share(counts["n_empty"], known)
    usage = ledger.usage.summary(places, ledger.n)
    return {**counts, **rates, "latency_ms": _latency(ledger, places), "usage": usage}


def _latency(ledger: Accumulators, places: Places) -> dict[str, Any]:
    member = np.zeros(ledger.n, dtype=np.bool_)
    member[places] = True
    latency = {}
    for stage, (cases, times) in ledger.timings.items():
        stage_times = times[member[cases]]
        if len(stage_times):
            p50, p95 = np.percentile(stage_times, [50, 95]).tolist()
            latency[stage] = {"n": len(stage_times), "mean": float(stage_times.mean()), "p50": p50, "p95": p95}
    return latency


def judge_rates(bill: Mapping[str, Any]) -> dict[str, float | None]:
    """The judge's rates, 0 to 1 of the calls that were sent, from the sums of a bill of `cost.json`.

    A call failed when no reply to parse came in the end, of whatever kind; it timed out with the kind `deadline`, and was
    empty with `empty_reply`. A reply that came and cannot be parsed fails the score, not the call. What an embedded judge
    computed, what the store did not have and what a breaker or a budget held back was never sent. Null where nothing was.
    """
    sent, failures = bill["calls"] - bill["calls_computed"], bill["failures"]
    return {
        "error_rate": share(sum(n for kind, n in failures.items() if kind not in _NEVER_SENT), sent),
        "timeout_rate": share(failures.get("deadline", 0), sent),
        "empty_rate": share(failures.get("empty_reply", 0), sent),
    }


def latency_of(times: array[float]) -> dict[str, Any] | None:
    """Number, percentiles and sum of some times in milliseconds; None without any."""
    if not times:
        return None
    p50, p95 = np.percentile(np.array(times), [50, 95]).tolist()
    return {"n": len(times), "p50": p50, "p95": p95, "sum": math.fsum(times)}
