"""What a run would still have to ask: its metrics run over the stored replies alone, and stop where one is missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ragpipe.errors import JudgeError, Skipped
from ragpipe.judging.door import Door
from ragpipe.metrics.base import Computed, Metric
from ragpipe.schema.sample import Case
from ragpipe.stages.applies import why_skipped


@dataclass(slots=True)
class Remaining:
    """Questions that find their reply in the store, and (at most) those that do not."""

    stored: int = 0
    missing: int = 0


async def remaining(cases: Iterable[Case], metrics: Sequence[Metric], door: Door) -> Remaining:
    """Replay every case through every metric that asks. `door` has the `stored` transport.

    Where a reply is missing, what the metric declares to ask beyond the stored ones counts as missing.
    """
    found = Remaining()
    asking = [metric for metric in metrics if not isinstance(metric, Computed)]
    for case in cases:
        for metric in asking:
            if why_skipped(metric, case, embedder=door.embedder is not None) is None:
                await _replay(metric, case, door, found)
    return found


async def _replay(metric: Metric, case: Case, door: Door, found: Remaining) -> None:
    judge = door.for_case(case.key, metric.name)
    whole = True
    try:
        await metric.measure(case, judge)
    except (JudgeError, Skipped):
        whole = not any(use.call.status == "missing_reply" for use in judge.uses)
    except Exception:  # a bug of the metric's: the run itself will say so
        whole = False
    asked = [use for use in judge.uses if use.prompt is not None]  # texts to an embedder are planned apart
    stored = sum(use.call.status != "missing_reply" for use in asked)
    found.stored += stored
    if not whole:
        missing = len(asked) - stored
        found.missing += max(missing, sum(ask.times for ask in metric.asks(case)) - stored)
