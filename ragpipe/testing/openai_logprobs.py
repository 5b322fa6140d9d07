"""The `logprobs` that the test server gives where it is asked for them, in the shape of OpenAI's chat completions."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping
from typing import Any

_TOKEN = re.compile(r"\d|\s?[^\W\d]+|\s+|[^\w\s]+", re.S)


def chat_logprobs(text: str, top: int, probabilities: Mapping[str, float] | None = None) -> dict[str, Any]:
    """The tokens of a reply with `top` alternatives each.

    Of a digit the alternatives are its neighbours, by probabilities that are drawn from the text; `probabilities` are those of the last
    digit instead. Any other token is certain.
    """
    tokens = _TOKEN.findall(text)
    digits = [place for place, token in enumerate(tokens) if token.isdecimal()]
    draw = random.Random(text)
    content = []
    for place, token in enumerate(tokens):
        shares = {token: 1.0}
        if token.isdecimal():
            shares = _neighbours(int(token), draw)
            if probabilities is not None and place == digits[-1]:
                shares = dict(probabilities)
        likely = sorted(shares.items(), key=lambda share: -share[1])[:top]
        alternatives = [_entry(name, p) for name, p in likely]
        content.append({**_entry(token, shares.get(token, 0.0)), "top_logprobs": alternatives})
    return {"content": content, "refusal": None}


def _neighbours(digit: int, draw: random.Random) -> dict[str, float]:
    """The digit with half of the probability or more, the rest on the digits beside it, and a little on a word."""
    own = draw.uniform(0.5, 0.98)
    beside = [other for other in (digit - 1, digit + 1) if 0 <= other <= 9]
    return {str(digit): own, **{str(other): (0.99 - own) / len(beside) for other in beside}, "N": 0.01}


def _entry(token: str, probability: float) -> dict[str, Any]:
    logprob = math.log(probability) if probability > 0 else -9999.0  # OpenAI's word for never
    return {"token": token, "logprob": logprob, "bytes": list(token.encode())}
