"""What is kept of a response's `logprobs`: for each digit of the reply that is a token, which digits could have stood there.

The shape is that of OpenAI's chat completions, which other providers and litellm give too: `logprobs.content`, a list with
`token`, `logprob`, `bytes` and `top_logprobs` for each token of the reply.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ragpipe.core.digest import canonical_json

_DIGIT = re.compile(
    r"[^\w.-]*([0-9])[^\w.]*"
)  # a sign or a point before it, or a point behind it, make it another number
_PLACES = 6  # decimal places of a probability


def digit_tokens(logprobs: Any, text: str) -> str | None:
    """The probabilities of the digits of a reply, as JSON: `[[offset, {"4": 0.71, "5": 0.22}], ...]`.

    `offset` counts the characters of `text` before the digit. A digit counts where it is alone in its token, but for spaces and
    marks around it; tokens that hold the same digit (`4`, ` 4`) are added up. Tokens that hold anything else have the rest of
    the probability and are left out. None where the response has no `logprobs`, or where its tokens do not spell the text.
    """
    content = logprobs.get("content") if isinstance(logprobs, Mapping) else None
    tokens = [token for token in content if isinstance(token, Mapping)] if isinstance(content, list) else []
    offsets = _offsets(tokens, text)
    if offsets is None:
        return None
    rows = []
    for token, offset in zip(tokens, offsets, strict=True):
        digit = _DIGIT.fullmatch(token["token"])
        if digit and offset >= 0 and offset + digit.start(1) < len(text):
            alternatives = token.get("top_logprobs")
            likely = alternatives if isinstance(alternatives, list) and alternatives else [token]
            rows.append([offset + digit.start(1), _probabilities(likely)])
    return canonical_json(rows)


def _offsets(tokens: list[Mapping[str, Any]], text: str) -> list[int] | None:
    """The characters of the text before each token, below 0 for a token that stands before the text; None where they do not spell
    it. Tokens of a turn's beginning and end, or of thoughts, may stand around it."""
    names = [token.get("token") for token in tokens]
    if not tokens or not all(isinstance(name, str) for name in names):
        return None
    lengths = list(map(len, map(str, names)))
    start = "".join(map(str, names)).rfind(text)
    if (
        start < 0
    ):  # the bytes of one character may be spread over several tokens, whose own texts then are not its parts
        spelled = b"".join(map(_bytes, tokens)).decode("utf-8", "replace")
        start = spelled.rfind(text)
        if start < 0:
            return None
        lengths = _decoded_lengths(tokens)
    offsets, place = [], -start
    for length in lengths:
        offsets.append(place)
        place += length
    return offsets


def _decoded_lengths(tokens: Iterable[Mapping[str, Any]]) -> list[int]:
    """The characters that end in each token."""
    lengths = []
    for token in tokens:
        lengths.append(sum(byte & 0xC0 != 0x80 for byte in _bytes(token)))  # each character has one byte that begins it
    return lengths


def _bytes(token: Mapping[str, Any]) -> bytes:
    codes = token.get("bytes")
    if isinstance(codes, list) and all(isinstance(byte, int) and 0 <= byte < 256 for byte in codes):
        return bytes(codes)
    return str(token["token"]).encode("utf-8", "replace")


def _probabilities(alternatives: Iterable[Any]) -> dict[str, float]:
    """The probability of each digit among the alternatives of one token."""
    sums: dict[str, float] = {}
    for alternative in alternatives:
        name = alternative.get("token") if isinstance(alternative, Mapping) else None
        logprob = alternative.get("logprob") if isinstance(alternative, Mapping) else None
        digit = _DIGIT.fullmatch(name) if isinstance(name, str) else None
        if digit and isinstance(logprob, int | float) and not math.isnan(logprob):
            sums[digit[1]] = sums.get(digit[1], 0.0) + math.exp(min(0.0, logprob))
    return {digit: round(min(1.0, p), _PLACES) for digit, p in sorted(sums.items())}
