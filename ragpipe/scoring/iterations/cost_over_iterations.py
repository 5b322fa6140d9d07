"""`final/cost.json`: the usage of all iterations of a run, each and together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ragpipe.scoring.operations import judge_rates

_PARTS = ("used", "spent", "saved", "wasted", "repriced")
_LATENCIES = ("latency_ms", "case_latency_ms")


def final_cost(per_iteration: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """`iterations` (`used`, `spent`, `saved`, `wasted`, `repriced` of each) and their `total`, from each one's `cost.json`.

    Every iteration asks under keys of its own, so no reply is counted twice. A sum is null when one of its parts is (an
    unknown price); `usd_known` sums what is known. `per_case` of the total is the cost of a case in all iterations together.
    """
    costs = list(per_iteration.values())
    return {
        "iterations": {str(number): {part: cost[part] for part in _PARTS} for number, cost in per_iteration.items()},
        "total": {part: _sum([cost[part] for cost in costs]) for part in _PARTS},
        "prices": costs[-1]["prices"],
    }


def _sum(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Sums key by key, in the order of the keys' first appearance; a key that a part lacks is 0 there."""
    keys = dict.fromkeys(key for part in parts for key in part)
    sums = {key: _sum_of(key, [part[key] for part in parts if key in part]) for key in keys}
    return {**sums, **judge_rates(sums)} if "error_rate" in sums else sums


def _sum_of(key: str, values: Sequence[Any]) -> Any:
    """The sum of one key's values. Rates are left null: they follow from the sums."""
    if key in _LATENCIES:
        return _latency([value for value in values if value])
    if any(isinstance(value, Mapping) for value in values):
        return _sum([value for value in values if value])
    if key.endswith("_rate") or any(value is None for value in values):
        return None
    return sum(values) if all(isinstance(value, int) for value in values) else math.fsum(values)


def _latency(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Of all iterations together: what can be added up. Percentiles cannot."""
    if not parts:
        return None
    return {"n": sum(part["n"] for part in parts), "sum": math.fsum(part["sum"] for part in parts)}
