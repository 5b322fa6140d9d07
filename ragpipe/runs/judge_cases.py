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
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from ragpipe.core.digest import DIGEST_BYTES, name_digest, sha256
from ragpipe.core.errors import Interrupted, RagpipeError
from ragpipe.core.sample import Case, CaseKey
from ragpipe.judge.session import JudgeSession
from ragpipe.runs.case_measuring import (
    CaseMeasuring,
    MeasuredSlice,
    Slice,
    SliceRunner,
    failure_kinds,
    finished_entry,
    slices_of,
    time_of_entries,
)
from ragpipe.runs.load_dataset import BLOCK
from ragpipe.runs.measured_cases import CaseReader, ReplayedCase, ReplayedCases
from ragpipe.runs.table_rows import Measurement, PackedInputs, packed_inputs, row_groups
from ragpipe.store.files import outside_cause
from ragpipe.store.journal import Journal, entries_of, read_entries
from ragpipe.store.parquet_parts import Parts
from ragpipe.store.progress import FinishedCase, ProgressView
from ragpipe.store.run_folder import IterationFolder, RunFolder
from ragpipe.store.run_tables import read_columns
from ragpipe.store.table_rows import JUDGE_INPUTS, SCORES, table_from

OPEN_BLOCKS = 3
"""Blocks that may be unfinished at once: bounds memory when one slow case keeps its block open."""

GROUP_BYTES = 8 << 20
"""Characters of messages and replies at which a row group of `judge_inputs.parquet` is closed."""


@dataclass(slots=True)
class JudgingProgress:
    """Counts of an iteration under way. `transient` cases failed for a transient reason. `changed` cases have another result
    than an earlier start had written down, though `retry_errors` did not ask for it; where `contradicted`, the journal has two results
    of a case. `error_kinds` counts measurements that failed, by the kind of their error. `started` is in monotonic seconds."""

    cases: int
    done: int = 0
    resumed: int = 0
    errors: int = 0
    transient: int = 0
    changed: int = 0
    first_changed: str = ""
    contradicted: bool = False
    error_kinds: Counter[str] = field(default_factory=Counter)
    started: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class _Block:
    index: int
    keys: list[CaseKey]
    cases: list[Case]
    measured: list[list[Measurement] | None]
    asked: list[PackedInputs | None]
    left: int


class JudgeStage:
    """One iteration of the judging. `window` cases are open at once, or `slices` measures them elsewhere. With `retry_errors`
    finished blocks of an earlier start are done again where a case failed for any reason. `known` are cases that the plan has
    measured, `view` is the progress file; `on_change` is called after each finished case, `on_notice` with what the user should
    know."""

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
        known: ReplayedCases | None = None,
        slices: SliceRunner | None = None,
        view: ProgressView | None = None,
        on_change: Callable[[JudgingProgress], None] = lambda _: None,
        on_notice: Callable[[str], None] = lambda _: None,
    ):
        self._cases, self._session, self._folder = cases, session, folder
        self._measuring = measuring
        self._window = asyncio.Semaphore(window)
        self._slices = slices
        open_cases = window if slices is None else slices.width * slices.largest
        self._open = asyncio.Semaphore(max(OPEN_BLOCKS, 1 + open_cases // BLOCK))
        self._keep_messages, self._retry, self._replayed = keep_messages, retry_errors, known
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
        await asyncio.to_thread(self._inputs.join, self._folder.judge_inputs)
        await asyncio.to_thread(self._scores.join, self._folder.scores)
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
                replayed = self._replayed.take(case.key) if self._replayed is not None else None
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
            self._write_down(entries_of(measured.lines))
        except Exception as error:
            self._stop_for(error, f"block {part.block}")
            return None
        self._count(measured.cases, measured.transient, measured.errors)
        self._on_change(self.state)
        return measured

    def _write_slices(self, index: int, measured: Sequence[MeasuredSlice]) -> None:
        if self._measuring.asks:
            packed = (rows for part in measured for rows in part.asked)
            groups = row_groups(packed, GROUP_BYTES)
            self._inputs.write_groups(index, (table_from(columns, JUDGE_INPUTS) for columns in groups))
        self._scores.write(index, pa.concat_tables([part.scores for part in measured]))

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
        for case in self._cases.block(index, cells=self._measuring.reads_cells):
            keys.append(case.key)
            questions.append(case.question)
            for scores in computed.values():
                scores.add(case)
        now = time_of_entries()
        # Their lines first: a case that could not be journalled leaves its block unwritten, and is done again.
        self._write_down([finished_entry(*each, (), now) for each in zip(keys, questions, strict=True)])
        self._scores.write(index, self._measuring.score_table(keys, (), computed))
        self.state.done += len(keys)

    def _blocks_to_retry(self, finished: set[int]) -> set[int]:
        """The finished blocks with a case that is to be asked again, or that the journal lacks."""

        def is_settled(key: CaseKey) -> bool:
            mark = self._known.get(key)
            return mark is not None and not (mark.transient or (self._retry and mark.failed))

        return {index for index in finished if not all(map(is_settled, self._cases.keys(index)))}

    def _remember(self, entry: dict[str, Any]) -> bool:
        """Keep only the mark of a journal line: 100,000 whole lines would take 140 MB."""
        case, mark = case_of(entry, self._cases.iteration), case_mark(entry)
        before = self._known.get(case)
        if before is not None and before != mark and not (before.transient or entry.get("asked_again")):
            self.state.contradicted = True
        self._known[case] = mark
        self._show([entry])
        return False

    def _show(self, entries: Sequence[Mapping[str, Any]]) -> None:
        if self._view:
            cases = (case_of(entry, self._cases.iteration) for entry in entries)
            self._view.add_all(
                [
                    FinishedCase(case, entry["question"], entry["result"], entry["completed_at"])
                    for case, entry in zip(cases, entries, strict=True)
                ]
            )

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
        if isinstance(error, RagpipeError):
            self.stop(error)
            return
        why = outside_cause(error, any_file=True) or RagpipeError(f"{place}: {type(error).__name__}: {error}")
        why.__cause__ = error
        self.stop(why)

    async def _finish(self, block: _Block, place: int, case: Case, measured: list[Measurement]) -> None:
        entry = finished_entry(case.key, case.question, measured, time_of_entries())
        self._write_down([entry])
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

    def _write_down(self, entries: Sequence[dict[str, Any]]) -> None:
        """Append the journal lines of finished cases, but those that the journal has from an earlier start."""
        news = [entry for entry in entries if self._is_news(entry)]
        self._journal.append_all(news)
        self._show(news)

    def _is_news(self, entry: dict[str, Any]) -> bool:
        """Whether the journal does not have this line. Counts what is resumed, and what is another result than before."""
        case = case_of(entry, self._cases.iteration)
        before = self._known.get(case)
        if before is not None and before == case_mark(entry):
            self.state.resumed += 1
            return False
        if before and self._retry:
            entry["asked_again"] = True  # the user wanted a new result; without this mark it is a contradiction
        elif before and not before.transient:
            self.state.changed += 1
            self.state.contradicted = True
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
            rows or self._packed(block.keys[place], block.measured[place] or ()) for place, rows in enumerate(block.asked)
        )
        groups = row_groups(packed, GROUP_BYTES)
        self._inputs.write_groups(block.index, (table_from(columns, JUDGE_INPUTS) for columns in groups))
        self._scores.write(block.index, table)


JOURNAL_FORM = {
    "sample_id": str,
    "method": str,
    "repeat": int,
    "question": str,
    "completed_at": str,
    "transient": bool,
    "result": dict,
}
"""The fields of every line of the journal: see `journal_entry`."""


class CaseMark(NamedTuple):
    """What tells one journal line of a case from another: the digest of its result, whether asking again may change it, and
    whether one of its scores failed."""

    result: bytes
    transient: bool
    failed: bool


def _digest(result: Mapping[str, Any]) -> bytes:
    # 4 and 4.0 are one value: a table has only one of them
    values = {name: float(value) if isinstance(value, int) else value for name, value in result.items()}
    return bytes.fromhex(sha256(values))[:DIGEST_BYTES]


def case_mark(entry: Mapping[str, Any]) -> CaseMark:
    """The mark of a journal line, written or about to be."""
    result = entry["result"]
    return CaseMark(_digest(result), entry["transient"], "error" in result.values())


class CaseMarks:
    """The marks of many cases, by the digests of their names."""

    def __init__(self) -> None:
        self._marks: dict[bytes, CaseMark] = {}

    def __len__(self) -> int:
        return len(self._marks)

    def get(self, case: CaseKey) -> CaseMark | None:
        return self._marks.get(name_digest(*map(str, case))) if self._marks else None

    def __setitem__(self, case: CaseKey, mark: CaseMark) -> None:
        self._marks[name_digest(*map(str, case))] = mark


def case_of(entry: Mapping[str, Any], iteration: int) -> CaseKey:
    """The case that a journal line is about."""
    return CaseKey(entry["sample_id"], entry["method"], entry["repeat"], iteration)


class Resumption(NamedTuple):
    """What an iteration has from earlier starts: the blocks that are not done again, and the questions in them."""

    written: frozenset[int] = frozenset()
    stored: int = 0


def resumption(run: RunFolder, cases: CaseReader, iteration: int, *, is_done: bool) -> Resumption:
    """What journal and parts of an iteration say, or its tables where it is judged to its end. Raises DataError for a bad
    line."""
    folder = run.iteration(iteration)
    if is_done:
        return Resumption(frozenset(range(cases.blocks)), _questions(folder.judge_inputs))
    settled: dict[CaseKey, bool] = {}

    def note(entry: dict[str, Any]) -> bool:
        settled[case_of(entry, cases.iteration)] = not entry["transient"]
        return False

    read_entries(folder.journal, keep=note, form=JOURNAL_FORM)
    inputs = Parts(folder.parts / "judge_inputs", JUDGE_INPUTS)
    intact = (Parts(folder.parts / "scores", SCORES).intact() & inputs.intact()) if settled else ()
    written = [block for block in intact if block < cases.blocks and all(map(settled.get, cases.keys(block)))]
    return Resumption(frozenset(written), sum(_questions(inputs.path(block)) for block in written))


def _questions(judge_inputs: Path) -> int:
    """How many questions to a judge a table has; texts to an embedder have no template."""
    templates = read_columns(judge_inputs, ["template"])["template"]
    return len(templates) - int(templates.null_count)
