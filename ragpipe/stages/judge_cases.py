"""Stage `judge`: runs every metric on every case, as concurrently as the judge allows; it can be stopped and resumed at any time.

Cases run in data order through a window. A finished case is a line in the journal; a finished block of consecutive
cases is a Parquet part; at the end the parts are joined. What a killed run had not written is done again, and its
questions find their replies in the call store.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401  asyncio loads it at first use: too late when no file can be opened
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ragpipe.core.errors import Interrupted, RagpipeError
from ragpipe.judging.session import JudgeSession
from ragpipe.schema.sample import Case, CaseKey
from ragpipe.schema.table_schemas import JUDGE_INPUTS, SCORES, table_from
from ragpipe.stages.case_measuring import CaseMeasuring
from ragpipe.stages.case_reader import CaseReader
from ragpipe.stages.load_dataset import BLOCK
from ragpipe.stages.measured_cases import KnownMeasurements, ReplayedCase
from ragpipe.stages.resume import JOURNAL_FORM, CaseMarks, case_mark, case_of
from ragpipe.stages.slices import (
    MeasuredSlice,
    Slice,
    SliceRunner,
    failure_kinds,
    finished_entry,
    slices_of,
    time_of_entries,
)
from ragpipe.stages.table_rows import Measurement, PackedInputs, packed_inputs, row_groups
from ragpipe.store.files.parquet_parts import Parts
from ragpipe.store.outside_causes import outside_cause
from ragpipe.store.run.journal import Journal, entries_of, journal_lines, last_lines
from ragpipe.store.run.progress_file import FinishedCase, ProgressView
from ragpipe.store.run.run_folder import IterationFolder

OPEN_BLOCKS = 3
"""Blocks that may be unfinished at once: bounds memory when one slow case keeps its block open."""

GROUP_BYTES = 8 << 20
"""Characters of messages and replies at which a row group of `judge_inputs.parquet` is closed."""


def _open_cases(window: int, slices: SliceRunner | None) -> int:
    """Cases that are open at once: here, or where they are measured elsewhere in slices."""
    return window if slices is None else slices.width * slices.largest


@dataclass(slots=True)
class JudgingProgress:
    """Counts of an iteration under way. `transient` cases failed for a transient reason. `changed` cases have another result
    than an earlier start had written down, though `retry_errors` did not ask for it. `error_kinds` counts measurements that
    failed, by the kind of their error. `started` is in monotonic seconds."""

    cases: int
    done: int = 0
    resumed: int = 0
    errors: int = 0
    transient: int = 0
    changed: int = 0
    first_changed: str = ""
    error_kinds: Counter[str] = field(default_factory=Counter)
    started: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class _Block:
    """A block under way."""

    index: int
    keys: list[CaseKey]
    cases: list[Case]
    measured: list[list[Measurement] | None]
    asked: list[PackedInputs | None]
    left: int


class JudgeStage:
    """One iteration of the judging.

    Args:
        cases: the frozen cases.
        measuring: the metrics, with what they ask.
        session: the judge session that the metrics ask through.
        folder: the folder of the iteration.
        window: cases that are open at once.
        keep_messages: whether messages and replies are kept in `judge_inputs.parquet`.
        retry_errors: whether finished blocks of an earlier start are done again where a case failed for any reason.
        known: what need not be measured.
        slices: measures the cases elsewhere; None: they are measured here.
        view: the progress file, which is kept up to date.
        on_change: called after each finished case.
        on_notice: called with what the user should know.
    """

    def __init__(
        self,
        *,
        cases: CaseReader,
        measuring: CaseMeasuring,
        session: JudgeSession,
        folder: IterationFolder,
        window: int,
        keep_messages: bool = True,
        retry_errors: bool = False,
        known: KnownMeasurements | None = None,
        slices: SliceRunner | None = None,
        view: ProgressView | None = None,
        on_change: Callable[[JudgingProgress], None] = lambda _: None,
        on_notice: Callable[[str], None] = lambda _: None,
    ):
        self._cases, self._session, self._folder = cases, session, folder
        self._measuring = measuring
        self._window = asyncio.Semaphore(window)
        self._slices = slices
        self._open = asyncio.Semaphore(max(OPEN_BLOCKS, 1 + _open_cases(window, slices) // BLOCK))
        self._keep_messages, self._retry, self._known_measurements = keep_messages, retry_errors, known
        self._view, self._on_change, self._on_notice = view, on_change, on_notice
        self._scores = Parts(folder.parts / "scores", SCORES)
        self._inputs = Parts(folder.parts / "judge_inputs", JUDGE_INPUTS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped: RagpipeError | None = None
        self._known = CaseMarks()
        self.state = JudgingProgress(cases.count)

    def stop(self, why: RagpipeError) -> None:
        """Start no new case and no new call; calls in flight finish, and their replies are kept."""
        self._stopped = self._stopped or why
        self._session.stop(why)
        if self._slices is not None:
            self._slices.stop(why)
        self._open.release()  # for a task that waits for a block to be finished: none will be

    def cancel(self) -> None:
        """Give up the calls in flight."""
        for task in tuple(self._tasks):
            task.cancel()
        self._session.cancel()
        if self._slices is not None:
            self._slices.cancel()

    async def run(self) -> JudgingProgress:
        """Judge all cases and write `scores.parquet` and `judge_inputs.parquet`. Raises what stopped it early."""
        self._journal = Journal.open(self._folder.journal, keep=self._remember, form=JOURNAL_FORM)
        try:
            for notice in self._journal.notices:
                self._on_notice(notice)
            await self._run_blocks()
            while self._tasks:
                await asyncio.wait(tuple(self._tasks))
            await self._session.drain()
            if self._stopped:
                raise self._stopped
        finally:
            self._journal.close()
            if self._view:
                self._view.flush()
        await asyncio.to_thread(self._join)
        return self.state

    async def _run_blocks(self) -> None:
        finished = self._scores.done()
        if self._measuring.asks:
            finished &= self._inputs.done()
        for notice in (*self._scores.notices, *self._inputs.notices):
            self._on_notice(notice)
        finished -= self._blocks_to_retry(finished)
        for index in range(self._cases.blocks):
            if index in finished:
                self.state.done += self._cases.size(index)
                self.state.resumed += self._cases.size(index)
                continue
            if self._slices is not None:
                await self._open.acquire()
                if self._stopped:
                    return
                self._start(self._measure_by_slices(index, self._slices))
                continue
            if not self._measuring.asks:
                if self._stopped:
                    return
                # finish the cases of one block together, where no metric asks a judge: they have nothing to wait for
                try:
                    await asyncio.to_thread(self._measure_block, index)  # the loop stays free to take a signal
                    self._on_change(self.state)
                except Exception as error:
                    self._stop_for(error, f"block {index}")
                continue
            await self._open.acquire()
            if self._stopped:
                return
            size = self._cases.size(index)
            block = _Block(index, [], [], [None] * size, [None] * size, size)
            for place, case in enumerate(self._cases.block(index)):
                block.keys.append(case.key)
                if self._measuring.computes:
                    block.cases.append(case)
                await self._window.acquire()
                if self._stopped:
                    return
                known = self._known_measurements
                replayed = known.replayed.take(case.key) if known is not None else None
                self._start(self._judge_case(block, place, case, replayed))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _measure_by_slices(self, index: int, runner: SliceRunner) -> None:
        """Finish the cases of one block, measured slice by slice elsewhere."""
        try:
            parts = list(slices_of(index, self._cases.size(index), runner.largest))
            measured = await asyncio.gather(*(self._measure_slice(part, runner) for part in parts))
            complete = [part for part in measured if part is not None]
            if len(complete) == len(parts):
                await asyncio.to_thread(self._write_slices, index, complete)
                self._open.release()
        except asyncio.CancelledError:
            self.stop(Interrupted("the run was cancelled"))
        except Exception as error:
            self._stop_for(error, f"block {index}")

    async def _measure_slice(self, part: Slice, runner: SliceRunner) -> MeasuredSlice | None:
        """What came of a slice, once its journal lines are written."""
        try:
            measured = await runner.measure(part)
            self._write_lines(measured.lines, measured.cases)
        except Exception as error:
            self._stop_for(error, f"block {part.block}")
            return None
        self._count(measured.cases, measured.transient, measured.errors)
        self._on_change(self.state)
        return measured

    def _write_slices(self, index: int, measured: Sequence[MeasuredSlice]) -> None:
        """Write a block from its slices."""
        if self._measuring.asks:
            packed = (rows for part in measured for rows in part.asked)
            groups = row_groups(packed, GROUP_BYTES)
            self._inputs.write_groups(index, (table_from(columns, JUDGE_INPUTS) for columns in groups))
        scores = [part.scores for part in measured]
        if isinstance(scores[0], bytes):
            self._scores.write_encoded(index, scores[0])
        else:
            self._scores.write(index, pa.concat_tables(scores))

    def _count(self, cases: int, transient: int, errors: Iterable[Sequence[str]]) -> None:
        """Count finished cases: those that failed for a transient reason, and the kinds of error of each that failed."""
        self.state.done += cases
        self.state.transient += transient
        for kinds in errors:
            self.state.errors += 1
            self.state.error_kinds.update(kinds)

    def _measure_block(self, index: int) -> None:
        computed = self._measuring.computed_scores()
        keys, questions = list[CaseKey](), list[str]()
        for case in self._cases.block(index):
            keys.append(case.key)
            questions.append(case.question)
            for scores in computed.values():
                scores.add(case)
        now = time_of_entries()
        entries = (finished_entry(*each, (), now) for each in zip(keys, questions, strict=True))
        # Their lines first: a case that could not be journalled leaves its block unwritten, and is done again.
        self._write_lines(journal_lines(entries), len(keys))
        self._scores.write(index, self._measuring.score_table(keys, (), computed))
        self.state.done += len(keys)

    def _blocks_to_retry(self, finished: set[int]) -> set[int]:
        """The finished blocks with a case that failed for a transient reason (with `retry_errors`: for any), or with one that
        the journal does not have, because it was moved away or damaged."""

        def is_settled(key: CaseKey) -> bool:
            mark = self._known.get(key)
            return mark is not None and not (mark.transient or (self._retry and mark.failed))

        return {index for index in finished if not all(map(is_settled, self._cases.keys(index)))}

    def _remember(self, entry: dict[str, Any]) -> bool:
        """Keep only the mark of a journal line: 100,000 whole lines would take 140 MB."""
        case = case_of(entry, self._cases.iteration)
        self._known[case] = case_mark(entry)
        self._show([(case, entry)])
        return False

    def _show(self, lines: Sequence[tuple[CaseKey, Mapping[str, Any]]]) -> None:
        if self._view:
            self._view.add_all([self._shown(entry) for _, entry in lines])

    def _shown(self, entry: Mapping[str, Any]) -> FinishedCase:
        case = case_of(entry, self._cases.iteration)
        return FinishedCase(case, entry["question"], entry["result"], entry["completed_at"])

    async def _judge_case(self, block: _Block, place: int, case: Case, replayed: ReplayedCase | None) -> None:
        try:
            try:
                if replayed is not None:
                    results = replayed.measured
                    block.asked[place] = replayed.asked
                else:
                    results = await self._measuring.measure(case)
            finally:
                self._window.release()
            await self._finish(block, place, case, results)
        except asyncio.CancelledError:
            self.stop(Interrupted("the run was cancelled"))
        except Exception as error:  # a task's exception would be lost, and its case with it
            self._stop_for(error, f"case {case.key}")

    def _stop_for(self, error: Exception, place: str) -> None:
        """Stop for what went wrong at a case or block."""
        if isinstance(error, RagpipeError):
            self.stop(error)
            return
        why = outside_cause(error, any_file=True) or RagpipeError(f"{place}: {type(error).__name__}: {error}")
        why.__cause__ = error
        self.stop(why)

    async def _finish(self, block: _Block, place: int, case: Case, measured: list[Measurement]) -> None:
        entry = finished_entry(case.key, case.question, measured, time_of_entries())
        self._write_down([case.key], [entry])
        # After its line: a case that could not be journalled leaves its block unwritten, and is done again.
        kinds = failure_kinds(measured)
        if not kinds and block.asked[place] is None:
            block.asked[place] = self._packed(case.key, measured)
            for measurement in measured:
                measurement.free()
        block.measured[place] = measured
        block.left -= 1
        self._count(1, entry["transient"], [kinds] if kinds else ())
        self._on_change(self.state)
        if block.left == 0:
            await asyncio.to_thread(self._write, block)
            self._open.release()

    def _write_lines(self, lines: bytes, count: int) -> None:
        """Append the journal lines of `count` finished cases (`journal_lines`)."""
        if self._known:
            entries = entries_of(lines)
            self._write_down([case_of(entry, self._cases.iteration) for entry in entries], entries)
            return
        self._journal.append_lines(lines)
        if self._view:
            self._view.add_new(count, lambda last: map(self._shown, entries_of(last_lines(lines, last))))

    def _write_down(self, cases: Sequence[CaseKey], entries: Sequence[dict[str, Any]]) -> None:
        """Append the journal lines of finished cases, but those that the journal has from an earlier start."""
        lines = [line for line in zip(cases, entries, strict=True) if self._is_news(*line)]
        self._journal.append_all(entry for _, entry in lines)
        self._show(lines)

    def _is_news(self, case: CaseKey, entry: dict[str, Any]) -> bool:
        """Whether the journal does not have this line. Counts what is resumed, and what is another result than before."""
        before = self._known.get(case)
        if before is not None and before == case_mark(entry):
            self.state.resumed += 1
            return False
        if before and self._retry:
            entry["asked_again"] = True  # the user wanted a new result; without this mark it is a contradiction
        elif before and not before.transient:
            self.state.changed += 1
            self.state.first_changed = self.state.first_changed or str(case)
        return True

    def _packed(self, case: CaseKey, measured: Iterable[Measurement]) -> PackedInputs:
        return packed_inputs(case, measured, keep_messages=self._keep_messages)

    def _write(self, block: _Block) -> None:
        """Write a block as one part of each table. Computed metrics run here; rows are in case and config order."""
        computed = self._measuring.computed_scores()
        for case in block.cases:
            for scores in computed.values():
                scores.add(case)
        table = self._measuring.score_table(block.keys, block.measured, computed)
        packed = (
            rows or self._packed(block.keys[place], block.measured[place] or ())
            for place, rows in enumerate(block.asked)
        )
        groups = row_groups(packed, GROUP_BYTES)
        self._inputs.write_groups(block.index, (table_from(columns, JUDGE_INPUTS) for columns in groups))
        self._scores.write(block.index, table)

    def _join(self) -> None:
        self._inputs.join(self._folder.judge_inputs)
        self._scores.join(self._folder.scores)
