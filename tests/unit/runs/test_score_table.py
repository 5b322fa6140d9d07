"""Rows of `scores.parquet` from columns: the same rows, in the same order, as score by score."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

from ragpipe.core.errors import Interrupted
from ragpipe.core.sample import Case, CaseKey, Output, Sample
from ragpipe.core.score import Score, ScoreColumns, ScoreSpec
from ragpipe.judge.session import JudgeSession
from ragpipe.metrics.base import Computed
from ragpipe.runs import load_dataset
from ragpipe.runs.calibration_states import calibration_words, judge_calibrated
from ragpipe.runs.case_measuring import CaseMeasuring, MetricBug, computed_table, in_case_order
from ragpipe.runs.judge_cases import JudgeStage
from ragpipe.runs.measured_cases import CaseReader
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
    tables = [computed_table(name, keys, part) for name, part in (("x", columns), ("n", none), ("y", one))]
    rows = in_case_order(tables, 2).to_pylist()
    assert [(r["sample_id"], r["metric"], r["score_name"], r["value"]) for r in rows] == [
        ("s0", "x", "a", 0.25), ("s0", "x", "b", None), ("s0", "y", "c", 1.0),
        ("s1", "x", "a", None), ("s1", "x", "b", 3.0), ("s1", "y", "c", 0.0),
    ]  # fmt: skip
    assert rows[0] | {"details": '{"b":[2],"z":1}', "reason": None, "status": "ok", "calls": []} == rows[0]
    assert all((r["method"], r["repeat"], r["iteration"]) == ("m", 2, 3) for r in rows)
    assert in_case_order(tables, 2).schema.equals(SCORES)


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


def judged(root: Path, metric: Computed, answers: Sequence[str | None], **options: Any) -> JudgeStage:
    folder = RunFolder(root)
    folder.create()
    records = [
        SimpleNamespace(sample=Sample(id=f"s{i}", question=f"q{i}"), output=Output(sample_id=f"s{i}", answer=answer), where="")
        for i, answer in enumerate(answers)
    ]
    load_dataset.load_dataset(records, samples=folder.samples, outputs=folder.outputs)
    reader = CaseReader(folder.samples, folder.outputs)
    session = JudgeSession(identity={}, label="none", transport=SimpleNamespace(stop=lambda _: None), store=None)  # type: ignore[arg-type]
    folder.iteration(1).create()
    measuring = CaseMeasuring([metric], session, on_metric_error=options.pop("on_metric_error", "stop"))
    stage = JudgeStage(cases=reader, measuring=measuring, session=session, folder=folder.iteration(1), window=4, **options)
    if "on_change" in options:
        options["on_change"].stage = stage
    try:
        asyncio.run(stage.run())
    finally:
        reader.close()
    return stage


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_dataset, "BLOCK", 4)


@pytest.mark.usefixtures("small_blocks")
def test_columns_and_single_scores_give_the_same_file(tmp_path: Path) -> None:
    answers = ["one", "two words", "", "boom", "boom", "a b c", "x", "last one"]
    files = []
    for fast in (False, True):
        root = tmp_path / str(fast)
        judged(root, Words(name="w", fast=fast), answers, on_metric_error="record")
        files.append(RunFolder(root).iteration(1).scores.read_bytes())
    assert files[0] == files[1]
    rows = pq.read_table(RunFolder(tmp_path / "True").iteration(1).scores).to_pylist()
    assert [r["value"] for r in rows if r["score_name"] == "words"] == [1, 2, 0, None, None, 3, 1, 2]
    assert [r["sample_id"] for r in rows if r["status"] == "error"] == ["s3", "s3", "s4", "s4"]


@pytest.mark.usefixtures("small_blocks")
def test_a_bug_of_a_computed_metric_ends_the_run_and_names_the_case(tmp_path: Path) -> None:
    with pytest.raises(MetricBug, match="metric w on case s5/default: ZeroDivisionError: boom"):
        judged(tmp_path, Words(name="w"), ["a", "b", "c", "d", "e", "boom"])
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
        judged(tmp_path / "stops", Debris(name="d", debris=debris), ["a", "odd", "b"])
    judged(tmp_path, Debris(name="d", debris=debris), ["a", "odd", "b"], on_metric_error="record")
    rows = pq.read_table(RunFolder(tmp_path).iteration(1).scores).to_pylist()
    assert [(row["sample_id"], row["status"]) for row in rows] == [("s0", "ok"), ("s1", "error"), ("s2", "ok")]


class StopAtFirst:
    stage: JudgeStage

    def __call__(self, state: Any) -> None:
        self.stage.stop(Interrupted("now"))


@pytest.mark.usefixtures("small_blocks")
def test_computed_blocks_stop_between_two_blocks_and_go_on(tmp_path: Path) -> None:
    answers = [f"answer {i}" for i in range(10)]
    with pytest.raises(Interrupted):
        judged(tmp_path, Words(name="w"), answers, on_change=StopAtFirst())
    folder = RunFolder(tmp_path).iteration(1)
    assert len(read_entries(folder.journal)) == 4
    assert not folder.scores.exists()
    stage = judged(tmp_path, Words(name="w"), answers)
    assert (stage.state.done, stage.state.resumed) == (10, 4)
    assert [entry["sample_id"] for entry in read_entries(folder.journal)] == [f"s{i}" for i in range(10)]
    judged(tmp_path / "at_once", Words(name="w"), answers)
    assert folder.scores.read_bytes() == RunFolder(tmp_path / "at_once").iteration(1).scores.read_bytes()


def states(**values: bool | None) -> dict[str, dict[str, Any]]:
    return {name: {"calibrated": value, "why": "because"} for name, value in values.items()}


@pytest.mark.parametrize(("values", "calibrated", "words"), [
    ({}, None, "uncalibrated"),
    ({"a": None, "b": None}, None, "uncalibrated"),
    ({"a": True, "b": True}, True, ""),
    ({"a": True, "b": None}, None, "calibrated a; uncalibrated b"),
    ({"a": True, "b": False, "c": None}, False, "calibrated a; failed calibration b; uncalibrated c"),
    ({"a": False}, False, "failed calibration a"),
])  # fmt: skip
def test_a_judge_is_calibrated_where_all_its_scores_are(values: dict[str, bool | None], calibrated: bool | None, words: str) -> None:
    assert judge_calibrated(states(**values)) is calibrated
    assert calibration_words(states(**values)) == words
