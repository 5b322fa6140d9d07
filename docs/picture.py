"""Takes the pictures of the front pages, docs/report.png and docs/report-dark.png: the first screen of the demonstration's report.html.

`python docs/picture.py` needs Chromium and the extra dev-browser. The browser is the one of the tests.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Literal

HERE = Path(__file__).resolve().parent
WIDTH, HEIGHT = 1280, 860
"""Pixels of a picture; docs/overrides/home.html names them too."""


def take(report: Path, picture: Path, scheme: Literal["light", "dark"]) -> list[str]:
    """Write the first screen of a report as PNG; gives what the page did that it should not do."""
    from tests.support.playwright_pages import chromium, open_page

    with (
        chromium() as browser,
        open_page(browser, width=WIDTH, height=HEIGHT, color_scheme=scheme, reduced_motion="reduce") as opened,
    ):
        opened.page.goto(report.as_uri())
        opened.page.wait_for_selector("html[data-ready=all]", state="attached")  # all cases are decoded and drawn
        opened.page.screenshot(path=picture)
        return opened.faults


if __name__ == "__main__":
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    from hooks import demo_report

    with tempfile.TemporaryDirectory() as made:
        report = demo_report(Path(made))
        faults = take(report, HERE / "report.png", "light") + take(report, HERE / "report-dark.png", "dark")
    if faults:
        sys.exit("\n".join(faults))
