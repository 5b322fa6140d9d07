"""Slices: cases of one block that are measured together, here or in another process.

A slice is a pure function of the run folder: whoever measures it gives the same rows, so a run has the same bytes whatever its
slices are, and whoever measured which of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from ragpipe.core.errors import RagpipeError
from ragpipe.schema.sample import Case, CaseKey
from ragpipe.stages.case_measuring import CaseMeasuring
from ragpipe.stages.case_reader import CaseReader
from ragpipe.stages.table_rows import Measurement, PackedInputs, journal_entry, packed_inputs
from ragpipe.store.files.parquet_parts import encoded_part
from ragpipe.store.run.journal import journal_lines


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
    """What came of the cases of a slice, in their order.

    Attributes:
        cases: how many there are.
        lines: their lines of the journal (`journal_lines`).
        transient: how many failed for a transient reason.
        errors: for each case that failed, the kinds of error: one per measurement that failed.
        scores: the rows of `scores.parquet`: a table; or the bytes of a whole part, where no metric asks and the slice is a block.
        asked: per case the rows of `judge_inputs.parquet`; empty where no metric asks.
    """

    cases: int
    lines: bytes
    transient: int
    errors: list[list[str]]
    scores: pa.Table | bytes
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
    """Measure the cases of a slice. Raises the first error that is no result.

    Args:
        cases: the frozen cases.
        part: the slice.
        measuring: the metrics, with what they ask.
        room: the cases that may be open at once, of all slices under way.
        keep_messages: whether messages and replies are kept in `judge_inputs.parquet`.
    """
    measured, tasks = list[list[Measurement]](), list[asyncio.Task[list[Measurement]]]()
    computed = measuring.computed_scores()
    keys, questions = list[CaseKey](), list[str]()

    async def measure(case: Case) -> list[Measurement]:
        try:
            return await measuring.measure(case)
        finally:
            room.release()

    try:
        for case in cases.block(part.block, part.start, part.stop):
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
    table = measuring.score_table(keys, by_case, computed)
    is_part = not measuring.asks and len(keys) == cases.size(part.block)
    return MeasuredSlice(
        len(keys),
        journal_lines(finished_entry(*each, now) for each in zip(keys, questions, by_case, strict=True)),
        sum(any(measurement.transient for measurement in measurements) for measurements in measured),
        [kinds for kinds in map(failure_kinds, measured) if kinds],
        encoded_part(table) if is_part else table,
        [packed_inputs(key, m, keep_messages=keep_messages) for key, m in zip(keys, measured, strict=False)],
    )
