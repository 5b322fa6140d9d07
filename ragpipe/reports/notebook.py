"""A run in a notebook: its scores as a small HTML table, its gates, and where the whole report is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from ragpipe.reports.metrics_view import heading, method_groups, score_cell
from ragpipe.reports.model import ScoreCell


def notebook_html(path: Path, metrics: Mapping[str, Any], gates: Mapping[str, Any]) -> str:
    """One row per score, one column per method: mean with its interval, and the share that passed. No script, no style
    sheet, every text escaped.

    Args:
        path: the run folder.
        metrics: `metrics.json` of the iteration.
        gates: `gates.json` of the run.
    """
    groups = method_groups(metrics)
    rows = []
    for name in metrics["overall"]["scores"]:
        cells = [score_cell(group["scores"].get(name)) for group in groups.values()]
        if any(each.mean != "-" for each in cells):
            rows.append([escape(heading(name, metrics, ())), *map(_cell, cells)])
    return "".join(
        [
            "<div>",
            _table(["score", *groups], rows),
            *(f"<p>{_gate(gate)}</p>" for gate in gates["gates"]),
            f"<p><small>{escape(metrics['signature'])}</small></p>",
            f"<p><small>{escape(str(path))} (report.html there has every case)</small></p></div>",
        ]
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; cells are HTML already, heads are texts."""
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join(f"<tr>{''.join(f'<td>{text}</td>' for text in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(score: ScoreCell) -> str:
    return "<br>".join(escape(line) for line in score.lines)


def _gate(gate: Mapping[str, Any]) -> str:
    return escape(f"gate {gate['name']}: {gate['outcome']}. {gate['sentence']}")
