"""The browser of the tests of pages, and one run of the demonstration set whose cases are labelled."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ragpipe.cli.command_line import main
from tests.slow.report.conftest import browser

__all__ = ["browser"]


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
