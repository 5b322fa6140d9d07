"""The blocks of one row group of the outputs, read from the tables of a run and scored by themselves."""

from __future__ import annotations

import numpy as np

from ragpipe.engine.score_messages import RowGroupTask, ScoreStart
from ragpipe.scoring.case_blocks import BlockGroups
from ragpipe.scoring.described_blocks import BlockDescriber, DescribedBlock
from ragpipe.scoring.dimensions import case_columns
from ragpipe.stages.gate_measurements import ScoringSources
from ragpipe.store.run.run_folder import RunFolder


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
        self._missing_gold = ScoringSources({}, RunFolder(start.root)).missing_gold() if start.root else None

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
