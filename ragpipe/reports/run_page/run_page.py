"""`report.html`: a run as one file to look at. It loads nothing and sends nothing, and holds no time and nothing that this
machine paid: equal runs give equal bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from ragpipe.pages.page_address import page_address
from ragpipe.pages.page_file import PIECES, Page, asset_texts, core_script, core_style, page_environment
from ragpipe.pages.side_files import SINGLE_FILE_MB
from ragpipe.reports.case_views import shorten_for_page
from ragpipe.reports.model import (
    CaseName,
    Chart,
    ItemList,
    Note,
    Report,
    RowHead,
    ScoreCell,
    Section,
    SectionPart,
    Strong,
    Table,
    pieces_of,
    plain_text,
    texts_of,
)
from ragpipe.reports.run_page.case_rows import FAILED, PASSED
from ragpipe.reports.run_page.page_cases import RunCases
from ragpipe.store.files.page_writer import write_page
from ragpipe.store.run.run_tables import rows_at

_SCRIPTS = ("human_verdicts.js", "case_parts.js", "report_case.js", "report_list.js")
_STYLES = ("front.css", "cases.css")


def write_run_page(
    path: Path, report: Report, cases: RunCases | None, *, single_file_mb: float = SINGLE_FILE_MB
) -> list[Path]:
    """Write the page and, above `single_file_mb` megabytes of data, the files beside it; those with the same content are left
    alone. Returns their paths. Raises DataError, OutputError.

    Args:
        path: the file.
        report: what stands above and below the cases.
        cases: the cases; None for a page without them.
        single_file_mb: megabytes of data that the page holds itself.
    """
    return write_page(path, run_page(report, cases), single_file_mb=single_file_mb)


def run_page(report: Report, cases: RunCases | None) -> Page:
    """The page. Its blocks are read from the run as they are asked for. Raises DataError."""
    shown = cases if cases is not None and len(cases.rows) else None
    body = (
        _environment()
        .get_template("report.html.jinja")
        .render(front=front_markup(report), cases=shown, worst=list(static_cases(shown)) if shown else ())
    )
    script = report_script() if shown else ""
    style = core_style() + "".join(map(_template_text, _STYLES))
    return Page(f"{report.name} · ragpipe", Markup(body), style, script, shown.blocks() if shown else ())


def report_script() -> str:
    """The script of the page: the same for every run."""
    return core_script(PIECES) + "".join(map(_template_text, _SCRIPTS))


def template_texts() -> dict[str, str]:
    """The files that the page is made with, by name: its templates, styles and scripts."""
    own = {path.name: path.read_text(encoding="utf-8") for path in sorted(TEMPLATES.iterdir()) if path.is_file()}
    return {**asset_texts(), **own}


def _template_text(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


@cache
def _environment() -> Any:
    return page_environment(TEMPLATES)


TEMPLATES = Path(__file__).resolve().parent / "templates"
_ANSWER = {"better": ("scores", "shared", "methods", "corrected")}
_SIDE = {"problems": ("contradictions",), "gates": ()}
_WIDE = {"slices": ()}
_FOLDED = ("spread", "distributions", "iterations")
_WORDS = {"problems": "Advice", "gates": "In words", "slices": "Not on this page"}
_KINDS = {
    "table_part": Table,
    "note_part": Note,
    "chart_part": Chart,
    "case_name": CaseName,
    "items": ItemList,
    "score_cell": ScoreCell,
    "row_head": RowHead,
    "strong": Strong,
}
Panels = Sequence[tuple[Section, Sequence[Section]]]


@dataclass(frozen=True)
class _Zones:
    """Where sections stand above the cases: in the first column what answers, and below it where; in the second one what is wrong, and
    what is folded. On a narrow screen the second column comes between the two. A section comes with those that are folded below it."""

    answer: Panels
    side: Panels
    wide: Panels
    folded: Sequence[Section]
    words: Mapping[str, str]


@dataclass(frozen=True)
class FrontParts:
    """The markup around the cases: `head` above the navigation, `sections` before the cases, `fine_print` after them, the
    signature last."""

    head: Markup
    sections: Markup
    fine_print: Markup
    before: Sequence[tuple[str, str]]
    after: Sequence[tuple[str, str]]


def front_markup(report: Report) -> FrontParts:
    """The report without its cases. A section without a place above the cases is fine print."""
    shown = report.for_medium("html")
    zones, fine_print = _zones(shown.sections)
    macros = _template().make_module()
    return FrontParts(
        head=Markup(macros.head(shown)),
        sections=Markup(macros.sections(zones)),
        fine_print=Markup(macros.fine_print(fine_print) + macros.signature(shown)),
        before=(),
        after=[(section.name, section.title.split(" (")[0]) for section in fine_print],
    )


def _zones(sections: Sequence[Section]) -> tuple[_Zones, Sequence[Section]]:
    """The sections in their zones, and those that are fine print."""
    by_name = {section.name: section for section in sections}
    placed = set[str]()

    def panels(names: Mapping[str, Sequence[str]]) -> Panels:
        zone = []
        for name, more in names.items():
            present = [by_name[each] for each in (name, *more) if each in by_name]
            if present:
                placed.update(section.name for section in present)
                zone.append((present[0], present[1:]))
        return zone

    answer, side, wide = panels(_ANSWER), panels(_SIDE), panels(_WIDE)
    folded = [by_name[name] for name in _FOLDED if name in by_name]
    placed.update(_FOLDED)
    return _Zones(answer, side, wide, folded, _WORDS), [section for section in sections if section.name not in placed]


def _only(section: Section, parts: Sequence[SectionPart]) -> Section:
    return replace(section, parts=tuple(parts))


def _row_count(parts: Sequence[SectionPart]) -> int:
    return sum(len(part.rows) + part.rows_left_out for part in parts if isinstance(part, Table))


@cache
def _template() -> Any:
    environment = page_environment(TEMPLATES)
    environment.filters |= {"pieces": pieces_of, "plain": plain_text, "texts": texts_of}
    environment.filters |= {"only": _only, "row_count": _row_count}
    for name, kind in _KINDS.items():
        environment.tests[name] = lambda value, kind=kind: isinstance(value, kind)
    return environment.get_template("front.html.jinja")


WORST = 20
_TEXT_MAX = 1000
_VERDICTS = {FAILED: "fail", PASSED: "pass"}


@dataclass(frozen=True)
class StaticCase:
    """A case in short. `scores` are name, value and verdict of its headline scores."""

    name: str
    link: str
    question: str
    answer: str
    scores: Sequence[tuple[str, str, str]]


def static_cases(cases: RunCases) -> Iterator[StaticCase]:
    """The `WORST` lowest cases by the main score. Raises DataError."""
    rows, worst = cases.rows, cases.worst(WORST)
    at = {number: int(rows.places[number]) for number in worst}
    records = rows_at(cases.iteration.records, list(at.values()), ("question", "answer")) if worst else {}
    for place in worst:
        scores = [
            (name, f"{rows.values[name][place]:.4g}", _VERDICTS.get(int(rows.verdicts[name][place]), ""))
            for name in rows.headline or rows.scores
            if np.isfinite(rows.values[name][place])
        ]
        record, name = records[at[place]], rows.names[place]
        question, answer = (shorten_for_page(record[column] or "", _TEXT_MAX) for column in ("question", "answer"))
        yield StaticCase(name, page_address(case=name), question, answer, scores)
