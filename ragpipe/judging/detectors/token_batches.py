"""Texts as tokens, computed in batches of a bounded number of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ModelInput:
    """One text for a model: token ids, and of which segment each is (0 or 1)."""

    ids: tuple[int, ...]
    segments: tuple[int, ...]


class Logits(Protocol):
    """A model: for each input of a batch its logits, without padding. A classifier of tokens gives (tokens, labels), one of pairs
    (labels,)."""

    def __call__(self, batch: Sequence[ModelInput]) -> list[Floats]: ...


class OutOfMemory(Exception):
    """The device has no room for a batch."""


def compute_in_batches(inputs: Sequence[ModelInput], logits: Logits, batch_tokens: int) -> list[Floats]:
    """The logits of all inputs, in their order. A batch holds inputs of like length, at most `batch_tokens` tokens with padding, and
    at least one input. A batch for which the device has no room is halved; raises OutOfMemory where one input is too much."""
    results: list[Floats | None] = [None] * len(inputs)
    for batch in batches_by_tokens([len(each.ids) for each in inputs], batch_tokens):
        for position, result in zip(batch, _compute([inputs[p] for p in batch], logits), strict=True):
            results[position] = result
    return [result for result in results if result is not None]


def batches_by_tokens(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Positions of inputs that are computed together, the longest first: what needs too much memory shows at once."""
    batch: list[int] = []
    longest = 0
    for position in sorted(range(len(lengths)), key=lambda p: (-lengths[p], p)):
        if batch and longest * (len(batch) + 1) > batch_tokens:
            yield batch
            batch = []
        longest = longest if batch else lengths[position]
        batch.append(position)
    if batch:
        yield batch


def _compute(batch: Sequence[ModelInput], logits: Logits) -> list[Floats]:
    try:
        return logits(batch)
    except OutOfMemory:
        if len(batch) == 1:
            raise
    half = len(batch) // 2
    return [*_compute(batch[:half], logits), *_compute(batch[half:], logits)]


def softmax(logits: Floats) -> NDArray[np.float64]:
    """Probabilities over the last axis."""
    shifted = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))
