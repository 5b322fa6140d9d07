"""report.html of a run with many scores, and pages whose cases lie in files beside them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ragpipe.core.sample import Chunk
from ragpipe.core.score import ScoreSpec
from ragpipe.report.page_file import SideFolder
from ragpipe.score.settings import ScoringSettings
from tests.slow.report.conftest import NEW, OLD, rows_of
from tests.slow.report.test_report_browser import case_open, pages_of
from tests.support.compared_runs import scored_run
from tests.support.playwright_pages import OpenPage, clean_page, open_page, wait_until
from tests.support.run_tables import Row, score, write_run
from tests.unit.report.test_compare_page import page_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser
METHODS = ("baseline", "rerank", "no_rerank_small_k")
NAMES = [f"measured_score_{n:02}" for n in range(47)]
HEADLINE = NAMES[:4]

SETTINGS = ScoringSettings.model_validate({
    "weights": dict.fromkeys(HEADLINE, 0.25), "thresholds": dict.fromkeys(NAMES[::2], 0.5), "fill_defaults": False,
    "gates": {f"gate_number_{n}": {"score": name, "of": "mean", "min": 0.2 + n / 5, "by": "interval"} for n, name in enumerate(HEADLINE)},
    "accept_uncalibrated": True, "slices": ["category", "subcategory"],
})  # fmt: skip
"""Four scores with weights and gates; every second score has a threshold."""


def run_of(root: Path) -> Path:
    """40 questions, three methods, two fields of six values each; question 0 fails every score of every method."""
    draw = random.Random(7)
    rows = []
    for n in range(40):
        labels = {"question": f"Question number {n}, of some length?", "category": f"category_{n % 6}", "subcategory": f"kind_{n % 5}"}
        for place, method in enumerate(METHODS):
            values = {name: 0.0 if n == 0 else min(1.0, draw.random() * 0.8 + place / 10) for name in NAMES}
            details = {name: {"note": "a detail"} for name in values}
            chunks = [Chunk(id=f"{method}-{c}", rank=c, text=f"Text {c}.") for c in range(1, 6)]
            rows.append(Row(f"q{n:02}", method, values, labels, {"answer": f"Answer of {method}.", "chunks": chunks}, details))
    write_run(root, rows, group=200)
    score(root, [ScoreSpec(name) for name in NAMES], SETTINGS)
    return pages_of(root)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_of(tmp_path_factory.mktemp("run"))


@pytest.fixture
def shown(browser: Browser, page: Path) -> Iterator[OpenPage]:
    with clean_page(browser, page) as opened:
        yield opened


def test_a_case_of_many_scores_opens_what_failed_and_folds_the_rest(shown: OpenPage) -> None:
    shown.page.evaluate("location.hash = '#v=1&case=q20/rerank/1'")
    case_open(shown)
    open_rows = shown.page.locator("#pane table.scores >> nth=0").locator("tbody th[scope=row]").all_text_contents()
    folds = shown.page.locator("#pane details.fold > summary", has_text="(")
    groups = [text for text in folds.all_text_contents() if text.startswith(("Passed", "Without a verdict"))]
    failed = shown.page.locator("#pane table.scores >> nth=0").locator("tbody tr:has(.badge.bad)").count()
    folded = sum(int(text.split("(")[1].rstrip(")")) for text in groups)
    assert failed > 5
    assert shown.page.locator("#pane table.scores >> nth=0").locator("tbody tr:nth-child(-n+5) .note").count() == 5, (
        "their parts stand open"
    )
    assert len(open_rows) + folded == len(NAMES) + 1, "the overall score too"
    shown.page.click("#pane summary:has-text('Without a verdict')")
    shown.page.wait_for_selector("#pane [aria-label='without a verdict']")
    rows = shown.page.locator("#pane [aria-label='without a verdict'] tbody th[scope=row]").all_text_contents()
    assert set(rows) <= set(NAMES[1::2]), "those without a threshold"


def test_what_is_folded_comes_when_it_is_opened_and_links_open_it(shown: OpenPage) -> None:
    page = shown.page
    assert page.locator("#scores table").count() == 0
    page.click("#scores summary")
    page.wait_for_selector("#scores table")
    assert page.locator("#scores tbody tr").count() >= len(HEADLINE)
    page.click("#scores summary")
    page.click("#scores summary")
    assert page.locator("#scores table").count() == 1, "once, however often it is opened"
    assert not page.is_visible("#coverage table")
    page.click("nav a[href='#details']")
    assert page.evaluate("document.activeElement.closest('section').id") == "details"
    page.click("#coverage summary")
    page.wait_for_selector("#coverage table")


def test_texts_with_little_in_common_get_no_word_diff(browser: Browser, tmp_path: Path) -> None:
    answers = {
        "q0": ("The fee is ten euros.", "The fee is twelve euros."),
        "q1": ("The fee is ten euros.", "Nobody has ever heard about anything like that here before."),
    }
    rows = [Row(sample, method, {"grade": 0.5}, output={"answer": text}) for sample, texts in answers.items() for method, text in zip("ab", texts, strict=True)]  # fmt: skip
    write_run(tmp_path / "run", rows)
    score(tmp_path / "run", [ScoreSpec("grade")])
    with clean_page(browser, pages_of(tmp_path / "run"), "#v=1&case=q0/b/1&diff=on") as opened:
        opened.page.wait_for_selector("#pane ins")
        assert opened.page.locator("#pane ins").all_text_contents() == ["twelve"]
        opened.page.evaluate("location.hash = '#v=1&case=q1/b/1&diff=on'")
        opened.page.wait_for_selector("#pane >> text=too different for a word diff")
        assert opened.page.locator("#pane ins, #pane del").count() == 0


@pytest.fixture
def divided(tmp_path: Path) -> Path:
    """The comparison of 30 cases with all but its list beside it."""
    base = scored_run(tmp_path / "a", rows_of(0.0, OLD, "old"))
    new = scored_run(tmp_path / "b", rows_of(-0.1, NEW, "new"), run_id="000000000002")
    folder = tmp_path / "compare.data"
    folder.mkdir()
    side = SideFolder(folder.name, lambda name, content: (folder / name).write_bytes(content) and None, limit=0)
    (tmp_path / "compare.html").write_text(page_of(base, new, side=side), encoding="utf-8")
    return tmp_path / "compare.html"


@pytest.fixture
def shown_beside(browser: Browser) -> Iterator[OpenPage]:
    """At the end the page has asked for nothing outside its folder, and nothing was refused."""
    with open_page(browser) as opened:
        yield opened
        assert opened.faults == []


def loads(shown_beside: OpenPage) -> list[str]:
    requests: list[str] = []
    shown_beside.page.on("request", lambda request: requests.append(request.url.rpartition("/")[2].partition("-")[0]))
    return requests


def test_a_case_loads_its_file_once_and_the_search_its_text(shown_beside: OpenPage, divided: Path) -> None:
    requests = loads(shown_beside)
    shown_beside.open(divided)
    shown_beside.page.wait_for_selector("#pane ins")
    assert "twelve" in shown_beside.pane()
    assert sorted(requests) == ["compare.html", "d0", "t0", "text"]
    shown_beside.page.focus("#list")
    shown_beside.page.keyboard.press("Enter")
    shown_beside.page.keyboard.press("j")
    wait_until(shown_beside.page, "document.querySelector('#pane h3').textContent !== 'q16/1'")
    assert len(requests) == 4
    shown_beside.page.fill("#q", "number 12")
    assert shown_beside.shown() == ["q12/1"]


def test_without_the_folder_the_list_lives_and_the_pane_names_the_file(browser: Browser, divided: Path) -> None:
    (file,) = divided.parent.glob("compare.data/d0-*.js")
    (text,) = divided.parent.glob("compare.data/text-*.js")
    divided.with_suffix(".data").rename(divided.parent / "elsewhere")
    with open_page(browser) as opened:
        opened.open(divided)
        assert opened.count() == "30 of 30"
        assert f"compare.data/{text.name} is missing beside the page" in str(opened.page.text_content("#message"))
        opened.page.focus("#list")
        opened.page.keyboard.press("Enter")
        opened.page.wait_for_selector("#pane .banner")
        assert f"compare.data/{file.name} is missing beside the page: keep the folder compare.data with it" in opened.pane()
        opened.page.select_option("#flip", "to_failed")
        assert opened.count() == "2 of 30"
        assert all("ERR_FILE_NOT_FOUND" in fault for fault in opened.faults)
        (divided.parent / "elsewhere").rename(divided.with_suffix(".data"))
        opened.page.keyboard.press("Escape")
        opened.page.click("#list [role=option]:nth-child(2)")
        opened.page.wait_for_selector("#pane ins")  # the file is asked for again


@pytest.mark.parametrize("content", ["ragpipeBlock(", "", 'ragpipeBlock("d9","AAAA");'])
def test_a_damaged_file_is_named(browser: Browser, divided: Path, content: str) -> None:
    (file,) = divided.parent.glob("compare.data/d0-*.js")
    file.write_text(content)
    with open_page(browser) as opened:
        opened.open(divided, "#v=1&case=q12/1")
        opened.page.wait_for_selector("#pane .banner")
        assert f"compare.data/{file.name} beside the page is damaged" in opened.pane()
        assert opened.count() == "30 of 30"


def test_the_policy_lets_no_other_script_in(browser: Browser, divided: Path) -> None:
    """A script's name is refused outside the policy, and the policy refuses what the page does not name."""
    with open_page(browser) as opened:
        opened.open(divided)
        errors = opened.page.evaluate(
            """() => {
              const attempt = (run) => { try { run(); return ""; } catch (error) { return error.name; } };
              return [
                attempt(() => { document.createElement("script").src = "compare.data/other.js"; }),
                attempt(() => { trustedTypes.createPolicy("another", { createScriptURL: (text) => text }); }),
                attempt(() => { trustedTypes.createPolicy("ragpipe-side-files", { createScriptURL: (text) => text }); }),
                attempt(() => { document.body.innerHTML = "<img src=x>"; }),
              ];
            }"""
        )
        assert errors == ["TypeError"] * 4
