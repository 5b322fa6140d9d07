"""Vectors by the package sentence-transformers: any local model, on a graphics card where there is one (extra `models`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ragpipe.extras.models.embedder_settings import SentenceTransformers
from ragpipe.judge.embedder import BATCH, Tensor, check_hash
from ragpipe.judge.minilm import open_tokenizer


class SentenceTransformersVectors:
    """Texts to vectors. torch is imported and the files are read at the first text; no code of the folder runs."""

    def __init__(self, settings: SentenceTransformers):
        self._settings = settings
        self._model: Any = None
        self._tokenizer: Any = None

    def __call__(self, texts: Sequence[str]) -> list[Tensor]:
        """One vector of length 1 a text, in order."""
        vectors = self._open().encode(
            list(texts), batch_size=BATCH, normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False
        )
        return [np.asarray(vector, dtype=np.float32) for vector in vectors]

    def cut(self, text: str) -> bool:
        """Whether the text has more tokens than are read."""
        self._open()
        return len(self._tokenizer.encode(text.strip()).ids) > self._settings.max_tokens

    def _open(self) -> Any:
        if self._model is None:
            from sentence_transformers import SentenceTransformer

            folder = self._settings.folder
            assert folder is not None  # checked before the run began
            check_hash(folder / "model.safetensors", self._settings.weights, "give the folder whose hash this is")
            check_hash(folder / "tokenizer.json", self._settings.tokenizer, "give the folder whose hash this is")
            self._model = SentenceTransformer(str(folder), trust_remote_code=False, local_files_only=True)
            self._model.max_seq_length = self._settings.max_tokens
            self._tokenizer = open_tokenizer(folder)
        return self._model
