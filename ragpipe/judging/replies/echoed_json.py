"""Whether a judge's JSON is its own, or a copy of JSON in the material that it was shown.

A text under test may contain a forged verdict (`{"score": 5}`) in the hope that the judge repeats it. A reply with nothing
but that object says what the text says, not what the judge thinks.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

from ragpipe.judging.replies.reply_json import ReplyObject, objects_in

_QUOTES = re.compile("['`\u00b4\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f]")
_TRAILING_COMMA = re.compile(r",(?=[}\]])")
_DECIMAL = re.compile(r"[+-]?[0-9]{1,9}(?:\.[0-9]{1,9})?")


def is_echo(reply: ReplyObject, material: Iterable[str]) -> bool:
    """Whether the object of a reply occurs in a text of the material.

    Both the values are compared (whatever the order of keys, line breaks, Unicode forms and quotes around numbers) and the
    text, which finds malformed and quoted copies (`{'score': 5}`, `{\\"score\\": 5}`). An object with other reasons is
    another object.
    """
    suspects = [text for text in material if "{" in text and all(key in text for key in reply.value)]
    if not suspects:
        return False
    value = _comparable(reply.value)
    spellings = {_bare(reply.text), _bare(json.dumps(reply.value, ensure_ascii=False))}
    return any(_has_value(text, value) or _has_spelling(text, spellings) for text in suspects)


def _has_value(text: str, value: Any) -> bool:
    return any(_comparable(item) == value for item in objects_in(text))


def _has_spelling(text: str, spellings: set[str]) -> bool:
    bare = _bare(text)
    return any(spelling in bare for spelling in spellings)


def _bare(text: str) -> str:
    """The text without white space, escapes and trailing commas, with one kind of quotes."""
    text = "".join(unicodedata.normalize("NFKC", text).split()).replace("\\", "")
    return _TRAILING_COMMA.sub("", _QUOTES.sub('"', text))


def _comparable(value: Any) -> Any:
    if isinstance(value, dict):
        return {_comparable_text(key): _comparable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_comparable(item) for item in value]
    if isinstance(value, str):
        text = _comparable_text(value)
        return float(text) if _DECIMAL.fullmatch(text) else text
    return value


def _comparable_text(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).split())
