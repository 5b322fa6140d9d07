"""Recorded cases with the retrieval metrics: CPU and peak memory of each command, beside plain reading and writing.

    python benchmarks/scale.py [--small 10000] [--large 100000] [--chunks 20] [--runner local]

The baseline is a process that reads the same lines with `json.loads` and writes their samples and outputs as two Parquet
tables with pyarrow; every command is also given as a multiple of its CPU in the same run, for a machine that is busy.

Goals for 100,000 cases, whole commands: run <= 30 s CPU and <= 400 MiB, plan <= 15 s, a second start <= 1 s, explain of one
case <= 2 s, rescore <= 10 s, verify <= 20 s. The memory of the run is flat in the number of cases.
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
from typing import NamedTuple

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


BASELINE = """
import json, sys
import pyarrow as pa, pyarrow.parquet as pq
samples, outputs = {"id": [], "question": [], "category": [], "relevant_docs": []}, {"answer": [], "chunks": []}
for line in open(sys.argv[1], encoding="utf-8"):
    record = json.loads(line)
    for name in samples:
        samples[name].append(record[name])
    outputs["answer"].append(record["answer"])
    outputs["chunks"].append(json.dumps(record["chunks"]))
for name, columns in (("samples", samples), ("outputs", outputs)):
    pq.write_table(pa.table(columns), f"{sys.argv[2]}/{name}.parquet", compression="zstd", row_group_size=1000)
"""


class Measured(NamedTuple):
    """What one command took: CPU seconds of all its processes, peak resident MiB of the largest one, seconds by the clock."""

    cpu: float
    peak: float
    wall: float


def measure(folder: Path, words: list[str]) -> Measured:
    """Run Python with these words in a process of its own. Exits when it fails."""
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, *words], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"it ended with {os.waitstatus_to_exitcode(status)}: {' '.join(words)[:300]}")
    return Measured(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, time.monotonic() - began)


def commands(data: Path, cases: int, runner: str) -> dict[str, list[str]]:
    """The commands to measure, in the order in which they can run. The first one makes the run that the others use."""
    ragpipe, run = ["-m", "ragpipe"], f"run=outputs{cases}/scale/latest"
    evaluate = [
        "dataset=jsonl", f"dataset.path={data}", "metrics=[retrieval]", "name=scale", f"output_dir=outputs{cases}",
        f"runner={runner}",
    ]  # fmt: skip
    return {
        "run": [*ragpipe, *evaluate],
        "second start": [*ragpipe, *evaluate],
        "explain": [*ragpipe, "task=explain", run, f"case=q{cases // 2}"],
        "rescore": [*ragpipe, "task=rescore", run, "scoring.thresholds.faithfulness=0.83"],
        "plan": [*ragpipe, "task=plan", *evaluate, "scoring.thresholds.faithfulness=0.82"],
        "verify": [*ragpipe, "task=verify", run],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", type=int, default=10_000)
    parser.add_argument("--large", type=int, default=100_000)
    parser.add_argument("--chunks", type=int, default=20)
    parser.add_argument("--runner", choices=["local", "processes"], default="local")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, peaks = Path(name), []
        for cases in (args.small, args.large):
            data = folder / f"cases{cases}.jsonl"
            write(data, cases, args.chunks)
            baseline = measure(folder, ["-c", BASELINE, str(data), str(folder)])
            print(f"{cases:,} cases\n  {'json + pyarrow':<15}{baseline.cpu:7.2f} s CPU  peak {baseline.peak:5.0f} MiB")
            for command, words in commands(data, cases, args.runner).items():
                measured = measure(folder, words)
                if command == "run":
                    peaks.append(measured.peak)
                ratio = measured.cpu / baseline.cpu
                print(
                    f"  {command:<15}{measured.cpu:7.2f} s CPU  peak {measured.peak:5.0f} MiB  {ratio:6.1f} x the baseline"
                    f"  {measured.wall:7.2f} s"
                )
        print(f"peak memory of the run, large / small: {peaks[1] / peaks[0]:.2f}")


if __name__ == "__main__":
    main()
