"""One report in three media: whatever two of them share has the same rows, cells and order in both."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from ragpipe.reports import build
from ragpipe.reports.build import build_report
from ragpipe.reports.model import (
    CaseName,
    Cell,
    Medium,
    Note,
    Report,
    RichText,
    Section,
    Table,
    TableColumn,
    TableRow,
    Verbatim,
    pieces_of,
    plain_text,
    texts_of,
)
from ragpipe.reports.report_data import ReportData
from ragpipe.reports.settings import ReportSettings
from ragpipe.stages.write_reports import read_report_data
from ragpipe.store.run.run_folder import RunFolder
from tests.support.finished_runs import FinishedRuns
from tests.support.reports import html_of, markdown_of, terminal_of

pytestmark = pytest.mark.slow  # whole runs, several per test

GATES = "+scoring.gates={ranking: {score: mrr, min: 0.99}, depth: {score: recall@5, min: 0.1, tier: quality}}"
RUNS = {
    "one iteration": [],
    "several iterations, with gates": [
        "metrics=[retrieval,faithfulness]",
        "metrics.faithfulness.prompts.verify=v2",
        "iterations=2",
        GATES,
    ],
}
MEDIA: tuple[Medium, ...] = ("terminal", "markdown", "html")


@pytest.fixture(scope="module", params=RUNS.values(), ids=RUNS)
def data(request: pytest.FixtureRequest, finished_runs: FinishedRuns) -> ReportData:
    """What the reports of a run of the demonstration set, with three methods, are made from."""
    code = 3 if GATES in request.param else 0
    run = RunFolder(finished_runs.of("+experiment=quickstart", "report.formats=[]", *request.param, code=code).latest())
    settings = ReportSettings(formats=["markdown", "html"], percent=["faithfulness"])
    return read_report_data(run, run.iteration(max(run.iterations())), settings)


@pytest.fixture(scope="module")
def report(data: ReportData) -> Report:
    return build_report(data)


class PageRows(HTMLParser):
    """The rows of the tables of a page by section, each as the text of its cells; those of charts are left out."""

    def __init__(self, page: str):
        super().__init__()
        self.by_section: dict[str, list[str]] = {}
        self._section, self._in_row, self._in_chart = "", False, False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "section":
            self._section = dict(attrs)["id"] or ""
        self._in_chart = self._in_chart or tag == "figure"
        if tag == "tr" and not self._in_chart:
            self.by_section.setdefault(self._section, []).append("")
            self._in_row = True

    def handle_endtag(self, tag: str) -> None:
        self._in_row = self._in_row and tag != "tr"
        self._in_chart = self._in_chart and tag != "figure"

    def handle_data(self, data: str) -> None:
        if self._in_row:
            self.by_section[self._section][-1] += squeezed(data)


def squeezed(text: str) -> str:
    """A text without blanks, without markup of Markdown, and without what separates the items of a cell."""
    return re.sub(r"<br>|\*\*|[\s`|¦\\,;]", "", text)


def text_of(*cells: Cell) -> str:
    """The text of cells as every medium has it."""
    return squeezed("".join(plain_text(text) for cell in cells for text in texts_of(cell)))


def terminal_text(text: RichText) -> str:
    """A line as the terminal prints it: `sample/method` for a case."""
    pieces = (
        f"{piece.sample_id}/{piece.method}{piece.suffix}" if isinstance(piece, CaseName) else str(piece)
        for piece in pieces_of(text)
    )
    return "".join(pieces)


def heads_of(table: Table) -> tuple[Cell, ...]:
    return tuple(column.head for column in table.columns)


def tables_of(section: Section) -> list[Table]:
    return [part for part in section.parts if isinstance(part, Table)]


def sections_with_tables(report: Report, medium: Medium) -> list[Section]:
    return [section for section in report.for_medium(medium).sections if tables_of(section)]


@pytest.mark.thorough(tried=1)
def test_html_has_every_row(report: Report) -> None:
    rows = PageRows(html_of(report)).by_section
    sections = sections_with_tables(report, "html")
    assert len(sections) > 6
    for section in sections:
        expected = [
            text_of(*cells)
            for table in tables_of(section)
            for cells in (heads_of(table), *(row.cells for row in table.rows))
        ]
        assert rows[section.name] == expected, section.name


def test_markdown_has_every_row(report: Report) -> None:
    page = markdown_of(report)
    sections = sections_with_tables(report, "markdown")
    assert len(sections) > 6
    for section in sections:
        text = page.split(f"\n## {section.title}\n")[1].split("\n## ")[0]
        lines = [squeezed(line) for line in text.splitlines() if line.startswith(("| ", "- ")) and "| ---" not in line]
        expected = [
            cells
            for table in tables_of(section)
            for cells in (*([heads_of(table)] if table.layout == "grid" else []), *(row.cells for row in table.rows))
        ]
        for line, cells in zip(lines, expected, strict=True):
            if line.startswith("-"):
                assert [cell for cell in cells if text_of(cell) not in line] == [], section.name
            else:
                assert line == text_of(*cells), section.name


def test_the_terminal_has_its_rows_in_order(report: Report) -> None:
    printed = terminal_of(report, columns=1000)
    place = 0
    sections = sections_with_tables(report, "terminal")
    assert len(sections) >= 3
    for section in sections:
        for table in tables_of(section):
            for row in table.rows:
                name, *cells = (terminal_text(texts_of(cell)[0]) for cell in row.cells)
                match = re.compile(rf"^ *{re.escape(name)}[ :]", re.MULTILINE).search(printed, place)
                assert match, f"{name} of {section.name}"
                place = match.start()
                block = printed[place : place + 1000]
                shown = cells[:2] if table.layout == "entries" else cells
                assert [text for text in shown if text not in " ".join(block.split())] == [], section.name


def test_media_share_rows_and_columns_in_one_order(report: Report) -> None:
    """The HTML page has the tables of Markdown, but for those that its heat maps stand for and the rows of single groups; the
    terminal's rows and columns are some of theirs, in the same order."""
    shown = {
        medium: {section.name: tables_of(section) for section in sections_with_tables(report, medium)}
        for medium in MEDIA
    }
    assert list(shown["html"]) == [name for name in shown["markdown"] if name != "slices"]
    for name, tables in shown["html"].items():
        places = [[full.columns for full in shown["markdown"][name]].index(table.columns) for table in tables]
        assert places == sorted(places)
        for place, table in zip(places, tables, strict=True):
            full_rows = shown["markdown"][name][place].rows
            assert [row for row in full_rows if row in table.rows] == list(table.rows), name
    for name, tables in shown["terminal"].items():
        for table, page_table in zip(tables, shown["html"][name], strict=False):
            places = [page_table.columns.index(column) for column in table.columns]
            assert places == sorted(places)
            page_rows = [tuple(row.cells[place] for place in places) for row in page_table.rows]
            row_places = [page_rows.index(row.cells) for row in table.rows]
            assert row_places == sorted(set(row_places))


def test_a_section_added_in_one_place_is_in_all_media(data: ReportData, monkeypatch: pytest.MonkeyPatch) -> None:
    def weather_section(data: ReportData) -> Section:
        columns = (TableColumn("day", is_text=True), TableColumn("degrees"))
        rows = (TableRow((Verbatim("monday"), "17")), TableRow((Verbatim("tuesday"), "23")))
        return Section("weather", "Weather", (Table(columns, rows), Note("measured at noon")))

    builders = [*build.section_builders(), weather_section]
    monkeypatch.setattr(build, "section_builders", lambda: builders)
    report = build_report(data)
    for text in (terminal_of(report), markdown_of(report), html_of(report)):
        assert re.search(r"Weather.*monday.*17.*tuesday.*23.*measured at noon", text, re.DOTALL)


@pytest.mark.parametrize("data", [RUNS["several iterations, with gates"]], indirect=True)
def test_every_medium_shows_the_passage_that_contradicts_a_claim(report: Report) -> None:
    """In the quickstart, the wife of Edmund Farrow has a name that no chapter gives her."""
    claim, place = "Edmund Farrow's wife is called Eleanor.", "context 1 (chunk lamp-ch1), characters 0 to 122: "
    parts = (claim, place + "Every evening Edmund Farrow carried his pole down Quay Street")
    row = "([Cc]ontradictedby:)?".join(re.escape(squeezed(part)) for part in parts)
    page = "".join(PageRows(html_of(report)).by_section["contradictions"])
    for text in (terminal_of(report, columns=1000), markdown_of(report), page):
        assert re.search(row, squeezed(text))


def test_the_first_problem_is_the_most_frequent_in_every_medium(report: Report) -> None:
    (section,) = [section for section in report.sections if section.name == "problems"]
    diagnoses = tables_of(section)[0]
    name, count = (plain_text(texts_of(cell)[0]) for cell in diagnoses.rows[0].cells[:2])
    counts = [int(plain_text(texts_of(row.cells[1])[0]).split()[0].replace(",", "")) for row in diagnoses.rows]
    assert counts == sorted(counts, reverse=True)
    assert f"## What is wrong\n\n### Diagnosis\n\n- `{name}`: {count}." in markdown_of(report)
    assert PageRows(html_of(report)).by_section["problems"][1].startswith(squeezed(f"{name}{count}"))
    assert f"\n{name}: {count}: " in terminal_of(report, columns=1000)


def test_every_medium_holds_each_method_against_the_first(report: Report) -> None:
    """Two other methods against `baseline`, and where to read more. The quickstart is known to be better with `rerank`."""
    (section,) = [section for section in report.sections if section.name == "methods"]
    (table,) = tables_of(section)
    rows = [[plain_text(texts_of(cell)[0]) for cell in row.cells] for row in table.rows]
    assert {row[1] for row in rows} == {"rerank", "no_rerank_small_k"}
    (faithful,) = [row for row in rows if row[:2] == ["faithfulness x100", "rerank"]]
    base, new = float(faithful[2]), float(faithful[3])
    assert 1 < base < new <= 100, "in percent, as the rest of the report"
    assert faithful[4].startswith(f"+{new - base:.1f}"[:3])
    for text in (terminal_of(report, columns=1000), markdown_of(report), html_of(report)):
        assert "task=compare compare=methods run=" in text
