"""Counts beside shares, and best beside worst: the tables of grades, classes and extremes, for report.md and report.html."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragpipe.reports.number_format import each_iteration, whole

GROUPS_SHOWN = 40


@dataclass(frozen=True)
class CountTables:
    """A table: what it is of, heads, and rows whose first cells are names of the data (`names` of them)."""

    title: str
    heads: Sequence[str]
    lines: Sequence[Sequence[str]]
    names: int
    notes: Sequence[str] = ()


def distribution_tables(metrics: Mapping[str, Any], percent: Collection[str]) -> Iterator[CountTables]:
    """A table for each graded score and each group of classes, then one of all extremes; none where there is nothing."""
    for name, grades in metrics["grades"].items():
        lines = [["all", *_shares(grades["overall"])]]
        for field, groups in grades["by"].items():
            lines += [[f"{field}: {group}", *_shares(one)] for group, one in list(groups.items())[:GROUPS_SHOWN]]
        notes = each_iteration(metrics)
        yield CountTables(f"Cases by {name}", ["cases", *grades["overall"], "together"], lines, 1, notes)
    rows = [row for name, one in metrics["extremes"].items() for row in _extremes(name, one, name in percent)]
    if rows:
        notes = ["Values of cases, on the questions for which every method listed has the score."]
        yield CountTables(
            "Best, worst and mean case per method", _EXTREMES, rows, 2, [*notes, *each_iteration(metrics)]
        )


_EXTREMES = ("score", "method", "mean", "best", "worst", "cases", "questions")


def _shares(counts: Mapping[str, int]) -> list[str]:
    """`12 (50.0%)` for each grade, and how many there are."""
    total = sum(counts.values())
    return [*(f"{whole(n)} ({n / total:.1%})" for n in counts.values()), whole(total)]


def _extremes(name: str, found: Mapping[str, Any], percent: bool) -> Iterator[list[str]]:
    factor, places = (100.0, 1) if percent else (1.0, 2)
    for method, one in found["methods"].items():
        figures = [f"{one[key] * factor:.{places}f}" for key in ("mean", "best", "worst")]
        yield [name + (" x100" if percent else ""), method, *figures, whole(one["n"]), whole(found["n_questions"])]
