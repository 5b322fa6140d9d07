"""What a run would still have to ask: its metrics run over the stored replies alone, and stop where one is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ragpipe.core.errors import JudgeError, Skipped
from ragpipe.judging.case_judge import CaseJudge
from ragpipe.judging.session import JudgeSession
from ragpipe.metrics.base import Computed, Metric, run_skip_reason
from ragpipe.schema.sample import Case, CaseKey
from ragpipe.stages.resume import CaseMark, ResumedCases
from ragpipe.stages.table_rows import Measurement, failed_measurement, journal_entry, scores_by_name


@dataclass(slots=True)
class Remaining:
    """Questions that find their reply in the store, and (at most) those that do not; what became of finished cases."""

    stored: int = 0
    missing: int = 0
    resumed: ResumedCases = field(default_factory=ResumedCases)


async def count_remaining(
    cases: Iterable[Case],
    metrics: Sequence[Metric],
    session: JudgeSession,
    found: Remaining,
    done: Mapping[CaseKey, CaseMark],
) -> None:
    """Replay every case through every metric that asks, and add up what was found. `session` has the `stored` transport. `done`
    are the cases that a journal calls finished.

    Where a reply is missing, what the metric declares to ask beyond the stored ones counts as missing.
    """
    asking = [metric for metric in metrics if not isinstance(metric, Computed)]
    for case in cases:
        missing = 0
        measured: list[Measurement | None] = []
        for metric in asking:
            if reason := run_skip_reason(metric, case, embedder=session.embedder is not None):
                measured.append(failed_measurement(metric, Skipped(reason), []))
                continue
            one, stored, lacking = await _replay(metric, case, session)
            measured.append(one)
            found.stored += stored
            missing += lacking
        found.missing += missing
        if before := done.get(case.key):
            known = [one for one in measured if one]
            result = journal_entry(case, known)["result"] if len(known) == len(measured) else None
            found.resumed.hold(case.key, before, result, missing)


async def _replay(metric: Metric, case: Case, session: JudgeSession) -> tuple[Measurement | None, int, int]:
    """What the metric gives over stored replies (None: not known), how many of its questions have one, and how many not."""
    judge = CaseJudge(session, case.key, metric.name)
    whole, measured = True, None
    try:
        measured = Measurement(metric, scores_by_name(metric, await metric.measure(case, judge)), [])
    except (JudgeError, Skipped) as outcome:
        whole = not any(use.call.status == "missing_reply" for use in judge.uses)
        measured = failed_measurement(metric, outcome, []) if whole else None
    except Exception:  # a bug of the metric's: the run itself will say so
        whole = False
    asked = [use for use in judge.uses if use.prompt is not None]  # texts to an embedder are planned apart
    stored = sum(use.call.status != "missing_reply" for use in asked)
    if whole:
        return measured, stored, 0
    missing = len(asked) - stored
    return None, stored, max(missing, sum(ask.times for ask in metric.planned_calls(case)) - stored)
