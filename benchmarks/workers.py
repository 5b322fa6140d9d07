"""Seconds by the clock of a whole run with `runner=processes`, against one process: the demonstration cases again and again.

    python benchmarks/workers.py [--times 40] [--workers 1 2 4] [--pairs 3]

Two kinds of work: metrics by the embedded judge, where measuring is nearly everything, and retrieval metrics alone, where scoring,
which is divided from 20,000 cases on, is much of it. Runs alternate, so the speed of the machine drops out of the ratios; a core for each
worker must be idle. Each run is also compared with the other by the bytes of its scores.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KINDS = {
    "embedded judge": ["metrics=[faithfulness,context_recall,groundedness]"],
    "retrieval metrics": ["metrics=[retrieval]"],
}


def write_cases(path: Path, times: int) -> int:
    """The cases of the demonstration set, `times` times under new ids. Returns their number."""
    lines = (ROOT / "ragpipe" / "data" / "demo" / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    with open(path, "w", encoding="utf-8") as file:
        for number in range(times):
            for record in map(json.loads, lines):
                file.write(json.dumps({**record, "id": f"{record['id']}-{number}"}) + "\n")
    return times * len(lines)


def run(work: Path, words: list[str]) -> tuple[float, bytes]:
    """Seconds of a run, and the bytes of its scores."""
    command = [sys.executable, "-m", "ragpipe", "dataset=jsonl", "dataset.path=cases.jsonl", "name=run", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(work / "pycache")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    start = time.perf_counter()
    subprocess.run([*command, "report.formats=[terminal]"], cwd=work, env=environment, capture_output=True, check=True)
    seconds = time.perf_counter() - start
    scores = (work / "outputs" / "run" / "latest" / "iteration-1" / "scores.parquet").read_bytes()
    shutil.rmtree(work / "outputs")
    return seconds, scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=40, help="how often each case of the demonstration set occurs")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--pairs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        print(f"{write_cases(work / 'cases.jsonl', options.times):,} cases")
        for kind, words in KINDS.items():
            run(work, [*words, "dataset.limit=5"])  # modules are compiled
            ratios: dict[int, list[float]] = {workers: [] for workers in options.workers}
            alone = []
            for _ in range(options.pairs):
                seconds, scores = run(work, words)
                alone.append(seconds)
                for workers in options.workers:
                    taken, same = run(work, [*words, "runner=processes", f"runner.workers={workers}"])
                    assert same == scores
                    ratios[workers].append(seconds / taken)
            faster = ", ".join(
                f"{workers} workers {statistics.median(r):.2f} x as fast" for workers, r in ratios.items()
            )
            print(f"{kind}: one process {statistics.median(alone):.1f} s; {faster}", flush=True)


if __name__ == "__main__":
    main()
