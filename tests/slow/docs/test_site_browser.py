"""The site in a real browser, from a server on this machine and from disk: search, a phone, dark, and axe-core's rules."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.playwright_pages import AXE, CHROMIUM, axe_violations, chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser
ACCEPTED = {"empty-table-header"}
"""Minor: a table of Markdown whose first column needs no title."""
FIRST = {
    "CI": "ci.html",
    "resume": "resuming.html",
    "kill": "resuming.html",
    "compare": "comparing.html",
    "rejudge": "rejudging.html",
    "calibrate": "calibrating.html",
    "own metric": "adding-a-metric.html",
    "gate": "gates.html",
    "csv": "datasets.html",
    "label": "labelling.html",
}
"""What somebody looks for, and the page about it."""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    pytest.importorskip("playwright", reason="needs the extra dev-browser")
    with chromium() as launched:
        yield launched


@pytest.fixture(scope="module")
def served(site: Path) -> Iterator[str]:
    """The address of the site, from a server on a free port of this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def search(page: Page, words: str) -> list[str]:
    """Types into the search field, by key, and gives the addresses of what is found."""
    page.keyboard.press("/")
    page.keyboard.type(words)
    page.wait_for_selector(".md-search-result__link")
    return found_by(page)


def found_by(page: Page) -> list[str]:
    """The addresses of what is found now, the first one first."""
    return page.locator(".md-search-result__link").evaluate_all("all => all.map(link => link.getAttribute('href'))")


@pytest.mark.parametrize("origin", ["server", "disk"])
def test_search_finds_a_page_and_opens_it(browser: Browser, site: Path, served: str, origin: str) -> None:
    requests: list[str] = []
    start = served if origin == "server" else (site / "index.html").as_uri()
    page = browser.new_page()
    page.on("request", lambda request: requests.append(request.url))
    page.goto(start)
    found = search(page, "max_drop")
    assert any("gates.html" in address for address in found)
    page.locator(".md-search-result__link[href*='gates.html']").first.click()
    page.wait_for_url("**/gates.html*")
    assert page.text_content("article h1") is not None
    root = served if origin == "server" else site.as_uri()
    assert [url for url in requests if not url.startswith(root)] == [], "the site asks for something else than itself"
    page.close()


def test_a_word_of_daily_use_leads_to_its_page_first(browser: Browser, served: str) -> None:
    """Not to a page that mentions it in a title, nor to one that begins alike (citations for CI)."""
    page, first = browser.new_page(), {}
    for words in FIRST:
        page.goto(served)
        page.keyboard.press("/")
        page.keyboard.insert_text(words)  # at once, so that nothing is found by a part of them
        page.keyboard.press("Shift")
        page.wait_for_selector(".md-search-result__link")
        first[words] = found_by(page)[0].rpartition("/")[2].partition("?")[0].partition("#")[0]
    page.close()
    assert first == FIRST


def test_the_commands_of_the_first_page_fit_into_a_small_laptop(browser: Browser, served: str) -> None:
    page = browser.new_page(viewport={"width": 1366, "height": 768})
    page.goto(served)
    page.wait_for_selector("article h1")
    cut = page.locator("article .highlight > pre > code").evaluate_all(
        "all => all.filter(code => code.scrollWidth > code.clientWidth + 1).map(code => code.textContent)"
    )
    assert [text for text in cut if text.startswith(("python -m", "git clone"))] == []
    page.close()


@pytest.mark.parametrize(
    "name", ["index.html", "tutorial.html", "all-pages.html", "gates.html", "metrics.html", "configuration.html"]
)
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "light"), (390, "dark"), (1280, "dark")])
def test_a_page_fits_and_breaks_no_rule_of_axe(
    browser: Browser, served: str, name: str, width: int, scheme: str
) -> None:
    profile = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
    page = profile.new_page()
    page.goto(served + name)
    page.wait_for_selector("article h1")
    page.wait_for_timeout(300)
    assert page.evaluate("document.body.dataset.mdColorScheme") == ("slate" if scheme == "dark" else "default")
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0
    if AXE:
        assert [found for found in axe_violations(page) if found[0] not in ACCEPTED] == []
    profile.close()


def test_without_a_script_every_page_can_still_be_read(browser: Browser, served: str) -> None:
    profile = browser.new_context(java_script_enabled=False)
    page = profile.new_page()
    page.goto(served)
    page.locator("article a[href='tutorial.html']").first.click()
    assert page.url == served + "tutorial.html"
    assert page.locator("article h1").is_visible()
    profile.close()
