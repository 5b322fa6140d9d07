"""The newest cases of a run that goes on, from the end of its journal."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ragpipe.core.errors import RagpipeError
from ragpipe.core.text import on_one_line
from ragpipe.extras.view.run_files import opened_below
from ragpipe.metrics.needs import default_metrics
from ragpipe.report.styled_text import decimal

SHOWN = 6
"""Cases of a run, the newest first."""
_SCORES = 3
_TAIL = 64 << 10  # bytes of the journal that are looked at
_QUESTION = 160  # characters
LiveCase = tuple[str, str, list[list[str]]]
"""Question, method, and of each score its name, value and verdict: pass, miss or nothing."""


def newest_cases(root: Path, iteration: int, scoring: Mapping[str, Any]) -> tuple[LiveCase, ...]:
    """The newest cases of an iteration; `scoring` is that of the manifest's identity. Nothing where the journal cannot be read."""
    try:
        with opened_below(root, (f"iteration-{iteration}", "journal.jsonl")) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - _TAIL))
            lines = file.read(_TAIL).split(b"\n")[1:-1]  # a line that is cut, or the header, and one that is not ended
    except (RagpipeError, OSError):
        return ()
    return tuple(_cases(lines[::-1], scoring))[:SHOWN]


def _cases(lines: list[bytes], scoring: Mapping[str, Any]) -> Iterator[LiveCase]:
    for line in lines[:SHOWN]:
        try:
            entry = json.loads(line)
            values = {str(name): float(value) for name, value in entry["result"].items() if isinstance(value, int | float)}
            ranked = sorted(values, key=lambda name: name not in scoring.get("weights", {}))[:_SCORES]
            scores = [[name, decimal(values[name], 2), _verdict(name, values[name], scoring)] for name in ranked]
            yield on_one_line(str(entry["question"]), _QUESTION), on_one_line(str(entry["method"]), 60), scores
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue


def _verdict(name: str, value: float, scoring: Mapping[str, Any]) -> str:
    limit, directions = scoring.get("thresholds", {}).get(name), _directions()
    if not isinstance(limit, int | float) or name not in directions:
        return ""
    return "pass" if (value >= limit if directions[name] else value <= limit) else "miss"


@cache
def _directions() -> Mapping[str, bool]:
    """Whether higher is better, for the scores of our own metrics."""
    return {spec.name: spec.higher_is_better for metric in default_metrics() for spec in metric.scores()}
