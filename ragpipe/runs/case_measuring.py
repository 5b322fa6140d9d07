"""Measuring cases by the metrics of a run: by a judge, by a jury, or computed. What comes of one case depends on it alone.

Slices are cases of one block that are measured together, here or in another process. A slice is a pure function of the run folder:
whoever measures it gives the same rows, so a run has the same bytes whatever its slices are, and whoever measured which of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from ragpipe.core.digest import canonical_json
from ragpipe.core.errors import RUN_ENDING, JudgeError, RagpipeError, Skipped, decisive_error, returned_fault
from ragpipe.core.sample import Case, CaseKey
from ragpipe.core.score import Score, ScoreColumns
from ragpipe.judge.answer_type import Answer
from ragpipe.judge.case_judge import CaseJudge
from ragpipe.judge.jury import CascadeSettings, Jury, JurySettings, combine, is_drawn, is_unsure
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.question import InProcessJudge
from ragpipe.judge.session import JudgeSession
from ragpipe.judge.vectors import Floats, TokenMatch
from ragpipe.metrics.base import Computed, Metric, read_cells_alone, run_skip_reason
from ragpipe.runs.measured_cases import CaseReader
from ragpipe.runs.table_rows import (
    Measurement,
    PackedInputs,
    add_scores,
    failed_measurement,
    journal_entry,
    packed_inputs,
    scores_by_name,
)
from ragpipe.store.files import outside_cause
from ragpipe.store.journal import journal_lines
from ragpipe.store.table_rows import SCORES, table_from


class MetricBug(RagpipeError):
    """A metric raised something unexpected. `user_fault` is what to print where it returned what it must not; empty where its own
    code raised."""

    user_fault = ""


class CaseMeasuring:
    """The metrics of a run, in config order, with what they ask. `on_metric_error` is `stop` (an unexpected exception is a
    MetricBug) or `record` (it becomes that case's error); `jury` says how the scores of the session's members become one."""

    def __init__(
        self,
        metrics: Sequence[Metric],
        session: JudgeSession,
        *,
        on_metric_error: str = "stop",
        jury: JurySettings | None = None,
    ):
        self._metrics, self._session = tuple(metrics), session
        self._asking = tuple(m for m in metrics if not isinstance(m, Computed))
        self._record = on_metric_error == "record"
        self._jury = None if jury is None else Jury(jury, session.members)

    @property
    def asks(self) -> bool:
        """Whether any metric asks."""
        return bool(self._asking)

    @property
    def computes(self) -> bool:
        """Whether any metric is computed."""
        return len(self._asking) < len(self._metrics)

    @property
    def reads_cells(self) -> bool:
        """Whether the fields of chunks are all that the metrics read of them."""
        return read_cells_alone(self._metrics)

    async def measure(self, case: Case) -> list[Measurement]:
        """Run every metric that asks on one case, at the same time. Raises the first error that is no result."""
        asking = (self._measure(metric, case) for metric in self._asking)
        results = await asyncio.gather(*asking, return_exceptions=True)
        measured = []
        for result in results:
            if isinstance(result, BaseException):
                raise result
            measured.append(result)
        return measured

    async def _measure(self, metric: Metric, case: Case) -> Measurement:
        reason = run_skip_reason(metric, case, embedder=self._session.embedder is not None)
        if reason:
            return failed_measurement(metric, Skipped(reason), [])
        jury = self._jury
        if jury is None:
            return await self._measure_by(self._session, metric, case)
        return await measure_by_jury(
            metric, case.key, jury, lambda member, repeat: self._measure_by(member, metric, case, repeat)
        )

    async def _measure_by(self, session: JudgeSession, metric: Metric, case: Case, repeat: int | None = None) -> Measurement:
        """Run one metric on one case by one judge. A failed judgement is a result; a bug is not, unless it is recorded."""
        judge = CaseJudge(session, case.key, metric.name, repeat=repeat)
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
            if isinstance(error, RagpipeError):  # what the metric returned was refused: no line of its code is to be shown
                bug.user_fault = returned_fault(metric.name, str(case), str(error))
            raise bug from error
        scores = [
            Score(status="error", reason=f"metric_error: {text}", details={"kind": "metric_error"}) for _ in metric.score_names
        ]
        return Measurement(metric, scores, judge.uses if judge else [])

    def computed_scores(self) -> dict[str, ComputedScores]:
        """For each computed metric, by name, what gathers its scores of some cases."""

        def scores_of(metric: Computed) -> ComputedScores:
            return ComputedScores(metric, lambda case, error: self._record_bug(metric, case, error, None).scores)

        return {metric.name: scores_of(metric) for metric in self._metrics if isinstance(metric, Computed)}

    def score_table(
        self, keys: Sequence[CaseKey], measured: Iterable[Sequence[Measurement] | None], computed: Mapping[str, ComputedScores]
    ) -> pa.Table:
        """The rows of `scores.parquet` for the cases `keys`, in config order: `measured` is what the metrics that ask gave
        for each, `computed` are `computed_scores` with all of them."""
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


A = TypeVar("A", bound=Answer)


async def measure_case(metric: Metric, case: Case, judge: CaseJudge) -> Score | Sequence[Score]:
    """The scores of one metric for one case that it applies to. Raises Skipped where the metric asked nothing, and the rules
    judge could not have answered about the same case with contexts and an answer."""
    scores = await metric.measure(case, judge)
    in_process = judge.session.in_process
    if in_process is None or judge.uses or not metric.prompts() or not _has_a_value(scores):
        return scores
    whole = metric.with_whole_output(case)
    if whole is not None:
        await metric.measure(whole, _Trial(in_process))
    return scores


def _has_a_value(scores: Score | Sequence[Score]) -> bool:
    return any(score.value is not None for score in ([scores] if isinstance(scores, Score) else scores))


class _Trial:
    """The rules judge, asked without a record: whether it can answer is all that counts."""

    def __init__(self, judge: InProcessJudge):
        self._judge = judge

    async def __call__(self, prompt: Prompt, answer: type[A], /, **values: Mapping[str, Any]) -> A:
        return self._judge.answer(prompt, answer, values)

    async def embed(self, texts: Sequence[str], /) -> list[Floats]:
        self._refuse()

    def was_truncated(self, text: str, /) -> bool:
        return False

    async def match(self, encoder: Any, candidate: str, reference: str, /, *, idf: bool = False) -> TokenMatch:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise Skipped("no_embedder")


OnBug = Callable[[CaseKey, BaseException], list[Score]]
"""What becomes of an unexpected exception about a case: its scores. Raises what ends the run instead."""
_BUGS = (Exception, SystemExit, asyncio.CancelledError)
"""What a metric may raise: nothing of it ends this process, or cancels what runs here, in the name of the metric."""


@dataclass(frozen=True, slots=True)
class _Failed:
    error: BaseException


class ComputedScores:
    """The scores of one metric: it takes from each case what it needs, and computes them together."""

    def __init__(self, metric: Computed, on_bug: OnBug):
        self._metric, self._on_bug = metric, on_bug
        self._reasons: list[str | None] = []
        self._keys: list[CaseKey] = []
        self._prepared: list[Any] = []

    def add(self, case: Case) -> None:
        """Add the next case. What the metric does not need of it is not kept."""
        reason = run_skip_reason(self._metric, case, embedder=False)
        self._reasons.append(reason)
        if reason is None:
            self._keys.append(case.key)
            try:
                self._prepared.append(self._metric.prepare(case))
            except _BUGS as error:
                self._prepared.append(_Failed(error))

    def columns(self) -> ScoreColumns:
        """The scores of all cases, in their order. Raises what `on_bug` raises."""
        return self._computed(self._keys, self._prepared).with_skipped(self._reasons)

    def _computed(self, keys: Sequence[CaseKey], prepared: Sequence[Any]) -> ScoreColumns:
        try:
            for part in prepared:
                if isinstance(part, _Failed):
                    raise part.error
            return self._at_once(prepared)
        except _BUGS as error:
            return ScoreColumns.of(self._metric.score_names, self._one_by_one(keys, prepared, error))

    def _one_by_one(self, keys: Sequence[CaseKey], prepared: Sequence[Any], error: BaseException) -> list[list[Score]]:
        """The scores of each case by itself, after an error of all: the cases at fault, or all where none fails alone."""
        if len(keys) == 1:
            return [self._on_bug(keys[0], error)]
        rows, failed = list[list[Score]](), 0
        for key, part in zip(keys, prepared, strict=True):
            try:
                if isinstance(part, _Failed):
                    raise part.error
                rows += self._at_once([part]).rows()
            except _BUGS as alone:
                failed += 1
                rows.append(self._on_bug(key, alone))
        return rows if failed else [self._on_bug(key, error) for key in keys]

    def _at_once(self, prepared: Sequence[Any]) -> ScoreColumns:
        names = self._metric.score_names
        columns = self._metric.compute_columns(prepared) if prepared else None
        if columns is None:
            results = self._metric.compute(prepared) if prepared else ()
            if len(results) != len(prepared):
                raise RagpipeError(f"compute gave {len(results)} results for {len(prepared)} cases: one each is expected")
            scores = [scores_by_name(self._metric, result) for result in results]
            return ScoreColumns.of(names, scores)
        if (columns.names, columns.cases) != (names, len(prepared)):
            raise RagpipeError(f"the metric gave {columns.cases} x {columns.names} for {len(prepared)} cases")
        return columns


def computed_table(metric: str, keys: Sequence[CaseKey], scores: ScoreColumns) -> pa.Table:
    """The rows of one computed metric, case after case. `scores` are those of the cases named by `keys`."""
    count, rows = len(scores.names), len(keys) * len(scores.names)
    of_case = pa.array(np.repeat(np.arange(len(keys)), count))
    of_score = pa.array(np.tile(np.arange(count), len(keys)))
    columns = {
        "sample_id": pa.array([key.sample_id for key in keys], pa.string()).take(of_case),
        "method": pa.array([key.method for key in keys], pa.string()).take(of_case),
        "repeat": pa.array([key.repeat for key in keys], pa.int64()).take(of_case),
        "iteration": pa.array([key.iteration for key in keys], pa.int64()).take(of_case),
        "metric": pa.repeat(metric, rows),
        "score_name": pa.array(scores.names, pa.string()).take(of_score),
        "value": scores.values,
        "status": scores.statuses,
        "reason": scores.reasons,
        "details": [canonical_json(details) if details else None for details in scores.details],
        "calls": pa.ListArray.from_arrays(pa.array(np.zeros(rows + 1, np.int32)), pa.array([], pa.string())),
    }
    return table_from(columns, SCORES)


def in_case_order(tables: Sequence[pa.Table], cases: int) -> pa.Table:
    """The rows of several metrics, case by case, and for each case in the order of the tables. Each table has the same number
    of rows for every case."""
    if len(tables) == 1:
        return tables[0]
    places, start = [], 0
    for table in tables:
        places.append(np.arange(start, start + table.num_rows).reshape(cases, -1))
        start += table.num_rows
    return pa.concat_tables(tables).take(pa.array(np.concatenate(places, axis=1).ravel()))


Measure = Callable[[JudgeSession, int], Awaitable[Measurement]]
"""Measures the case by the judge of a session; the number says which repeat it is, from 1. A failed judgement is a result."""


async def measure_by_jury(metric: Metric, case: CaseKey, jury: Jury, measure: Measure) -> Measurement:
    """The scores of a jury for one metric and case, with the questions of all members. Raises what `measure` raises."""
    sessions, cascade = jury.members_of(metric.name), jury.settings.cascade_of(metric.name)
    if cascade is None:
        by_member = await _ask(sessions, jury.settings.repeats, measure)
        return _combined(metric, jury, by_member)
    first = await _ask({cascade.first: sessions[cascade.first]}, jury.settings.repeats, measure)
    alone = _combined(metric, jury, first)
    unsure = any(is_unsure(cascade, *pair) for pair in zip(metric.scores(), alone.scores, strict=True))
    drawn = not unsure and is_drawn(cascade, case, metric.name)
    if not (unsure or drawn):
        return _of_cascade(alone, cascade.first, None, drawn=False)
    second = await _ask({cascade.then: sessions[cascade.then]}, jury.settings.repeats, measure)
    return _decided(metric, jury, cascade, alone, second, drawn=drawn)


async def _ask(sessions: Mapping[str, JudgeSession], repeats: int, measure: Measure) -> dict[str, list[Measurement]]:
    """What each member measures, repeat after repeat; all at the same time."""
    asked = [(name, measure(session, repeat)) for name, session in sessions.items() for repeat in range(1, repeats + 1)]
    results = await asyncio.gather(*(work for _, work in asked), return_exceptions=True)
    by_member: dict[str, list[Measurement]] = {name: [] for name in sessions}
    for (name, _), result in zip(asked, results, strict=True):
        if isinstance(result, BaseException):
            raise result
        by_member[name].append(result)
    return by_member


def _combined(metric: Metric, jury: Jury, by_member: Mapping[str, Sequence[Measurement]]) -> Measurement:
    """One measurement of the members'. It may change by asking again where one of theirs may."""
    settings = jury.settings
    scores = [
        combine(
            spec,
            {name: [repeat.scores[place] for repeat in repeats] for name, repeats in by_member.items()},
            rule=settings.aggregation_of(metric.name),
            min_members=settings.min_members,
            threshold=settings.agreement_threshold,
        )
        for place, spec in enumerate(metric.scores())
    ]
    measured = [repeat for repeats in by_member.values() for repeat in repeats]
    uses = [use for measurement in measured for use in measurement.uses]
    return Measurement(metric, scores, uses, transient=any(measurement.transient for measurement in measured))


def _decided(
    metric: Metric,
    jury: Jury,
    cascade: CascadeSettings,
    alone: Measurement,
    second: Mapping[str, Sequence[Measurement]],
    *,
    drawn: bool,
) -> Measurement:
    """The second member's where the first was unsure, the first's where the case was drawn to measure the bias."""
    then = _combined(metric, jury, second)
    counting, name = (alone, cascade.first) if drawn else (then, cascade.then)
    decided = _of_cascade(counting, name, [alone, then], drawn=drawn)
    decided.uses = [*alone.uses, *then.uses]
    decided.transient = alone.transient or then.transient
    return decided


def _of_cascade(counting: Measurement, by: str, both: Sequence[Measurement] | None, *, drawn: bool) -> Measurement:
    scores = []
    for place, score in enumerate(counting.scores):
        values = [measurement.scores[place].value for measurement in both] if both else None
        word = {"by": by, "drawn": drawn, **({"values": values} if values else {})}
        jury = {**score.details.get("jury", {}), "cascade": word}
        scores.append(Score(score.value, score.name, score.status, score.reason, {**score.details, "jury": jury}))
    return Measurement(counting.metric, scores, list(counting.uses), transient=counting.transient)


class Slice(NamedTuple):
    """Rows `start` to `stop` (not included) of one block, from 0."""

    block: int
    start: int
    stop: int

    def __str__(self) -> str:
        return f"rows {self.start} to {self.stop - 1} of block {self.block}"


def slices_of(block: int, size: int, largest: int) -> Iterator[Slice]:
    """A block of `size` cases in slices of at most `largest`, all about as large."""
    count = -(-size // largest)
    bounds = [size * number // count for number in range(count + 1)]
    return (Slice(block, start, stop) for start, stop in pairwise(bounds))


@dataclass(frozen=True, slots=True)
class MeasuredSlice:
    """What came of the cases of a slice, in their order: their number, their lines of the journal, how many failed for a
    transient reason, and for each that failed the kinds of error. `scores` are rows of `scores.parquet`, `asked` those of
    `judge_inputs.parquet` by case."""

    cases: int
    lines: bytes
    transient: int
    errors: list[list[str]]
    scores: pa.Table
    asked: list[PackedInputs]


class SliceRunner(Protocol):
    """Measures slices somewhere else, several at once."""

    @property
    def largest(self) -> int:
        """The most cases of a slice."""
        ...

    @property
    def width(self) -> int:
        """How many slices are taken at once."""
        ...

    async def measure(self, part: Slice) -> MeasuredSlice:
        """What came of a slice. Raises what stopped its measuring."""
        ...

    def stop(self, why: RagpipeError) -> None:
        """Start no new slice. Those under way end with an error."""
        ...

    def cancel(self) -> None:
        """End at once."""
        ...


def failure_kinds(measured: Iterable[Measurement]) -> list[str]:
    """The kind of error of each measurement that failed."""
    first_errors = (next((s for s in m.scores if s.status == "error"), None) for m in measured)
    return [str((score.details or {}).get("kind", "other")) for score in first_errors if score is not None]


def time_of_entries() -> str:
    """The time now, as journal lines have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def finished_entry(case: CaseKey, question: str, measured: Sequence[Measurement], completed_at: str) -> dict[str, Any]:
    """The journal line of a finished case."""
    return {**journal_entry(case, question, measured), "completed_at": completed_at}


async def measure_slice(
    cases: CaseReader, part: Slice, measuring: CaseMeasuring, *, room: asyncio.Semaphore, keep_messages: bool
) -> MeasuredSlice:
    """Measure the cases of a slice. `room` has the cases that may be open at once, of all slices under way. Raises the first
    error that is no result."""
    measured, tasks = list[list[Measurement]](), list[asyncio.Task[list[Measurement]]]()
    computed = measuring.computed_scores()
    keys, questions = list[CaseKey](), list[str]()

    async def measure(case: Case) -> list[Measurement]:
        try:
            return await measuring.measure(case)
        finally:
            room.release()

    try:
        for case in cases.block(part.block, part.start, part.stop, cells=measuring.reads_cells):
            keys.append(case.key)
            questions.append(case.question)
            for scores in computed.values():
                scores.add(case)
            if measuring.asks:
                await room.acquire()
                tasks.append(asyncio.create_task(measure(case)))
        measured = [await task for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
    by_case: Sequence[Sequence[Measurement]] = measured or [()] * len(keys)
    now = time_of_entries()
    return MeasuredSlice(
        len(keys),
        journal_lines(finished_entry(*each, now) for each in zip(keys, questions, by_case, strict=True)),
        sum(any(measurement.transient for measurement in measurements) for measurements in measured),
        [kinds for kinds in map(failure_kinds, measured) if kinds],
        measuring.score_table(keys, by_case, computed),
        [packed_inputs(key, m, keep_messages=keep_messages) for key, m in zip(keys, measured, strict=False)],
    )
