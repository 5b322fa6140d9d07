"""The blocks of one row group of the outputs, read from the tables of a run and scored by themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ragpipe.core.errors import RagpipeError
from ragpipe.engine.workers.plain_messages import packed_message
from ragpipe.engine.workers.score_messages import RowGroupTask, ScoreStart, described_message
from ragpipe.scoring.case_blocks import BlockGroups
from ragpipe.scoring.described_blocks import BlockDescriber, DescribedBlock
from ragpipe.scoring.dimensions import case_columns
from ragpipe.store.run.run_folder import RunFolder


def open_scoring(start: dict[str, Any]) -> Callable[[Any], bytes]:
    """What answers each row group with its blocks, or with nothing where something is not as it should be. Raises what opening the
    iteration raises."""
    return partial(_answer, RowGroupScoring(ScoreStart.from_values(start)))


def _answer(scoring: RowGroupScoring, values: Any) -> bytes:
    try:
        return described_message(scoring.described(RowGroupTask.of(values)))
    except RagpipeError:  # the driver meets it too, and says what it is
        return packed_message({})


class RowGroupScoring:
    """An iteration opened to be scored by row groups of the outputs. Raises what reading its files raises."""

    def __init__(self, start: ScoreStart):
        self._start = start
        names = [spec.name for spec in start.specs]
        self._groups = BlockGroups(
            start.samples,
            start.outputs,
            start.folder / "scores.parquet",
            details=start.settings.reads_details(names),
            size=start.block,
        )
        self._describer = BlockDescriber(start.specs, start.settings)
        self._missing_gold = _missing_gold(start.root) if start.root else None

    def described(self, task: RowGroupTask) -> list[DescribedBlock]:
        """The blocks of a row group. Raises RagpipeError for one that cannot be scored."""
        blocks, place = [], 0
        for block in self._groups.blocks(task.group):
            unknown = np.full(len(block), np.nan)
            judge_ms = unknown if task.judge_ms is None else task.judge_ms[place : place + len(block)]
            place += len(block)
            columns = case_columns(block, self._start.iteration, judge_ms, self._missing_gold)
            blocks.append(self._describer.describe(block, columns))
        return blocks


def _missing_gold(root: Path) -> Mapping[str, int] | None:
    """Of samples how many labelled documents are not in the index; None for a run without an index manifest."""
    if not RunFolder(root).index.is_file():
        return None
    from ragpipe.reports.sections.index_section import read_index  # a worker starts sooner without it

    index = read_index(root)
    return None if index is None else index.samples_missing_gold
