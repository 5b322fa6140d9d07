"""The agreement of an old and a new judge as one table that fits the screen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragpipe.reports.agreement_report import AGREEMENT_HEADS, agreement_rows
from ragpipe.reports.short_scores import SCORES
from ragpipe.reports.styled_text import Head, Line, Screen, cut_apart, narrowed, table_lines, wrapped

_DROPPABLE = ("coverage", "equal", "cases", "kappa", "verdicts equal", "flips")
_NAME = 24  # columns of the name of a score


def short_agreement_lines(agreement: Mapping[str, Any], title: str, screen: Screen) -> list[Line]:
    """A row per score, at most eight; on a narrow screen with fewer columns. `title` names both judges."""
    rows = agreement_rows(agreement)
    names = cut_apart([screen.text(row[0]) for row in rows[:SCORES]], _NAME)
    named = [[name, *row[1:]] for name, row in zip(names, rows, strict=False)]
    heads, *lines = narrowed([list(AGREEMENT_HEADS), *named], _DROPPABLE, screen.columns)
    more = f"; {len(rows) - SCORES} more scores in agreement.md" if len(rows) > SCORES else ""
    return [
        *wrapped((Head(screen.text(title)), more), screen.columns),
        *table_lines([[Head(head) for head in heads], *lines]),
    ]
