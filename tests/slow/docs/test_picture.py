"""The picture of the README: that of a report as a run of today gives it, small, and made by a script that still works."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from tests.support.docs_site import docs_script
from tests.support.pages import DOCS, ROOT
from tests.support.playwright_pages import CHROMIUM

BYTES = 250_000


def size_of(png: Path) -> tuple[int, int]:
    """Width and height by the header (https://www.w3.org/TR/png/#11IHDR)."""
    head = png.read_bytes()[:24]
    assert head.startswith(b"\x89PNG\r\n\x1a\n")
    assert head[12:16] == b"IHDR"
    width, height = struct.unpack(">II", head[16:24])
    return width, height


def test_the_readme_shows_one_small_picture_of_the_size_that_the_script_takes() -> None:
    picture = docs_script("picture.py")
    shown = re.findall(r"!\[([^\]]+)\]\(([^)]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert [path for _, path in shown] == ["docs/report.png"]
    assert size_of(DOCS / "report.png") == (picture.WIDTH, picture.HEIGHT)
    assert (DOCS / "report.png").stat().st_size < BYTES


@pytest.mark.browser
def test_the_picture_can_be_taken_again(tmp_path: Path) -> None:
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    pytest.importorskip("playwright", reason="needs the extra dev-browser")
    picture = docs_script("picture.py")
    report = picture.report_of_quickstart(tmp_path)
    assert picture.take(report, tmp_path / "report.png") == [], "the page asked for something, or broke"
    assert size_of(tmp_path / "report.png") == (picture.WIDTH, picture.HEIGHT)
    ratio = (tmp_path / "report.png").stat().st_size / (DOCS / "report.png").stat().st_size
    assert 0.5 < ratio < 2, (
        "the first screen has become another: run `python docs/picture.py`, and look at docs/report.png"
    )
