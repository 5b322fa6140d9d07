"""What readers need of the JSON files of a run folder, which may come from anybody: checked when a file is read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

_EACH = "*"  # of a shape: every value of a mapping
_NUMBER = (int, float)
_MAYBE_NUMBER = (int, float, type(None))
_SCORES = {"scores": {_EACH: {"mean": _MAYBE_NUMBER, "n_ok": int}}}
_USAGE = {"calls": int, "replies": int, "tokens_in": int, "tokens_out": int, "usd_known": _NUMBER, "unpriced": int}
_USED = {**_USAGE, "calls_computed": int, "calls_failed": int}
_METRICS: dict[str, Any] = {
    "n_cases": int,
    "signature": str,
    "judge": {"label": str},
    "declared": {_EACH: {"low": _MAYBE_NUMBER, "high": _MAYBE_NUMBER, "higher_is_better": bool}},
    "overall": _SCORES,
    "by": {_EACH: {_EACH: _SCORES}},
    "scoring": {"level": _NUMBER},
}
_SHAPES: Mapping[str, Any] = {
    "metrics.json": {**_METRICS, "iteration": int},
    "cost.json": {"used": _USED, "spent": _USAGE, "prices": dict},
    "final/metrics.json": {**_METRICS, "iterations": [int]},
    "final/cost.json": {"total": {"used": _USED, "spent": _USAGE}},
    "gates.json": {"gates": [{"name": str, "outcome": str, "verdict": str, "sentence": str}]},
}


def shape_fault(path: Path, content: Mapping[str, Any]) -> str | None:
    """The first part of a run's document that is missing or of another kind, in words; None where all is there."""
    name = f"final/{path.name}" if path.parent.name == "final" else path.name
    return _fault(content, _SHAPES.get(name, {}), "")


def _fault(value: Any, shape: Any, place: str) -> str | None:
    if isinstance(shape, type | tuple):
        is_right = isinstance(value, shape) and not (isinstance(value, bool) and shape is not bool)
        return None if is_right else f"{place} is {value!r:.60}"
    if not isinstance(value, type(shape)):
        return f"{place} is a {type(value).__name__}"
    if isinstance(shape, list):
        parts = [(item, shape[0], f"{place}[{number}]") for number, item in enumerate(value)]
    elif _EACH in shape:
        parts = [(item, shape[_EACH], f"{place}.{key}") for key, item in value.items()]
    else:
        if missing := [key for key in shape if key not in value]:
            return f"no `{missing[0]}`" + (f" in {place.lstrip('.')}" if place else "")
        parts = [(value[key], kind, f"{place}.{key}") for key, kind in shape.items()]
    return next(filter(None, (_fault(item, kind, where.lstrip(".")) for item, kind, where in parts)), None)
