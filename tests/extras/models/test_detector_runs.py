"""Whole runs with a detector as judge: its verdicts by hand, what is computed again (nothing), and a finished run without the model.

The packages are replaced (`fake_packages`) but in the last test.
"""

import json
import shutil
from typing import Any

import pyarrow.parquet as pq
import pytest

from ragpipe.cli.command_line import main
from ragpipe.extras.models import INSTALL
from tests.extras.models.fake_packages import install, uninstall, write_files
from tests.extras.models.tiny_detectors import write_modernbert

pytestmark = pytest.mark.slow
TEA, HEAT = "Green tea comes from China.", "It is brewed at 80 degrees for two minutes."
HALF = f"{TEA} It is brewed at 95 degrees."

CASES: list[dict[str, Any]] = [
    {"id": "good", "answer": TEA, "citations": [{"marker": "[1]", "chunk_id": "c1", "text": TEA}]},
    {"id": "half", "answer": HALF, "citations": [{"marker": "[1]", "chunk_id": "c1", "text": HEAT}]},
    {"id": "no", "answer": "No.", "citations": []},
    {"id": "long", "answer": "Green tea comes from Japan " * 40, "citations": []},
]


@pytest.fixture(autouse=True)
def _place(here):
    chunks = [{"id": "c1", "text": TEA}, {"id": "c2", "text": HEAT}]
    shared = {"question": "Where does tea come from?", "reference": HALF, "contexts": chunks}
    (here / "d.jsonl").write_text("".join(json.dumps({**shared, **case}) + "\n" for case in CASES), encoding="utf-8")
    write_files(here / "model")


@pytest.fixture
def models(monkeypatch):
    return install(monkeypatch, limit=128)


def words(*more, metrics="faithfulness,context_recall,citation,groundedness"):
    model = ["judge=detector", "judge.path=model", "metrics.faithfulness.steps=combined"]
    return ["dataset=jsonl", "dataset.path=d.jsonl", f"metrics=[{metrics}]", *model, *more]


def scores(folder):
    rows = pq.read_table(folder / "iteration-1" / "scores.parquet").to_pylist()
    return {(row["sample_id"], row["score_name"]): row for row in rows}


def latest(here):
    return (here / "outputs" / "run" / "latest").resolve()


def test_verdicts_by_hand(here, models, capsys):
    assert main(words()) == 4  # one of four answers does not fit into the model
    shown = " ".join("".join(capsys.readouterr()).split())
    assert "groundedness: the detector lettucedetect@" in shown
    assert "checks by the detector lettucedetect@" in shown
    found = scores(latest(here))
    assert (found["good", "faithfulness"]["value"], found["half", "faithfulness"]["value"]) == (1.0, 0.5)
    assert found["good", "context_recall"]["value"] == 50.0  # of the reference's two statements the contexts have one
    assert (found["good", "citation_accuracy"]["value"], found["half", "citation_accuracy"]["value"]) == (1.0, 0.0)
    assert found["good", "groundedness"]["reason"] == "detector_cannot_answer"
    assert (found["no", "faithfulness"]["status"], found["no", "faithfulness"]["reason"]) == ("skipped", "detector_cannot_answer")  # fmt: skip
    assert found["long", "faithfulness"]["status"] == "error"
    assert "too_long" in json.dumps(found["long", "faithfulness"])
    claims = json.loads(found["half", "faithfulness"]["details"])["claims"]
    assert [claim["supported"] for claim in claims] == [True, False]
    assert claims[1]["reason"] == "unsupported: '95' (0.881)"  # logits 2 and -2: 1 / (1 + exp(-2))
    assert claims[0]["evidence"]
    cost = json.loads((latest(here) / "iteration-1" / "cost.json").read_text(encoding="utf-8"))
    assert cost["used"]["calls"] == cost["used"]["calls_computed"] > 0
    assert (cost["used"]["usd"], cost["spent"]["calls"]) == (0, 0)
    assert len(models.loaded) == 1


@pytest.mark.thorough
def test_what_was_read_once_is_not_computed_again(here, models):
    main(words("iterations=2"))
    # three answers fit, of four; the reference is one text for all cases; two cited texts
    assert len(models.asked) == 2 + 1 + 2
    before = scores(latest(here))
    assert main(words("judge.threshold=0.9")) == 4
    strict = scores(latest(here))
    assert before["good", "faithfulness"]["value"] == 1.0
    assert strict["good", "faithfulness"]["value"] == 0.0  # each word is supported at .881
    assert (len(models.loaded), len(models.asked)) == (1, 2 + 1 + 2)


@pytest.mark.thorough
def test_a_finished_run_needs_neither_model_nor_torch(here, models, monkeypatch, capsys):
    main(words())
    run = latest(here)
    shutil.copytree(run, here / "elsewhere" / "run")
    shutil.rmtree(here / "outputs")
    shutil.rmtree(here / "model")
    uninstall(monkeypatch)
    assert main(["task=verify", "run=elsewhere/run"]) == 0
    capsys.readouterr()
    assert main(["task=explain", "run=elsewhere/run", "case=half", "metric=faithfulness"]) == 0
    assert "unsupported: '95' (0.881)" in capsys.readouterr().out
    assert main(["task=rescore", "run=elsewhere/run", "metrics.faithfulness.without_claims=zero"]) == 4
    assert len(models.loaded) == 1


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("missing", ["torch", "files"])
def test_what_is_missing_ends_the_run_before_it_starts(here, models, monkeypatch, capsys, missing):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(here / "hub"))
    if missing == "torch":
        uninstall(monkeypatch)
        assert main(words()) == 2
        assert INSTALL in capsys.readouterr().err
    else:
        assert main(["dataset=jsonl", "dataset.path=d.jsonl", "metrics=[faithfulness]", "judge=detector"]) == 2
        assert "hf download KRLabsOrg/lettucedect-base-modernbert-en-v1" in capsys.readouterr().err
    assert not (here / "outputs").exists()
    assert models.loaded == []


@pytest.mark.detectors
def test_a_run_with_a_network(here):
    pytest.importorskip("torch")
    shutil.rmtree(here / "model")
    write_modernbert(here / "model")
    assert main(words()) == 0
    found = scores(latest(here))
    assert {found[case, "faithfulness"]["status"] for case in ("good", "half", "long")} == {"ok"}
    assert main(["task=verify", f"run={latest(here)}"]) == 0
