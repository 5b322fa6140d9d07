"""Whether a metric applies to a case: the one place that plan, judging and replay ask."""

from __future__ import annotations

from ragpipe.metrics.base import Metric
from ragpipe.schema.sample import Case


def skip_reason(metric: Metric, case: Case, *, embedder: bool) -> str | None:
    """Why the metric is skipped for this case, None when it applies. `embedder`: whether the run has one.

    What holds whatever the system gave comes first: a failure of the system takes no score away from a metric that does
    not apply to the question. `not_recorded` is asked for again, as a metric's own `absent` may pass over it.
    """
    if not case.output.retrieves and (metric.measures_retrieval or "contexts" in metric.parts(case)):
        return "retrieves_nothing"
    no_embedder = metric.needs_embedder and not embedder
    if no_embedder or case.output.error:
        return metric.unlabelled(case.sample) or ("no_embedder" if no_embedder else "system_error")
    return metric.absent(case) or metric.not_recorded(case)
