"""BERTScore of one pair: every token greedily matched with the most similar token of the other text.

Source: Zhang et al. 2020 (arXiv 1904.09675). Equal to the package bert-score 0.3.13 for single pairs without idf. Pairs are
computed one by one: there, and in torchmetrics, a pair's score depends on the batch that it stands in.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from ragpipe.embedding.encoder import Encoded, Encoder, EncoderSettings, make_encoder


class PairScores:
    """Pairs (candidate, reference) to replies. The model is loaded at the first pair."""

    def __init__(self, settings: EncoderSettings):
        self._settings = settings
        self._encoder: Encoder | None = None

    def __call__(self, pairs: Sequence[Sequence[str]]) -> list[str]:
        """One reply a pair: JSON with precision, recall, f1 (0..1, not rescaled), tokens of both texts, and which was cut."""
        self._encoder = self._encoder or make_encoder(self._settings)
        different = list(dict.fromkeys(text for pair in pairs for text in pair))
        encoded = dict(zip(different, self._encoder(different), strict=True))
        return [json.dumps(pair_score(encoded[one], encoded[other])) for one, other in pairs]


def pair_score(candidate: Encoded, reference: Encoded) -> dict[str, object]:
    """Precision: the mean over the candidate's tokens of the best cosine with a token of the reference; recall: the other
    way round; F1 their harmonic mean. Special tokens may be matched and do not count. A text without a token gives 0."""
    similar = _unit(candidate.states) @ _unit(reference.states).T
    precision, recall = _mean(similar.max(1), candidate.special), _mean(similar.max(0), reference.special)
    total = precision + recall
    return {
        "precision": precision, "recall": recall, "f1": 2 * precision * recall / total if total else 0.0,
        "tokens": [int(np.sum(~candidate.special)), int(np.sum(~reference.special))],
        "cut": [name for name, text in (("answer", candidate), ("reference", reference)) if text.cut],
    }  # fmt: skip


def _unit(states: np.ndarray) -> np.ndarray:
    wide = states.astype(np.float64)
    found: np.ndarray = wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)
    return found


def _mean(best: np.ndarray, special: np.ndarray) -> float:
    counted = best[~special]
    return float(counted.mean()) if len(counted) else 0.0
