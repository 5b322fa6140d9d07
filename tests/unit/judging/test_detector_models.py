"""Detectors with networks: tiny random models, made here, beside the packages and recipes of their authors.

A random model's numbers mean nothing, and must be the same numbers: what is tested is everything around the network.
"""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from ragpipe.core.errors import DataError
from ragpipe.judging.detectors.reading import pair_texts, span_texts
from ragpipe.judging.detectors.settings import DetectorSettings
from ragpipe.judging.detectors.torch_models import open_reader
from ragpipe.judging.detectors.unsupported_spans import spans_of
from tests.support.tiny_detectors import WORDS, write_modernbert, write_nli, write_t5, write_tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.detectors]
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

PLAIN = [word for word in WORDS if word.isalnum()]


def texts(count, *, words, seed=1):
    draw = random.Random(seed)
    return [" ".join(draw.choices(PLAIN, k=draw.randint(*words))) + "." for _ in range(count)]


def reader_of(folder, family, **changes):
    return open_reader(DetectorSettings(family=family, path=str(folder), device="cpu", **changes))


# ------------------------------------------------------------------------------------------------- LettuceDetect


@pytest.fixture(scope="module")
def lettuce(tmp_path_factory):
    return write_modernbert(tmp_path_factory.mktemp("lettuce"))


@pytest.mark.parametrize("language", ["en", "de", "cn"])
def test_one_part_gives_the_spans_of_the_package(lettuce, language):
    detectors = pytest.importorskip("lettucedetect.detectors.transformer")
    theirs = detectors.TransformerDetector(str(lettuce), device="cpu", lang=language)
    ours = reader_of(lettuce, "lettucedetect", language=language)
    answers = texts(12, words=(1, 40))
    passages = texts(4, words=(5, 60), seed=2)
    questions = ["", "Where does tea come from?"]
    asked = [(questions[i % 2], answer, passages[: 1 + i % 4]) for i, answer in enumerate(answers)]
    readings = ours([span_texts(question, answer, tuple(contexts)) for question, answer, contexts in asked])
    found = 0
    for (question, answer, contexts), reading in zip(asked, readings, strict=True):
        expected = theirs.predict(contexts, answer, question or None, output_format="spans")
        spans = spans_of(answer, reading.tokens, 0.5)
        assert [(s.start, s.end, s.text) for s in spans] == [(s["start"], s["end"], s["text"]) for s in expected]
        assert [s.confidence for s in spans] == pytest.approx([s["confidence"] for s in expected], abs=5e-6)
        found += len(spans)
        tokens = theirs.predict(contexts, answer, question or None, output_format="tokens")
        assert [t.unsupported for t in reading.tokens] == pytest.approx([t["prob"] for t in tokens][:-1], abs=5e-6)
        assert all(set(token) == {"token", "pred", "prob"} for token in tokens)  # the last one is [SEP]
        assert reading.parts == 1
    assert 5 < found < sum(len(reading.tokens) for reading in readings) / 2


def test_several_parts_take_the_minimum_where_the_package_takes_the_maximum(lettuce):
    detectors = pytest.importorskip("lettucedetect.detectors.transformer")
    (answer,) = texts(1, words=(20, 20), seed=3)
    passages = texts(4, words=(50, 50), seed=4)
    limit = 220
    (reading,) = reader_of(lettuce, "lettucedetect", max_tokens=limit)([span_texts("Where?", answer, tuple(passages))])
    theirs = detectors.TransformerDetector(str(lettuce), device="cpu", max_length=limit)
    groups = theirs._group_passages_into_chunks(passages, "Where?", answer)
    each = [[token["prob"] for token in theirs.predict(group, answer, "Where?", output_format="tokens")][:-1] for group in groups]
    assert reading.parts == len(groups) > 1
    assert [t.unsupported for t in reading.tokens] == pytest.approx(np.min(each, axis=0), abs=5e-6)
    highest = [token["prob"] for token in theirs.predict(passages, answer, "Where?", output_format="tokens")][:-1]
    assert highest == pytest.approx(np.max(each, axis=0), abs=5e-6)
    assert max(h - t.unsupported for h, t in zip(highest, reading.tokens, strict=True)) > 0.01


def test_an_answer_over_the_limit_is_said_and_never_cut(lettuce):
    (answer,) = texts(1, words=(80, 80))
    (reading,) = reader_of(lettuce, "lettucedetect", max_tokens=64)([span_texts("", answer, ("Tea.",))])
    assert reading.too_long.startswith("question and answer leave 0 of 64 tokens")


def test_the_batch_moves_a_probability_by_rounding_only(lettuce):
    asked = [span_texts("", answer, ("Green tea comes from China.",)) for answer in texts(9, words=(1, 60))]
    together = reader_of(lettuce, "lettucedetect", batch_tokens=100_000)(asked)
    alone = reader_of(lettuce, "lettucedetect", batch_tokens=16)(asked)
    for one, other in zip(together, alone, strict=True):
        assert [t.unsupported for t in one.tokens] == pytest.approx([t.unsupported for t in other.tokens], abs=5e-6)


# ------------------------------------------------------------------------------------------------- pairs


PAIRS = list(zip(texts(10, words=(4, 70), seed=5), texts(10, words=(2, 12), seed=6), strict=True))


def supports(folder, family, **changes):
    readings = reader_of(folder, family, **changes)([pair_texts(passage, claim) for passage, claim in PAIRS])
    assert all(reading.parts == 1 for reading in readings)
    return [reading.support for reading in readings]


def test_minicheck_equals_the_recipe_of_its_authors(tmp_path):
    """`predict: ` document, end of text, claim; the first step's logits of the tokens 3 and 209."""
    folder = write_t5(tmp_path, family="minicheck")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    expected = []
    for document, claim in PAIRS:
        inputs = tokenizer(["predict: " + tokenizer.eos_token.join([document, claim])], return_tensors="pt")
        first = torch.zeros((1, 1), dtype=torch.long)
        with torch.no_grad():
            logits = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], decoder_input_ids=first).logits.squeeze(1)  # fmt: skip
        expected.append(torch.softmax(logits[:, torch.tensor([3, 209])], dim=-1)[0, 1].item())
    found = supports(folder, "minicheck")
    assert found == pytest.approx(expected, abs=5e-6)
    assert max(found) - min(found) > 0.05


def test_hhem_equals_the_recipe_of_its_authors(tmp_path):
    """A T5 that classifies tokens; the logits of token 0 for the prompt with premise and hypothesis."""
    folder = write_t5(tmp_path / "hhem", family="hhem")
    plain = write_t5(tmp_path / "plain", family="hhem")
    tokenizer = transformers.AutoTokenizer.from_pretrained(write_tokenizer(tmp_path / "tokenizer", like="t5").parent)
    config = transformers.T5Config(
        vocab_size=256, d_model=32, d_kv=8, d_ff=40, num_layers=2, num_heads=4, feed_forward_proj="gated-gelu", num_labels=2
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.T5ForTokenClassification(config).eval()
    from safetensors.torch import load_file

    model.load_state_dict({k.removeprefix("t5."): v for k, v in load_file(plain / "model.safetensors").items()}, strict=False)
    prompt = "<pad> Determine if the hypothesis is true given the premise?\n\nPremise: {text1}\n\nHypothesis: {text2}"
    expected = []
    for premise, hypothesis in PAIRS:
        inputs = tokenizer([prompt.format(text1=premise, text2=hypothesis)], return_tensors="pt")
        with torch.no_grad():
            logits = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
        expected.append(torch.softmax(logits[:, 0, :], dim=-1)[0, 1].item())
    found = supports(folder, "hhem")
    assert found == pytest.approx(expected, abs=5e-6)
    assert max(found) - min(found) > 0.05


@pytest.mark.parametrize("kind", ["bert", "roberta", "deberta-v2"])
def test_a_cross_encoder_equals_itself_alone_by_its_own_labels(tmp_path, kind):
    labels = ["contradiction", "entailment", "neutral"]
    folder = write_nli(tmp_path, kind=kind, labels=labels)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    expected = []
    for premise, hypothesis in PAIRS:
        inputs = tokenizer(premise, hypothesis, return_tensors="pt")
        if kind != "bert":  # the others have no segments
            inputs.pop("token_type_ids", None)
        with torch.no_grad():
            expected.append(torch.softmax(model(**inputs).logits, dim=-1)[0].tolist())
    readings = reader_of(folder, "nli")([pair_texts(*pair) for pair in PAIRS])
    assert [r.support for r in readings] == pytest.approx([share[1] for share in expected], abs=5e-6)
    assert [r.contradiction for r in readings] == pytest.approx([share[0] for share in expected], abs=5e-6)
    assert max(r.support for r in readings) - min(r.support for r in readings) > 0.05


def test_a_long_passage_is_read_in_parts_within_the_model_s_places(tmp_path):
    folder = write_nli(tmp_path, kind="roberta", labels=["entailment", "not_entailment"])
    passage = " ".join(texts(20, words=(10, 15), seed=7))
    (reading,) = reader_of(folder, "nli")([pair_texts(passage, "Green tea comes from China.")])
    assert reading.parts >= 3
    (alone,) = reader_of(folder, "nli")([pair_texts(passage[reading.start : reading.end].strip(), "Green tea comes from China.")])  # fmt: skip
    assert alone.support == pytest.approx(reading.support, abs=5e-6)
    with pytest.raises(DataError, match=r"judge\.max_tokens\n +found: +512\n +expected: at most 126"):
        reader_of(folder, "nli", max_tokens=512)


# ------------------------------------------------------------------------------------------------- what is refused


def test_weights_without_a_head_are_refused(tmp_path):
    """The library would fill the missing head with random numbers."""
    folder = write_modernbert(tmp_path)
    from transformers import ModernBertModel

    ModernBertModel.from_pretrained(folder).save_pretrained(folder)
    with pytest.raises(DataError, match="weights without classifier"):
        reader_of(folder, "lettucedetect")


def broken(folder):
    """The folder with a file of weights that breaks off."""
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    return folder


@pytest.mark.parametrize(
    ("make", "family", "found"),
    [
        (lambda f: write_modernbert(f, labels=3), "lettucedetect", "a model of 3 labels"),
        (lambda f: write_nli(f, kind="bert", labels=["no", "yes"]), "nli", "0: no, 1: yes"),
        (lambda f: write_nli(f, kind="bert", labels=["entailment", "neutral"]), "minicheck", "."),
        (lambda f: write_nli(f, kind="bert", labels=["entailment", "neutral"]), "hhem", "other weights"),
        (lambda f: write_t5(f, family="hhem"), "nli", "."),
        (lambda f: broken(write_t5(f, family="hhem")), "hhem", "other weights"),
        (lambda f: broken(write_nli(f, kind="bert", labels=["entailment", "neutral"])), "nli", "."),
    ],
)
def test_a_model_of_another_kind_is_refused(tmp_path, make, family, found):
    with pytest.raises(DataError, match=found):
        reader_of(make(tmp_path), family)


def test_code_in_a_model_s_folder_is_not_run(tmp_path):
    folder = write_nli(tmp_path / "m", kind="bert", labels=["entailment", "neutral"])
    proof = tmp_path / "ran"
    (folder / "modeling.py").write_text(f"open({str(proof)!r}, 'w')\nclass Model: pass\n", encoding="utf-8")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["auto_map"] = {"AutoModelForSequenceClassification": "modeling.Model", "AutoConfig": "modeling.Model"}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    reader_of(folder, "nli")([pair_texts("Tea.", "Tea.")])
    assert not proof.exists()


def test_pickled_weights_are_not_read(tmp_path):
    folder = write_nli(tmp_path, kind="bert", labels=["entailment", "neutral"])
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    missing = DetectorSettings(family="nli", path=str(folder)).missing()
    assert missing is not None
    assert "model.safetensors" in missing.found


def test_a_device_that_is_not_there(lettuce):
    if torch.cuda.is_available():
        pytest.skip("this machine has a graphics card")
    with pytest.raises(DataError, match=r"judge\.device\n +found: +cuda:1\n +expected: cpu"):
        open_reader(DetectorSettings(path=str(lettuce), device="cuda:1"))
