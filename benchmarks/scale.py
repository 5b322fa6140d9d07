"""Recorded cases with the retrieval metrics, 10,000 against 100,000: time and peak memory of the whole command.

    python benchmarks/scale.py [--small 10000] [--large 100000] [--chunks 20]

Goal: peak memory at most 400 MiB, and flat in the number of cases.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def write(path: Path, cases: int, chunks: int) -> None:
    """Small records: a question, an answer, `chunks` chunk ids with a score, three of 500 documents relevant."""
    drawn = random.Random(0)
    with open(path, "w", encoding="utf-8") as file:
        for i in range(cases):
            ids = drawn.sample(range(500), chunks)
            record = {
                "id": f"q{i}", "question": f"question {i}", "answer": "an answer of a few words", "category": f"c{i % 7}",
                "relevant_docs": [f"d{d}" for d in drawn.sample(range(500), 3)],
                "chunks": [{"id": f"d{d}-0", "doc_id": f"d{d}", "score": 1 - r / chunks} for r, d in enumerate(ids)],
            }  # fmt: skip
            file.write(json.dumps(record) + "\n")


def measure(folder: Path, data: Path) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and peak resident MiB of one run in a process of its own."""
    command = [
        sys.executable, "-m", "ragpipe", "dataset=jsonl", f"dataset.path={data}", "metrics=[retrieval]", "name=scale",
        f"output_dir={folder / data.stem}",
    ]  # fmt: skip
    started = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"the run ended with {os.waitstatus_to_exitcode(status)}: {' '.join(command)}")
    return time.perf_counter() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", type=int, default=10_000)
    parser.add_argument("--large", type=int, default=100_000)
    parser.add_argument("--chunks", type=int, default=20)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        peaks = []
        for cases in (args.small, args.large):
            data = Path(folder, f"cases{cases}.jsonl")
            write(data, cases, args.chunks)
            wall, cpu, peak = measure(Path(folder), data)
            peaks.append(peak)
            print(
                f"{cases:>9,} cases: {wall:6.1f} s wall, {cpu:6.1f} s CPU, {cases / wall:8,.0f} cases/s, peak {peak:5.0f} MiB"
            )
        print(f"peak memory, large / small: {peaks[1] / peaks[0]:.2f}")


if __name__ == "__main__":
    main()
