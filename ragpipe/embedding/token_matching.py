"""BERTScore of one pair: every token greedily matched with the most similar token of the other text.

Source: Zhang et al. 2020 (arXiv 1904.09675). Equal to the package bert-score 0.3.13 for single pairs, with and without idf. Pairs
are computed one by one: there, and in torchmetrics, a pair's score depends on the batch that it stands in.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ragpipe.embedding.token_encoder import Encoded, Encoder, EncoderSettings, make_encoder
from ragpipe.schema.sample import Corpus

Weight = Callable[[int], float]


class PairScores:
    """Pairs (candidate, reference) to replies; with a `corpus` tokens weigh by their rarity in it. Model and corpus are read at
    the first pair."""

    def __init__(self, settings: EncoderSettings, corpus: Corpus | None = None):
        self._settings, self._corpus = settings, corpus
        self._encoder: Encoder | None = None
        self._weight: Weight | None = None

    def __call__(self, pairs: Sequence[Sequence[str]]) -> list[str]:
        """One reply per pair: JSON with precision, recall, f1 (0..1, not rescaled), tokens of both texts, and which was cut.

        What a question says beside the two texts (the name of the corpus) is not read: this object belongs to that corpus.
        """
        encoder = self._encoder = self._encoder or make_encoder(self._settings)
        if self._corpus is not None and self._weight is None:
            self._weight = idf(encoder.ids(text) for text in self._corpus.texts())
        both = [pair[:2] for pair in pairs]
        different = list(dict.fromkeys(text for pair in both for text in pair))
        encoded = dict(zip(different, encoder(different), strict=True))
        return [
            json.dumps(pair_score(encoded[candidate], encoded[reference], self._weight))
            for candidate, reference in both
        ]


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
        **(
            {"weightless": [n for n, w in weights.items() if w is not None and len(w) and not w.any()]}
            if weight
            else {}
        ),
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
