"""Metrics of a user's own that end their process, cancel themselves, or return what they must not: a run says whose fault it is, and
never ends as if it were done."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.support.harness import write_cases
from tests.support.waiting import HANGS_AFTER_S

METRIC = """
import asyncio, os, sys
from ragpipe import Computed, Score

class Odd(Computed):
    def compute(self, cases):
        return self.all_but_one(cases) if os.environ["MODE"] == "short" else [self.one(case) for case in cases]

    def all_but_one(self, cases):
        return [Score(1.0) for _ in cases[1:] or cases]

    def one(self, case):
        mode = os.environ["MODE"]
        if case.sample.id != "q00007":
            return Score(1.0)
        if mode == "exit":
            sys.exit(0)
        if mode == "cancel":
            raise asyncio.CancelledError
        if mode == "float":
            return 1.0
        if mode == "scale":
            return Score(5.0)
        raise AssertionError(mode)
"""


def run(folder: Path, mode: str, *words: str) -> tuple[int, str]:
    (folder / "odd.py").write_text(METRIC)
    write_cases(folder / "cases.jsonl", 20)
    process = subprocess.run(
        [sys.executable, "-m", "ragpipe", "dataset=jsonl", "dataset.path=cases.jsonl", "metrics=[format]", "+metrics.odd.class=odd.Odd", "plugins=[odd]",
         "report.formats=[terminal]", "name=odd", *words],
        cwd=folder, env={**os.environ, "MODE": mode}, text=True, capture_output=True, timeout=HANGS_AFTER_S,
    )  # fmt: skip
    return process.returncode, process.stdout + process.stderr


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize(("mode", "message"), [
    ("exit", "metric odd on case q00007/default: SystemExit: 0"),
    ("cancel", "metric odd on case q00007/default: CancelledError"),
    ("float", "metric odd on case q00007/default: the metric returned float 1.0; expected a Score"),
    ("scale", "metric odd on case q00007/default: score 'odd': 5 is outside the scale that its metric declares, 0 to 1"),
    ("short", r"metric odd on case q\d+/default: compute gave \d+ results for \d+ cases: one each is expected"),
])  # fmt: skip
def test_it_is_a_fault_of_the_metric(tmp_path: Path, mode: str, message: str) -> None:
    code, text = run(tmp_path, mode)
    assert code == 1, text
    assert re.search(message if mode == "short" else re.escape(message), text), text
    assert "this is a fault" in text
    assert "bug in ragpipe" not in text
    assert "Traceback" not in text


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("mode", ["exit", "cancel", "float", "scale"])
def test_where_it_is_recorded_the_other_cases_have_their_scores(tmp_path: Path, mode: str) -> None:
    words = ["on_metric_error=record", "scoring.coverage_floor=0"]
    code, text = run(tmp_path, mode, *words)
    assert code == 0, text
    scores = pd.read_parquet(next((tmp_path / "outputs" / "odd").glob("*/iteration-1/scores.parquet")))
    odd = scores[scores["metric"] == "odd"].set_index("sample_id")["status"]
    assert (dict(odd.value_counts()), odd["q00007"]) == ({"ok": 19, "error": 1}, "error")
