"""`report.md`: a report as one Markdown page. Texts of data, answers and judges are code, where nothing is markup."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ragpipe.core.text import code_block, code_span, escape_markdown, markdown_table
from ragpipe.report.model import (
    CaseExcerpt,
    CaseName,
    Cell,
    Chart,
    ItemList,
    Note,
    Piece,
    Prose,
    Report,
    RichText,
    RunVerdict,
    Section,
    SectionPart,
    Strong,
    Table,
    TableColumn,
    Verbatim,
    joined,
    pieces_of,
    texts_of,
)

_TEXT_LIMIT = 1000  # characters of one text of the data in a line
_EXCERPT = 600  # characters of each text of a case
_SIGNATURE_LIMIT = 4000
_KINDS = {"plain": "", "warning": "**Warning:** ", "good": "", "bad": ""}


def render_markdown(report: Report) -> str:
    """The page; excerpts of cases show 600 characters of each text."""
    report = report.for_medium("markdown")
    head = ["# Evaluation report", "", code_span(report.signature, _SIGNATURE_LIMIT), "", f"{report.summary}."]
    head += ["", f"{_line(report.run)}."] if report.run else []
    head += _verdict(report.verdict) if report.verdict else []
    for note in report.notices:
        head += ["", *_note(note)]
    return _page(head, report.sections)


def render_sections(title: str, sections: Iterable[Section]) -> str:
    """A page of these sections alone."""
    report = Report("", "", "", None, (), tuple(sections))
    return _page([f"# {title}"], report.for_medium("markdown").sections)


def render_answer(report: Report) -> str:
    """A page that begins with its answer: name, verdict and sections."""
    head = [f"# {escape_markdown(report.name)}", *(_verdict(report.verdict) if report.verdict else [])]
    return _page(head, report.for_medium("markdown").sections)


def _page(head: list[str], sections: Iterable[Section]) -> str:
    return "\n".join("\n".join(lines) + "\n" for lines in [head, *map(_section, sections)])


def _verdict(verdict: RunVerdict) -> list[str]:
    """The sentence in one line, the remarks in another."""
    sentence = _line(verdict.sentence).strip()
    remarks = "; ".join(map(_line, verdict.remarks))
    lines = ["", f"**{verdict.lead}: {sentence}**" if verdict.lead else f"**{sentence}**"]
    return [*lines, "", f"{remarks[:1].upper()}{remarks[1:]}."] if remarks else lines


def _section(section: Section) -> list[str]:
    lines = [f"## {_line(section.title)}"]
    for part in section.parts:
        lines += ["", *_part(part)]
    return lines


def _part(part: SectionPart) -> Iterator[str]:
    if isinstance(part, Table):
        yield from _table(part)
    elif isinstance(part, Note):
        yield from _note(part)
    elif isinstance(part, CaseExcerpt):
        yield from _excerpt(part)
    elif isinstance(part, Chart):
        raise TypeError("charts are for HTML alone")


def _note(note: Note) -> Iterator[str]:
    yield _KINDS[note.kind] + _line(note.text)


def _table(table: Table) -> Iterator[str]:
    if table.title:
        yield from (f"### {_line(table.title)}", "")
    if table.layout == "entries":
        yield from (_entry(table.columns, row.cells) for row in table.rows)
    else:
        heads = [_line(column.head) for column in table.columns]
        left = [place for place, column in enumerate(table.columns) if column.is_text]
        yield from markdown_table(heads, [[_cell(cell) for cell in row.cells] for row in table.rows], left=left)
    if table.rows_left_out:
        yield from ("", f"{table.rows_left_out} more in metrics.json.")


def _entry(columns: tuple[TableColumn, ...], cells: tuple[Cell, ...]) -> str:
    """`- name: figure. First text. **Head:** text.`: the heads of the first three columns are left out."""
    name, figure, text, *others = (_inline(cell) for cell in cells)
    labelled = (
        f" **{_line(column.head).capitalize()}:** {value}" for column, value in zip(columns[3:], others, strict=True) if value
    )
    return f"- {name}: {figure}. {text}{''.join(labelled)}"


def _inline(cell: Cell) -> str:
    """A cell within a sentence."""
    separator = ", " if isinstance(cell, ItemList) and cell.separator == ", " else " "
    return _line(joined(texts_of(cell), separator))


def _cell(cell: Cell) -> str:
    separator = cell.separator if isinstance(cell, ItemList) else "\n"
    return separator.replace("\n", "<br>").join(map(_line, texts_of(cell)))


def _line(text: RichText) -> str:
    return "".join(map(_piece, pieces_of(text)))


def _piece(piece: Piece) -> str:
    if isinstance(piece, CaseName):
        return f"{code_span(piece.sample_id)} / {code_span(piece.method)}{piece.suffix}"
    if isinstance(piece, Verbatim):
        return code_span(piece, _TEXT_LIMIT)
    if isinstance(piece, Prose):
        return escape_markdown(piece, 2000)
    return f"**{piece}**" if isinstance(piece, Strong) else piece


def _excerpt(excerpt: CaseExcerpt) -> Iterator[str]:
    yield from (f"### {_line(excerpt.case)}", "")
    yield from (f"- {_line(line)}" for line in excerpt.lines)
    for label, text in excerpt.texts:
        yield from ("", label, "", code_block(text, _EXCERPT))
