"""Detectors with networks: tiny random models, made here, beside the packages and recipes of their authors.

A random model's numbers mean nothing, and must be the same numbers: what is tested is everything around the network.
"""

import json
import random

import numpy as np
import pytest

from ragpipe.core.errors import DataError
from ragpipe.extras.models.detector_models import open_reader, reading_texts
from ragpipe.extras.models.detector_settings import DetectorSettings
from tests.extras.models.tiny_detectors import WORDS, write_modernbert, write_nli

pytestmark = [pytest.mark.slow, pytest.mark.detectors]
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

PLAIN = [word for word in WORDS if word.isalnum()]


def texts(count, *, words, seed=1):
    draw = random.Random(seed)
    return [" ".join(draw.choices(PLAIN, k=draw.randint(*words))) + "." for _ in range(count)]


def reader_of(folder, family):
    return open_reader(DetectorSettings(family=family, path=str(folder)))


def test_one_part_gives_the_tokens_and_spans_of_the_package(tmp_path):
    detectors = pytest.importorskip("lettucedetect.detectors.transformer")
    lettuce = write_modernbert(tmp_path)
    theirs = detectors.TransformerDetector(str(lettuce), lang="en")
    ours = reader_of(lettuce, "lettucedetect")
    passages, questions, found = texts(4, words=(5, 60), seed=2), ["", "Where does tea come from?"], 0
    for i, answer in enumerate(texts(12, words=(1, 40))):
        question, contexts = questions[i % 2], passages[: 1 + i % 4]
        reading = ours(question, answer, *contexts)
        tokens = theirs.predict(contexts, answer, question or None, output_format="tokens")
        assert [t.unsupported for t in reading.tokens] == pytest.approx([t["prob"] for t in tokens][:-1], abs=5e-6)
        for span in theirs.predict(contexts, answer, question or None, output_format="spans"):
            inside = [t for t in reading.tokens if t.start >= span["start"] and t.end <= span["end"]]
            assert (inside[0].start, inside[-1].end) == (span["start"], span["end"])
            assert max(t.unsupported for t in inside) == pytest.approx(span["confidence"], abs=5e-6)
            assert all(t.unsupported > 0.5 for t in inside)
            found += 1
    assert found > 5


def test_several_parts_take_the_minimum(tmp_path):
    """Each group of passages alone says more to be unsupported than all say together."""
    folder = write_modernbert(tmp_path, limit=220)
    (answer,) = texts(1, words=(20, 20), seed=3)
    passages = texts(4, words=(50, 50), seed=4)
    read = reader_of(folder, "lettucedetect")
    together = [t.unsupported for t in read("Where?", answer, *passages).tokens]
    groups = [[t.unsupported for t in read("Where?", answer, *group).tokens] for group in (passages[:2], passages[2:])]
    assert together == np.min(groups, axis=0).tolist()
    assert groups[0] != groups[1]


def test_an_answer_over_the_limit_is_said_and_never_cut(tmp_path):
    folder = write_modernbert(tmp_path, limit=64)
    (answer,) = texts(1, words=(80, 80))
    assert "leave no room" in reader_of(folder, "lettucedetect")("", answer, "Tea.").too_long


PAIRS = list(zip(texts(10, words=(4, 70), seed=5), texts(10, words=(2, 12), seed=6), strict=True))


@pytest.mark.parametrize("kind", ["bert", "roberta", "deberta-v2"])
def test_a_cross_encoder_equals_itself_alone_by_its_own_labels(tmp_path, kind):
    folder = write_nli(tmp_path, kind=kind, labels=["contradiction", "entailment", "neutral"])
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    expected = []
    for premise, hypothesis in PAIRS:
        inputs = tokenizer(premise, hypothesis, return_tensors="pt")
        with torch.no_grad():
            expected.append(torch.softmax(model(**inputs).logits, dim=-1)[0].tolist())
    read = reader_of(folder, "nli")
    readings = [read(claim, passage) for passage, claim in PAIRS]
    assert [r.support[0] for r in readings] == pytest.approx([share[1] for share in expected], abs=5e-6)
    assert [r.contradiction[0] for r in readings] == pytest.approx([share[0] for share in expected], abs=5e-6)
    assert max(r.support[0] for r in readings) - min(r.support[0] for r in readings) > 0.05


def test_the_part_of_a_long_passage_that_supports_most_counts(tmp_path):
    folder = write_nli(tmp_path, kind="bert", labels=["entailment", "not_entailment"])
    sentences = [f"It {text}" for text in texts(16, words=(13, 13), seed=7)]
    claim, read = "Green tea comes from China.", reader_of(folder, "nli")
    found = read(claim, " ".join(sentences))  # 16 x 15 tokens, of which 126 are read at once
    quarters = [read(claim, " ".join(sentences[start : start + 4])).support[0] for start in range(0, 16, 4)]
    assert found.support == [pytest.approx(max(quarters), abs=5e-6)]
    assert found.contradiction == []


def broken(folder):
    """The folder with a file of weights that breaks off."""
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    return folder


def headless(folder):
    """Weights without a head: the library would fill it with random numbers."""
    transformers.ModernBertModel.from_pretrained(write_modernbert(folder)).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(("make", "family", "found"), [
    (headless, "lettucedetect", r"architectures: \['ModernBertModel'\]"),
    (lambda f: write_nli(f, kind="bert", labels=["no", "yes"]), "nli", "the labels no, yes: none"),
    (write_modernbert, "nli", "architectures"),
    (lambda f: broken(write_nli(f, kind="bert", labels=["entailment", "neutral"])), "nli", "."),
])  # fmt: skip
def test_a_model_of_another_kind_is_refused(tmp_path, make, family, found):
    with pytest.raises(DataError, match=found):
        reading_texts(DetectorSettings(family=family, path=str(make(tmp_path))))([("Tea.", "Tea.")])


def test_code_in_a_model_s_folder_is_not_run(tmp_path):
    folder = write_nli(tmp_path / "m", kind="bert", labels=["entailment", "neutral"])
    proof = tmp_path / "ran"
    (folder / "modeling.py").write_text(f"open({str(proof)!r}, 'w')\nclass Model: pass\n", encoding="utf-8")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    own = dict.fromkeys(("AutoModelForSequenceClassification", "AutoConfig"), "modeling.Model")
    (folder / "config.json").write_text(json.dumps({**config, "auto_map": own}), encoding="utf-8")
    assert reader_of(folder, "nli")("Tea.", "Tea.").support
    assert not proof.exists()
