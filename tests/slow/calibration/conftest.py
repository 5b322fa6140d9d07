"""One browser for all tests of the page, and one run of the demonstration set whose cases are labelled."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ragpipe.cli.command_line import main
from tests.support.playwright_pages import CHROMIUM, chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    pytest.importorskip("playwright", reason="needs the extra dev-browser")
    with chromium() as launched:
        yield launched


@pytest.fixture(scope="package")
def demonstration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("demonstration")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(here)
        assert main(["+experiment=quickstart", "report.formats=[markdown]"]) in (0, 3)
        run = (here / "outputs" / "quickstart" / "latest").resolve()
        assert main(["task=label", f"run={run}", "label.metric=faithfulness"]) == 0
    return run


@pytest.fixture
def run(demonstration: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(demonstration, tmp_path / "run"))
