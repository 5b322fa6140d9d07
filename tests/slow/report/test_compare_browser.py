"""compare.html in a real browser: nothing leaves, every action by key, every state in the address, on every width."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ragpipe.report.page_file import page_address
from tests.support.compared_runs import scored_run
from tests.support.playwright_pages import OpenPage, clean_page
from tests.support.run_tables import Row
from tests.unit.report.test_compare_page import page_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser
EVEN = [f"q{n:02}/1" for n in range(0, 30, 2)]


@pytest.fixture
def shown(browser: Browser, comparison: Path) -> Iterator[OpenPage]:
    """The comparison, open at 1440 pixels; at the end it has done nothing that it should not."""
    with clean_page(browser, comparison) as opened:
        yield opened


def test_the_largest_drops_come_first_and_only_rows_in_sight_exist(shown: OpenPage) -> None:
    names = shown.shown()
    assert (set(names[:15]), shown.count()) == (set(EVEN), "30 of 30")
    assert shown.page.evaluate("document.querySelectorAll('*').length") < 3000
    shown.page.evaluate("document.querySelector('#list').scrollTop = 1e6")
    shown.page.wait_for_timeout(100)
    assert shown.shown()[-1] == "q29/1"
    assert shown.page.get_attribute("#list [role=option]:last-child", "aria-posinset") == "30"


def test_filters_say_what_keeps_all_out(shown: OpenPage) -> None:
    """.5 is the threshold: 15 to 29 passed; of the even ones 16 and 18 fell below. In `fees` (0 to 9) all failed before and after."""
    page = shown.page
    page.select_option("#flip", "to_failed")
    assert (shown.count(), set(shown.shown())) == ("2 of 30", {"q16/1", "q18/1"})
    page.fill("#slice", "category:fees")
    assert shown.count() == "0 of 30; without verdict 10; without slice 2"
    assert shown.address() == "#v=1&flip=to_failed&slice=category:fees"
    assert page.text_content("#filters-head") == "Filters (2)"
    page.click("#reset")
    assert (shown.count(), shown.address()) == ("30 of 30", "#v=1")
    page.select_option("#sort", "data")
    assert shown.shown()[:3] == ["q00/1", "q01/1", "q02/1"]


def test_a_mark_of_a_chart_is_a_link_to_its_cases(shown: OpenPage) -> None:
    page = shown.page
    page.click(".flips a:nth-child(2)")
    assert shown.count() == "2 of 30"
    page.click(".heat a >> nth=0")
    assert (shown.count(), page.evaluate("document.activeElement.id")) == ("10 of 30", "list")
    page.go_back()
    assert shown.count() == "2 of 30"


@pytest.mark.parametrize(
    ("fragment", "heading"), [("#v=1&case=q07/1", "q07/1"), ("#v=1&case=q07/m/1", "q07/1"), ("#v=1&case=q07", "q07/1")]
)
def test_a_link_opens_its_case(browser: Browser, comparison: Path, fragment: str, heading: str) -> None:
    with clean_page(browser, comparison, fragment) as opened:
        opened.page.wait_for_selector("#pane .text")
        assert opened.page.text_content("#pane h3") == heading
        assert opened.page.get_attribute("[aria-selected=true] ", "id")
        badges = opened.page.locator("#pane .chunk .badge").all_text_contents()
        assert badges == ["kept", "lost", "kept", "new"]


@pytest.mark.parametrize("width", [320, 390, 768, 1440])
def test_no_width_scrolls_sideways(browser: Browser, comparison: Path, width: int) -> None:
    with clean_page(browser, comparison, width=width) as opened:
        assert opened.sideways() <= 0
        opened.page.click("#list [role=option]:nth-child(2)")
        opened.page.wait_for_selector("#pane .text")
        assert opened.sideways() <= 0
        if width < 760:  # a case is a page of its own
            assert not opened.page.is_visible("#list")
            opened.page.click("#pane button >> nth=0")
            assert opened.page.is_visible("#list")


def test_what_systems_and_data_say_stays_text(browser: Browser, tmp_path: Path) -> None:
    attack = "\"></script><script>alert(1)</script><img src=x onerror=alert(1)><a href='javascript:alert(1)'>x</a>"
    rows = [Row(f"{attack}{n}", "m", {"grade": n / 9}, labels={"question": attack, "category": attack}, output={"answer": attack}) for n in range(9)]  # fmt: skip
    base = scored_run(tmp_path / "a", rows)
    new = scored_run(tmp_path / "b", rows, run_id="000000000002")
    file = tmp_path / "compare.html"
    file.write_text(page_of(base, new), encoding="utf-8")
    with clean_page(browser, file) as opened:
        opened.page.keyboard.press("j")
        opened.page.keyboard.press("Enter")
        opened.page.wait_for_selector("#pane .text")
        assert attack in opened.pane()
        assert opened.page.locator("img, a[href^=javascript]").count() == 0
        opened.page.reload()
        opened.page.wait_for_selector("#pane .text")  # its name made the way through the address


STATES = [
    {}, {"q": "a&b=c #1 100% Größe \U0001f600", "case": "dao-01/rerank/1"}, {"slice": "category:policy", "with": "a 1", "sort": "rise"},
    {"q": "!~*'()/:?@[]+,;$"},
]  # fmt: skip


@pytest.mark.parametrize("state", STATES)
def test_addresses_are_written_alike_here_and_there(shown: OpenPage, state: dict[str, str]) -> None:
    fragment = page_address(**state)
    assert shown.page.evaluate("(state) => writeAddress(state)", state) == fragment
    assert shown.page.evaluate("(text) => readAddress(text)", fragment) == state
