"""The recorded judge of the demonstration set: it covers every question of the experiment, asks nobody, and says what it is."""

import json
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ragpipe.cli import main
from ragpipe.core.resources import data_path

pytestmark = pytest.mark.slow  # whole runs, several per test

RECORDING = data_path("package:demo/judge_replies.jsonl")
EXPERIMENT = "+experiment=quickstart_llm"
JUDGED = {"faithfulness", "answer_relevance", "context_relevance", "citation", "groundedness", "correctness"}
ASK_AGAIN = (
    "a template, an answer type or a case was changed: record anew (benchmarks/record_demo.py) or take the change back"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a new user: an empty folder, and no word but the experiment."""
    here = tmp_path_factory.mktemp("quickstart_llm")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        assert main([EXPERIMENT, "report.formats=[markdown,html]"]) == 0
    return (here / "outputs" / "quickstart_llm" / "latest").resolve()


def document(folder: Path, name: str) -> dict[str, Any]:
    return json.loads((folder / "iteration-1" / name).read_text(encoding="utf-8"))


def inputs(folder: Path) -> list[dict[str, Any]]:
    return pq.read_table(folder / "iteration-1" / "judge_inputs.parquet").to_pylist()


def test_every_question_has_a_recorded_reply(folder: Path) -> None:
    rows = inputs(folder)
    assert Counter(row["status"] for row in rows) == {"ok": len(rows)}, ASK_AGAIN
    assert {row["metric"] for row in rows} == JUDGED
    cost = document(folder, "cost.json")
    assert (cost["spent"]["replies"], cost["saved"]["replies"]) == (0, len({row["key"] for row in rows}))
    with closing(sqlite3.connect(folder.parents[1] / ".store" / "calls.sqlite")) as store:
        assert store.execute("SELECT COUNT(*) FROM calls").fetchone() == (0,)


def test_every_judgement_came_out(folder: Path) -> None:
    scores = document(folder, "metrics.json")["overall"]["scores"]
    failed = {name: score["errors"] for name, score in scores.items() if score.get("errors")}
    assert failed == {}


def test_no_reply_is_shipped_that_nobody_asks_for(folder: Path) -> None:
    header, *lines = map(json.loads, RECORDING.read_text(encoding="utf-8").split("\n")[:-1])
    assert {line["key"] for line in lines} == {row["key"] for row in inputs(folder)}
    assert header["replies"] == len(lines) <= 600
    assert RECORDING.stat().st_size <= 400_000


def test_it_says_that_it_is_a_recording(folder: Path) -> None:
    metrics = document(folder, "metrics.json")
    assert "reader/llm-2026-11-22@recorded (uncalibrated)" in metrics["signature"]
    for page in ("report.md", "report.html"):
        text = (folder / page).read_text(encoding="utf-8")
        assert "recorded on 2026-11-22 from a large language model" in text
        assert "The judge is not calibrated against human labels" in text


@pytest.mark.thorough
def test_another_run_has_the_same_tables_and_verifies(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([EXPERIMENT, "report.formats=[terminal]"]) == 0
    shown = capsys.readouterr()
    assert "no new call to " in shown.out
    assert "judge: recorded on 2026-11-22" in shown.out
    again = (tmp_path / "outputs" / "quickstart_llm" / "latest").resolve()
    assert again.name == folder.name
    first, second = (json.loads((run / "seal.json").read_text())["tables"] for run in (folder, again))
    assert first == second
    assert main(["task=verify", f"run={again}"]) == 0


def test_another_template_is_missing_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["dataset.limit=2", "metrics.correctness.prompts.grade=v1"]
    assert main([EXPERIMENT, *words, "report.formats=[terminal]"]) == 4
    shown = " ".join("".join(capsys.readouterr()).split())
    assert "judge=llm judge.model=... transport=live" in shown
    rows = inputs((tmp_path / "outputs" / "quickstart_llm" / "latest").resolve())
    missing = [row for row in rows if row["status"] == "missing_reply"]
    assert {(row["metric"], row["step"]) for row in missing} == {("correctness", "grade")}
    assert "dao-01" in missing[0]["message"]


def test_low_faithfulness_goes_with_planted_claims(folder: Path) -> None:
    """An invented claim costs its answer faithfulness: the mean of the answers with one is far below that of sound answers."""
    table = pq.read_table(
        folder / "iteration-1" / "records.parquet", columns=["method", "meta", "faithfulness"]
    ).to_pylist()
    means: dict[bool, list[float]] = {True: [], False: []}
    for row in table:
        kinds = json.loads(row["meta"] or "{}").get("planted", {}).get(row["method"], [])
        if row["faithfulness"] is not None and (not kinds or "unsupported_claim" in kinds):
            means["unsupported_claim" in kinds].append(row["faithfulness"])
    planted, sound = (sum(values) / len(values) for values in (means[True], means[False]))
    assert sound > 0.9
    assert planted < sound - 0.3
