"""A page of ours in the Chromium of the machine, driven by Playwright, with everything noted that it should not do."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
"""The Chromium of the machine; browser tests are skipped without one."""
AXE = Path(spec.origin).with_name("axe.min.js") if (spec := find_spec("axe_playwright_python")) and spec.origin else None
"""axe-core, as a package of the extra `dev-browser` brings it; tests that need it are skipped without."""
_LIMIT_S = 30.0


def wait_until(page: Page, condition: str) -> None:
    """Wait until this JavaScript expression is true. Asked from outside: `wait_for_function` evaluates it in the page again and
    again, which the page's Content Security Policy refuses. Raises AssertionError after 30 s."""
    end = time.monotonic() + _LIMIT_S
    while not page.evaluate(condition):
        assert time.monotonic() < end, f"never true in {_LIMIT_S:g} s: {condition}"
        page.wait_for_timeout(20)


@dataclass
class OpenPage:
    """A page and its faults: messages of the console, exceptions, dialogs, and requests for anything but the file itself and
    what lies in its folder `<name>.data`."""

    page: Page
    faults: list[str] = field(default_factory=list)

    def open(self, file: Path, fragment: str = "") -> None:
        self.page.goto(file.as_uri() + fragment)
        self.page.wait_for_selector("html[data-ready=all]", state="attached")

    def count(self) -> str:
        return str(self.page.text_content("#count"))

    def shown(self) -> list[str]:
        return self.page.locator("#list [role=option] .name").all_text_contents()

    def address(self) -> str:
        """The fragment of the address, after what follows typing by 150 ms."""
        self.page.wait_for_timeout(200)
        return str(self.page.evaluate("location.hash"))

    def pane(self) -> str:
        return str(self.page.text_content("#pane"))

    def sideways(self) -> int:
        """How many pixels the page is wider than its window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - innerWidth"))


@contextmanager
def chromium() -> Iterator[Browser]:
    """The machine's Chromium; its sandbox needs another user than root."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def open_page(browser: Browser, *, width: int = 1440, height: int = 900, **context: Any) -> Iterator[OpenPage]:
    """A page in a profile of its own. `context` are options of Playwright's `new_context`."""
    profile = browser.new_context(viewport={"width": width, "height": height}, **context)
    opened = OpenPage(profile.new_page())
    page, faults = opened.page, opened.faults
    page.on("console", lambda message: faults.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: faults.append(f"exception: {error}"))
    page.on("dialog", lambda dialog: faults.append(f"dialog: {dialog.message}"))
    page.on("request", lambda request: None if _is_own(request) else faults.append(f"request: {request.url}"))
    try:
        yield opened
    finally:
        profile.close()


@contextmanager
def clean_page(browser: Browser, file: Path, fragment: str = "", **context: Any) -> Iterator[OpenPage]:
    """The page of a file, which has done nothing that it should not when it is left."""
    with open_page(browser, **context) as opened:
        opened.open(file, fragment)
        yield opened
        assert opened.faults == []


def _is_own(request: Request) -> bool:
    """Whether a request is for the page itself, or for a file in the folder beside it."""
    folder = request.frame.url.partition("#")[0].removesuffix(".html") + ".data/"
    return request.is_navigation_request() or request.url.startswith(folder)


def axe_violations(page: Page) -> list[tuple[str, int, str]]:
    """What axe-core finds wrong: (rule, elements, the first one)."""
    assert AXE
    page.evaluate(AXE.read_text(encoding="utf-8"))
    result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [(v["id"], len(v["nodes"]), v["nodes"][0]["html"][:200]) for v in result["violations"]]
