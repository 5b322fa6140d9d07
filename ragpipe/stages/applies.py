"""Whether a metric applies to a case: the one place that plan, judging and replay ask."""

from __future__ import annotations

from ragpipe.metrics.base import Metric
from ragpipe.schema.sample import Case


def why_skipped(metric: Metric, case: Case, *, embedder: bool) -> str | None:
    """Why the metric is skipped for this case, None when it applies. `embedder`: whether the run has one."""
    if case.output.error:
        return "system_error"
    if not case.output.retrieves and (metric.measures_retrieval or "contexts" in metric.needed):
        return "retrieves_nothing"  # before the metric's own reasons: they would read as if something were amiss
    return metric.absent(case) or (None if embedder or not metric.needs_embedder else "no_embedder")
