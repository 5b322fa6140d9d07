"""Slices: the same bytes whatever they are and wherever they are measured; and what ends a run that has workers."""

import asyncio
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.core.errors import DataError, RagpipeError
from ragpipe.core.sample import Case, Chunk, Output, Sample
from ragpipe.core.score import Score, ScoreSpec
from ragpipe.judge.session import JudgeSession
from ragpipe.metrics.base import Computed, Metric
from ragpipe.runs import load_dataset
from ragpipe.runs.case_measuring import CaseMeasuring, MeasuredSlice, Slice, measure_slice, slices_of
from ragpipe.runs.judge_cases import JudgeStage
from ragpipe.runs.load_dataset import text_bytes
from ragpipe.runs.measured_cases import CaseReader
from ragpipe.store.run_folder import RunFolder

pytestmark = pytest.mark.slow


@given(st.integers(0, 9), st.integers(1, 2000), st.integers(1, 1200))
def test_slices_cover_a_block_once_and_are_about_as_large(block: int, size: int, largest: int) -> None:
    parts = list(slices_of(block, size, largest))
    assert [row for part in parts for row in range(part.start, part.stop)] == list(range(size))
    lengths = [part.stop - part.start for part in parts]
    assert max(lengths) <= largest
    assert max(lengths) - min(lengths) <= 1
    assert len(parts) == -(-size // largest)
    assert {part.block for part in parts} == {block}


class Letters(Computed):
    """The letters of an answer."""

    def scores(self) -> tuple[ScoreSpec, ...]:
        return (ScoreSpec(self.name, high=100),)

    def compute(self, cases: Sequence[Case]) -> list[Score]:
        return [Score(float(len(case.answer or ""))) for case in cases]


class Late(Metric):
    """The words of an answer, the later the more there are; an answer with `bad` is an error of the metric."""

    def scores(self) -> tuple[ScoreSpec, ...]:
        return (ScoreSpec(self.name, high=100),)

    async def measure(self, case: Case, judge: Any) -> Score:
        words = (case.answer or "").split()
        await asyncio.sleep(0.0005 * len(words))
        if "bad" in words:
            raise ZeroDivisionError("boom")
        return Score(float(len(words)))


@dataclass
class Here:
    """Measures slices in this process, `width` at once, as a worker would."""

    reader: CaseReader
    measuring: CaseMeasuring
    largest: int
    width: int = 2
    stopped: RagpipeError | None = None
    seen: list[Slice] = field(default_factory=list)

    async def measure(self, part: Slice) -> MeasuredSlice:
        self.seen.append(part)
        return await measure_slice(self.reader, part, self.measuring, room=asyncio.Semaphore(3), keep_messages=True)

    def stop(self, why: RagpipeError) -> None:
        self.stopped = why

    def cancel(self) -> None:
        """Nothing is in flight."""


def measured(
    root: Path, answers: Sequence[str], metrics: Sequence[Metric], largest: int | None, on_error: str = "record"
) -> tuple[list[bytes], JudgeStage, list[Slice]]:
    """The bytes of the tables of a run over these answers, in blocks of 8: by slices of at most `largest`, None: without."""
    folder = RunFolder(root)
    folder.create()
    records = [
        SimpleNamespace(sample=Sample(id=f"s{i}", question=f"q{i}"), output=Output(sample_id=f"s{i}", answer=answer), where="")
        for i, answer in enumerate(answers)
    ]
    load_dataset.load_dataset(records, samples=folder.samples, outputs=folder.outputs)
    reader, iteration = CaseReader(folder.samples, folder.outputs), folder.iteration(1)
    iteration.create()
    session = JudgeSession(identity={}, label="none", transport=SimpleNamespace(stop=lambda _: None), store=None)  # type: ignore[arg-type]
    measuring = CaseMeasuring(metrics, session, on_metric_error=on_error)

    async def run() -> tuple[JudgeStage, list[Slice]]:
        slices = None if largest is None else Here(reader, measuring, largest)
        stage = JudgeStage(cases=reader, measuring=measuring, session=session, folder=iteration, window=4, slices=slices)
        await stage.run()
        return stage, [] if slices is None else slices.seen

    try:
        stage, seen = asyncio.run(run())
    finally:
        reader.close()
    return [path.read_bytes() for path in (iteration.scores, iteration.judge_inputs)], stage, seen


METRICS = {"computed": [Letters(name="letters")], "asking": [Late(name="late")], "both": [Letters(name="letters"), Late(name="late")]}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_dataset, "BLOCK", 8)


@pytest.mark.parametrize("kind", METRICS)
def test_the_same_bytes_whatever_the_slices(tmp_path: Path, small_blocks: None, kind: str) -> None:
    answers = ["a bad one" if i == 5 else "word " * (i % 7) for i in range(21)]
    whole, stage, _ = measured(tmp_path / "whole", answers, METRICS[kind], None)
    for largest in (1, 2, 3, 7, 8, 1000):
        sliced, by_slices, seen = measured(tmp_path / f"sliced-{largest}", answers, METRICS[kind], largest)
        assert sliced == whole, largest
        blocks = enumerate((8, 8, 5))
        assert sorted(seen) == [part for block, size in blocks for part in slices_of(block, size, largest)]
        assert (by_slices.state.done, by_slices.state.errors, by_slices.state.error_kinds) == (
            stage.state.done, stage.state.errors, stage.state.error_kinds
        )  # fmt: skip


def test_a_bug_of_a_metric_stops_the_run_and_its_workers(tmp_path: Path, small_blocks: None) -> None:
    answers = ["a bad one" if i == 5 else "word" for i in range(21)]
    with pytest.raises(RagpipeError, match="metric late on case s5/default: ZeroDivisionError: boom"):
        measured(tmp_path / "run", answers, METRICS["both"], 3, on_error="stop")


@pytest.mark.parametrize("kind", METRICS)
@pytest.mark.parametrize("largest", [None, 3, 8])
def test_lines_of_an_earlier_start_are_not_written_again(tmp_path: Path, small_blocks: None, kind: str, largest: int | None) -> None:
    """Eleven lines and no part: a power cut, for example."""
    answers = ["word " * (i % 7) for i in range(21)]
    whole, *_ = measured(tmp_path / "whole", answers, METRICS[kind], None)
    lines = RunFolder(tmp_path / "whole").iteration(1).journal.read_bytes().splitlines(keepends=True)
    again = RunFolder(tmp_path / "again").iteration(1)
    again.create()
    again.journal.write_bytes(b"".join(lines[:12]))
    tables, stage, _ = measured(tmp_path / "again", answers, METRICS[kind], largest)
    assert tables == whole
    assert (stage.state.done, stage.state.resumed, stage.state.changed) == (21, 11, 0)
    found = again.journal.read_bytes().splitlines(keepends=True)
    assert (found[:12], sorted(map(timeless, found))) == (lines[:12], sorted(map(timeless, lines)))


def timeless(line: bytes) -> bytes:
    return re.sub(rb'"completed_at": ?"[^"]*"', b"", line)


def test_a_case_with_another_result_than_before_is_counted(tmp_path: Path, small_blocks: None) -> None:
    answers = ["word " * (i % 7) for i in range(21)]
    measured(tmp_path / "run", answers, METRICS["asking"], None)
    journal = RunFolder(tmp_path / "run").iteration(1).journal
    lines = journal.read_bytes()
    (tmp_path / "run" / "iteration-1" / "scores.parquet").unlink()
    journal.write_bytes(lines.replace(b'"late":3', b'"late":4').replace(b'"late": 3', b'"late": 4'))
    _, stage, _ = measured(tmp_path / "run", answers, METRICS["asking"], 8)
    assert (stage.state.resumed, stage.state.changed) == (18, 3)
    assert stage.state.first_changed in ("s3/default", "s10/default", "s17/default")


def record(number: int, answer: str, *, question: str = "q", method: str = "default") -> SimpleNamespace:
    output = Output(sample_id=f"s{number}", method=method, answer=answer, chunks=[Chunk(id="c", rank=1, text="x")])
    return SimpleNamespace(sample=Sample(id=f"s{number}", question=question), output=output, where="")


def frozen(folder: Path, records: Sequence[SimpleNamespace]) -> tuple[Path, Path]:
    samples, outputs = folder / "samples.parquet", folder / "outputs.parquet"
    load_dataset.load_dataset(records, samples=samples, outputs=outputs)
    return samples, outputs


def groups(path: Path) -> list[int]:
    found = pq.ParquetFile(path).metadata
    return [found.row_group(i).num_rows for i in range(found.num_row_groups)]


def test_a_block_is_closed_by_the_bytes_of_its_cases(tmp_path: Path) -> None:
    """16 MiB, reached by the fourth case of 5 MiB; a case that is larger than a block stands alone."""
    mib = "x" * (1 << 20)
    records = [record(i, mib * 5) for i in range(6)] + [record(6, "small"), record(7, mib * 20), record(8, "small")]
    samples, outputs = frozen(tmp_path, records)
    assert (groups(outputs), groups(samples)) == ([4, 4, 1], [9])
    assert load_dataset.block_limits() == {"cases": 1000, "text_bytes": 16_777_216}
    question = "x" * (6 << 20)
    samples, outputs = frozen(tmp_path, [record(0, "a", question=question, method=f"m{i}") for i in range(7)])
    assert (groups(outputs), groups(samples)) == ([3, 3, 1], [1])
    # A text of three bytes a letter fills a block in a third of the letters.
    assert text_bytes({"a": "x" * 9, "b": "\u20ac" * 3, "c": None, "d": ["y", "\u20ac"], "e": 7}) == 9 + 9 + 4


def test_every_case_finds_its_sample_in_whichever_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_dataset, "BLOCK", 7)
    order = [(i, method) for i in range(40) for method in ("a", "b")]
    random.Random(4).shuffle(order)
    samples, outputs = frozen(tmp_path, [record(i, f"{i} by {m}", question=f"is it {i}?", method=m) for i, m in order])
    monkeypatch.setattr("ragpipe.runs.measured_cases._KEPT_BYTES", 1)  # two groups are held at most
    reader = CaseReader(samples, outputs, iteration=3)
    found = [(case.sample.question, case.output.answer) for case in reader]
    assert found == [(f"is it {i}?", f"{i} by {m}") for i, m in order]
    keys = [key for block in range(reader.blocks) for key in reader.keys(block)]
    assert keys == [case.key for case in reader]


@pytest.mark.parametrize("victim", ["samples", "outputs"])
@pytest.mark.parametrize("damage", ["gone", "cut", "flipped", "other"])
def test_a_table_that_cannot_be_read_is_named(tmp_path: Path, victim: str, damage: str) -> None:
    paths = dict(zip(("samples", "outputs"), frozen(tmp_path, [record(i, "a" * 50) for i in range(30)]), strict=True))
    path = paths[victim]
    whole = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "other":
        path.write_bytes(b"no table")
    else:
        path.write_bytes(whole[:-30] if damage == "cut" else whole[:4] + bytes(b ^ 0x5A for b in whole[4:400]) + whole[400:])
    with pytest.raises(DataError) as found:
        list(CaseReader(**paths))
    assert found.value.problems[0].where == str(path)
