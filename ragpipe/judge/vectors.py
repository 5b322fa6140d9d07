"""Vectors and token matches as replies.

The question is a text, its reply the base64 of a vector's float32 bytes. So vectors are stored, shared, resumed, sealed and
replayed like all other replies, and the first one that was computed is the one that counts.
"""

from __future__ import annotations

import base64
import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ragpipe.core.call import Payload, Schema
from ragpipe.judge.answer_type import Answer, Integer, Number

Floats = NDArray[np.float32]


class Vector(Answer):
    """A vector, parsed from its text form. No language model is asked for one."""

    form = "text"
    values: Any

    @classmethod
    def from_text(cls, text: str) -> Self:
        return cls(values=read_vector(text))


class TokenMatch(Answer):
    """Two texts compared token by token: precision, recall and F1 (-1 to 1), how many tokens each has, which was cut.

    `weightless` names the texts whose tokens all have weight 0: each of them is in every reference of the data set.
    """

    precision: Number
    recall: Number
    f1: Number
    tokens: list[Integer]
    cut: list[str]
    weightless: list[str] = Field(default_factory=list)


def pair_payload(candidate: str, reference: str, corpus: str | None = None) -> Payload:
    """The question for a pair's token match; `corpus` is the digest of the references by which tokens are weighted."""
    texts = ({"role": "candidate", "content": candidate}, {"role": "reference", "content": reference})
    weighted = ({"role": "idf", "content": corpus},) if corpus is not None else ()
    return Payload((*texts, *weighted), Schema(form="json", type="token_match"))


def text_payload(text: str) -> Payload:
    """The question for a text's vector."""
    return Payload(({"role": "text", "content": text},), Schema(form="text", type="vector"))


def vector_text(vector: Floats) -> str:
    """A vector's float32 little-endian bytes in base64: exact, and 1.3 times their size."""
    return base64.b64encode(np.ascontiguousarray(vector, dtype="<f4").tobytes()).decode("ascii")


def read_vector(text: str) -> Floats:
    """The vector in a reply. Raises ValueError for any other text and for numbers that are not finite."""
    vector = np.frombuffer(base64.b64decode(text, validate=True), dtype="<f4")
    if not len(vector) or not np.all(np.isfinite(vector)):
        raise ValueError("expected the base64 of finite float32 numbers")
    return vector


def cosine(left: Floats, right: Floats) -> float:
    """The cosine similarity, -1 to 1; 0 where a vector is zero. Raises ValueError for vectors of different lengths."""
    if left.shape != right.shape:
        raise ValueError(f"vectors of {len(left)} and {len(right)} numbers have no cosine")
    norms = math.sqrt(_dot(left, left) * _dot(right, right))
    return max(-1.0, min(1.0, _dot(left, right) / norms)) if norms else 0.0


def _dot(left: Floats, right: Floats) -> float:
    """The dot product, exact up to one rounding, so that a stored vector gives the same score on every machine."""
    return math.fsum((left.astype(np.float64) * right.astype(np.float64)).tolist())
