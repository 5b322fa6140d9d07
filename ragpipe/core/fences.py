"""Fences: every value that a prompt shows is printed between tags named by the hash of that value.

The tag is the first 12 hex digits of the sha256 of *that value alone*. To close its own fence, a text would have to hold
the beginning of its own hash: 2^48 tries on average, hours on a graphics card, and no honest text ever does. The same
value has the same fence wherever it appears, so steps about one case share their prefix.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import jinja2
from pydantic import BaseModel

from ragpipe.core.call import Message
from ragpipe.core.digest import canonical_json, sha256
from ragpipe.core.sample import AnyReference

_PRINTED_AS_THEY_ARE = (bool, int, float, jinja2.Undefined)
_OPENING_TAG = re.compile(r"<([0-9a-f]{12})>[\n ]")


class OnOneLine(str):
    """A text that is fenced on one line where it has no line break: an item of a list, such as a claim."""

    __slots__ = ()


def fence(value: str) -> str:
    """The value between tags that it does not contain: no honest text holds the beginning of its own hash."""
    return _cached_fence(value) if len(value) <= 100_000 else _make_fence(value)


def _make_fence(value: str) -> str:
    tag = fence_tag(value)
    space = " " if isinstance(value, OnOneLine) and value.splitlines() == [value] else "\n"
    return f"<{tag}>{space}{value}{space}</{tag}>"


_cached_fence = lru_cache(maxsize=512, typed=True)(_make_fence)  # equal texts of the two classes are fenced differently


def fenced_values(messages: Iterable[Message]) -> list[str]:
    """The fenced values of the messages, in order. Tags inside a value are part of that value.

    On one line a tag must be the value's own: the preamble names two tags in a sentence.
    """
    values = []
    for message in messages:
        content, start = message["content"], 0
        while opening := _OPENING_TAG.search(content, start):
            closing = f"{content[opening.end() - 1]}</{opening[1]}>"
            start, end = opening.end(), content.find(closing, opening.end())
            if end >= 0 and (closing[0] == "\n" or fence_tag(content[start:end]) == opening[1]):
                values.append(content[start:end])
                start = end + len(closing)
    return values


def printable_texts(value: Any) -> Iterator[str]:
    """The texts that a template can print of a value: of a model or mapping those of its items."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, BaseModel | Mapping):
        for item in value.values() if isinstance(value, Mapping) else vars(value).values():
            yield from printable_texts(item)
    elif isinstance(value, Sequence):
        for item in value:
            yield from printable_texts(item)


def text_length(value: Any) -> int:
    """The characters of all `printable_texts` of a value."""
    return sum(map(len, printable_texts(value)))


def print_value(value: Any) -> Any:
    """What `{{ value }}` prints: numbers as they are, everything else fenced. Raises UndefinedError for None."""
    if isinstance(value, AnyReference):
        return value.laid_out(fence)
    if isinstance(value, str):
        return fence(value)
    if isinstance(value, _PRINTED_AS_THEY_ARE):
        return value
    if value is None:
        raise jinja2.UndefinedError("a value is None: guard it with {% if %}")
    return fence(canonical_json(value))


_DIGITS = 12
"""Hex digits of a tag."""
_NOT_HEX = bytes(set(range(256)) - set(b"0123456789abcdef"))


def fence_tag(value: str) -> str:
    """The tag under which a prompt shows a text."""
    return sha256(value)[:_DIGITS]


def foreign_tags(values: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """The names of the values that hold a tag, each with the name of the value whose tag it is, in order.

    Case, brackets, blanks, invisible characters, full-width digits and a reversed order hide no tag: each text is reduced to
    its hex digits. `values` are the texts of a case by the name of their part: question, answer, contexts, ...
    """
    digits = {name: [_hex_digits(text) for text in texts] for name, texts in values.items()}
    if all(len(text) < _DIGITS for texts in digits.values() for text in texts):
        return []  # no room for a tag
    everything = b" ".join(text for texts in digits.values() for text in texts)
    pairs: dict[tuple[str, str], None] = {}
    for owner, owned in values.items():
        for value in owned:
            tag = fence_tag(value).encode("ascii")
            for form in (tag, tag[::-1]):
                if form in everything:
                    pairs |= {(name, owner): None for name, held in digits.items() if any(form in text for text in held)}
    return list(pairs)


def _hex_digits(text: str) -> bytes:
    """The hex digits of a text, in order, small; nothing else of it."""
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return plain.lower().encode("utf-8", "surrogatepass").translate(None, _NOT_HEX)
