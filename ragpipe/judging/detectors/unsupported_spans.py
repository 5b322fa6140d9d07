"""Which tokens of an answer no passage supports: LettuceDetect and other classifiers of tokens that were trained like it.

Passages that do not fit are read in parts. A token counts as unsupported only as far as every part says so: the minimum over the parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragpipe.judging.detectors.model_input import TextTokens, TokenReader
from ragpipe.judging.detectors.passage_parts import group_neighbours, halved_until, split_passage
from ragpipe.judging.detectors.reading import DIGITS, Reading, Texts, TokenReading
from ragpipe.judging.detectors.settings import DetectorSettings
from ragpipe.judging.detectors.span_templates import TEMPLATES
from ragpipe.judging.detectors.token_batches import Floats, Logits, compute_in_batches, softmax

UNSUPPORTED = 1
"""The label of a token that no passage supports."""
_SLACK = 16  # tokens that a passage can have more in its place, with its number, than alone
_FEWEST = 32  # tokens of a passage that are worth reading


@dataclass(frozen=True, slots=True)
class UnsupportedSpan:
    """Characters `start` to `end` of an answer that nothing supports. `confidence` is the highest probability of its tokens."""

    start: int
    end: int
    text: str
    confidence: float


def spans_of(answer: str, tokens: Sequence[TokenReading], threshold: float) -> list[UnsupportedSpan]:
    """The runs of neighbouring tokens whose probability of support, 1 - `unsupported`, is below the threshold."""
    spans: list[UnsupportedSpan] = []
    is_open = False
    for token in tokens:
        if 1 - token.unsupported >= threshold:
            is_open = False
            continue
        if is_open:
            last = spans.pop()
            start, confidence = last.start, max(last.confidence, token.unsupported)
        else:
            start, confidence = token.start, token.unsupported
        spans.append(UnsupportedSpan(start, token.end, answer[start : token.end], confidence))
        is_open = True
    return spans


class SpanReader:
    """Readings of a question, an answer and passages. `limit` is how many tokens the model reads at once."""

    def __init__(self, settings: DetectorSettings, tokens: TokenReader, logits: Logits, limit: int):
        self._settings, self._tokens, self._logits, self._limit = settings, tokens, logits, limit
        self._template = TEMPLATES[settings.language]

    def __call__(self, asked: Sequence[Texts]) -> list[Reading]:
        """One reading per question, in order."""
        plans = [self._plan(texts[0].strip(), texts[1], texts[2:]) for texts in asked]
        inputs = [part.model_input for plan in plans if not isinstance(plan, str) for part in plan]
        results = iter(compute_in_batches(inputs, self._logits, self._settings.batch_tokens))
        readings = []
        for plan in plans:
            if isinstance(plan, str):
                readings.append(Reading(too_long=plan))
            else:
                readings.append(_reading([(part, next(results)) for part in plan]))
        return readings

    def _plan(self, question: str, answer: str, passages: Sequence[str]) -> list[TextTokens] | str:
        """The inputs, one per part of the passages; a sentence where they cannot be read."""
        question, answer = self._tokens.plain(question), self._tokens.plain(answer)
        passages = [self._tokens.plain(passage) for passage in passages]
        at_once = self._encode(question, answer, passages)
        if len(at_once) <= self._limit:
            return [at_once]
        if self._settings.overflow == "too_long":
            return f"question, answer and passages have {len(at_once):,} tokens, the model reads {self._limit:,}"
        room = self._limit - len(self._encode(question, answer, [""])) - _SLACK
        if room < _FEWEST:
            return f"question and answer leave {max(room, 0):,} of {self._limit:,} tokens for the passages"
        pieces = [piece for passage in passages for piece in self._pieces(passage, room)]
        lengths = [len(self._tokens.token_places(f"{self._template.passage} 1: {piece}")) for piece in pieces]
        parts: dict[tuple[int, ...], TextTokens] = {}

        def fits(group: list[int]) -> bool:
            encoded = self._encode(question, answer, [pieces[position] for position in group])
            parts[tuple(group)] = encoded
            return len(encoded) <= self._limit

        groups = halved_until(group_neighbours(lengths, room, separator=1), fits)
        if groups is None:
            return f"a part of a passage does not fit into {self._limit:,} tokens with question and answer"
        return [parts[tuple(group)] for group in groups]

    def _pieces(self, passage: str, room: int) -> list[str]:
        places = self._tokens.token_places(passage)
        if len(places) <= room:
            return [passage]
        return [passage[start:end].strip() for start, end in split_passage(passage, places, room)]

    def _encode(self, question: str, answer: str, passages: Sequence[str]) -> TextTokens:
        return self._tokens.encode(self._template.fill(question, passages), answer)


def _reading(parts: Sequence[tuple[TextTokens, Floats]]) -> Reading:
    """The tokens of the answer, each with the least probability over the parts."""
    shares: list[NDArray[np.float64]] = []
    places: list[tuple[int, int]] = []
    for encoded, logits in parts:
        positions = [
            p for p, side in enumerate(encoded.sides) if side == 1 and encoded.places[p][0] < encoded.places[p][1]
        ]
        places = [encoded.places[p] for p in positions]
        shares.append(softmax(logits[positions])[:, UNSUPPORTED] if positions else np.zeros(0))
    least = np.min(np.stack(shares), axis=0)  # an answer has the same tokens in every part
    tokens = [
        TokenReading(start=start, end=end, unsupported=round(float(share), DIGITS))
        for (start, end), share in zip(places, least, strict=True)
    ]
    return Reading(tokens=tokens, parts=len(parts))
