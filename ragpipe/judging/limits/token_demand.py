"""What a request takes of a limit of tokens, before its reply is known: learned from the usage of earlier replies.

No tokenizer runs here: a limit is held by the sum over many requests, and the usage of replies tells the mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ragpipe.judging.limits.limit_headers import Unit
from ragpipe.judging.limits.limit_rules import Counted

_BYTES_PER_TOKEN = 3.5  # before the first reply: too many tokens rather than too few
_FIRST_OUTPUT = 256.0  # tokens of a reply, before the first one
_WEIGHT = 0.05  # of the newest reply in the means
_OF_MESSAGE = 8.0  # bytes that a message counts besides its text: its role and its ends


@dataclass(slots=True)
class Demand:
    """What one request was taken to need: bytes of its messages, and tokens by unit of a limit."""

    size: float
    tokens: dict[Unit, float]


class TokenDemand:
    """The demands of the requests to one server by one judge.

    Args:
        counts: what the server's limit of tokens counts: `max_tokens` when a request arrives, or what was `used`.
        max_tokens: the longest reply that is asked for; None: none is named, and what is used counts.
    """

    def __init__(self, counts: Counted, max_tokens: int | None):
        self._longest = max_tokens if counts == "max_tokens" else None
        self._per_byte: float | None = None
        self._output: float | None = None

    def of(self, messages: Iterable[Mapping[str, str]]) -> Demand:
        """The demand of a request with these messages."""
        size = sum(_OF_MESSAGE + len(message["content"].encode("utf-8", "replace")) for message in messages)
        asked = size * (self._per_byte or 1 / _BYTES_PER_TOKEN)
        output = self._output or _FIRST_OUTPUT
        counted = output if self._longest is None else float(self._longest)
        return Demand(size, {"tokens": asked + counted, "input": asked, "output": output})

    def record(self, demand: Demand, tokens_in: int, tokens_out: int) -> dict[Unit, float]:
        """A request was answered with this usage. By how many tokens it took more than its demand (negative: fewer)."""
        self._per_byte = _mean(self._per_byte, tokens_in / demand.size)
        self._output = _mean(self._output, float(tokens_out))
        counted = float(tokens_out) if self._longest is None else float(self._longest)
        real: dict[Unit, float] = {
            "tokens": tokens_in + counted,
            "input": float(tokens_in),
            "output": float(tokens_out),
        }
        return {unit: real[unit] - taken for unit, taken in demand.tokens.items()}


def _mean(mean: float | None, value: float) -> float:
    return value if mean is None else mean + _WEIGHT * (value - mean)
