"""The list of runs, in words: the table of `task=runs` and `runs.md`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ragpipe.core.text import code_span, on_one_line
from ragpipe.report.markdown import render_sections
from ragpipe.report.model import MARKDOWN, Note, Section, Table, TableColumn, TableRow, Verbatim

SCORES_SHOWN = 4
DIFFERENCES_SHOWN = 3
_TEXTS = ("run", "created", "state", "judge")
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


def runs_markdown(name: str, lines: Sequence[RunLine], *, older: int = 0) -> str:
    """The page of the runs called `name`; `older` runs are left out."""
    notes = [
        Note(
            "Written from the run folders at the end of every evaluation and by task=runs. Scores are means over all methods "
            "and iterations, with their number of judgements; the report of a run has intervals and compares its methods."
        )
    ]
    notes += [Note(f"{older:,} older runs are not listed.")] if older else []
    return render_sections(f"Runs of {code_span(name)}", [Section("runs", "Runs", (run_list_table(lines), *notes))])


def run_list_table(lines: Sequence[RunLine]) -> Table:
    """The runs, with the main scores of the newest one, filled up with those of the runs before it. A terminal has those that can be
    read: columns that do not fit it are left out, the least wanted first; run and main score stay. `run_list_notes` go below it."""
    names = list(dict.fromkeys([name for line in reversed(lines) for name in line.scores]))[:SCORES_SHOWN]
    wanted = ["created", "gates", "state", "cases", *names[1:2], "cost", "judge", *names[2:]]
    heads = ("run", "created", "state", "cases", "judge", *map(Verbatim, names), "gates", "cost")
    columns = [
        TableColumn(head, is_text=head in _TEXTS, drop=wanted.index(head) + 1 if head in wanted else 0) for head in heads
    ]
    columns.append(TableColumn("differs in", is_text=True, shown_in=MARKDOWN))
    rows = []
    for line in lines:
        run, figures = Verbatim(line.run_id), (line.scores.get(name, "-") for name in names)
        if line.unread:  # the reason stands in the place of the figures
            reason = Verbatim(on_one_line(line.unread, 160))
            rows.append(TableRow((run, "", reason, *[""] * (len(names) + 5)), MARKDOWN))
        else:
            cells = (run, Verbatim(line.created), line.state, line.cases, Verbatim(line.judge), *figures, line.gates, line.cost)
            rows.append(TableRow((*cells, Verbatim(differences_text(line)))))
    return Table(tuple(columns), tuple(rows))


def differences_text(line: RunLine) -> str:
    """`against 1a2b3c: metrics +rubric; judge.model: a -> b; 3 more`: what is not shown is counted."""
    if not line.differences:
        return f"nothing against {line.before}" if line.before else "-"
    texts = [on_one_line(text, _DIFFERENCE) for text in line.differences[:DIFFERENCES_SHOWN]]
    more = [f"{len(line.differences) - DIFFERENCES_SHOWN} more"] if len(line.differences) > DIFFERENCES_SHOWN else []
    return f"against {line.before}: {'; '.join([*texts, *more])}"


def run_list_notes(lines: Sequence[RunLine]) -> Iterator[str]:
    """What a run changes against the one before it, and why a run cannot be read; those of another format are left out."""
    for line in lines:
        if line.broken:
            yield f"{line.run_id} {line.unread}"
        elif line.before and not line.refused:
            yield f"{line.run_id} {differences_text(line)}"
