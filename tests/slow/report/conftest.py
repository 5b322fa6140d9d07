"""One browser for all tests of pages, one comparison of two small runs, and each page by its command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ragpipe.core.sample import Chunk
from tests.support.compared_runs import scored_run
from tests.support.harness import finish
from tests.support.playwright_pages import CHROMIUM, chromium
from tests.support.run_tables import Row
from tests.unit.report.test_compare_page import page_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser

COMMANDS = {
    "report": ["+experiment=quickstart_llm"],
    "compare": ["task=compare", "compare=methods", "run=quickstart_llm"],
    "label": ["task=label", "run=quickstart_llm", "label.metric=faithfulness"],
}
PAGES = {"report": "latest/report.html", "compare": "comparisons/*/compare.html", "label": "latest/labels/*/label.html"}
READY = "document.readyState === 'complete' && document.documentElement.dataset.ready !== 'list'"
OLD, NEW = "The fee is ten euros.", "The fee is twelve euros [1]."


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Closed after each module: Playwright's event loop would be in the way of tests that have one of their own."""
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    pytest.importorskip("playwright", reason="needs the extra dev-browser")
    with chromium() as launched:
        yield launched


def rows_of(change: float, answer: str, chunk: str) -> list[Row]:
    """30 cases in two categories with the grades .2, .22 ... .78, each moved by `change` where its number is even."""
    chunks = [Chunk(id="both", rank=1, text="A text that both have."), Chunk(id=chunk, rank=2, text=f"Text of {chunk}.")]
    return [
        Row(
            f"q{n:02}",
            "m",
            {"grade": 0.2 + n / 50 + (change if n % 2 == 0 else 0)},
            labels={"category": "fees" if n < 10 else "dates", "question": f"Question number {n}?"},
            output={"answer": answer, "chunks": chunks},
        )
        for n in range(30)
    ]


@pytest.fixture(scope="session")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison in which even cases lose .1: of q15 and on, which passed (.5), q16 and q18 no longer do."""
    folder = tmp_path_factory.mktemp("compare")
    base = scored_run(folder / "a", rows_of(0.0, OLD, "old"))
    new = scored_run(folder / "b", rows_of(-0.1, NEW, "new"), run_id="000000000002")
    file = folder / "compare.html"
    file.write_text(page_of(base, new), encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The file of each of `PAGES`."""
    folder = tmp_path_factory.mktemp("pages")
    for words in COMMANDS.values():
        code, said = finish(words, folder)
        assert code == 0, said
    return {name: next((folder / "outputs" / "quickstart_llm").glob(place)) for name, place in PAGES.items()}
