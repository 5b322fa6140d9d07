"""The tokens of one step of a plan: some of its questions are rendered and counted, all of them are measured by their texts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from ragpipe.judging.transports.provider_state import schema_request, strict_schema
from ragpipe.schema.call import Message
from ragpipe.schema.judge_answers.answer_schema import answer_schema
from ragpipe.schema.judge_answers.answer_type import Answer

PER_MESSAGE, PER_REQUEST = 4, 3
"""Tokens that the chat format of OpenAI's models adds to each message, and to the request for the reply to come."""

SchemaPlace = Literal["message", "request", "none"]


@dataclass(frozen=True)
class PromptCounter:
    """Counts prompts as the judge's server does.

    Args:
        count: the tokens of a text.
        schema: where the answer's schema stands and is counted: in the last `message`, in the `request` beside the
            messages, or `none` (a server that constrains its decoding by it).
    """

    count: Callable[[str], int]
    schema: SchemaPlace = "none"

    def tokens(self, messages: Sequence[Message], answer: type[Answer]) -> int:
        """The prompt tokens of one question."""
        texts = sum(PER_MESSAGE + self.count(message["content"]) for message in messages)
        return PER_REQUEST + texts + self.schema_tokens(answer)

    def schema_tokens(self, answer: type[Answer]) -> int:
        """The tokens of an answer's schema; 0 for a text answer."""
        if answer.form == "text" or self.schema == "none":
            return 0
        return self.count(_schema_text(answer, self.schema))


@lru_cache(maxsize=64)
def _schema_text(answer: type[Answer], place: SchemaPlace) -> str:
    schema = answer_schema(answer)
    return schema_request(schema) if place == "message" else json.dumps(strict_schema(schema))


@dataclass(slots=True)
class TokenSample:
    """Prompt tokens against the characters of the values, over the questions that were rendered, and the characters of all.

    Tokens grow with the characters in a straight line: a fixed part for the template, and a share for each character. So the
    questions that are not rendered are counted by their own lengths, and the rendered ones need not be average.
    """

    n: int = 0
    lengths: float = 0.0
    tokens: float = 0.0
    squares: float = 0.0
    products: float = 0.0
    calls: int = 0
    length_of_all: float = 0.0
    replies: float = 0.0

    def add(self, length: int, tokens: int) -> None:
        """Add a question that was rendered."""
        self.n += 1
        self.lengths += length
        self.tokens += tokens
        self.squares += length * length
        self.products += length * tokens

    def add_calls(self, length: int, reply_tokens: float, times: int) -> None:
        """Add questions of this length, rendered or not, and what their replies will have."""
        self.calls += times
        self.length_of_all += times * length
        self.replies += times * reply_tokens

    def scale(self, factor: float) -> None:
        """Let these questions stand for so many times as many. The rendered ones stay what they are."""
        self.calls = round(self.calls * factor)
        self.length_of_all *= factor
        self.replies *= factor

    def tokens_in(self) -> float:
        """Prompt tokens of all questions, by the line of least squares through the rendered ones."""
        if not self.n:
            return 0.0
        mean, mean_length = self.tokens / self.n, self.lengths / self.n
        spread = self.squares - self.n * mean_length**2
        slope = (self.products - self.n * mean_length * mean) / spread if spread > 1e-9 else 0.0
        return self.calls * mean + max(slope, 0.0) * (self.length_of_all - self.calls * mean_length)
