"""What `report.html` shows above and below its cases: the sections of the report as markup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ragpipe.pages.page_file import page_environment
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
    """A section with these of its parts."""
    return replace(section, parts=tuple(parts))


def _row_count(parts: Sequence[SectionPart]) -> int:
    """The rows of the tables among these parts."""
    return sum(len(part.rows) + part.rows_left_out for part in parts if isinstance(part, Table))


@cache
def _template() -> Any:
    environment = page_environment(TEMPLATES)
    environment.filters |= {"pieces": pieces_of, "plain": plain_text, "texts": texts_of}
    environment.filters |= {"only": _only, "row_count": _row_count}
    for name, kind in _KINDS.items():
        environment.tests[name] = lambda value, kind=kind: isinstance(value, kind)
    return environment.get_template("front.html.jinja")
