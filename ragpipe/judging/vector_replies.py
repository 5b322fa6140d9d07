"""Vectors as replies: a text is the question, the base64 of its float32 bytes the reply. So they are kept, shared, claimed,
resumed, sealed and replayed like every other reply, and the first that was computed is the one that counts."""

from __future__ import annotations

import base64
import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ragpipe.schema.call import Payload
from ragpipe.schema.judge_answers.answers import Answer, Integer, Number

Floats = NDArray[np.float32]
STEP, MATCH = "embed", "match"


class Vector(Answer):
    """A vector as its text form. Never asked of a language model."""

    form = "text"
    values: Any

    @classmethod
    def from_text(cls, text: str) -> Self:
        return cls(values=read_vector(text))


class TokenMatch(Answer):
    """Two texts compared token by token: precision, recall and F1 (-1 to 1), how many tokens each has, which was cut.

    `weightless` names the text of which no token has a weight: each of them stands in every reference of the data set.
    """

    precision: Number
    recall: Number
    f1: Number
    tokens: list[Integer]
    cut: list[str]
    weightless: list[str] = Field(default_factory=list)


def pair_payload(candidate: str, reference: str, corpus: str | None = None) -> Payload:
    """The question for a pair's token match; `corpus` is the digest of the references by which tokens are weighted."""
    said = ({"role": "candidate", "content": candidate}, {"role": "reference", "content": reference})
    weighted = ({"role": "idf", "content": corpus},) if corpus is not None else ()
    return Payload((*said, *weighted), {"form": "json", "type": "token_match"})


def text_payload(text: str) -> Payload:
    """The question for a text's vector."""
    return Payload(({"role": "text", "content": text},), {"form": "text", "type": "vector"})


def vector_text(vector: Floats) -> str:
    """float32 little-endian bytes in base64: exact, and 1.3 times their size."""
    return base64.b64encode(np.ascontiguousarray(vector, dtype="<f4").tobytes()).decode("ascii")


def read_vector(text: str) -> Floats:
    """The vector of a reply. Raises ValueError for another text and for numbers that are not finite."""
    found = np.frombuffer(base64.b64decode(text, validate=True), dtype="<f4")
    if not len(found) or not np.all(np.isfinite(found)):
        raise ValueError("expected the base64 of finite float32 numbers")
    return found


def cosine(one: Floats, other: Floats) -> float:
    """-1 to 1; 0 when either has no length. Raises ValueError for vectors of two lengths."""
    if one.shape != other.shape:
        raise ValueError(f"vectors of {len(one)} and {len(other)} numbers have no cosine")
    size = math.sqrt(_dot(one, one) * _dot(other, other))
    return max(-1.0, min(1.0, _dot(one, other) / size)) if size else 0.0


def _dot(one: Floats, other: Floats) -> float:
    """Exact up to one rounding: products of two float32 fit into a double, and `fsum` adds without error. So a stored
    vector gives the same score on every machine."""
    return math.fsum((one.astype(np.float64) * other.astype(np.float64)).tolist())
