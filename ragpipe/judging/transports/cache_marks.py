"""Marks at the end of a beginning that a provider is to keep in its cache: `cache_control`, as Anthropic calls it.

A marked message is a list of parts instead of a text; litellm gives them to the provider as they are. A mark changes no reply, so it is
in no key.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

_MARK = {"cache_control": {"type": "ephemeral"}}


def with_cache_marks(body: dict[str, Any], marks: Sequence[int]) -> dict[str, Any]:
    """A request body with marks after so many characters of its prompt (`shared_prefixes.prompt_text`); the body itself without any.

    A mark between two messages stands at the end of the first. What a request form adds stands behind all marks.
    """
    if not marks:
        return body
    firsts, end = list[float](), 0
    for message in body["messages"]:
        firsts.append(end + len(message["role"]) + 1)
        end += len(message["role"]) + len(message["content"]) + 2
    messages = []
    for message, (first, following) in zip(body["messages"], pairwise([*firsts, math.inf]), strict=True):
        text = message["content"]
        cuts = sorted({min(mark - int(first), len(text)) for mark in marks if first < mark <= following})
        messages.append({**message, "content": _parts(text, cuts)} if cuts else message)
    return {**body, "messages": messages}


def _parts(text: str, cuts: Sequence[int]) -> list[dict[str, Any]]:
    """The text in parts that end at the cuts and are marked, and the rest. No part is blank, which providers refuse."""
    edges = [0, *cuts]
    if not text[edges[-1] :].strip():
        edges[-1] = len(text)
    parts = [{"type": "text", "text": text[low:high], **_MARK} for low, high in pairwise(edges)]
    rest = text[edges[-1] :]
    return [*parts, {"type": "text", "text": rest}] if rest else parts
