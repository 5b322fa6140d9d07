"""One question with the answers and scores of every method: what `task=explain` prints without a method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragpipe.core.safe_text import on_one_line

_ANSWER_CHARS = 160
_REASON_CHARS = 60


def question_table(records: Sequence[Mapping[str, Any]], scores: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows: the answers, then scores down and methods across, from rows of `records.parquet`.

    A cell is the value in its native scale and whether it passed, or why there is none. Scores that no method has are left
    out.
    """
    heads = ["score", *(_head(record) for record in records)]
    answers = [on_one_line(record["system_error"] or record["answer"] or "", _ANSWER_CHARS) for record in records]
    present = [name for name in scores if any(_has(record, name) for record in records)]
    return heads, [["answer", *answers], *([name, *(_cell(record, name) for record in records)] for name in present)]


def _head(record: Mapping[str, Any]) -> str:
    method = on_one_line(record["method"], 60)
    return method if record["repeat"] == 1 else f"{method} repeat {record['repeat']}"


def _has(record: Mapping[str, Any], name: str) -> bool:
    return record.get(name) is not None or record.get(f"{name}.status") in ("ok", "error")


def _cell(record: Mapping[str, Any], name: str) -> str:
    value, overall = record.get(name), name == "overall_score"
    if value is None:
        status = "none" if overall else record.get(f"{name}.status") or "not measured"
        reason = record.get("overall_reason" if overall else f"{name}.reason")
        return f"{status}: {on_one_line(reason, _REASON_CHARS)}" if reason else status
    passed = record.get("overall_passed" if overall else f"{name}.passed")
    return f"{value:.4g}" + {True: " passed", False: " failed", None: ""}[passed]
