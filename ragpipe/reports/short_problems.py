"""What is wrong most often, in the short result: the three most frequent diagnoses with a case each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ragpipe.reports.metrics_view import iteration_count
from ragpipe.reports.model import CaseName
from ragpipe.reports.number_format import plural
from ragpipe.reports.report_data import ReportData
from ragpipe.reports.styled_text import (
    GAP,
    Grey,
    Head,
    Line,
    Screen,
    cut,
    cut_in_the_middle,
    table_columns,
    table_lines,
    wrapped,
)

PROBLEMS = 3
"""Diagnoses that are named."""
_NAME = 40  # columns of a name
_CASE = 28  # columns of the name of a case
_TEXT = 24  # columns that a question or a message needs to say anything
_QUESTION = 48  # columns of a question, at most
_CONTENT_HASH = re.compile(r"h?[0-9a-f]{12,64}")  # an id that was made from the content, which nobody knows by heart


def most_frequent(metrics: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The diagnoses of `metrics.json`, the most frequent first."""
    return sorted(metrics.get("diagnosis") or (), key=lambda diagnosis: -int(diagnosis["n"]))


def problem_lines(data: ReportData, screen: Screen) -> list[Line]:
    """The most frequent diagnoses, a line each: share of the cases, name, one case, and as far as they fit the first words of its
    question and what is wrong; in the title how many more there are. Of an id that says nothing the question comes first."""
    diagnoses = most_frequent(data.metrics)
    if not diagnoses:
        return []
    shown = diagnoses[:PROBLEMS]
    rows = [_row(diagnosis, data, screen) for diagnosis in shown]
    left = screen.columns - table_columns(rows) - GAP
    questions = [_question(diagnosis, data, screen) for diagnosis in shown]
    messages = [screen.text(diagnosis["message"]) for diagnosis in shown]
    for texts, width in _fitting(questions, messages, _is_unnamed(shown), left):
        rows = [[*row, Grey(cut(text, width))] for row, text in zip(rows, texts, strict=True)]
    more = len(diagnoses) - PROBLEMS
    further = f" ({plural(more, 'more problem')})" if more > 0 else ""
    title = wrapped((Head(f"wrong most often, share of cases{further}:"),), screen.columns)
    return [*title, *table_lines(rows, left=range(1, len(rows[0])))]


def _fitting(
    questions: Sequence[str], messages: Sequence[str], is_unnamed: bool, left: int
) -> list[tuple[Sequence[str], int]]:
    """The columns that the room which is `left` is for, with their widths."""
    if not any(questions):
        return [(messages, left)] if left >= _TEXT else []
    if left >= 2 * _TEXT + GAP:
        width = min(_QUESTION, left - GAP - _TEXT, max(_TEXT, (left - GAP) // 2))
        return [(questions, width), (messages, left - GAP - width)]
    return [(questions if is_unnamed else messages, left)] if left >= _TEXT else []


def _row(diagnosis: Mapping[str, Any], data: ReportData, screen: Screen) -> list[str]:
    cases = data.metrics["n_cases"] * iteration_count(data.metrics)
    examples = diagnosis["examples"]
    return [
        f"{diagnosis['n'] / cases:.1%}",
        screen.text(diagnosis["name"], _NAME),
        cut_in_the_middle(_case(examples[0], data.metrics, screen), _CASE) if examples else "",
    ]


def _case(example: Mapping[str, Any], metrics: Mapping[str, Any], screen: Screen) -> str:
    case = CaseName.of(example)
    method = f"/{screen.text(case.method)}" if len(metrics["by"].get("method") or ()) > 1 else ""
    return f"{screen.text(case.sample_id)}{method}{case.suffix}"


def _question(diagnosis: Mapping[str, Any], data: ReportData, screen: Screen) -> str:
    """The question of the first example; empty where it is not known."""
    return screen.text(next((data.questions.get(case["sample_id"], "") for case in diagnosis["examples"]), ""))


def _is_unnamed(diagnoses: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the id of an example says nothing: the hash of its content."""
    ids = [case["sample_id"] for diagnosis in diagnoses for case in diagnosis["examples"][:1]]
    return any(_CONTENT_HASH.fullmatch(name) for name in ids)
