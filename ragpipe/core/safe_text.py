"""Text of data sets, systems and judges on its way to a terminal or a page: always data, never a command."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

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


# blanks of every kind, marks without a width and control characters may stand before; the wide forms compute too
_FORMULA = re.compile("'*(?:[\t\r\n]|[\\s\x00-\x1f\x7f\u00ad\u200b-\u200f\u2060\ufeff]*[=+\\-@＝＋－＠])")


def escape(text: str) -> str:
    """The text as it is written to a cell: with an apostrophe before what a spreadsheet would compute."""
    return "'" + text if _FORMULA.match(text) else text


def restore(text: str) -> str:
    """The text that `escape` made this one of."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text, 1) else text


_MARKUP = re.compile(r"[\\`*_{}\[\]<>#+!|~&]|://")


def code_span(text: str, limit: int = 200) -> str:
    """A Markdown code span: inside it nothing is a link, an image, HTML or emphasis.

    The fence is longer than any run of backticks in the text.
    """
    line = on_one_line(text, limit)
    if not line:
        return ""
    fence = "`" * (_longest_ticks(line) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def escape_markdown(text: str, limit: int = 600) -> str:
    """Plain words on one line of Markdown, where none of their characters is markup."""
    return _MARKUP.sub(r"\\\g<0>", on_one_line(text, limit))


def code_block(text: str, limit: int = 2000) -> str:
    """A fenced Markdown block that the text cannot close."""
    block = printable(text.replace("\r\n", "\n").replace("\r", "\n"))
    if len(block) > limit:
        block = block[:limit].rstrip() + f"\n... ({len(block) - limit} more characters)"
    fence = "`" * max(3, _longest_ticks(block) + 1)
    return f"{fence}text\n{block}\n{fence}"


def markdown_table(heads: Sequence[str], lines: Sequence[Sequence[str]], *, left: Collection[int] = (0,)) -> list[str]:
    """A Markdown table; columns in `left` are aligned left, the others right.

    A bar in a cell becomes a broken one: renderers disagree on how `\\|` is read, and where the cell ends there, the
    rest of the text would leave its code span.
    """
    rule = ["---" if place in left else "---:" for place in range(len(heads))]
    cells = [[text.replace("|", "¦") for text in line] for line in (heads, *lines)]
    return ["| " + " | ".join(line) + " |" for line in (cells[0], rule, *cells[1:])]


def _longest_ticks(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)
