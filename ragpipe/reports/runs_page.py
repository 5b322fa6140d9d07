"""`runs.md`: all runs of a name in one table, the newest last, each with its differences from the one before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ragpipe.core.safe_text import code_span, markdown_table, on_one_line, printable

SCORES_SHOWN = 4
DIFFERENCES_SHOWN = 3
_DIFFERENCE = 90  # characters of one difference


@dataclass(frozen=True)
class RunLine:
    """One run, in words.

    `scores` are its figures by name, the main ones first; `differences` say what it changes against `before`, the run it
    was made from or the one before it. A folder that cannot be read has only the reason in `broken`, one of another
    format only that in `refused`.
    """

    run_id: str
    broken: str = ""
    refused: str = ""
    created: str = ""
    state: str = ""
    cases: str = ""
    judge: str = ""
    scores: dict[str, str] = field(default_factory=dict)
    gates: str = ""
    cost: str = ""
    before: str = ""
    differences: Sequence[str] = ()

    @property
    def unread(self) -> str:
        """Why the run is not shown; empty for a run that is."""
        return f"broken: {self.broken}" if self.broken else f"refused: {self.refused}" if self.refused else ""


def run_list_scores(lines: Sequence[RunLine]) -> list[str]:
    """The scores of the table: the main ones of the newest run, filled up with those of the runs before it."""
    return list(dict.fromkeys([name for line in reversed(lines) for name in line.scores]))[:SCORES_SHOWN]


def run_list_heads(lines: Sequence[RunLine]) -> list[str]:
    """The heads of the table."""
    return ["run", "created", "state", "cases", "judge", *run_list_scores(lines), "gates", "cost", "differs in"]


def run_list_cells(line: RunLine, names: Sequence[str]) -> list[str]:
    """A run's row; the reason in place of it where the run cannot be read."""
    if line.unread:
        return [line.run_id, "", on_one_line(line.unread, 160), *[""] * (len(names) + 5)]
    figures = [line.scores.get(name, "-") for name in names]
    return [
        line.run_id,
        line.created,
        line.state,
        line.cases,
        line.judge,
        *figures,
        line.gates,
        line.cost,
        differences_text(line),
    ]


def runs_markdown(name: str, lines: Sequence[RunLine], *, older: int = 0) -> str:
    """The page of the runs called `name`; `older` runs are left out."""
    names = run_list_scores(lines)
    rows = [
        [*_coded(row[:5], line), *row[5:-1], code_span(row[-1], 400)]
        for line in lines
        if (row := run_list_cells(line, names))
    ]
    lead, last = run_list_heads(lines)[:5], run_list_heads(lines)[-3:]
    page = [
        f"# Runs of {code_span(name)}",
        "",
        "Written from the run folders at the end of every evaluation and by `task=runs`. Scores are means over all methods "
        "and iterations, with their number of judgements; the report of a run has intervals and compares its methods.",
        "",
        *markdown_table([*lead, *map(code_span, names), *last], rows),
    ]
    if older:
        page += ["", f"{older:,} older runs are not listed."]
    return "\n".join(page) + "\n"


def _coded(row: Sequence[str], line: RunLine) -> list[str]:
    """The cells before the figures: texts of a folder or its manifest are code."""
    run_id, created, state, cases, judge = row
    return [code_span(run_id), code_span(created), code_span(state) if line.unread else state, cases, code_span(judge)]


def differences_text(line: RunLine, width: int | None = None) -> str:
    """`against 1a2b3c: metrics +rubric; judge.model: a -> b; 3 more`, in at most `width` characters: what does not fit is
    counted, and only the first difference is ever cut."""
    if not line.differences:
        return f"nothing against {line.before}" if line.before else "-"
    lead, texts = f"against {line.before}: ", [on_one_line(text, _DIFFERENCE) for text in line.differences]
    for shown in range(min(DIFFERENCES_SHOWN, len(texts)), 0, -1):
        more = len(texts) - shown
        text = lead + "; ".join([*texts[:shown], *([f"{more} more"] if more else [])])
        if width is None or len(text) <= width:
            return text
    ending = f"; {len(texts) - 1} more" if len(texts) > 1 else ""
    return lead + on_one_line(texts[0], max(1, (width or 0) - len(lead) - len(ending))) + ending


_GAP = "  "
_INDENT = "  "
_LEFT = 5  # the first columns are texts, aligned left; the others are figures


def run_list_text(lines: Sequence[RunLine], width: int) -> list[str]:
    """The list in lines of at most `width` columns, in which no word and no number is broken.

    Columns that do not fit are left out, the least wanted first, and named below; run and main score always stay. A run
    that cannot be read has its reason in one line.
    """
    heads = run_list_heads(lines)[:-1]
    scores = run_list_scores(lines)
    rows = {line.run_id: [printable(cell) for cell in run_list_cells(line, scores)[:-1]] for line in lines}
    table = [heads, *(rows[line.run_id] for line in lines if not line.unread)]
    widths = [max(len(row[place]) for row in table) for place in range(len(heads))]
    shown = _fitting(heads, widths, width)
    text = [_row(heads, widths, shown)]
    for line in lines:
        if line.unread:
            text.append(on_one_line(f"{printable(line.run_id)} {printable(line.unread)}", width))
            continue
        text.append(_row(rows[line.run_id], widths, shown))
        if line.before:
            text.append(_INDENT + differences_text(line, width - len(_INDENT)))
    if hidden := [head for place, head in enumerate(heads) if place not in shown]:
        names = f"not shown in {width} columns: {', '.join(hidden)}"
        text.append(names if len(names) <= width else f"{len(hidden)} columns do not fit; runs.md has all")
    return text


def _fitting(heads: Sequence[str], widths: Sequence[int], width: int) -> list[int]:
    """The places of the columns that fit together, in the order of the table; chosen by how much they are wanted."""
    run, created, state, cases, judge = range(_LEFT)
    gates, cost = len(heads) - 2, len(heads) - 1
    main, *others = [*range(_LEFT, gates)] or [gates]
    wanted = dict.fromkeys([run, main, created, gates, state, cases, *others[:1], cost, judge, *others[1:]])
    kept: list[int] = []
    used = 0
    for place in wanted:
        needed = widths[place] + (len(_GAP) if kept else 0)
        if used + needed <= width or place in (run, main):
            kept.append(place)
            used += needed
    return sorted(kept)


def _row(cells: Sequence[str], widths: Sequence[int], shown: Sequence[int]) -> str:
    padded = (
        cells[place].ljust(widths[place]) if place < _LEFT and place != 3 else cells[place].rjust(widths[place])
        for place in shown
    )
    return _GAP.join(padded).rstrip()
