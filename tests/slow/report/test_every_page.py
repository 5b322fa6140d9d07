"""Every page that a command writes, in Chromium."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.slow.report.conftest import PAGES, READY
from tests.support.playwright_pages import AXE, axe_violations, open_page, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser


@pytest.mark.skipif(AXE is None, reason="needs axe-playwright-python, of the extra dev-browser")
@pytest.mark.parametrize("width", [390, 768, 1440])
@pytest.mark.parametrize("name", PAGES)
def test_chromium_finds_nothing_to_object_to(browser: Browser, pages: dict[str, Path], name: str, width: int) -> None:
    for scheme in ("light", "dark"):
        with open_page(browser, width=width, color_scheme=scheme) as opened:
            opened.page.goto(pages[name].as_uri())
            wait_until(opened.page, READY)
            assert (axe_violations(opened.page), opened.sideways(), opened.faults) == ([], 0, [])
