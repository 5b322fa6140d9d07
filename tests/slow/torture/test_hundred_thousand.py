"""A hundred thousand recorded cases: the same bytes from one process and from workers, in bounded memory."""

from __future__ import annotations

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
"""Resident memory of the largest process."""


def write_cases(path: Path) -> None:
    draw = random.Random(0)
    with open(path, "w", encoding="utf-8") as file:
        for i in range(CASES):
            ids = draw.sample(range(500), CHUNKS)
            chunks = [{"id": f"d{d}-0", "doc_id": f"d{d}", "score": 1 - rank / CHUNKS} for rank, d in enumerate(ids)]
            relevant = [f"d{d}" for d in draw.sample(range(500), 3)]
            record = {"id": f"q{i}", "question": f"question {i}", "answer": "an answer", "chunks": chunks}
            file.write(json.dumps({**record, "relevant_docs": relevant}) + "\n")


def peak_of_run(folder: Path, runner: str) -> int:
    """The highest resident MiB of a process of the run."""
    words = ["dataset=jsonl", "dataset.path=cases.jsonl", "metrics=[retrieval]", "name=large", f"output_dir={runner}"]
    words += [f"runner={runner}", *(["runner.workers=2"] if runner != "local" else [])]
    process = subprocess.Popen(
        [sys.executable, "-m", "ragpipe", *words, "report.formats=[terminal]"],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    peak = peak_mib(process)
    assert process.returncode == 0
    return peak


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_workers_give_the_bytes_of_one_process_in_bounded_memory(tmp_path: Path) -> None:
    write_cases(tmp_path / "cases.jsonl")
    assert (tmp_path / "cases.jsonl").stat().st_size > 32 << 20, "smaller files are read by one process"
    peaks = [peak_of_run(tmp_path, runner) for runner in ("local", "processes")]
    assert max(peaks) <= MOST_MIB, peaks
    contents = []
    for runner in ("local", "processes"):
        folder = (tmp_path / runner / "large" / "latest").resolve()
        names = ("samples.parquet", "outputs.parquet", "iteration-1/scores.parquet", "iteration-1/records.parquet")
        paths = [folder / name for name in (*names, "iteration-1/metrics.json", "final/metrics.json")]
        contents.append([path.read_bytes() for path in paths])
    assert contents[0] == contents[1]
