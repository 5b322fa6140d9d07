"""Text in Markdown: code spans, blocks and tables in which text of data, systems and judges is never markup."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from ragpipe.core.safe_text import on_one_line, printable

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
