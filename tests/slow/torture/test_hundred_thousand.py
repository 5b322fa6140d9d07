"""A hundred thousand recorded cases in bounded memory."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.harness import ROOT
from tests.support.process_memory import peak_mib

CASES, CHUNKS = 100_000, 8
MOST_MIB = 400
"""Resident memory."""


def write_cases(path: Path) -> None:
    draw = random.Random(0)
    with open(path, "w", encoding="utf-8") as file:
        for i in range(CASES):
            ids = draw.sample(range(500), CHUNKS)
            chunks = [{"id": f"d{d}-0", "doc_id": f"d{d}", "score": 1 - rank / CHUNKS} for rank, d in enumerate(ids)]
            relevant = [f"d{d}" for d in draw.sample(range(500), 3)]
            record = {"id": f"q{i}", "question": f"question {i}", "answer": "an answer", "chunks": chunks}
            file.write(json.dumps({**record, "relevant_docs": relevant}) + "\n")


def peak_of_run(folder: Path) -> int:
    """The highest resident MiB of the run."""
    words = ["dataset=jsonl", "dataset.path=cases.jsonl", "metrics=[retrieval]", "name=large"]
    process = subprocess.Popen(
        [sys.executable, "-m", "ragpipe", *words, "report.formats=[terminal]"],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    peak = peak_mib(process)
    assert process.returncode == 0
    return peak


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_run_is_bounded_in_memory(tmp_path: Path) -> None:
    write_cases(tmp_path / "cases.jsonl")
    assert peak_of_run(tmp_path) <= MOST_MIB
