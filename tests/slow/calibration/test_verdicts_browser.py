"""A verdict on report.html in a real browser: saved, imported, left out of the calibration, and labelled again blind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from ragpipe.cli.command_line import main
from ragpipe.report.page_file import page_address
from ragpipe.report.settings import ReportSettings
from ragpipe.runs.write_reports import write_report_files
from ragpipe.store.run_folder import RunFolder
from tests.support.playwright_pages import OpenPage, open_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser


def give(opened: OpenPage, word: str) -> None:
    """Give a verdict on the open case."""
    form = opened.page.locator("#human")
    if form.get_attribute("open") is None:
        form.locator("summary").click()
    form.get_by_label("your name").fill("ann")
    form.get_by_label("note", exact=True).fill("the date is wrong <b>")
    form.get_by_role("button", name=word, exact=True).click()


def test_from_the_page_to_the_calibration(browser: Browser, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_report_files(RunFolder(run), RunFolder(run).iteration(1), ReportSettings(formats=["html"]))
    html = RunFolder(run).html
    with open_page(browser) as opened:
        opened.open(html, page_address(score="faithfulness"))
        opened.page.click("#list [role=option]:nth-child(1)")
        opened.page.wait_for_selector("#human")
        give(opened, "fail")
        opened.page.wait_for_selector("#human .badge.bad")
        with opened.page.expect_download() as download:
            opened.page.locator("#human").get_by_role("button", name="Save 1 as a file").click()
        file = tmp_path / download.value.suggested_filename
        download.value.save_as(file)
        assert opened.faults == []
    (event,) = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    assert file.name == f"verdicts-{event['run']}-ann.jsonl"
    capsys.readouterr()
    assert main(["task=label", f"run={run}", f"label.import=['{file}']"]) == 0
    assert "1 new verdict by ann" in capsys.readouterr().out
    (row,) = pq.read_table(run / "labels/verdicts.parquet").to_pylist()
    assert (row["sample_id"], row["method"], row["score"], row["passed"]) == (event["sample_id"], event["method"], "faithfulness", False)
    assert (row["note"], row["blind"]) == ("the date is wrong <b>", False)
    assert main(["task=calibrate", f"run={run}"]) == 2  # there are no other labels
    assert "not used: 1 verdict given on report.html, not blind" in capsys.readouterr().out
    assert main(["task=calibrate", f"run={run}", "calibrate.open_labels=true"]) == 0
    assert not (run / "calibration").exists()
