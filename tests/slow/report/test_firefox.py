"""Every page that a command writes, in the Firefox of the machine: at night. Apart from Chromium, whose loop runs as long as a module."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slow.report.conftest import PAGES, READY
from tests.support.firefox_pages import FIREFOX, firefox
from tests.support.playwright_pages import AXE

pytestmark = pytest.mark.browser
AXE_RUN = "axe.run(document, {resultTypes: ['violations']}).then(r => r.violations.map(v => [v.id, v.nodes[0].html]))"


@pytest.mark.thorough
@pytest.mark.skipif(FIREFOX is None, reason="no Firefox is installed")
@pytest.mark.skipif(AXE is None, reason="needs axe-playwright-python, of the extra dev-browser")
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
