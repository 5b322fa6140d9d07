"""Measuring cases by the metrics of a run: by a judge, by a jury, or computed. What comes of one case depends on it alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ragpipe.core.errors import JudgeError, RagpipeError, Skipped
from ragpipe.core.user_faults import returned_fault
from ragpipe.judging.case_judge import CaseJudge
from ragpipe.judging.jury.jury import Jury
from ragpipe.judging.jury.settings import JurySettings
from ragpipe.judging.limits.retries import CaseTime
from ragpipe.judging.session import JudgeSession
from ragpipe.metrics.base import Computed, Metric, run_skip_reason
from ragpipe.schema.sample import Case, CaseKey
from ragpipe.schema.score import Score
from ragpipe.schema.table_schemas import SCORES, table_from
from ragpipe.stages.computed_scores import ComputedScores
from ragpipe.stages.decisive_errors import RUN_ENDING, decisive_error
from ragpipe.stages.jury_measurement import measure_by_jury
from ragpipe.stages.measure_case import measure_case
from ragpipe.stages.replayed_cases import KnownMeasurements
from ragpipe.stages.score_table import computed_table, in_case_order
from ragpipe.stages.table_rows import Measurement, add_scores, failed_measurement, scores_by_name
from ragpipe.store.outside_causes import outside_cause


class MetricBug(RagpipeError):
    """A metric raised something unexpected. `user_fault` is what to print where it returned what it must not; empty where its own
    code raised."""

    user_fault = ""


class CaseMeasuring:
    """The metrics of a run with what they ask.

    Args:
        metrics: the metrics in config order.
        session: the judge session that they ask through.
        case_deadline_s: seconds that the questions of one case may take together; None: any.
        on_metric_error: `stop` (an unexpected exception is a MetricBug) or `record` (it becomes that case's error).
        known: what need not be measured.
        jury: how the scores of the session's members become one; None where one judge judges.
    """

    def __init__(
        self,
        metrics: Sequence[Metric],
        session: JudgeSession,
        *,
        case_deadline_s: float | None = None,
        on_metric_error: str = "stop",
        known: KnownMeasurements | None = None,
        jury: JurySettings | None = None,
    ):
        self._metrics, self._session = tuple(metrics), session
        self._asking = tuple(m for m in metrics if not isinstance(m, Computed))
        self._case_deadline_s, self._record = case_deadline_s, on_metric_error == "record"
        self._known = known
        self._jury = None if jury is None else Jury(jury, session.members)

    @property
    def asks(self) -> bool:
        """Whether any metric asks."""
        return bool(self._asking)

    @property
    def computes(self) -> bool:
        """Whether any metric is computed."""
        return len(self._asking) < len(self._metrics)

    async def measure(self, case: Case) -> list[Measurement]:
        """Run every metric that asks on one case, at the same time, but for those whose measurement of an earlier run holds.
        Raises the first error that is no result."""
        holding = self._known.holding(case) if self._known is not None else {}
        left = (metric for metric in self._asking if metric.name not in holding)
        time_left = None if self._case_deadline_s is None else CaseTime(self._case_deadline_s)
        results = await asyncio.gather(
            *(self._measure(metric, case, time_left) for metric in left), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
            holding[result.metric.name] = result
        return [holding[metric.name] for metric in self._asking]

    async def _measure(self, metric: Metric, case: Case, time_left: CaseTime | None) -> Measurement:
        """Run one metric on one case, by the judge or by all members of a jury."""
        reason = run_skip_reason(metric, case, embedder=self._session.embedder is not None)
        if reason:
            return failed_measurement(metric, Skipped(reason), [])
        jury = self._jury
        if jury is None:
            return await self._measure_by(self._session, metric, case, time_left)
        return await measure_by_jury(
            metric, case.key, jury, lambda member, repeat: self._measure_by(member, metric, case, time_left, repeat)
        )

    async def _measure_by(
        self, session: JudgeSession, metric: Metric, case: Case, time_left: CaseTime | None, repeat: int | None = None
    ) -> Measurement:
        """Run one metric on one case by one judge. A failed judgement is a result; a bug is not, unless it is recorded."""
        judge = CaseJudge(session, case.key, metric.name, time=time_left, repeat=repeat)
        try:
            return Measurement(metric, scores_by_name(metric, await measure_case(metric, case, judge)), judge.uses)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return self._record_bug(metric, case.key, RuntimeError("it was cancelled by a task of its own"), judge)
        except SystemExit as error:  # of the metric: it would end the event loop, and the run as if it were done
            return self._record_bug(metric, case.key, error, judge)
        except Exception as error:
            decisive = decisive_error(error)
            if isinstance(decisive, Skipped | JudgeError):
                return failed_measurement(metric, decisive, judge.uses)
            if isinstance(decisive, RUN_ENDING):
                raise decisive from None
            return self._record_bug(metric, case.key, decisive, judge)

    def _record_bug(self, metric: Metric, case: CaseKey, error: BaseException, judge: CaseJudge | None) -> Measurement:
        if isinstance(error, Exception) and (
            cause := outside_cause(error)
        ):  # not the fault of the metric: another start may succeed
            raise cause from error
        text = f"metric {metric.name} on case {case}: {type(error).__name__}: {error}"
        if not self._record:
            bug = MetricBug(
                f"{text}\n    the run stops at the first unexpected error; on_metric_error=record keeps it as that case's "
                "error and goes on"
            )
            if isinstance(
                error, RagpipeError
            ):  # what the metric returned was refused: no line of its code is to be shown
                bug.user_fault = returned_fault(metric.name, str(case), str(error))
            raise bug from error
        scores = [
            Score(status="error", reason=f"metric_error: {text}", details={"kind": "metric_error"})
            for _ in metric.score_names
        ]
        return Measurement(metric, scores, judge.uses if judge else [])

    def computed_scores(self) -> dict[str, ComputedScores]:
        """For each computed metric, by name, what gathers its scores of some cases."""

        def scores_of(metric: Computed) -> ComputedScores:
            return ComputedScores(metric, lambda case, error: self._record_bug(metric, case, error, None).scores)

        return {metric.name: scores_of(metric) for metric in self._metrics if isinstance(metric, Computed)}

    def score_table(
        self,
        keys: Sequence[CaseKey],
        measured: Iterable[Sequence[Measurement] | None],
        computed: Mapping[str, ComputedScores],
    ) -> pa.Table:
        """The rows of `scores.parquet` for some cases: case by case, in config order.

        Args:
            keys: the cases.
            measured: for each what the metrics that ask gave; not read where none asks.
            computed: `computed_scores` with all of the cases.
        """
        by_case, tables = list(measured) if self.asks else [], []
        for metric in self._metrics:
            if metric.name in computed:
                tables.append(computed_table(metric.name, keys, computed[metric.name].columns()))
                continue
            columns: dict[str, list[Any]] = {name: [] for name in SCORES.names}
            for key, measurements in zip(keys, by_case, strict=True):
                add_scores(columns, key, next(m for m in measurements or () if m.metric.name == metric.name))
            tables.append(table_from(columns, SCORES))
        return in_case_order(tables, len(keys))
