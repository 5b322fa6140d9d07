"""The tables of a run: the same bytes by columns or score by score, in whatever slices and wherever they are measured; and what
ends a run that has workers."""

import asyncio
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.cli.command_line import compose
from ragpipe.core.errors import DataError, Interrupted, RagpipeError
from ragpipe.core.sample import Case, CaseKey, Chunk, Output, Sample
from ragpipe.core.score import Score, ScoreColumns, ScoreSpec
from ragpipe.judge.session import JudgeSession
from ragpipe.metrics.base import Computed, Metric
from ragpipe.runs import case_measuring, load_dataset
from ragpipe.runs.calibration_states import calibration_words, judge_calibrated
from ragpipe.runs.case_measuring import CaseMeasuring, MeasuredSlice, MetricBug, Slice, slices_of
from ragpipe.runs.judge_cases import JudgeStage
from ragpipe.runs.load_dataset import text_bytes
from ragpipe.runs.measured_cases import CaseReader
from ragpipe.runs.settings import AnyRunner
from ragpipe.runs.workers import here_line, stays_here
from ragpipe.store.journal import read_entries
from ragpipe.store.run_folder import RunFolder
from ragpipe.store.table_rows import SCORES

SCORED = [
    [Score(0.25, "a", details={"z": 1, "b": [2]}), Score(name="b", status="skipped", reason="no_gold")],
    [Score(name="a", status="error", reason="bad", details={"kind": "k"}), Score(3, "b", reason="why")],
]


@pytest.mark.parametrize(
    ("values", "statuses"),
    [([1.0], ["skipped"]), ([None], ["ok"]), ([float("nan")], ["ok"]), ([float("inf")], ["ok"]), ([1.0, 2.0], ["ok"])],
)
def test_what_is_no_score_is_refused(values: list[Any], statuses: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"a score|scores per case"):
        ScoreColumns(("a",), values, statuses, [None], [None])


def test_rows_of_several_metrics_are_in_case_order() -> None:
    keys = [CaseKey(f"s{i}", "m", 2, 3) for i in range(2)]
    columns = ScoreColumns.of(("a", "b"), SCORED)
    one = ScoreColumns.of(("c",), [[Score(1.0, "c")], [Score(0.0, "c")]])
    none = ScoreColumns((), [], [], [], [])
    tables = [case_measuring.computed_table(name, keys, part) for name, part in (("x", columns), ("n", none), ("y", one))]
    rows = case_measuring.in_case_order(tables, 2).to_pylist()
    assert [(r["sample_id"], r["metric"], r["score_name"], r["value"]) for r in rows] == [
        ("s0", "x", "a", 0.25), ("s0", "x", "b", None), ("s0", "y", "c", 1.0),
        ("s1", "x", "a", None), ("s1", "x", "b", 3.0), ("s1", "y", "c", 0.0),
    ]  # fmt: skip
    assert rows[0] | {"details": '{"b":[2],"z":1}', "reason": None, "status": "ok", "calls": []} == rows[0]
    assert all((r["method"], r["repeat"], r["iteration"]) == ("m", 2, 3) for r in rows)
    assert case_measuring.in_case_order(tables, 2).schema.equals(SCORES)


class Words(Computed):
    """The number of words, and their length in letters; as columns where `fast`. An answer `boom` is a bug."""

    fast: bool = False

    def scores(self) -> tuple[ScoreSpec, ...]:
        return ScoreSpec("words", None, None), ScoreSpec("letters", None, None)

    def compute(self, cases: Sequence[Case]) -> list[list[Score]]:
        if any(case.answer == "boom" for case in cases):
            raise ZeroDivisionError("boom")
        return [[Score(len(c.answer.split()), "words"), Score(len(c.answer), "letters")] for c in cases]

    def compute_columns(self, cases: Sequence[Case]) -> ScoreColumns | None:
        return ScoreColumns.of(self.score_names, self.compute(cases)) if self.fast else None


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
        room = asyncio.Semaphore(3)
        return await case_measuring.measure_slice(self.reader, part, self.measuring, room=room, keep_messages=True)

    def stop(self, why: RagpipeError) -> None:
        self.stopped = why

    def cancel(self) -> None:
        """Nothing is in flight."""


def record(number: int, answer: str, *, question: str = "q", method: str = "default") -> SimpleNamespace:
    output = Output(sample_id=f"s{number}", method=method, answer=answer, chunks=[Chunk(id="c", rank=1, text="x")])
    return SimpleNamespace(sample=Sample(id=f"s{number}", question=question), output=output, where="")


def judged(
    root: Path, metrics: Sequence[Metric], answers: Sequence[str], *, block: int, largest: int | None = None,
    on_error: str = "stop", stops: bool = False,
) -> tuple[JudgeStage, list[Slice]]:  # fmt: skip
    """A run over these answers in blocks of that size, by slices of at most `largest` where it is given, and these slices. It
    ends at its first change where it `stops`."""
    folder = RunFolder(root)
    folder.create()
    records = [record(i, answer) for i, answer in enumerate(answers)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load_dataset, "BLOCK", block)
        load_dataset.load_dataset(records, samples=folder.samples, outputs=folder.outputs)
    reader, iteration = CaseReader(folder.samples, folder.outputs), folder.iteration(1)
    iteration.create()
    session = JudgeSession(identity={}, label="none", transport=SimpleNamespace(stop=lambda _: None), store=None)  # type: ignore[arg-type]
    measuring = CaseMeasuring(metrics, session, on_metric_error=on_error)
    slices = None if largest is None else Here(reader, measuring, largest)
    more: dict[str, Any] = {"on_change": lambda _: stage.stop(Interrupted("now"))} if stops else {}
    stage = JudgeStage(cases=reader, measuring=measuring, session=session, folder=iteration, window=4, slices=slices, **more)
    try:
        asyncio.run(stage.run())
    finally:
        reader.close()
    return stage, slices.seen if slices else []


def tables(root: Path) -> list[bytes]:
    iteration = RunFolder(root).iteration(1)
    return [path.read_bytes() for path in (iteration.scores, iteration.judge_inputs)]


def test_columns_and_single_scores_give_the_same_file(tmp_path: Path) -> None:
    answers = ["one", "two words", "", "boom", "boom", "a b c", "x", "last one"]
    files = []
    for fast in (False, True):
        judged(tmp_path / str(fast), [Words(name="w", fast=fast)], answers, block=4, on_error="record")
        files.append(tables(tmp_path / str(fast)))
    assert files[0] == files[1]
    rows = pq.read_table(RunFolder(tmp_path / "True").iteration(1).scores).to_pylist()
    assert [r["value"] for r in rows if r["score_name"] == "words"] == [1, 2, 0, None, None, 3, 1, 2]
    assert [r["sample_id"] for r in rows if r["status"] == "error"] == ["s3", "s3", "s4", "s4"]


def test_a_bug_of_a_computed_metric_ends_the_run_and_names_the_case(tmp_path: Path) -> None:
    with pytest.raises(MetricBug, match="metric w on case s5/default: ZeroDivisionError: boom"):
        judged(tmp_path, [Words(name="w")], ["a", "b", "c", "d", "e", "boom"], block=4)
    entries = read_entries(RunFolder(tmp_path).iteration(1).journal)
    assert [entry["sample_id"] for entry in entries] == ["s0", "s1", "s2", "s3", "s4", "s5"]


class Debris(Computed):
    """Leaves in its details what cannot be written, on the case with this answer."""

    debris: Any

    def compute(self, cases: Sequence[Case]) -> list[Score]:
        return [Score(1.0, details={"o": self.debris} if case.answer == "odd" else {}) for case in cases]


@pytest.mark.parametrize(("debris", "words"), [
    (object(), "Object of type object is not JSON serializable"),
    ({1: "a", "b": 2}, "'<' not supported between instances of 'str' and 'int'"),
    (float("nan"), "Out of range float values are not JSON compliant"),
])  # fmt: skip
def test_details_that_no_table_can_hold_are_a_fault_of_the_metric_on_that_case(tmp_path: Path, debris: Any, words: str) -> None:
    refused = rf"metric d on case s1/default: .*the details of the score d are no plain JSON: {words}"
    with pytest.raises(MetricBug, match=refused):
        judged(tmp_path / "stops", [Debris(name="d", debris=debris)], ["a", "odd", "b"], block=4)
    judged(tmp_path, [Debris(name="d", debris=debris)], ["a", "odd", "b"], block=4, on_error="record")
    rows = pq.read_table(RunFolder(tmp_path).iteration(1).scores).to_pylist()
    assert [(row["sample_id"], row["status"]) for row in rows] == [("s0", "ok"), ("s1", "error"), ("s2", "ok")]


def test_computed_blocks_stop_between_two_blocks_and_go_on(tmp_path: Path) -> None:
    answers = [f"answer {i}" for i in range(10)]
    with pytest.raises(Interrupted):
        judged(tmp_path, [Words(name="w")], answers, block=4, stops=True)
    folder = RunFolder(tmp_path).iteration(1)
    assert len(read_entries(folder.journal)) == 4
    assert not folder.scores.exists()
    stage, _ = judged(tmp_path, [Words(name="w")], answers, block=4)
    assert (stage.state.done, stage.state.resumed) == (10, 4)
    assert [entry["sample_id"] for entry in read_entries(folder.journal)] == [f"s{i}" for i in range(10)]
    judged(tmp_path / "at_once", [Words(name="w")], answers, block=4)
    assert tables(tmp_path) == tables(tmp_path / "at_once")


@pytest.mark.parametrize(("values", "calibrated", "words"), [
    ({}, None, "uncalibrated"),
    ({"a": None, "b": None}, None, "uncalibrated"),
    ({"a": True, "b": True}, True, ""),
    ({"a": True, "b": None}, None, "calibrated a; uncalibrated b"),
    ({"a": True, "b": False, "c": None}, False, "calibrated a; failed calibration b; uncalibrated c"),
    ({"a": False}, False, "failed calibration a"),
])  # fmt: skip
def test_a_judge_is_calibrated_where_all_its_scores_are(values: dict[str, bool | None], calibrated: bool | None, words: str) -> None:
    states = {name: {"calibrated": value, "why": "because"} for name, value in values.items()}
    assert (judge_calibrated(states), calibration_words(states)) == (calibrated, words)


@pytest.mark.slow
@given(st.integers(0, 9), st.integers(1, 2000), st.integers(1, 1200))
def test_slices_cover_a_block_once_and_are_about_as_large(block: int, size: int, largest: int) -> None:
    parts = list(slices_of(block, size, largest))
    assert [row for part in parts for row in range(part.start, part.stop)] == list(range(size))
    lengths = [part.stop - part.start for part in parts]
    assert max(lengths) <= largest
    assert max(lengths) - min(lengths) <= 1
    assert len(parts) == -(-size // largest)
    assert {part.block for part in parts} == {block}


METRICS = {"computed": [Words(name="w")], "asking": [Late(name="late")], "both": [Words(name="w"), Late(name="late")]}


@pytest.mark.slow
@pytest.mark.parametrize("kind", METRICS)
def test_the_same_bytes_whatever_the_slices(tmp_path: Path, kind: str) -> None:
    answers = ["a bad one" if i == 5 else "word " * (i % 7) for i in range(21)]
    stage, _ = judged(tmp_path / "whole", METRICS[kind], answers, block=8, on_error="record")
    for largest in (1, 2, 3, 7, 8, 1000):
        by_slices, seen = judged(tmp_path / str(largest), METRICS[kind], answers, block=8, largest=largest, on_error="record")
        assert tables(tmp_path / str(largest)) == tables(tmp_path / "whole"), largest
        blocks = enumerate((8, 8, 5))
        assert sorted(seen) == [part for block, size in blocks for part in slices_of(block, size, largest)]
        sliced, whole = by_slices.state, stage.state
        assert (sliced.done, sliced.errors, sliced.error_kinds) == (whole.done, whole.errors, whole.error_kinds)


@pytest.mark.slow
def test_a_bug_of_a_metric_stops_the_run_and_its_workers(tmp_path: Path) -> None:
    answers = ["a bad one" if i == 5 else "word" for i in range(21)]
    with pytest.raises(RagpipeError, match="metric late on case s5/default: ZeroDivisionError: boom"):
        judged(tmp_path, METRICS["both"], answers, block=8, largest=3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", METRICS)
@pytest.mark.parametrize("largest", [None, 3, 8])
def test_lines_of_an_earlier_start_are_not_written_again(tmp_path: Path, kind: str, largest: int | None) -> None:
    """Eleven lines and no part: a power cut, for example."""
    answers = ["word " * (i % 7) for i in range(21)]
    judged(tmp_path / "whole", METRICS[kind], answers, block=8)
    lines = RunFolder(tmp_path / "whole").iteration(1).journal.read_bytes().splitlines(keepends=True)
    again = RunFolder(tmp_path / "again").iteration(1)
    again.create()
    again.journal.write_bytes(b"".join(lines[:12]))
    stage, _ = judged(tmp_path / "again", METRICS[kind], answers, block=8, largest=largest)
    assert tables(tmp_path / "again") == tables(tmp_path / "whole")
    assert (stage.state.done, stage.state.resumed, stage.state.changed) == (21, 11, 0)
    found = again.journal.read_bytes().splitlines(keepends=True)
    assert (found[:12], sorted(map(timeless, found))) == (lines[:12], sorted(map(timeless, lines)))


def timeless(line: bytes) -> bytes:
    return re.sub(rb'"completed_at": ?"[^"]*"', b"", line)


@pytest.mark.slow
def test_a_case_with_another_result_than_before_is_counted(tmp_path: Path) -> None:
    answers = ["word " * (i % 7) for i in range(21)]
    judged(tmp_path, METRICS["asking"], answers, block=8)
    folder = RunFolder(tmp_path).iteration(1)
    folder.scores.unlink()
    folder.journal.write_bytes(re.sub(rb'("late": ?)3', rb"\g<1>4", folder.journal.read_bytes()))
    stage, _ = judged(tmp_path, METRICS["asking"], answers, block=8, largest=8)
    assert (stage.state.resumed, stage.state.changed) == (18, 3)
    assert stage.state.first_changed in ("s3/default", "s10/default", "s17/default")


def frozen(folder: Path, records: Sequence[SimpleNamespace]) -> tuple[Path, Path]:
    samples, outputs = folder / "samples.parquet", folder / "outputs.parquet"
    load_dataset.load_dataset(records, samples=samples, outputs=outputs)
    return samples, outputs


def groups(path: Path) -> list[int]:
    found = pq.ParquetFile(path).metadata
    return [found.row_group(i).num_rows for i in range(found.num_row_groups)]


@pytest.mark.slow
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
    assert text_bytes(["x" * 9, "\u20ac" * 3, None, ["y", "\u20ac"], 7]) == 9 + 9 + 4


@pytest.mark.slow
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


@pytest.mark.slow
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


MODEL = ["judge=llm", "judge.model=openai/gpt-4o-mini-2024-07-18"]
EMBEDDER = ["embedder=minilm", "metrics=[semantic_similarity]"]


class Mine(AnyRunner):
    """Says what it was told."""

    implementation: ClassVar[str] = "mine:opens"
    kind: Literal["mine"] = "mine"

    def stays_here(self, *, computes: bool, shares_store: bool) -> str | None:
        return f"computes: {computes}, shares_store: {shares_store}"


@pytest.mark.slow
@pytest.mark.parametrize(("words", "why"), [
    (["metrics=[retrieval]"], "computes: False, shares_store: False"),
    (EMBEDDER, "computes: True, shares_store: False"),
    ([*MODEL, "metrics=[faithfulness]"], "calls leave from one process"),
])  # fmt: skip
def test_a_runner_is_asked_unless_the_run_asks_a_server(words: list[str], why: str) -> None:
    config = compose(["+experiment=quickstart", *words])
    assert stays_here(config) is None, "the run's own process, as was chosen"
    chosen = config.model_copy(update={"runner": Mine()})
    assert stays_here(chosen) == why
    assert here_line(chosen, why) == f"runner=mine: {why}; this process measures the cases alone"


def test_chunks_as_cells_say_what_chunks_say(tmp_path: Path) -> None:
    lists = [None, [], [Chunk(id="b", rank=2, score=0.5, text="é"), Chunk(id="a", rank=7, doc_id="d", policy="quote_only")]]
    records = [record(i, "a") for i in range(3)]
    for each, chunks in zip(records, lists, strict=True):
        each.output = each.output.model_copy(update={"chunks": chunks})
    reader = CaseReader(*frozen(tmp_path, records))
    names = list(Chunk.model_fields)
    cells = list(reader.block(0, cells=True))
    assert not isinstance(cells[2].contexts[0], Chunk)
    found = [(case.key, case.output.chunks and [[getattr(c, n) for n in names] for c in case.contexts]) for case in cells]
    assert found == [(case.key, case.output.chunks and [[getattr(c, n) for n in names] for c in case.contexts]) for case in reader]


@pytest.mark.parametrize(("field", "value"), [
    ("id", None), ("text", None), ("rank", None), ("rank", 0), ("rank", 2**31), ("policy", "steal"), ("score", float("nan")), ("score", float("-inf")),
])  # fmt: skip
@pytest.mark.parametrize("cells", [True, False])
def test_a_chunk_that_none_can_be_is_a_damaged_table(tmp_path: Path, field: str, value: object, cells: bool) -> None:
    paths = frozen(tmp_path, [record(i, "a") for i in range(2)])
    table = pq.read_table(paths[1])
    chunk = {**dict.fromkeys(Chunk.model_fields), "id": "c", "rank": 1, "text": "", "policy": "summarize", field: value}
    column = pa.array([None, [chunk]], table.schema.field("chunks").type)
    pq.write_table(table.set_column(table.schema.get_field_index("chunks"), table.schema.field("chunks"), column), paths[1])
    with pytest.raises(DataError):
        list(CaseReader(*paths).block(0, cells=cells))


@pytest.mark.parametrize("change", ["pairs", "other types"])
def test_other_tables_have_chunks_whoever_reads_them(tmp_path: Path, change: str) -> None:
    samples, outputs = frozen(tmp_path, [record(i, "a") for i in range(2)])
    table = pq.read_table(outputs)
    if change == "pairs":
        table = table.append_column("other_answer", pa.array(["b", None]))
    else:
        chunks = table.schema.get_field_index("chunks")
        table = table.set_column(chunks, "chunks", pa.array([[{"id": "c", "rank": 1}], []]))
    pq.write_table(table, outputs)
    cases = list(CaseReader(samples, outputs).block(0, cells=True))
    assert (type(cases[0].contexts[0]), cases[0].other_answer) == (Chunk, "b" if change == "pairs" else None)


class Whole(Words):
    """Takes chunks for what they are."""

    def compute(self, cases: Sequence[Case]) -> list[list[Score]]:
        assert all(type(chunk) is Chunk for case in cases for chunk in case.contexts)
        return super().compute(cases)


def test_a_metric_that_does_not_say_otherwise_gets_chunks(tmp_path: Path) -> None:
    judged(tmp_path / "a", [Whole(name="w")], ["one", "two"], block=2)
    judged(tmp_path / "b", [Whole(name="w")], ["one", "two"], block=2, largest=1)
