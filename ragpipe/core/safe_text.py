"""Text of data sets, systems and judges on its way to a terminal or a page: always data, never a command."""

from __future__ import annotations

import re

UNSAFE = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
"""C0 and C1 controls, DEL, line and paragraph separators, marks that reorder text (CVE-2021-42574), lone surrogates."""
_UNSAFE = re.compile(UNSAFE)
_SPACE = re.compile(r"\s+")


def printable(text: str) -> str:
    """The text with every control character as an escape (`\\x1b`, `\\u202e`); newlines and tabs stay."""
    return _UNSAFE.sub(_escape, text)


def escape_unprintable(text: str) -> str:
    """The text with everything as an escape that `str.isprintable` refuses, newlines and invisible characters too."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def on_one_line(text: str, limit: int = 200) -> str:
    """The text on one line, at most `limit` characters long; ` ...` marks what was cut."""
    line = _SPACE.sub(" ", printable(text)).strip()
    return line if len(line) <= limit else line[: max(0, limit - 4)].rstrip() + " ..."


def shorten(text: str, limit: int) -> str:
    """The text as it is, or its first `limit` characters and `...`."""
    return text if len(text) <= limit else text[:limit] + "..."


def _escape(character: re.Match[str]) -> str:
    number = ord(character[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
