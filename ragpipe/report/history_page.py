"""A history for people: the newest run of each score beside the previous run and the first, and the way of its mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from ragpipe.comparison.headline import rate_text
from ragpipe.comparison.history import FAILURE_MODE, SCORE
from ragpipe.core.text import on_one_line
from ragpipe.report.history_chart import HistoryLine, HistoryPoint, markup_of
from ragpipe.report.model import HTML, Chart, Kind, Note, PageLink, Prose, Report, RunVerdict, Section, Table, Verbatim
from ragpipe.report.styled_text import plural, state_text, whole
from ragpipe.score.normalisation import OVERALL

Row = Mapping[str, Any]
NEWEST_HEADS = ("score", "runs", "mean [95%]", "against the previous run", "against the first", "noise floor")
NOTE = (
    "against: paired difference over the cases of both runs, with its clustered 95% interval; only runs that measured the score in the "
    "same way count. noise floor: what the judge alone changes between two runs, known from several iterations."
)
MODE_HEADS = ("failure mode", "runs", "rate [95%]", "from -> to", "against the previous run")
_MARKS = (
    "A mark is a run with its interval and leads to its report: ▲ better, ▼ worse than the previous run, by the cases of both."
)
_RUNS_DRAWN = 60
_NAME = 60  # characters of a score's name


def newest_rows(rows: Sequence[Row], *, headline_only: bool = False) -> list[list[str]]:
    """A row per score of the newest run, the headline first. `runs` are those of its series."""
    shown = sorted(_newest(rows, SCORE), key=lambda row: (not row["headline"], row["score"] != OVERALL.name))
    lines = []
    for row in shown:
        bounds = f" [{row['interval_low']:.3f}, {row['interval_high']:.3f}]" if row["interval_low"] is not None else ""
        mean = "-" if row["mean"] is None else f"{row['mean']:.3f}{bounds}"
        floor = "-" if row["noise_floor"] is None else f"{row['noise_floor']:.3f}"
        figures = (_series(row, rows), mean, _change(row, "before"), _change(row, "first"), floor)
        if row["headline"] or not headline_only:
            lines.append([on_one_line(row["score"], _NAME), *figures])
    return lines


def newest_mode_rows(rows: Sequence[Row]) -> list[list[str]]:
    """A row of `MODE_HEADS` per failure mode that the newest run or the one before it has in any case, the most frequent first.
    `from -> to` are the rates over the cases of both."""
    lines = []
    for row in sorted(_newest(rows, FAILURE_MODE), key=lambda row: -(row["mean"] or 0)):
        low, high, before, change = (row[key] for key in ("interval_low", "interval_high", "before_mean", "before_difference"))
        bounds = f" [{rate_text(low)}, {rate_text(high)}]" if low is not None else ""
        from_to = "-" if before is None else f"{rate_text(before)} -> {rate_text(before + change)}"
        state = state_text({"state": row["before_state"], "difference": change}) if row["before_state"] else "-"
        if row["mean"] or before:
            name = on_one_line(row["score"], _NAME)
            lines.append([name, _series(row, rows), rate_text(row["mean"]) + bounds, from_to, state])
    return lines


def _newest(rows: Sequence[Row], kind: str) -> list[Row]:
    return [row for row in rows if row["run_id"] == rows[-1]["run_id"] and row["kind"] == kind]


def _series(row: Row, rows: Sequence[Row]) -> str:
    """How many runs measured it in the same way."""
    return whole(sum(all(other[key] == row[key] for key in ("kind", "score", "series")) for other in rows))


def _change(row: Row, prefix: str) -> str:
    """`+0.043 [+0.012, +0.074] better`; `-` where there is no such run."""
    difference, low, state = row[f"{prefix}_difference"], row[f"{prefix}_low"], row[f"{prefix}_state"]
    if difference is None:
        return "-"
    bounds = f" [{low:+.3f}, {row[f'{prefix}_high']:+.3f}]" if low is not None else ""
    return f"{difference:+.3f}{bounds} {state}"


def history_headline(rows: Sequence[Row], sentence: str | None) -> str:
    """One line: what `task=compare` says of the newest run against the one before. `sentence` is that; None without such a run."""
    runs, newest = plural(len({row["run_id"] for row in rows}), "run"), rows[-1]["run_id"]
    if sentence is None:
        return f"{runs}; the newest, {newest}, has no earlier run that measured a headline score in the same way"
    return f"{runs}; the newest, {newest}, against the previous run: {sentence}"


def history_report(name: str, rows: Sequence[Row], headline: str) -> Report:
    """The pages `history.md` and `history.html`; `headline` is their first line."""
    newest = [row for row in _newest(rows, SCORE) if row["headline"]]
    states = {row["before_state"] for row in newest}
    kind: Kind = "bad" if "worse" in states else "good" if "better" in states else "plain"
    charts = [_chart(row["score"], rows) for row in newest if row["mean"] is not None]
    table = Table.of(NEWEST_HEADS, [(Verbatim(row[0]), *row[1:]) for row in newest_rows(rows)]).told()
    modes = Table.of(MODE_HEADS, [(Verbatim(row[0]), *row[1:]) for row in newest_mode_rows(rows)])
    sections = [
        Section("lines", "Each headline score, run by run", (*charts, Note(_MARKS, shown_in=HTML))) if charts else None,
        Section("newest", "The newest run", (table, Note(NOTE))),
        Section("modes", "Failure modes", (modes,)) if modes.rows else None,
    ]
    verdict, links = RunVerdict(kind, "", Prose(headline)), (PageLink("newest report", f"../{rows[-1]['run_id']}/report.html"),)
    return Report(f"History of {name}", "", "", verdict, (), tuple(filter(None, sections)), pages=links)


def _chart(name: str, rows: Sequence[Row]) -> Chart:
    """The line of a score, with the noise of the newest run."""
    shown = [row for row in rows if row["kind"] == SCORE and row["score"] == name and row["mean"] is not None][-_RUNS_DRAWN:]
    line = HistoryLine(name, [_point(row) for row in shown], (shown[-1]["low"], shown[-1]["high"]), shown[-1]["noise_floor"])
    drawn = Markup('<div class="line">{}</div>').format(markup_of(line.drawing()))
    ends = f"{shown[0]['created_at'][:10]} to {shown[-1]['created_at'][:10]}" if shown[-1]["created_at"] else ""
    return Chart(Verbatim(name), drawn, Verbatim(f"{on_one_line(name, _NAME)}: {line.words}; {ends}"))


def _point(row: Row) -> HistoryPoint:
    change = _change(row, "before")
    words = f"{row['run_id']}: {row['mean']:.3f}" + (f"; against the previous run {change}" if change != "-" else "")
    link = f"../{row['run_id']}/report.html"
    return HistoryPoint(
        row["mean"], row["interval_low"], row["interval_high"], row["series"], row["before_state"] or "", words, link
    )
