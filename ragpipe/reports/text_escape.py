"""Text of data sets, systems and judges on its way to a terminal or a page: always data, never markup or a command."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

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
    shown = printable(text.replace("\r\n", "\n").replace("\r", "\n"))
    if len(shown) > limit:
        shown = shown[:limit].rstrip() + f"\n... ({len(shown) - limit} more characters)"
    fence = "`" * max(3, _longest_ticks(shown) + 1)
    return f"{fence}text\n{shown}\n{fence}"


def case_name(row: Mapping[str, Any], shown: Callable[[str], str] = str, between: str = " / ") -> str:
    """`q1 / bm25` of a row, and `q1 / bm25 repeat 2` where it is not the first output of that method for that sample.
    `shown` makes the texts of the data harmless."""
    name = between.join(shown(row[part]) for part in ("sample_id", "method"))
    return name if row["repeat"] == 1 else f"{name} repeat {row['repeat']}"


def reply_text(call: Mapping[str, Any]) -> str:
    """The reply of a row of judge_inputs for reading: as it is, and of a vector its length alone."""
    reply = call["reply"] or ""
    if call["step"] != "embed" or call["template"] is not None or call["status"] != "ok":
        return str(reply)
    return f"a vector of {len(reply.rstrip('=')) * 3 // 16:,} numbers; its float32 bytes stand in judge_inputs.parquet"


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
