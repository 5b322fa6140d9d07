"""Takes docs/report.png, the first screen of the quickstart's report.html: `python docs/picture.py` (needs Chromium and the extra dev-browser).

The run is started as the README says, in an empty folder. The browser is the one of the tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
WORDS = ("+experiment=quickstart",)
WIDTH, HEIGHT = 1280, 860
"""Pixels of the picture."""


def report_of_quickstart(folder: Path) -> Path:
    """report.html of the quickstart, run in an empty folder."""
    env = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    command = [sys.executable, "-m", "ragpipe", *WORDS]
    subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True)
    return folder / "outputs" / "quickstart" / "latest" / "report.html"


def take(report: Path, picture: Path) -> list[str]:
    """Write the first screen of a report as PNG, in its light colours; gives what the page did that it should not do."""
    from tests.support.playwright_pages import chromium, open_page

    with (
        chromium() as browser,
        open_page(browser, width=WIDTH, height=HEIGHT, color_scheme="light", reduced_motion="reduce") as opened,
    ):
        opened.page.goto(report.as_uri())
        opened.page.wait_for_selector("html[data-ready=all]", state="attached")  # all cases are decoded and drawn
        opened.page.screenshot(path=picture)
        return opened.faults


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    with tempfile.TemporaryDirectory() as made:
        if faults := take(report_of_quickstart(Path(made)), HERE / "report.png"):
            sys.exit("\n".join(faults))
