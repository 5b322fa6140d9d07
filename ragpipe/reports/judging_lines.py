"""Jobs of a sweep that were judged in different ways, in words: what differs, and by how much on the same answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ragpipe.comparing.run_differences import refused_parts
from ragpipe.reports.difference_figures import figure_text
from ragpipe.reports.job_comparison import OtherJudging
from ragpipe.reports.number_format import plural, whole
from ragpipe.stats.intervals import FEW

_PARTS = {
    "judge": "judges",
    "embedder": "embedders",
    "prompts": "prompts",
    "parser": "ways of reading replies",
    "metrics": "metrics' parameters",
}
_KEYS = 3  # keys that are named of what differs
_WAYS = 3  # ways of judging that are named
ADVICE = "a higher mean is no better answer there: task=calibrate holds each way of judging against labels by people"
_Row = Mapping[str, Any]


def judging_lines(
    name: str, rows: Sequence[_Row], judgings: Mapping[int, OtherJudging], labels: Mapping[int, str]
) -> Iterator[str]:
    """Why not all jobs are ranked with each other in a score, a line per way of judging; nothing where they are.

    Args:
        name: the score.
        rows: those of `comparison.parquet`.
        judgings: the jobs that were judged otherwise than the first one.
        labels: what each job is called.
    """
    firsts = [number for number, judging in judgings.items() if judging.first == number]
    for number in firsts[:_WAYS]:
        yield f"{labels[number]} is not ranked with {labels[judgings[number].base]}: {differing_keys(judgings[number])}"
        row = _row(rows, number, name)
        if row and row["shift"]:
            shift = shift_text(row)
            yield f"{name}: on the same answers the {differing_parts(judgings[number])} differ by {shift}"
    if len(firsts) > _WAYS:
        yield f"and {plural(len(firsts) - _WAYS, 'more way')} of judging in comparison.md"
    if firsts:
        yield ADVICE
    if weights_differ(name, rows, judgings):
        yield f"{name} is not ranked across different weights: each job has its own"


def differing_keys(judging: OtherJudging) -> str:
    """`judge.threshold: 0.33 -> 0.5`: the first keys that differ."""
    keys = [difference.line() for difference in judging.differences]
    more = f"; and {plural(len(keys) - _KEYS, 'more key')}" if len(keys) > _KEYS else ""
    return "; ".join(keys[:_KEYS]) + more


def differing_parts(judging: OtherJudging) -> str:
    """`judges and prompts`."""
    return " and ".join(_PARTS[part] for part in refused_parts(judging.differences, ()))


def shift_text(row: _Row) -> str:
    """`-0.125 [-0.464, +0.264] (n = 20)`: the shift of a row that has one."""
    text = figure_text(row["shift"], sign=True)
    if row["shift_low"] is not None:
        text += f" [{figure_text(row['shift_low'], sign=True)}, {figure_text(row['shift_high'], sign=True)}]"
    return f"{text} (n = {whole(row['shift_n'])}{': too few' if row['shift_n'] < FEW else ''})"


def weights_differ(name: str, rows: Sequence[_Row], judgings: Mapping[int, OtherJudging]) -> bool:
    """Whether jobs that were judged in the same way are not ranked with each other, for their weights differ."""
    ways: dict[int | None, set[int]] = {}
    for row in rows:
        if row["score"] == name and row["standing"] != "equal":
            way = judgings[row["job"]].first if row["job"] in judgings else None
            ways.setdefault(way, set()).add(row["ranked_with"])
    return any(len(firsts) > 1 for firsts in ways.values())


def _row(rows: Sequence[_Row], number: int, name: str) -> _Row | None:
    key = (number, None, name)
    return next((row for row in rows if (row["job"], row["method"], row["score"]) == key), None)
