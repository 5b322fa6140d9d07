"""What a run still has to ask: its metrics run over the stored replies, and stop where one is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ragpipe.core.errors import JudgeError, Skipped
from ragpipe.judging.case_judge import CaseJudge
from ragpipe.judging.session import JudgeSession
from ragpipe.metrics.base import Computed, Metric, run_skip_reason
from ragpipe.schema.sample import Case, CaseKey
from ragpipe.stages.case_measuring import measure_case
from ragpipe.stages.replayed_cases import KnownMeasurements
from ragpipe.stages.resume import CaseMark, ResumedCases
from ragpipe.stages.table_rows import Measurement, failed_measurement, journal_entry, scores_by_name


@dataclass(slots=True)
class RemainingCalls:
    """Questions with a stored reply, questions (at most) without one, and what became of finished cases."""

    stored: int = 0
    missing: int = 0
    resumed: ResumedCases = field(default_factory=ResumedCases)

    def add_scaled(self, part: RemainingCalls, factor: float) -> None:
        """Add what was counted of some cases, each of which represents `factor` cases. None of them was finished."""
        self.stored += round(part.stored * factor)
        self.missing += round(part.missing * factor)


@dataclass(frozen=True, slots=True)
class _Replay:
    """What a metric gives for a case over stored replies, and how many of its questions have one."""

    measurement: Measurement | None
    stored: int
    missing: int


async def count_remaining(
    cases: Iterable[Case],
    metrics: Sequence[Metric],
    session: JudgeSession,
    total: RemainingCalls,
    done: Mapping[CaseKey, CaseMark],
    known: KnownMeasurements | None = None,
) -> None:
    """Replay every case through every metric that asks, and add what it needs to `total`.

    Where a reply is missing, all that the metric declares to ask beyond the stored questions counts as missing.

    Args:
        cases: the cases of one iteration.
        metrics: the metrics of the run; those that ask no judge are passed over.
        session: a session over stored replies.
        total: is added to.
        done: the cases that a journal calls finished.
        known: what need not be measured; it keeps the cases of which every question has a reply, for the run.
    """
    asking = [metric for metric in metrics if not isinstance(metric, Computed)]
    for case in cases:
        missing = 0
        measured: list[Measurement | None] = []
        holding = known.holding(case) if known is not None else {}
        for metric in asking:
            if before := holding.get(metric.name):
                measured.append(before)
                total.stored += sum(row["template"] is not None for row in before.rows or ())
                continue
            if reason := run_skip_reason(metric, case, embedder=session.embedder is not None):
                measured.append(failed_measurement(metric, Skipped(reason), []))
                continue
            replay = await _replay(metric, case, session)
            measured.append(replay.measurement)
            total.stored += replay.stored
            missing += replay.missing
        total.missing += missing
        certain = [measurement for measurement in measured if measurement]
        is_certain = len(certain) == len(measured)
        if mark := done.get(case.key):
            result = journal_entry(case.key, case.question, certain)["result"] if is_certain else None
            total.resumed.compare(case.key, mark, result, missing)
        if is_certain and known is not None:
            known.replayed.add(case.key, certain)


async def _replay(metric: Metric, case: Case, session: JudgeSession) -> _Replay:
    judge = CaseJudge(session, case.key, metric.name)
    is_known, measurement = True, None
    try:
        measurement = Measurement(metric, scores_by_name(metric, await measure_case(metric, case, judge)), judge.uses)
    except (JudgeError, Skipped) as outcome:
        is_known = not any(use.call.status == "missing_reply" for use in judge.uses)
        measurement = failed_measurement(metric, outcome, judge.uses) if is_known else None
    except Exception:  # a bug of the metric: the run itself will report it
        is_known = False
    asked = [use for use in judge.uses if use.prompt is not None]  # texts to an embedder are planned apart
    stored = sum(use.call.status != "missing_reply" for use in asked)
    if is_known:
        return _Replay(measurement, stored, 0)
    declared = sum(planned.times for planned in metric.planned_calls(case))
    return _Replay(None, stored, max(len(asked), declared) - stored)
