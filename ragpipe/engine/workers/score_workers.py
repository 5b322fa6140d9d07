"""Scoring an iteration by several processes: each describes blocks of cases, this one puts them together in order.

Whatever is wrong with the tables or with a worker, this process scores all of the iteration again by itself: so errors, too, are those
of one process.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

from ragpipe.core.errors import DataError
from ragpipe.engine.workers.score_messages import RowGroupTask, ScoreStart, described_of
from ragpipe.engine.workers.worker_processes import MOST_WAITING, WorkerLost, WorkerPool, in_order
from ragpipe.schema.sample import OUTPUT_KEY
from ragpipe.scoring.case_blocks import keys_of
from ragpipe.scoring.described_blocks import DescribedBlock
from ragpipe.scoring.judge_latency import JudgeTimes
from ragpipe.stages.score_iteration import ScoreInputs, score_iteration
from ragpipe.store.run.run_tables import open_table

FEWEST_CASES = 20_000
"""Cases from which on workers are worth their start."""
_AHEAD = 1  # row groups per worker that are described before their turn


class _ScoreAlone(Exception):
    """The iteration is to be scored by one process after all."""


def score_by_workers(
    inputs: ScoreInputs, workers: WorkerPool, *, width: int, say: Callable[[str], None]
) -> dict[str, Any] | None:
    """Score one iteration and return the content of `metrics.json`. None where nothing was written, and one process is to score it: it
    is small, its tables are not divided alike, or something in them is wrong.

    Args:
        inputs: what to score, and how.
        workers: the processes that describe the blocks.
        width: the number of workers that there may be.
        say: prints what the user should know.

    Raises what scoring raises after the last block.
    """
    width = min(width, MOST_WAITING)
    if width < 2 or not _is_divided(inputs):
        return None
    if (start := _start(inputs)) is None:
        return None

    def described(_: ScoreInputs, times: JudgeTimes) -> Generator[DescribedBlock, None, None]:
        with workers.answering("score", start.values(), width) as ask:

            def answer(task: RowGroupTask) -> list[DescribedBlock] | None:
                return described_of(*ask(task.message()), start)

            for blocks in in_order(answer, _tasks(inputs, times), width, ahead=_AHEAD):
                if blocks is None:
                    raise _ScoreAlone
                yield from blocks

    try:
        return score_iteration(inputs, described)
    except WorkerLost as error:
        say(f"a worker that scored died ({error}); this process scores alone")
    except _ScoreAlone:  # one process says what is wrong with the tables
        pass
    return None


def _start(inputs: ScoreInputs) -> ScoreStart | None:
    """What workers are told; None where they would not read the same in it, such as an endless scale."""
    try:
        start = ScoreStart.of(inputs)
        return start if ScoreStart.from_values(start.values()) == start else None
    except ValueError:  # pydantic's own among them
        return None


def _is_divided(inputs: ScoreInputs) -> bool:
    """Whether there are enough cases, and a row group of the scores for each one of the outputs."""
    try:
        with open_table(inputs.outputs) as outputs, open_table(inputs.folder / "scores.parquet") as scores:
            return bool(outputs.metadata.num_rows >= FEWEST_CASES and outputs.num_row_groups == scores.num_row_groups)
    except DataError:  # said again where the table is read
        return False


def _tasks(inputs: ScoreInputs, times: JudgeTimes) -> Iterator[RowGroupTask]:
    """All row groups of the outputs, each with the times of its cases."""
    with open_table(inputs.outputs) as file:
        for group in range(file.num_row_groups):
            if times.are_empty:
                yield RowGroupTask(group, None)
            else:
                yield RowGroupTask(group, times.take(keys_of(file.read_row_group(group, columns=list(OUTPUT_KEY)))))
