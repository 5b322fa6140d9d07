"""Texts that hold the fence tag of another value: found by structure, in whatever form the tag is written.

A tag is a hash of its value (`fences`). No text can hold its own, but whoever writes an answer knows the question, and can hash it. Twelve
given hex digits are in an honest text once in 2^48 places: a match is an attack, whatever stands around it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence

from ragpipe.core.digest import sha256

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
                    pairs |= {
                        (name, owner): None for name, held in digits.items() if any(form in text for text in held)
                    }
    return list(pairs)


def _hex_digits(text: str) -> bytes:
    """The hex digits of a text, in order, small; nothing else of it."""
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return plain.lower().encode("utf-8", "surrogatepass").translate(None, _NOT_HEX)
