"""docs/walkthrough.md, from the first command to the last: what it shows is what happens, with its labels given in a real browser."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ragpipe.cli import main
from tests.support.pages import ROOT, commands, missing, sections
from tests.support.playwright_pages import open_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

UNSUPPORTED = {"unsupported_claim", "hallucinated_unanswerable"}
KEYS = {"all": "1", "partly": "2"}


def labels_by_answer() -> dict[tuple[str, str], str]:
    """The label of each question and answer of the demonstration set: partly where an unsupported claim was planted."""
    grades: dict[tuple[str, str], str] = {}
    for line in (ROOT / "ragpipe" / "data" / "demo" / "cases.jsonl").read_text(encoding="utf-8").splitlines():
        sample = json.loads(line)
        for output in sample["outputs"]:
            kinds = sample["meta"].get("planted", {}).get(output["method"], [])
            grade = "partly" if UNSUPPORTED & set(kinds) else "all"
            grades[_words(sample["question"]), _words(output.get("answer") or "")] = grade
    return grades


def _words(text: str) -> str:
    return " ".join(text.split())


def label_in_the_browser(browser: Browser, folder: Path, target: Path) -> int:
    """Label every case that the page asks for, by keys and by clicks in turn, and save the file. Returns their number."""
    (page_file,) = folder.glob("labels/*/label.html")
    grades, number = labels_by_answer(), 0
    with open_page(browser) as opened:
        page = opened.page
        page.goto(page_file.as_uri())
        page.wait_for_selector("#who:not([hidden])")
        page.keyboard.type("ann")
        page.keyboard.press("Enter")
        page.wait_for_selector("#case:not([hidden])")
        while not page.is_visible("#done"):
            question, answer = page.locator("#left > p.text").all_inner_texts()
            grade = grades[_words(question), _words(answer)]
            if number % 2:
                page.keyboard.press(KEYS[grade])
            else:
                page.locator("#grades button", has_text=grade).click()
            number += 1
        with page.expect_download() as download:
            page.keyboard.press("s")
        download.value.save_as(target)
        assert opened.faults == []
    return number


@pytest.mark.timeout(300)
def test_from_a_change_to_a_decision(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    printed = ""
    for step in (step for section in sections("walkthrough.md") for step in section.steps):
        if step.kind == "shows":
            assert missing(step.text, printed) is None, printed
            continue
        assert step.kind == "commands"
        lines = commands(step.text)
        assert lines
        if "label.import" in step.text:
            run = (tmp_path / "outputs" / "judged" / "latest").resolve()
            assert label_in_the_browser(browser, run, tmp_path / "labels.jsonl") >= 60
        capfd.readouterr()
        for line in lines:
            words = shlex.split(line)
            assert words[:3] == ["python", "-m", "ragpipe"], line
            blocked = "exit code 3" in next(raw for raw in step.text.splitlines() if raw.startswith(line))
            assert main(words[3:]) == (3 if blocked else 0), capfd.readouterr().err
        printed = "".join(capfd.readouterr())
