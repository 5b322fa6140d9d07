"""Every page that a command writes, in Chromium, and at night in the Firefox of the machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.slow.report.conftest import PAGES, READY
from tests.support.firefox_pages import FIREFOX, firefox
from tests.support.playwright_pages import AXE, axe_violations, open_page, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser
needs_axe = pytest.mark.skipif(AXE is None, reason="needs axe-playwright-python, of the extra dev-browser")


@needs_axe
@pytest.mark.parametrize("width", [390, 768, 1440])
@pytest.mark.parametrize("name", PAGES)
def test_chromium_finds_nothing_to_object_to(browser: Browser, pages: dict[str, Path], name: str, width: int) -> None:
    for scheme in ("light", "dark"):
        with open_page(browser, width=width, color_scheme=scheme) as opened:
            opened.page.goto(pages[name].as_uri())
            wait_until(opened.page, READY)
            assert (axe_violations(opened.page), opened.sideways(), opened.faults) == ([], 0, [])


AXE_RUN = "axe.run(document, {resultTypes: ['violations']}).then(r => r.violations.map(v => [v.id, v.nodes[0].html]))"


@pytest.mark.thorough
@pytest.mark.skipif(FIREFOX is None, reason="no Firefox is installed")
@needs_axe
@pytest.mark.parametrize("name", PAGES)
def test_firefox_shows_it_too(pages: dict[str, Path], name: str) -> None:
    assert AXE is not None
    with firefox() as page:
        for width in (390, 1440):
            page.resize(width, 900)
            page.open(pages[name], READY)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert [address for address in page.requests if not address.startswith(("file:", "data:"))] == []
            page.load(AXE.read_text(encoding="utf-8"))
            assert page.evaluate(AXE_RUN) == []
        assert page.faults == []
