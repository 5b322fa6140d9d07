"""The experiment over the second demonstration set: what the example RAG answers and declines, by category."""

import json
from pathlib import Path

import pytest

from ragpipe.cli.command_line import main

pytestmark = pytest.mark.slow


@pytest.mark.thorough
def test_the_table_by_category(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["+experiment=demo_categories"]) == 0
    metrics = json.loads(next((tmp_path / "outputs").glob("*/latest/final/metrics.json")).read_text(encoding="utf-8"))
    by_category = metrics["by"]["category"]
    counts = {name: group["n_cases"] for name, group in by_category.items()}
    assert counts == {
        "should_answer_complete": 300, "should_answer_partial": 150, "should_reject_policy": 300, "should_reject_no_context": 90,
        "edge_cases": 60,
    }  # fmt: skip
    rates = {name: group["scores"]["rejection_calibration"]["mean"] for name, group in by_category.items()}
    # what the example RAG is built to do: it finds facts and declines what is in no document
    assert rates["should_answer_complete"] > rates["should_answer_partial"]
    assert min(rates["should_answer_complete"], rates["should_reject_policy"], rates["should_reject_no_context"]) > 0.5
