"""BERT in NumPy: tokens in, hidden states out. Equal to torch to some 1e-7; the same on every machine to float32 rounding.

Source: Devlin et al. 2019 (arXiv 1810.04805), post-norm encoder with exact GELU, as in transformers' `BertModel`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ragpipe.core.errors import DataError, Problem
from ragpipe.embedding.gelu import gelu
from ragpipe.embedding.model_files import Floats, read_model_json, read_tensors

_TABLES = ("word", "position", "token_type")


class Bert:
    """The encoder of one folder (config.json, model.safetensors, tokenizer.json). Safe in threads: it only reads."""

    def __init__(self, folder: Path):
        config = read_model_json(folder / "config.json")
        if config.get("model_type") != "bert":
            raise DataError(
                "only BERT models run without torch",
                [
                    Problem(
                        str(folder / "config.json"),
                        "model_type",
                        repr(config.get("model_type")),
                        "bert",
                        "give a BERT, or take another embedder (docs/embeddings.md)",
                    )
                ],
            )
        self.layers, self._heads = int(config["num_hidden_layers"]), int(config["num_attention_heads"])
        self._epsilon = np.float32(config.get("layer_norm_eps", 1e-12))
        self.longest = int(config["max_position_embeddings"])
        self.size = int(config["hidden_size"])
        tensors = read_tensors(folder / "model.safetensors")
        self._tensors = {name.removeprefix("bert."): tensor for name, tensor in tensors.items()}
        self._check_tensors(folder / "model.safetensors")
        self._tokenizer = open_tokenizer(folder)

    def _check_tensors(self, path: Path) -> None:
        """Raises DataError naming the first tensors that are not there."""
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
            raise DataError(
                "a model's weights are not those of its config.json",
                [
                    Problem(
                        str(path),
                        "tensors",
                        f"no {', '.join(missing[:3])} ({len(missing)} of {len(needed)} missing)",
                        f"those of a BERT of {self.layers} layers",
                        "give the folder of one model, as it was published",
                    )
                ],
            )

    def tokens(self, text: str, longest: int) -> tuple[list[int], bool]:
        """The ids with the special tokens around them, at most `longest`, and whether the text was cut."""
        ids: list[int] = self._tokenizer.encode(text.strip()).ids
        longest = min(longest, self.longest)
        return (ids, False) if len(ids) <= longest else ([*ids[: longest - 1], ids[-1]], True)

    def states(self, batch: Sequence[Sequence[int]], layers: int | None = None) -> list[Floats]:
        """Hidden states of each text (tokens x size) after so many layers (None: all)."""
        lengths = [len(ids) for ids in batch]
        padded = np.zeros((len(batch), max(lengths)), dtype=np.int64)
        for row, ids in zip(padded, batch, strict=True):
            row[: len(ids)] = ids
        hidden = self._embedded(padded)
        absent = np.arange(padded.shape[1])[None, :] >= np.array(lengths)[:, None]
        mask = np.where(absent, np.float32(-np.inf), np.float32(0))[:, None, None, :]
        for layer in range(self.layers if layers is None else layers):
            hidden = self._layer(f"encoder.layer.{layer}", hidden, mask)
        return [states[:length] for states, length in zip(hidden, lengths, strict=True)]

    def _embedded(self, ids: np.ndarray) -> Floats:
        word, position, kind = (self._tensors[f"embeddings.{name}_embeddings.weight"] for name in _TABLES)
        return self._norm("embeddings.LayerNorm", word[ids] + (kind[0] + position[: ids.shape[1]])[None])

    def _layer(self, name: str, hidden: Floats, mask: Floats) -> Floats:
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

    def _linear(self, name: str, inputs: Floats) -> Floats:
        projected: Floats = inputs @ self._tensors[f"{name}.weight"].T + self._tensors[f"{name}.bias"]
        return projected

    def _norm(self, name: str, inputs: Floats) -> Floats:
        centred = inputs - inputs.mean(-1, keepdims=True)
        spread = np.sqrt((centred * centred).mean(-1, keepdims=True) + self._epsilon)
        scaled: Floats = centred / spread * self._tensors[f"{name}.weight"] + self._tensors[f"{name}.bias"]
        return scaled


def open_tokenizer(folder: Path) -> Any:
    """The tokenizer of tokenizer.json, which neither cuts nor pads."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()  # both are set in the file, for a batch of somebody's
    tokenizer.no_padding()
    return tokenizer
