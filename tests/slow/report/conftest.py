"""One browser for all tests of pages, one comparison of two small runs, and each page by its command."""

from __future__ import annotations

import json
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

TAKEN = "metrics.recorded.take={right: {binary: true}}"
QUICK = ["run=quickstart", "metrics=[groundedness]"]
COMMANDS = {
    "report": ["+experiment=quickstart_llm"],
    "compare": ["task=compare", "compare=methods", "run=quickstart_llm"],
    "label": ["task=label", "run=quickstart_llm", "label.metric=faithfulness"],
    "checked": ["+experiment=quickstart"],
    "self-test": ["task=selftest", *QUICK, "selftest.n=5"],
    "judge audit": ["task=judge_audit", "run=CHECKED", "metrics=[groundedness]", "judge_audit.n=5"],
    "spot check": ["task=spot_check", "run=CHECKED", "judge=rules", "judge.threshold=0.5"],
    "agreement": ["task=rejudge", "run=quickstart_llm", "judge=rules"],
    "history": ["task=history", "name=quickstart_llm"],
    "sweep": ["-m", "+experiment=quickstart", "name=swept", "metrics=[faithfulness],[groundedness]"],
    "data": ["task=plan", "+experiment=quickstart", "plan.out=outputs/data.json"],
    "judged by people": ["dataset=jsonl", "dataset.path=labelled.jsonl", "name=labelled", "metrics=[faithfulness,recorded]", TAKEN],
    "calibration": ["task=calibrate", "run=labelled", "calibrate.recorded={faithfulness: right}"],
}
PAGES = {
    "report": "quickstart_llm/*/report.html",
    "compare": "quickstart_llm/comparisons/*/compare.html",
    "label": "quickstart_llm/*/labels/*/label.html",
    "self-test": "quickstart/*/selftest.html",
    "judge audit": "quickstart/*/calibration/judge_audit.*.html",
    "spot check": "quickstart/*/calibration/spot_check.*.html",
    "agreement": "quickstart_llm/*/agreement.html",
    "history": "quickstart_llm/history/history.html",
    "sweep": "swept/sweeps/*/comparison.html",
    "data": "data.html",
    "calibration": "labelled/*/calibration/calibration.html",
}
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
    folder = tmp_path_factory.mktemp("pages")
    cases = [
        {
            "id": f"q{n}",
            "question": "?",
            "answer": f"The fee is {n % 3} euros.",
            "contexts": ["The fee is 1 euros."],
            "recorded": {"right": n % 2},
        }
        for n in range(30)
    ]
    (folder / "labelled.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    for name, words in COMMANDS.items():
        code, said = finish([word.replace("CHECKED", str(folder / "checked")) for word in words], folder)
        assert code == 0, said
        if name == "checked":
            (folder / "checked").symlink_to((folder / "outputs" / "quickstart" / "latest").resolve())
    return {name: next((folder / "outputs").glob(place)) for name, place in PAGES.items()}
