"""report.html in a real browser: nothing leaves, every case is found by filter, key and link, on every width."""

from __future__ import annotations

import base64
import csv
import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ragpipe.core.sample import Chunk
from ragpipe.core.score import ScoreSpec
from ragpipe.core.text import printable
from ragpipe.report.console import Console
from ragpipe.report.page_file import page_address
from ragpipe.report.run_page import RunCases, write_run_page
from ragpipe.report.settings import ReportSettings
from ragpipe.runs.write_reports import write_reports
from ragpipe.score.settings import ScoringSettings
from ragpipe.store.run_folder import RunFolder
from tests.support.playwright_pages import AXE, OpenPage, axe_violations, clean_page, open_page, wait_until
from tests.support.reports import report_of
from tests.support.run_tables import Row, score, write_run
from tests.unit.report.test_report_html import ATTACKS, write

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser
SPECS = [ScoreSpec("grade"), *(ScoreSpec(f"{name}@{k}") for name in ("hit", "recall") for k in (1, 3, 5))]
SCORING = ScoringSettings(weights={"grade": 1.0}, thresholds={"grade": 0.5}, fill_defaults=False)
ANSWERS = {"base": "The fee is ten euros.", "new": "The fee is twelve euros [1]."}
CLAIM = {"claim": "The fee is ten euros.", "supported": False, "verdict": "contradicted",
         "evidence": [{"quote": "fee is twelve", "places": [{"chunk": "both", "rank": 1, "start": 4, "end": 17}]}]}  # fmt: skip
CALL = {"iteration": 1, "metric": "grade", "step": "verify", "turn": "ask", "judge": "gpt", "status": "ok", "template": "grade/verify",
        "template_version": "v1", "key": "k1", "tokens_in": 812, "tokens_out": 93, "reply": "It is not."}  # fmt: skip


def row(n: int, method: str, **more: Any) -> Row:
    """Question n of a method: grade n/20 of `base`, and of `new` the same or for every third question 1; `fees` are the first ten."""
    grade = 1.0 if method == "new" and n % 3 == 0 else n % 20 / 20
    ranks = {spec.name: float(spec.name.startswith("hit")) for spec in SPECS[1:]}
    chunks = [Chunk(id="both", rank=1, text="The fee is twelve euros."), Chunk(id=method, rank=2, text=f"Only {method}.")]
    labels = {"question": f"Question number {n}?", "category": "fees" if n < 10 else "dates"}
    details = {"grade": {"claims": [CLAIM]}} if method == "base" else {}
    return Row(f"q{n:02}", method, {"grade": grade, **ranks}, labels, {"answer": ANSWERS[method], "chunks": chunks}, details, **more)


ROWS = [row(n, method) for n in range(20) for method in ANSWERS]


def written(root: Path, rows: list[Row], calls: list[dict[str, Any]] | None = None) -> Path:
    write_run(root, rows, calls or [])
    score(root, SPECS, SCORING)
    return pages_of(root)


def pages_of(root: Path) -> Path:
    write_reports(root / "iteration-1", target=root, settings=ReportSettings(formats=["html"]), console=Console())
    return root / "report.html"


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    prompts = json.dumps([{"role": "user", "content": "Is the claim in the context?"}])
    calls = [{**CALL, "sample_id": "q03", "method": method, "messages": prompts} for method in ANSWERS]
    return written(tmp_path_factory.mktemp("report") / "run", ROWS, calls)


@pytest.fixture
def shown(browser: Browser, report: Path) -> Iterator[OpenPage]:
    """The report, open at 1440 pixels; at the end it has done nothing that it should not."""
    with clean_page(browser, report) as opened:
        yield opened


def case_open(shown: OpenPage) -> str:
    shown.page.wait_for_selector("#pane .question")
    return str(shown.page.text_content("#pane h3"))


def test_the_worst_come_first_and_only_rows_in_sight_exist(shown: OpenPage) -> None:
    """Of equal grades the data's order: q00 is 0 for base; new has 1 for every third question. A row is a question with both methods."""
    assert (shown.shown()[:4], shown.count()) == (["q00", "q01", "q02", "q03"], "40 of 40")
    assert shown.page.text_content("#count-of") == "cases on 20 questions"
    cells = shown.page.locator("#list [role=option]:nth-child(1) .cell").all_text_contents()
    assert cells == ["0.00\u00a0✗", "1.00\u00a0✓", "1.00"]
    assert shown.page.text_content("#list-head") == "gradebasenewmax − min"
    assert case_open(shown) == "q00/base/1", "the worst case is open from the start"
    assert shown.page.locator("#cases *").count() < 700


def test_a_row_is_a_question_or_a_case_and_heads_order(shown: OpenPage) -> None:
    page = shown.page
    page.click("#list-head button:text('max')")
    assert (shown.shown()[:3], shown.address()) == (["q00", "q03", "q06"], "#v=1&sort=difference")
    page.click("#list-head button:text('new')")
    assert (shown.shown()[:2], shown.address()) == (["q01", "q02"], "#v=1&sort=method:new")
    page.click("#list-head button:text('new')")
    assert shown.shown()[0] == "q00"
    page.click("#list [role=option]:nth-child(1) .cell:nth-of-type(3)")
    assert case_open(shown) == "q00/new/1", "a cell opens the case of its method"
    page.keyboard.press("Escape")
    page.select_option("#view", "cases")
    page.select_option("#sort", "worst")
    assert shown.shown()[:3] == ["q00/base/1", "q01/base/1", "q01/new/1"]
    assert not page.query_selector("#columns-of input, dialog"), "what is closed is no part of the page"
    page.click("#columns summary")
    page.wait_for_selector("#columns-of input[value=grade]:checked")
    page.check("#columns-of input[value='hit@1']")
    assert shown.address() == "#v=1&view=cases&cols=grade%2Chit%401"
    page.click("#list-head button:text('hit@1')")
    assert "sort=hit%401" in shown.address()
    page.click("#methods label:has(input[value=new])")
    page.select_option("#view", "questions")
    assert shown.page.locator("#list [role=option] >> nth=0").locator(".cell.out").count() == 1


FILTERS: list[tuple[str, list[str] | None, str]] = [
    ("q=NUMBER 12", ["q12/base/1", "q12/new/1"], "2 of 40"),
    ("q=q07/new", ["q07/new/1"], "1 of 40"),
    ("q=twelve", None, "20 of 40"),
    ("method=new&verdict=miss", ["q01/new/1", "q02/new/1", "q04/new/1", "q05/new/1", "q07/new/1", "q08/new/1"], "6 of 40"),
    ("verdict=pass&slice=category:fees", ["q00/new/1", "q03/new/1", "q06/new/1", "q09/new/1"], "4 of 40"),
    ("from=0.25&to=0.35&sort=grade", ["q05/base/1", "q05/new/1", "q06/base/1", "q07/base/1", "q07/new/1"], "5 of 40"),
    ("only=1&method=base&sort=data", ["q00/base/1", "q03/base/1", "q06/base/1", "q09/base/1", "q12/base/1", "q15/base/1", "q18/base/1"], "7 of 40"),
    ("sort=-grade&method=base&slice=category:dates&from=.9", ["q19/base/1", "q18/base/1"], "2 of 40"),
    ("mode=unsupported_claim", [], "0 of 40; without mode 40"),
    ("score=hit@1&verdict=none&method=new&sort=data&q=number 1?", ["q01/new/1"], "1 of 40"),
    ("verdict=error", [], "0 of 40; without verdict 40"),
    ("slice=category:none", [], "0 of 40; without slice 40"),
    ("score=unknown&sort=-unknown&verdict=error", [], "0 of 40; without verdict 40"),
]  # fmt: skip


def test_an_address_is_a_filter(browser: Browser, report: Path) -> None:
    with clean_page(browser, report) as opened:
        for filters, names, count in FILTERS:
            opened.page.evaluate("(text) => { location.hash = text; }", f"#v=1&view=cases&{filters}")
            wait_until(opened.page, f"document.querySelector('#count').textContent === {count!r}")
            assert names is None or opened.shown() == names, filters


def test_controls_filter_and_stand_in_the_address(shown: OpenPage) -> None:
    page = shown.page
    page.select_option("#view", "cases")
    page.select_option("#verdict", "miss")
    page.click("#methods label:has(input[value=base])")
    page.fill("#slice", "dat")
    assert page.eval_on_selector_all("#slice-names option", "(all) => all.map((o) => o.value)") == ["category:dates"]
    page.press("#slice", "Enter")  # a part of a name stands for the first slice with it
    assert page.input_value("#slice") == "category:dates"
    assert shown.count() == "0 of 40; without verdict 10; without slice 10"
    assert shown.address() == "#v=1&method=base&verdict=miss&slice=category:dates&view=cases"
    page.fill("#slice", "")
    page.fill("#from", "0.4")
    page.press("#from", "Tab")
    assert shown.shown() == ["q08/base/1", "q09/base/1"]
    page.click("#reset")
    assert (shown.count(), shown.address()) == ("40 of 40", "#v=1")
    page.select_option("#sort", "-grade")
    assert shown.shown()[0] == "q00"
    page.select_option("#score", "hit@1")
    assert page.eval_on_selector_all("#sort option", "(all) => all.map((o) => o.value)") == ["worst", "hit@1", "-hit@1", "difference", "data", "-grade"]  # fmt: skip


def test_every_action_has_a_key(shown: OpenPage, tmp_path: Path) -> None:
    page = shown.page
    page.keyboard.press("Enter")
    assert (case_open(shown), shown.address()) == ("q00/base/1", page_address(case="q00/base/1"))
    page.keyboard.press("]")
    assert shown.address() == page_address(case="q00/new/1")
    page.keyboard.press("d")
    page.wait_for_selector("#pane ins")
    assert page.locator("#pane ins").all_text_contents() == ["twelve", " [1]"]
    page.keyboard.press("d")
    page.keyboard.press("j")
    wait_until(page, "document.querySelector('#pane h3').textContent === 'q01/new/1'")  # the method stays
    page.keyboard.press("[")
    page.keyboard.press("k")
    wait_until(page, "document.querySelector('#pane h3').textContent === 'q00/base/1'")
    page.keyboard.press("J")  # what is between them passed
    wait_until(page, "document.querySelector('#pane h3').textContent === 'q01/base/1'")
    page.keyboard.press("K")
    wait_until(page, "document.querySelector('#pane h3').textContent === 'q00/base/1'")
    page.keyboard.press("K")
    assert "No failed case" in str(page.text_content("#message"))
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "list"
    page.keyboard.press("x")
    assert shown.count() == "14 of 40"
    page.keyboard.press("/")
    page.keyboard.type("number 12x")
    page.keyboard.press("Backspace")
    assert shown.shown() == ["q12"]
    page.keyboard.press("Escape")
    page.keyboard.press("f")
    assert page.evaluate("document.activeElement.id") == "score"
    page.keyboard.press("Escape")
    with page.expect_download() as download:
        page.keyboard.press("e")
    download.value.save_as(tmp_path / "list.csv")
    lines = list(csv.reader((tmp_path / "list.csv").read_text(encoding="utf-8").splitlines()))
    assert lines[0][:6] == ["id", "method", "repeat", "question", "grade", "grade verdict"]
    assert [line[:6] for line in lines[1:]] == [["q12", "base", "1", "Question number 12?", "0.6", "pass"], ["q12", "new", "1", "Question number 12?", "1", "pass"]]  # fmt: skip
    page.keyboard.press("?")
    assert page.locator("dialog tr").count() == 15
    page.uncheck("dialog input")
    page.keyboard.press("Escape")
    page.keyboard.press("x")
    assert shown.count() == "2 of 40", "keys are off"


@pytest.mark.parametrize("height", [780, 900])
@pytest.mark.parametrize("action", ["click", "Enter", "link", "j"])
def test_a_case_that_opens_comes_into_sight(browser: Browser, report: Path, height: int, action: str) -> None:
    """From the top of the page, where the cases begin below; the pane scrolls with the page, not in a box of its own."""
    with clean_page(browser, report, height=height) as opened:
        page = opened.page
        assert page.evaluate("scrollY") == 0
        if action == "click":
            page.eval_on_selector("#list [role=option]:nth-child(2)", "(row) => row.click()")
        elif action == "link":
            page.evaluate("document.body.append(make('a', {href: '#v=1&case=q01/new/1', id: 'there', text: 'x'}))")
            page.eval_on_selector("#there", "(link) => link.click()")
        else:
            page.keyboard.press(action)
        case_open(opened)
        top = page.evaluate("document.querySelector('#pane').getBoundingClientRect().top")
        assert 0 <= top < height / 3
        assert page.evaluate("document.querySelector('#pane').scrollHeight - document.querySelector('#pane').clientHeight") == 0


def test_the_first_stop_of_tab_leads_to_the_cases(shown: OpenPage) -> None:
    shown.page.keyboard.press("Tab")
    shown.page.keyboard.press("Enter")
    assert shown.page.evaluate("document.activeElement.id") == "cases-title"


def test_a_case_reads_from_the_answer_to_its_evidence(browser: Browser, report: Path) -> None:
    with clean_page(browser, report, "#v=1&case=q03/base/1") as opened:
        assert case_open(opened) == "q03/base/1"
        page = opened.page
        assert page.locator("#pane .tabs button").all_text_contents() == [" base 0.15\u00a0✗", " new 1\u00a0✓", "side by side"]
        answer, contexts = (page.locator("#pane .case > div").nth(side).bounding_box() for side in (0, 1))
        assert answer
        assert contexts
        assert (answer["y"], answer["x"] + answer["width"] < contexts["x"]) == (contexts["y"], True)
        assert page.locator("#pane .chunk .badge").all_text_contents() == ["kept", "only here"]
        assert page.locator("#pane .contradiction").all_text_contents() == [
            "contradicted The fee is ten euros.by context 1 (chunk both), characters 4 to 17: fee is twelve"
        ]
        assert page.locator("#pane .chunk[open] mark.contradicts").all_text_contents() == ["contradicts", "fee is twelve"]
        assert page.locator("#pane .text mark.contradicted").all_text_contents() == ["The fee is ten euros."]
        support = page.locator("#pane details", has_text="Claims by context (grade)")
        support.locator("summary").click()
        assert support.locator("tbody td").all_text_contents() == ["The fee is ten euros.", "not supported"]
        assert support.locator("li").all_text_contents() == [
            "NO to the end: no context carries any of 1 claim", "carry nothing: 2 of 2 contexts (1, 2)",
        ]  # fmt: skip
        ranking = page.locator("#pane details", has_text="Ranking (6 scores)")
        ranking.locator("summary").click()
        assert ranking.locator("thead th").all_text_contents() == ["measure", "@1", "@3", "@5"]
        assert ranking.locator("tbody th").all_text_contents() == ["hit", "recall"]
        page.click("#pane summary:text('What the judge was asked')")
        page.click("#pane summary:text('1. grade / verify')")
        page.wait_for_selector("#pane .text.mono")
        assert page.locator("#pane .text.mono").all_text_contents() == ["Is the claim in the context?", "It is not."]


def test_methods_are_tabs_and_stand_side_by_side(browser: Browser, report: Path) -> None:
    with clean_page(browser, report, "#v=1&case=q03/base/1") as opened:
        case_open(opened)
        page = opened.page
        page.click("#pane .tabs button:text('new')")
        wait_until(page, "document.querySelector('#pane h3').textContent === 'q03/new/1'")
        assert "The fee is ten" not in page.inner_text("#pane .text >> nth=0")
        page.click("#pane button:text('side by side')")
        page.wait_for_selector("#pane .columns")
        assert page.locator("#pane .columns h3").all_text_contents() == ["base", "new"]
        assert page.locator("#pane .scores thead th").all_text_contents() == ["score", "base", "new"]
        assert opened.address() == page_address(case="q03/new/1", tab="all")


def test_back_closes_a_case_and_a_section_link_keeps_the_list(shown: OpenPage) -> None:
    page = shown.page
    page.select_option("#verdict", "miss")
    page.click("#list [role=option]:nth-child(3)")
    wait_until(page, "document.querySelector('#pane h3').textContent !== 'q00/base/1'")
    name = case_open(shown)
    page.click("nav a >> nth=0")
    assert page.text_content("#pane h3") == name
    page.go_back()
    wait_until(page, "document.querySelector('#pane h3').textContent === 'q00/base/1'")  # the first of the list
    assert (shown.count(), shown.address()) == ("16 of 40", "#v=1&verdict=miss")
    page.go_forward()
    wait_until(page, f"document.querySelector('#pane h3').textContent === {name!r}")


@pytest.mark.parametrize(
    ("fragment", "heading"), [("case=q07/new/1", "q07/new/1"), ("case=q07/1", "q07/base/1"), ("case=q07", "q07/base/1")]
)
def test_a_link_opens_the_same_case_after_the_data_has_grown(browser: Browser, report: Path, tmp_path, fragment: str, heading: str) -> None:
    more = [row(n, method) for n in (31, 30) for method in ANSWERS]
    grown = written(tmp_path / "run", [*more, *ROWS])
    for file, count in ((report, "40 of 40"), (grown, "44 of 44")):
        with clean_page(browser, file, f"#v=1&{fragment}") as opened:
            assert case_open(opened) == heading
            assert opened.page.text_content("#pane .question") == "Question number 7?"
            assert opened.count() == count


def test_an_unknown_case_is_named_with_the_nearest(browser: Browser, report: Path) -> None:
    with clean_page(browser, report, "#v=1&case=q1x/base/1") as opened:
        assert "no such case" in opened.pane()
        assert opened.page.locator("#pane li").all_text_contents() == ["q10/new/1", "q11/new/1", "q12/new/1"]
        opened.page.click("#pane li:nth-child(2) a")
        assert case_open(opened) == "q11/new/1"


def test_a_run_of_one_method_names_no_method_and_repeats_are_linked(browser: Browser, tmp_path: Path) -> None:
    file = written(tmp_path / "run", [row(n, "base", repeat=r) for n in range(3) for r in (1, 2)])
    with clean_page(browser, file, "#v=1&case=q01/base/2") as opened:
        assert case_open(opened) == "q01/2"
        assert not opened.page.locator("#methods, #only").count()
        assert opened.shown() == ["q00/1", "q01/1", "q02/1"], "repeats share a row"
        assert (opened.count(), opened.page.text_content("#count-of")) == ("6 of 6", "cases, 2 repeats")
        opened.page.click("#pane a.button:text-is('1')")
        wait_until(opened.page, "document.querySelector('#pane h3').textContent === 'q01/1'")


# --- widths, colours, paper, no script


@pytest.mark.parametrize("width", [320, 390, 768, 1440])
def test_no_width_scrolls_sideways(browser: Browser, report: Path, width: int) -> None:
    with clean_page(browser, report, "#v=1&verdict=miss", width=width) as opened:
        assert opened.sideways() <= 0
        opened.page.click("#list [role=option]:nth-child(2)")
        case_open(opened)
        assert opened.sideways() <= 0
        opened.page.click("#pane button:text('side by side')")
        opened.page.wait_for_selector("#pane .columns")
        assert opened.sideways() <= 0
        if width < 760:  # a case is a page of its own
            for part in ("#list", "nav", ".front >> nth=0"):
                assert not opened.page.is_visible(part), part
            opened.page.click("#pane button >> nth=0")
            assert opened.page.is_visible("#list")


def test_without_a_script_the_worst_cases_and_all_methods_stand_there(browser: Browser, report: Path) -> None:
    with open_page(browser, java_script_enabled=False) as opened:
        opened.page.goto(report.as_uri())
        assert opened.page.locator("#worst article").count() == 20
        assert opened.page.text_content("#worst article h3 >> nth=0") == "q00/base/1"
        assert not opened.page.is_visible("#live")
    with open_page(browser, java_script_enabled=False) as opened:
        opened.page.goto(report.as_uri())
        assert opened.page.locator("#spread .histogram >> nth=0 >> p.of:visible").count() == 2
        assert opened.page.locator("#methods:disabled").count() == 1


def test_a_broken_block_is_named_and_the_list_lives(browser: Browser, report: Path, tmp_path: Path) -> None:
    broken = base64.b64encode(gzip.compress(b"[1, 2")).decode()
    file = tmp_path / "broken.html"
    file.write_text(re.sub(r'(id="block-d0">)[^<]*', rf"\g<1>{broken}", report.read_text(encoding="utf-8")))
    with clean_page(browser, file, "#v=1&case=q03/base/1") as opened:
        opened.page.wait_for_selector("#pane .banner")
        assert "block d0 of the page is broken" in opened.pane()
        assert opened.count() == "40 of 40"


# --- what data, systems and judges say


HOSTILE = {**{str(n): attack for n, attack in enumerate(ATTACKS)}, "rtl": "\u05d0\u05d1\u05d2 \u202eevil\u202c " * 5}


@pytest.mark.parametrize("attack", HOSTILE.values(), ids=HOSTILE)
def test_hostile_texts_stay_text(browser: Browser, tmp_path: Path, attack: str) -> None:
    file = pages_of(write(tmp_path / "run", attack))
    with clean_page(browser, file) as opened:
        opened.page.keyboard.press("Enter")
        case_open(opened)
        assert opened.page.text_content("#pane .question") == printable(attack)
        for summary in opened.page.locator("#pane summary").all():
            summary.click()
        assert opened.page.locator("#pane img, #pane svg, #pane script, a[href^=javascript]").count() == 0
        assert not opened.page.evaluate("window.pwned")
        opened.page.reload()
        case_open(opened)  # its name made the way through the address
        assert opened.sideways() <= 0


def test_a_case_beyond_those_in_full_says_how_to_see_it(browser: Browser, tmp_path: Path) -> None:
    """Room for two cases: the worst question has them. The list, its filters and the search have all."""
    root = tmp_path / "run"
    write_run(root, ROWS)
    score(root, SPECS, SCORING)
    run, metrics = RunFolder(root), json.loads((root / "iteration-1" / "metrics.json").read_text())
    write_run_page(root / "report.html", report_of(), RunCases(run, run.iteration(1), metrics, "me", in_full=2))
    with clean_page(browser, root / "report.html") as opened:
        assert (case_open(opened), opened.count()) == ("q00/base/1", "40 of 40")
        assert opened.page.locator("#pane .chunk").count() == 2
        opened.page.fill("#q", "twelve")
        assert opened.count() == "20 of 40"
        opened.page.evaluate("location.hash = '#v=1&case=q19/new/1'")
        opened.page.wait_for_selector("#pane .banner")
        assert opened.page.text_content("#pane .question") == "Question number 19?"
        assert opened.page.locator("#pane .mono").all_text_contents() == [
            "python -m ragpipe task=rescore run=me report.page_cases=null",
            "python -m ragpipe task=explain run=. case=q19 method=new metric=METRIC messages=true",
        ]  # fmt: skip


def test_prompts_that_are_not_on_the_page_have_a_command(browser: Browser, tmp_path: Path) -> None:
    root = tmp_path / "run"
    calls = [{**CALL, "sample_id": f"q{n:02}", "method": "base", "messages": json.dumps([{"role": "user", "content": "x" * 9000}])} for n in range(9)]  # fmt: skip
    write_run(root, [row(n, "base") for n in range(9)], calls)
    score(root, SPECS, SCORING)
    run, metrics = RunFolder(root), json.loads((root / "iteration-1" / "metrics.json").read_text())
    write_run_page(root / "report.html", report_of(), RunCases(run, run.iteration(1), metrics, "me", prompts_mb=0))
    with clean_page(browser, root / "report.html", "#v=1&case=q03/1") as opened:
        case_open(opened)
        assert "prompts and replies of the 0 worst of 9" in str(opened.page.text_content("#cases-title"))
        opened.page.click("#pane summary:text('What the judge was asked')")
        opened.page.click("#pane summary:text('1. grade / verify')")
        command = opened.page.text_content("#pane .mono.text")
        assert command == "python -m ragpipe task=explain run=. case=q03 method=base metric=grade messages=true"


@pytest.mark.skipif(AXE is None, reason="needs axe-playwright-python, of the extra dev-browser")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_axe_finds_nothing(browser: Browser, report: Path, scheme: str, width: int) -> None:
    with open_page(browser, width=width, color_scheme=scheme) as opened:
        opened.open(report)
        assert axe_violations(opened.page) == []
        opened.page.evaluate("location.hash = '#v=1&case=q03/base/1'")
        case_open(opened)
        for summary in opened.page.locator("#pane summary").all():
            summary.click()
        assert axe_violations(opened.page) == []


def test_marks_of_charts_filter_the_list(shown: OpenPage) -> None:
    """The first bar with a count and the cell of a slice: the list has as many cases as the mark says."""
    page = shown.page
    bar = page.locator("#spread .histogram a").first
    cases = str(bar.get_attribute("aria-label")).split()[0]
    bar.click()
    assert "from=" in shown.address()
    assert shown.count() == f"{cases} of 40"
    page.click("#slices .heat td a >> nth=0")
    assert "method=base" in shown.address()
    assert "slice=category:" in shown.address()
    assert shown.count() == "10 of 40"
    page.click("#methods label >> nth=0")
    page.click("#better .lanes th a >> nth=1")
    assert "method=new" in shown.address()


def test_one_method_is_chosen_for_charts_tables_and_cases_by_key_link_and_filter(shown: OpenPage) -> None:
    """Of two methods the other one is out of sight, but for the row of the first one that the chosen one is held against."""
    page = shown.page
    rows, bars = page.locator("#better .lanes >> nth=0 >> tbody tr:visible"), page.locator("#spread .histogram >> nth=0 >> p.of:visible")
    assert (rows.count(), bars.count(), shown.count()) == (2, 2, "40 of 40")
    page.focus("#methods input:checked")
    page.keyboard.press("ArrowRight")  # the first method
    assert (rows.count(), bars.count(), shown.count()) == (1, 1, "20 of 40")
    assert "base" in str(bars.text_content())
    page.keyboard.press("ArrowRight")
    assert (rows.count(), bars.count(), shown.address()) == (2, 1, "#v=1&method=new")
    assert "new" in str(bars.text_content())
    page.evaluate("location.hash = '#v=1'")
    wait_until(page, "document.querySelector('#methods input').checked")
    assert bars.count() == 2
    page.evaluate("location.hash = '#v=1&method=base'")
    wait_until(page, "document.querySelector('#methods input:checked').value === 'base'")
    assert bars.count() == 1
