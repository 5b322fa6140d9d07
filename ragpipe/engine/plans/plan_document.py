"""The whole plan as JSON: what the data hold, what each metric needs and skips, every step, what gates can tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ragpipe.profiling.data_profile import DataProfile
from ragpipe.profiling.metric_needs import MetricNeed
from ragpipe.scoring.pointer_checks import Pointers
from ragpipe.stages.plan_calls import Plan


def plan_document(
    profile: DataProfile, pointers: Pointers, needs: Sequence[MetricNeed], plan: Plan | None, gates: Sequence[str]
) -> dict[str, Any]:
    """The plan as JSON.

    Args:
        profile: what the data hold.
        pointers: ids that lead nowhere.
        needs: of the metrics of the run.
        plan: what the run would ask; None for a live system.
        gates: a line for each gate by interval.
    """
    document = profile.document()
    document["dangling"] = [asdict(dangling) for dangling in pointers.dangling()]
    document["metrics"] = {need.name: asdict(need) for need in needs}
    document["gates"] = list(gates)
    if plan is None:
        return document
    for metric in plan.metrics:
        document["metrics"][metric.name] |= {"cases": metric.cases, "skipped": dict(metric.skipped)}
    document["not_recorded"] = [{**asdict(gap), "metrics": names} for gap, names in plan.gaps]
    document["steps"] = [
        {
            "metric": step.metric,
            "prompt": step.prompt,
            "calls": step.calls,
            "shared": step.shared,
            "tokens_in": step.tokens_in,
            "tokens_out": step.tokens_out,
            "earlier_replies": step.measured,
        }
        for step in plan.steps
    ]
    document["calls"] = {
        "all": plan.calls,
        "new": plan.new_calls,
        "tokens_in": plan.tokens_in,
        "tokens_out": plan.tokens_out,
    }
    document["rounds"] = plan.rounds
    return document
