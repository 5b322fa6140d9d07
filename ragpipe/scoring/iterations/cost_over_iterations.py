"""`final/cost.json`: what all iterations of a run cost, each and together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ragpipe.scoring.operations import judge_rates

_PARTS = ("used", "spent", "saved", "wasted", "repriced")


def final_cost(per_iteration: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """`iterations` (each one's `used`, `spent`, `saved`, `wasted`, `repriced`) and `total`, from the iterations' `cost.json` by number.

    Every iteration asks under keys of its own, so no reply is counted twice. A sum is null as soon as one part of it is
    (an unknown price); what is known stands in `usd_known`. `per_case` of the total is the price of a case in all
    iterations together.
    """
    bills = list(per_iteration.values())
    return {
        "iterations": {str(number): {part: bill[part] for part in _PARTS} for number, bill in per_iteration.items()},
        "total": {part: _sum([bill[part] for bill in bills]) for part in _PARTS},
        "prices": bills[-1]["prices"],
    }


def _sum(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Sums key by key, in the order of the keys' first appearance; a key that a part lacks is 0 there."""
    found: dict[str, Any] = {}
    for key in dict.fromkeys(key for part in parts for key in part):
        values = [part[key] for part in parts if key in part]
        if key in ("latency_ms", "case_latency_ms"):
            found[key] = _latency([value for value in values if value])
        elif key.endswith("_rate"):
            found[key] = None  # of the sums, below
        elif any(isinstance(value, Mapping) for value in values):
            found[key] = _sum([value for value in values if value])
        elif any(value is None for value in values):
            found[key] = None
        else:
            found[key] = sum(values) if all(isinstance(v, int) for v in values) else math.fsum(values)
    return {**found, **judge_rates(found)} if "error_rate" in found else found


def _latency(found: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Number and sum; the percentiles of several iterations cannot be had from theirs."""
    return {"n": sum(one["n"] for one in found), "sum": math.fsum(one["sum"] for one in found)} if found else None
