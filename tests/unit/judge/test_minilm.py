"""The NumPy MiniLM against sentence-transformers, whose numbers were written down once, against itself and against scipy."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.special import erf as scipy_erf
from scipy.special import ndtr

from ragpipe.core.errors import DataError
from ragpipe.judge.embedder import MINILM_TOKENIZER, MINILM_WEIGHTS, MiniLM, packaged_folder, read_tensors
from ragpipe.judge.minilm import MiniLMVectors, erf, gelu
from ragpipe.judge.vectors import cosine, read_vector, vector_text
from tests.support.minilm import needs_files

STORED = json.loads((Path(__file__).parent / "sentence_transformers_fixtures.json").read_text(encoding="utf-8"))


@needs_files
@pytest.mark.slow
def test_equal_to_sentence_transformers():
    assert STORED["weights"] == MINILM_WEIGHTS
    found = MiniLMVectors(MiniLM())(STORED["texts"])
    assert np.allclose([vector[:8] for vector in found], STORED["first_numbers"], atol=1e-6)
    cosines = [[cosine(one, other) for other in found] for one in found]
    assert np.allclose(cosines, STORED["cosines"], atol=1e-6)
    assert all(vector.dtype == np.float32 and vector.shape == (384,) for vector in found)


@pytest.mark.slow
@needs_files
def test_other_files_than_the_published_ones_are_refused(tmp_path):
    folder = packaged_folder()
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    raw = bytearray((folder / "model.safetensors").read_bytes())
    raw[-1] ^= 1
    (tmp_path / "model.safetensors").write_bytes(raw)
    own = MiniLM(path=str(tmp_path))
    assert own.weights != MINILM_WEIGHTS
    assert own.tokenizer == MINILM_TOKENIZER
    assert len(MiniLMVectors(own)(["a text"])[0]) == 384
    with pytest.raises(DataError, match=r"model\.safetensors"):
        MiniLMVectors(MiniLM(path=str(tmp_path), weights=MINILM_WEIGHTS, tokenizer=MINILM_TOKENIZER))(["a text"])


def test_a_folder_of_ones_own_must_hold_the_files(tmp_path):
    with pytest.raises(ValueError, match=r"has no model\.safetensors"):
        MiniLM(path=str(tmp_path))


@pytest.mark.parametrize("raw", [b"", b"\x00" * 4, b"\xff" * 64, (9).to_bytes(8, "little") + b"{not json"])
def test_a_file_of_another_form_is_an_error(tmp_path, raw):
    (tmp_path / "model.safetensors").write_bytes(raw)
    with pytest.raises(DataError, match="a safetensors file"):
        read_tensors(tmp_path / "model.safetensors")


@pytest.mark.parametrize("kind", ["F16", "BF16", "F64"])
def test_weights_of_another_type_are_named(tmp_path, kind):
    path = tmp_path / "model.safetensors"
    header = json.dumps({
        "ids": {"dtype": "I64", "shape": [0], "data_offsets": [0, 0]},
        "embeddings.LayerNorm.bias": {"dtype": kind, "shape": [2], "data_offsets": [0, 4]},
    }).encode()  # fmt: skip
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(DataError) as fault:
        read_tensors(path)
    assert all(word in str(fault.value) for word in (str(path), "embeddings.LayerNorm.bias", kind, "F32"))


@pytest.mark.slow
@needs_files
def test_a_text_is_cut_where_it_has_more_tokens_than_are_read():
    """Two of the 256 tokens are those around the text; "word" is one token."""
    vectors = MiniLMVectors(MiniLM())
    assert [vectors.cut("word " * count) for count in (1, 254, 255)] == [False, False, True]
    assert MiniLMVectors(MiniLM(max_tokens=3)).cut("two words")


def test_a_vector_survives_its_text():
    vector = np.array([1.5, -0.0, 3e-30, np.float32(1) / 3], dtype=np.float32)
    assert read_vector(vector_text(vector)).tobytes() == vector.tobytes()
    for bad in ("", "no base64!", "AAAA", vector_text(np.array([np.nan], dtype=np.float32))):
        with pytest.raises(ValueError):  # noqa: PT011  binascii and numpy word it as they like
            read_vector(bad)


def test_a_cosine_by_hand_and_at_its_edges():
    def of(*numbers):
        return np.array(numbers, dtype=np.float32)

    assert cosine(of(3, 4), of(1, 0)) == 0.6
    assert cosine(of(1, 0), of(-2, 0)) == -1
    assert cosine(of(0, 0), of(1, 0)) == 0
    with pytest.raises(ValueError, match="2 and 3"):
        cosine(of(1, 0), of(1, 0, 0))


VALUES = np.concatenate([np.linspace(-9, 9, 300_001), [-1e30, -1e-30, 0.0, 1e-30, 1e30]]).astype(np.float32)


def test_erf_is_that_of_scipy_to_the_precision_of_float32():
    computed = erf(VALUES)
    assert computed.dtype == np.float32
    assert np.abs(computed.astype(np.float64) - scipy_erf(VALUES.astype(np.float64))).max() < 1e-7


def test_gelu_is_the_value_times_the_normal_distribution():
    values = VALUES[np.abs(VALUES) < 10]
    expected = values.astype(np.float64) * ndtr(values.astype(np.float64))
    assert (np.abs(gelu(values) - expected) < 2e-7 * np.maximum(1, np.abs(values))).all()
