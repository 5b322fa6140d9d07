"""A page with files beside it in a real browser: it loads those of its own folder when a case is opened, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ragpipe.pages.side_files import SideFolder
from tests.slow.pages.conftest import NEW, OLD, rows_of
from tests.support.compared_runs import scored_run
from tests.support.playwright_pages import OpenPage, open_page, wait_until
from tests.unit.reports.test_compare_page import page_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser


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
def shown(browser: Browser) -> Iterator[OpenPage]:
    """At the end the page has asked for nothing outside its folder, and nothing was refused."""
    with open_page(browser) as opened:
        yield opened
        assert opened.faults == []


def loads(shown: OpenPage) -> list[str]:
    requests: list[str] = []
    shown.page.on("request", lambda request: requests.append(request.url.rpartition("/")[2].partition("-")[0]))
    return requests


def test_a_case_loads_its_file_once_and_the_search_its_text(shown: OpenPage, divided: Path) -> None:
    requests = loads(shown)
    shown.open(divided)
    assert requests == ["compare.html", "text"]
    shown.page.focus("#list")
    shown.page.keyboard.press("Enter")
    shown.page.wait_for_selector("#pane ins")
    assert "twelve" in shown.pane()
    assert requests[2:] == ["d0", "t0"]
    shown.page.keyboard.press("j")
    wait_until(shown.page, "document.querySelector('#pane h3').textContent !== 'q16/1'")
    assert len(requests) == 4
    shown.page.fill("#q", "number 12")
    assert shown.shown() == ["q12/1"]


def test_over_http_too(shown: OpenPage, divided: Path) -> None:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(divided.parent)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        shown.page.goto(f"http://127.0.0.1:{server.server_port}/compare.html#v=1&case=q12/1")
        shown.page.wait_for_selector("#pane ins")
        assert "Question number 12?" in shown.pane()
    finally:
        server.shutdown()
        server.server_close()


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
        assert (
            f"compare.data/{file.name} is missing beside the page: keep the folder compare.data with it"
            in opened.pane()
        )
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


def test_of_several_candidates_only_the_chosen_one_has_elements(shown: OpenPage, tmp_path: Path) -> None:
    base = scored_run(tmp_path / "a", rows_of(0.0, OLD, "old"))
    others = [
        scored_run(tmp_path / f"b{n}", rows_of(change, NEW, "new"), run_id=f"00000000000{n}")
        for n, change in ((2, -0.1), (3, 0.1))
    ]
    (tmp_path / "three.html").write_text(page_of(base, *others), encoding="utf-8")
    shown.open(tmp_path / "three.html")
    panels = shown.page.locator(".panel")
    assert panels.evaluate_all("found => found.map(panel => panel.dataset.with)") == ["test 000000000002"]
    shown.page.click("#candidates a:nth-child(2)")
    assert panels.evaluate_all("found => found.map(panel => panel.dataset.with)") == ["test 000000000003"]
    assert shown.page.evaluate("document.querySelector('.panel').nextElementSibling.id") == "cases"
    shown.page.go_back()
    assert panels.evaluate_all("found => found.map(panel => panel.dataset.with)") == ["test 000000000002"]
