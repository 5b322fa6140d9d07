"""The embedded judge with vectors: what cosines change, what they do not, where it refuses, and whole runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from ragpipe.cli import main
from ragpipe.core.resources import conf_dir
from ragpipe.embedding import heuristic_minilm, model_files
from ragpipe.embedding import settings as embedder_settings
from ragpipe.embedding.heuristic_minilm import EvidenceMiniLMSettings
from ragpipe.embedding.model_files import packaged_folder
from ragpipe.embedding.numpy_minilm import MiniLMVectors
from ragpipe.embedding.settings import INSTALL, MINILM_TOKENIZER, MINILM_WEIGHTS, MiniLM
from ragpipe.judging.heuristic.claim_features import pool_of
from ragpipe.judging.heuristic.settings import HeuristicSettings
from ragpipe.judging.heuristic.verdict_rules import decide
from ragpipe.schema.judge_answers.answers import Groundedness, Verdicts

needs_files = pytest.mark.skipif(packaged_folder() is None, reason=INSTALL)
SETTINGS = EvidenceMiniLMSettings()
STORM = "The shop was shut because of heavy snow. Staff stayed at home. Lunch was served at 80 degrees."


def uninstall(monkeypatch):
    for module in (model_files, embedder_settings, heuristic_minilm):
        monkeypatch.setattr(module, "packaged_folder", lambda: None)
    heuristic_minilm._vector.cache_clear()
    heuristic_minilm._model.cache_clear()


@needs_files
@pytest.mark.parametrize(
    ("claim", "supported", "why"),
    [
        ("The shop was shut because of heavy snow.", True, "cosine 1.0000"),
        ("Due to heavy snowfall, the shop closed.", True, "cosine"),  # other words
        ("Penguins swim well.", False, "cosine"),
        ("Lunch was served at 95 degrees.", False, "number 95"),
        ("The shop was not shut because of heavy snow.", False, "opposite negation"),
        ("The shop in Toledo was shut because of heavy snow.", False, "name toledo"),
    ],
)
def test_a_claim(ask, claim, supported, why):
    found = ask(Verdicts, SETTINGS, claims=[claim], sources=[STORM]).verdicts[0]
    assert found.supported is supported, found.reason
    assert why in found.reason
    assert found.evidence in STORM
    assert bool(found.evidence) is (supported or claim != "Penguins swim well.")


@needs_files
def test_other_words_for_the_same_thing_are_what_it_adds(ask):
    claim = "Due to heavy snowfall, the shop closed."
    by_words = ask(Verdicts, HeuristicSettings(), claims=[claim], sources=[STORM]).verdicts[0]
    assert not by_words.supported
    assert "cosine" not in by_words.reason


@needs_files
def test_the_figure_is_the_mean_of_overlap_and_the_best_cosine():
    claim = "Due to heavy snowfall, the shop closed."
    vectors = MiniLMVectors(MiniLM())([claim, *pool_of((STORM,)).texts])
    best = max(float(np.dot(vectors[0], other)) for other in vectors[1:])
    by_words = decide([claim], pool_of((STORM,)), HeuristicSettings())[0].overlap
    found = decide([claim], pool_of((STORM,)), SETTINGS)[0]
    assert found.nearest == (pytest.approx(best, abs=1e-4), "The shop was shut because of heavy snow.")
    assert found.overlap == pytest.approx((by_words + best) / 2, abs=2e-4)


@needs_files
def test_no_source_and_nothing_in_common(ask):
    assert not ask(Verdicts, SETTINGS, claims=["Paris is large."], sources=[]).verdicts[0].supported
    assert not ask(Verdicts, SETTINGS, claims=["Paris is large."], sources=["", " \n"]).verdicts[0].supported
    assert ask(Groundedness, SETTINGS, text="Penguins swim well.", sources=[STORM]).score == 0


@needs_files
@pytest.mark.parametrize(
    ("claim", "source"),
    [("Bad \ud800 claim here.", "Bad claim \udfff here."), ("\x00 zero", "?!"), ("日本は島国です。", "日本は島国です。"),
     ("[1] (Passage 2)", "x"), ("word " * 3000, "word " * 3000), ("Bees make honey.", "x = 1; y = 2")],
)  # fmt: skip
def test_odd_texts_have_a_figure(claim, source):
    assert 0 <= decide([claim], pool_of((source,)), SETTINGS)[0].overlap <= 1


@pytest.mark.slow
@needs_files
def test_the_neighbours_of_a_claim_change_nothing(ask):
    claims = ["Due to heavy snowfall, the shop closed.", "Nobody came to work.", "It was cold. " * 40]
    together = decide(claims, pool_of((STORM,)), SETTINGS)
    heuristic_minilm._vector.cache_clear()
    alone = [decide([claim], pool_of((STORM,)), SETTINGS)[0] for claim in reversed(claims)]
    assert [(f.nearest, f.overlap) for f in together] == [(f.nearest, f.overlap) for f in reversed(alone)]


def test_the_shipped_yaml_is_the_default():
    shipped = yaml.safe_load((conf_dir() / "judge" / "evidence_minilm.yaml").read_text(encoding="utf-8"))
    assert EvidenceMiniLMSettings(**shipped) == SETTINGS
    assert set(shipped) == set(EvidenceMiniLMSettings.model_fields)


def test_rules_and_weights_are_its_identity():
    found = SETTINGS.identity_of_judge()
    assert (found["rules"], found["weights"], found["tokenizer"]) == (
        "evidence-minilm-v1", MINILM_WEIGHTS, MINILM_TOKENIZER
    )  # fmt: skip
    assert set(found) == set(HeuristicSettings().identity_of_judge()) | {"weights", "tokenizer"}
    assert SETTINGS.label == "evidence-minilm-v1"


@pytest.mark.parametrize("task", ["evaluate", pytest.param("plan", marks=pytest.mark.slow)])
def test_without_the_package_nothing_starts(task, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    uninstall(monkeypatch)
    assert main(["dataset=demo", "metrics=[faithfulness]", "judge=evidence_minilm", f"task={task}"]) == 2
    said = capsys.readouterr().err
    assert "judge.kind" in said
    assert INSTALL in said
    assert not (tmp_path / "outputs").exists()


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A copied run folder far from its data, without its store, the package taken away after it ended."""
    monkeypatch.chdir(tmp_path)
    row = {"id": "a", "question": "Was it open?", "contexts": [STORM, "Staff were paid all the same."]}
    answers = ["Due to heavy snowfall, the shop closed.", "Penguins swim well. Staff stayed at home."]
    rows = [row | {"id": f"q{n}", "answer": answer} for n, answer in enumerate(answers)]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    words = ["dataset=jsonl", "dataset.path=d.jsonl", "metrics=[faithfulness,groundedness]", "judge=evidence_minilm"]
    assert main(words) == 0
    first = {p: p.stat().st_mtime_ns for p in Path("outputs/run/latest").resolve().rglob("*")}
    assert main(words) == 0
    assert {p: p.stat().st_mtime_ns for p in first} == first  # a third start writes nothing
    shutil.copytree(Path("outputs/run/latest").resolve(), tmp_path / "copy")
    shutil.rmtree(tmp_path / "outputs")
    (tmp_path / "d.jsonl").unlink()
    uninstall(monkeypatch)
    return tmp_path / "copy"


@needs_files
@pytest.mark.slow
def test_a_copied_run_says_the_same_without_the_package(run, capsys):
    rows = pq.read_table(run / "iteration-1" / "scores.parquet").to_pylist()
    values = {row["sample_id"]: row["value"] for row in rows if row["score_name"] == "faithfulness"}
    assert values == {"q0": 1.0, "q1": 0.5}
    config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    assert (config["judge"]["kind"], config["judge"]["threshold"]) == ("evidence_minilm", SETTINGS.threshold)
    assert "not calibrated against human labels" in (run / "report.md").read_text(encoding="utf-8")
    assert main(["task=verify", f"run={run}"]) == 0
    assert main(["task=rescore", f"run={run}", "scoring.thresholds.faithfulness=0.4"]) == 0
    capsys.readouterr()
    assert main(["task=rejudge", f"run={run}"]) == 0  # the same judge is asked nothing
    assert main(["task=rejudge", f"run={run}", "judge.threshold=0.6"]) == 2  # another one is, and it is not there
    assert INSTALL in capsys.readouterr().err
    assert main(["task=rejudge", f"run={run}", "judge=evidence"]) == 0
