"""What a detector found in a text and its passages, and the question that asks for it.

A reading holds the model's numbers and no verdict: it is stored, and another threshold costs no new one. Its question is a list of
texts: for a pair, the passage and the claim; for spans, the question (may be empty), the answer and the passages.
"""

from __future__ import annotations

from ragpipe.judging.clients.http_responses import replace_surrogates
from ragpipe.schema.call import Payload
from ragpipe.schema.judge_answers.answer_type import Answer, Integer, Share

DIGITS = 6
"""Decimals of a stored probability. A batch's padding and the machine move a model's numbers at about the sixth."""
Texts = tuple[str, ...]


class TokenReading(Answer):
    """One token of an answer: its characters `start` to `end`, and the probability that nothing supports it."""

    start: Integer
    end: Integer
    unsupported: Share


class Reading(Answer):
    """What a model found.

    `support` and `contradiction` are the probabilities that a passage supports or contradicts a claim, of the part of it that
    supports it most and of the one that contradicts it most; that part is characters `start` to `end` of the passage.
    `contradiction` is None where the model does not tell it. `tokens` are those of an answer, for a model of spans. `parts` is in how many
    parts the passages were read. `too_long` says what did not fit; there is nothing else then.
    """

    support: Share | None = None
    contradiction: Share | None = None
    start: Integer = 0
    end: Integer = 0
    tokens: list[TokenReading] | None = None
    parts: Integer = 1
    too_long: str | None = None


def pair_texts(passage: str, claim: str) -> Texts:
    """The texts that ask whether a passage supports a claim."""
    return passage, claim


def span_texts(question: str, answer: str, passages: tuple[str, ...]) -> Texts:
    """The texts that ask which characters of an answer no passage supports; an empty question is none."""
    return question, answer, *passages


def reading_payload(texts: Texts) -> Payload:
    """The question for a reading. A lone surrogate, which no tokenizer takes, is replaced by one character: places stay."""
    messages = tuple({"role": "text", "content": replace_surrogates(text)[0]} for text in texts)
    return Payload(messages, {"form": "json", "type": "grounding_reading"})
