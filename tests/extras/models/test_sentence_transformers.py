"""The embedder sentence_transformers beside the NumPy MiniLM: the same weights have the same vectors and the same keys."""

import numpy as np
import pytest

from ragpipe.extras.models.embedders import SentenceTransformers, SentenceTransformersVectors
from ragpipe.judge.embedder import MiniLM
from tests.support.minilm import needs_files
from tests.unit.judge.test_minilm import STORED


@pytest.mark.slow
@pytest.mark.oracles
@needs_files
def test_the_runtime_of_sentence_transformers_gives_the_same():
    pytest.importorskip("sentence_transformers")
    settings = SentenceTransformers()
    assert settings.identity_of_embedder() == MiniLM().identity_of_embedder()  # and so their vectors have the same keys
    found = SentenceTransformersVectors(settings)(STORED["texts"])
    assert np.allclose([vector[:8] for vector in found], STORED["first_numbers"], atol=1e-6)
