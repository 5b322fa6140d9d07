"""Blocks that were described elsewhere give the bytes of one process, however the cases are divided."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from ragpipe.core.errors import RagpipeError
from ragpipe.engine.workers.score_messages import RowGroupTask, ScoreStart, described_message, described_of
from ragpipe.engine.workers.score_parts import RowGroupScoring
from ragpipe.engine.workers.score_workers import _start, _tasks
from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.described_blocks import DescribedBlock
from ragpipe.scoring.judge_latency import JudgeTimes
from ragpipe.stages.score_iteration import BlockSource, ScoreInputs, score_iteration
from ragpipe.store.files import parquet_writer
from tests.support.divided_scoring import SETTINGS, SPECS, divided_run, results
from tests.support.sent_messages import sent


def by_messages(inputs: ScoreInputs) -> BlockSource:
    """All that workers do, in this process."""
    start = ScoreStart.from_values(ScoreStart.of(inputs).values())

    def described(scored: ScoreInputs, times: JudgeTimes) -> Generator[DescribedBlock, None, None]:
        worker = RowGroupScoring(start)
        for task in _tasks(scored, times):
            values, _ = sent(task.message())
            blocks = described_of(*sent(described_message(worker.described(RowGroupTask.of(values)))), start)
            assert blocks is not None
            yield from blocks

    return described


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@pytest.mark.parametrize("has_calls", [True, False])
@pytest.mark.parametrize(("group", "block"), [(5, 2048), (7, 3), (100, 1)])
def test_described_elsewhere_all_files_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: int, block: int, has_calls: bool
) -> None:
    monkeypatch.setattr(parquet_writer, "GROUP_BYTES", 30_000)  # some row groups, closed by their bytes
    inputs = replace(divided_run(tmp_path, 30, group, has_calls=has_calls), block=block)
    metrics = score_iteration(inputs)
    alone = results(inputs)
    # flagged are two methods' cases of the samples that have flags: two of three, without the one that was not judged
    assert {entry["name"]: entry["n"] for entry in metrics["diagnosis"]}["late"] == 2 * (20 - 1)
    assert score_iteration(inputs, by_messages(inputs)) == metrics
    assert results(inputs) == alone


def test_a_worker_is_told_all_that_decides_a_score(tmp_path: Path) -> None:
    inputs = divided_run(tmp_path, 3)
    gate = {"score": "faithfulness", "min": 0.8, "where": {"category": ["c1", 2]}, "tier": "critical"}
    settings = SETTINGS.model_validate({"gates": {"faithful": gate, "late": {"failure_mode": "late", "max_rate": 0.1}}})
    for start in map(_start, (inputs, replace(inputs, settings=settings))):
        assert start is not None
        assert ScoreStart.from_values(start.values()).settings.identity() == start.settings.identity()
        assert start.specs == tuple(SPECS)
    assert _start(replace(inputs, specs=[ScoreSpec("endless", 0, float("inf"))])) is None
    start = ScoreStart.of(inputs)
    with pytest.raises(ValidationError):
        ScoreStart.from_values({**start.values(), "settings": {"level": 2}})


def test_scores_of_other_cases_than_those_of_the_row_group_are_refused(tmp_path: Path) -> None:
    inputs = divided_run(tmp_path / "a", 30)
    divided = divided_run(tmp_path / "b", 30, 7)
    wrong = RowGroupScoring(ScoreStart.of(replace(inputs, outputs=divided.outputs)))
    with pytest.raises(RagpipeError, match="has no such case"):
        wrong.described(RowGroupTask(1, None))
