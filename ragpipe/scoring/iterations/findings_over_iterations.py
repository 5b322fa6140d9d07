"""Failure modes, diagnoses and operations over all iterations of a run.

Each iteration judges every case again, so a case can have a mode in one iteration and not in the next: what is counted are
cases of iterations, `n_cases` times the number of iterations in all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ragpipe.schema.sample import OUTPUT_KEY
from ragpipe.scoring.rules.diagnosis import EXAMPLES

_COUNTED = ("n_with_failure_mode", "n_failure_modes", "n_failed_without_mode", "failure_modes", "diagnosis")


def group_findings(per_iteration: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the iterations' summaries of one group count, added up; the operations are those of the first.

    The outputs are the same in every iteration, and with them how the system ran.
    """
    counted = {key: _added([group[key] for group in per_iteration if key in group]) for key in _COUNTED}
    return {"operations": per_iteration[0]["operations"], **counted}


def findings_document(per_iteration: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """`diagnosis`, `failure_items` and `not_applicable` over the iterations' `metrics.json`.

    The examples of a diagnosis are the cases that the most iterations name, the first in data order where as many do. A
    rule is not applicable where no iteration could decide it.
    """
    made = [entry for metrics in per_iteration for entry in metrics["diagnosis"]]
    listed = [
        _merged([entry for entry in made if entry["name"] == name]) for name in per_iteration[0]["overall"]["diagnosis"]
    ]
    first, *others = [metrics["not_applicable"] for metrics in per_iteration]
    not_applicable = {
        kind: [name for name in names if all(name in later[kind] for later in others)] for kind, names in first.items()
    }
    items = {mode: name for metrics in per_iteration for mode, name in metrics["failure_items"].items()}
    return {"diagnosis": [entry for entry in listed if entry], "failure_items": items, "not_applicable": not_applicable}


def _merged(made: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One diagnosis as several iterations made it; empty where none did."""
    if not made:
        return {}
    cases = Counter(tuple(case[name] for name in OUTPUT_KEY) for entry in made for case in entry["examples"])
    examples = [dict(zip(OUTPUT_KEY, key, strict=True)) for key, _ in cases.most_common(EXAMPLES)]
    counts = {key: sum(entry[key] for entry in made) for key in ("n", "n_first", "n_judged")}
    return {**made[0], **counts, "examples": examples}


def _added(parts: Sequence[Any]) -> Any:
    """Numbers summed, objects key by key."""
    if not isinstance(parts[0], Mapping):
        return sum(parts)
    keys = dict.fromkeys(key for part in parts for key in part)
    return {key: _added([part[key] for part in parts if key in part]) for key in keys}
