"""One report in three media: whatever two of them share has the same rows, cells and order in both."""

import math
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

import pytest

from ragpipe.report.model import Cell, Medium, Note, Report, Section, Table, TableColumn, TableRow, Verbatim, plain_text, texts_of
from ragpipe.report.report_data import ReportData
from ragpipe.report.settings import ReportSettings
from ragpipe.report.styled_text import columns_of
from ragpipe.runs import run_report as report_module
from ragpipe.runs.run_report import build_report, read_report_data
from ragpipe.store.run_folder import RunFolder
from ragpipe.testing.openai_faults import ServerFault
from ragpipe.testing.openai_server import OpenAIServer, serving
from tests.support.finished_runs import FinishedRuns
from tests.support.place import output_of
from tests.support.reports import html_of, markdown_of, terminal_of
from tests.support.terminals import drawn_lines, on_a_terminal

pytestmark = pytest.mark.slow
GATES = "+scoring.gates={ranking: {score: mrr, min: 0.99}, depth: {score: recall@5, min: 0.1, tier: quality}}"
RUNS = {
    "one iteration": [],
    "several iterations, with gates": ["metrics=[retrieval,faithfulness]", "metrics.faithfulness.prompts.verify=v2", "iterations=2", GATES],
}
PAGE_MEDIA: tuple[Medium, ...] = ("html", "markdown")


@pytest.fixture(scope="module", params=RUNS.values(), ids=RUNS)
def data(request: pytest.FixtureRequest, finished_runs: FinishedRuns) -> ReportData:
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
    return squeezed("".join(plain_text(text) for cell in cells for text in texts_of(cell)))


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
        expected = [text_of(*cells) for table in tables_of(section) for cells in (heads_of(table), *(row.cells for row in table.rows))]
        assert rows[section.name] == expected, section.name


def test_markdown_has_every_row(report: Report) -> None:
    page = markdown_of(report)
    sections = sections_with_tables(report, "markdown")
    assert len(sections) > 6
    for section in sections:
        text = page.split(f"\n## {section.title}\n")[1].split("\n## ")[0]
        lines = [squeezed(line) for line in text.splitlines() if line.startswith(("| ", "- ")) and "| ---" not in line]
        expected: list[tuple[Cell, ...]] = []
        for table in tables_of(section):
            expected += [*([heads_of(table)] if table.layout == "grid" else []), *(row.cells for row in table.rows)]
        for line, cells in zip(lines, expected, strict=True):
            if line.startswith("-"):
                assert [cell for cell in cells if text_of(cell) not in line] == [], section.name
            else:
                assert line == text_of(*cells), section.name


def test_pages_share_rows_and_columns_in_one_order(report: Report) -> None:
    """The HTML page has the tables of Markdown, but for those that its heat maps and bars stand for and the rows of single groups."""
    html, markdown = ({s.name: tables_of(s) for s in sections_with_tables(report, medium)} for medium in PAGE_MEDIA)
    assert list(html) == [name for name in markdown if name not in ("slices", "categories", "gates")]
    for name, tables in html.items():
        heads = [(full.title, full.columns) for full in markdown[name]]
        places = [heads.index((table.title, table.columns)) for table in tables]
        assert places == sorted(places)
        for place, table in zip(places, tables, strict=True):
            full_rows = markdown[name][place].rows
            assert [row for row in full_rows if row in table.rows] == list(table.rows), name


def test_a_section_added_in_one_place_is_in_all_media(data: ReportData, monkeypatch: pytest.MonkeyPatch) -> None:
    def weather_section(data: ReportData) -> Section:
        columns = (TableColumn("day", is_text=True), TableColumn("degrees"))
        rows = (TableRow((Verbatim("monday"), "17")), TableRow((Verbatim("tuesday"), "23")))
        return Section("weather", "Weather", (Table(columns, rows), Note("measured at noon")))

    builders = [*report_module.section_builders(), weather_section]
    monkeypatch.setattr(report_module, "section_builders", lambda: builders)
    report = build_report(data)
    for text in (terminal_of(report), markdown_of(report), html_of(report)):
        assert re.search(r"Weather.*monday.*17.*tuesday.*23.*measured at noon", text, re.DOTALL)


@pytest.mark.parametrize("data", [RUNS["several iterations, with gates"]], indirect=True)
def test_the_first_problem_is_the_most_frequent_in_every_medium(report: Report) -> None:
    (section,) = [section for section in report.sections if section.name == "problems"]
    diagnoses = next(table for table in tables_of(section) if table.title == "Diagnosis")
    name, count = (plain_text(texts_of(cell)[0]) for cell in diagnoses.rows[0].cells[:2])
    counts = [int(plain_text(texts_of(row.cells[1])[0]).split()[0].replace(",", "")) for row in diagnoses.rows]
    assert counts == sorted(counts, reverse=True)
    assert f"## What is wrong\n\n### Diagnosis\n\n- `{name}`: {count}." in markdown_of(report)
    assert PageRows(html_of(report)).by_section["problems"][1].startswith(squeezed(f"{name}{count}"))
    assert re.search(rf"wrong most often.*:\n(  *[\d.]+%)+  {name}  ", "  " + terminal_of(report, 1000).replace("\n", "\n  "))


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
    (first,) = [row for row in rows if row[:2] == ["overall_score (2 of 8 parts)", "rerank"]]
    assert first[4] in terminal_of(report, 1000)
    for text in (markdown_of(report), html_of(report)):
        assert "task=compare compare=methods run=" in text


SWEEP = ["-m", "+experiment=quickstart", "metrics=[retrieval]", "scoring.thresholds.retrieval_score=0.5,0.6,0.7,0.8"]


def _screen_lines(text: str, columns: int) -> int:
    return sum(max(1, math.ceil(columns_of(line) / columns)) for line in text.splitlines())


@pytest.fixture(scope="module")
def run(finished_runs: FinishedRuns) -> RunFolder:
    return RunFolder(finished_runs.of("+experiment=quickstart", "report.formats=[]").latest())


@pytest.mark.parametrize(("columns", "most"), [(60, 46), (80, 32), (100, 32), (160, 32)])
def test_the_result_of_the_quickstart_fits_a_screen(run: RunFolder, columns: int, most: int) -> None:
    """With the plan, two lines of progress and the path of the report. A category has a line."""
    data = read_report_data(run, run.iteration(1), ReportSettings(percent=["faithfulness"]))
    lines = terminal_of(build_report(data), columns).splitlines()
    assert len(lines) + math.ceil(76 / columns) + 2 + 1 + 3 <= most, "with three lines of warnings"
    assert max(map(columns_of, lines)) <= columns
    shown = "\n".join(lines)
    for method in ("baseline", "rerank", "no_rerank_small_k"):
        assert f"\n{method} " in shown
    assert "+0.184" in shown
    assert "and 0 more" not in shown


@pytest.fixture
def _screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """80 columns, and no line of progress more for each 5 s of a slow machine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("ragpipe.report.console.PLAIN_S", 3600)


@pytest.mark.usefixtures("_screen")
def test_a_start_prints_at_most_32_lines_and_the_page_last(capfd: pytest.CaptureFixture[str]) -> None:
    shown = output_of(["+experiment=quickstart"], 0, capfd)
    assert _screen_lines(shown.out + shown.err, 80) <= 32
    assert Path(shown.out.splitlines()[-1].removeprefix("report: ")).is_file()


@pytest.mark.thorough
@pytest.mark.usefixtures("_screen")
def test_a_sweep_of_four_jobs_is_one_table(capfd: pytest.CaptureFixture[str]) -> None:
    shown = output_of(SWEEP, 0, capfd)
    assert _screen_lines(shown.out + shown.err, 80) <= 30
    lines = shown.out.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("job ")] == ["1/4", "2/4", "3/4", "4/4", "method"]
    thresholds = re.findall(r"^retrieval_score=(\S+)", shown.out, re.M)
    assert thresholds == ["0.5", "0.6", "0.7", "0.8"]
    assert not any("to the best" in line for line in lines), "a threshold changes no score"
    assert Path(lines[-1].removeprefix("comparison: ")).is_file()


WORDS = (
    "+experiment=quickstart", "metrics=[faithfulness,groundedness]", "dataset.limit=5", "judge=llm",
    "judge.model=openai/test-model-2026-01-01", "judge.api_key_env=RAGPIPE_TEST_KEY", "judge.concurrency=8",
)  # fmt: skip
COLOUR = "\x1b[3"
_SENT = re.compile(r"([\d,]+) sent, ([\d,]+) answered")


class Capture(NamedTuple):
    """A terminal, and whether it draws the line of progress again and has colours."""

    columns: int
    is_live: bool
    has_colours: bool
    env: dict[str, str]


CAPTURES = {
    "60 columns": Capture(60, True, True, {"TERM": "xterm-256color"}),
    "80 columns": Capture(80, True, True, {"TERM": "xterm-256color"}),
    "100 columns": Capture(100, True, True, {"TERM": "xterm-256color"}),
    "160 columns": Capture(160, True, True, {"TERM": "xterm-256color"}),
    "no colour": Capture(80, True, False, {"TERM": "xterm-256color", "NO_COLOR": "1"}),
    "dumb": Capture(80, False, False, {"TERM": "dumb"}),
}


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with serving(latency_ms=700) as server:
        yield server


def start(tmp_path: Path, server: OpenAIServer, capture: Capture, *words: str, code: int = 0) -> str:
    here = [f"judge.api_base={server.url}", f"output_dir={tmp_path / 'out'}", f"store.path={tmp_path / 'store'}"]
    return on_a_terminal([*WORDS, *here, *words], tmp_path, capture.columns, code=code, **capture.env)


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("name", CAPTURES)
def test_a_slow_judge_on_a_terminal(tmp_path: Path, server: OpenAIServer, name: str) -> None:
    capture = CAPTURES[name]
    text = start(tmp_path, server, capture)
    lines = drawn_lines(text)
    progress = [line for line in lines if "judging " in line and "/13" in line]
    asked = len(server.log)
    assert asked == 39
    frames = progress[:-1]
    assert "0/13" in frames[0]
    assert all(any(word in frame for word in (" left", "estimating", "| 0:0")) for frame in frames), frames
    if capture.is_live:
        assert "estimating" in frames[0], "before the first reply"
        assert max(map(columns_of, frames)) < capture.columns
    counts = [tuple(int(n) for n in found.groups()) for frame in progress if (found := _SENT.search(frame))]
    assert counts == sorted(counts)
    assert all(answered <= sent <= asked for sent, answered in counts)
    assert progress[-1].startswith("judging 13/13 cases | 0:0")
    assert "39 sent, 39 answered |" in progress[-1]
    result = lines[lines.index(progress[-1]) + 1 :]
    counted = "13 cases on 5 questions, 3 methods, iteration 1; judge"
    assert any(line.startswith(counted) for line in result[:4]), "after the sentence of verdict.json"
    assert result[-1].startswith("report: ")
    assert max(columns_of(line) for line in result[:-1]) <= capture.columns
    assert len(result) <= (32 if capture.columns >= 80 else 36)
    assert (COLOUR in text) == capture.has_colours


def test_a_wait_that_the_provider_asks_for_is_said_and_counts_down(tmp_path: Path, server: OpenAIServer) -> None:
    """Three requests are refused for three seconds; no other goes meanwhile."""
    server.latency_ms = 100
    server.faults = [ServerFault.read("429:nth=20+21+22,retry_after=3")]
    lines = drawn_lines(start(tmp_path, server, CAPTURES["100 columns"]))
    held = [line for line in lines if "waits " in line]
    assert held, lines
    seconds = [int(line.partition("waits ")[2].split()[0]) for line in held]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[0] in (2, 3)
    assert all("(429)" in line and (" left" in line or "estimating" in line) for line in held)
    last = [line for line in lines if line.startswith("judging 13/13 cases | 0:")][-1]
    requests = server.log
    good = sum(line["status"] == 200 for line in requests)
    assert f"{len(requests)} sent, {good} answered, {len(requests) - good} without a reply |" in last


@pytest.mark.thorough
def test_errors_and_a_gate_that_blocks(tmp_path: Path, server: OpenAIServer) -> None:
    """Every fifth request or so is refused for good; the gate cannot pass."""
    server.latency_ms = 10
    server.faults = [ServerFault.read("400:rate=0.2")]
    gate = "scoring.gates.faithful={score: faithfulness, of: mean, min: 0.99, tier: critical}"
    lines = drawn_lines(start(tmp_path, server, CAPTURES["80 columns"], f"+{gate}", code=3))
    last = next(line for line in lines if line.startswith("judging 13/13"))
    assert re.search(r"[1-9]\d* errors?", last)
    requests = server.log
    failed = sum(line["status"] == 400 for line in requests)
    assert f"{len(requests)} sent, {len(requests) - failed} answered, {failed} without a reply" in last
    verdict = lines.index(next(line for line in lines if line.startswith("BLOCKED: 1 of 1 gate did not pass: faithful ")))
    assert any(line.startswith(f"cost: judge {len(requests)} calls ({failed} without a reply)") for line in lines[verdict:])
    assert any(line.startswith("warning: gate faithful: ") for line in lines[verdict:])
