"""What Ray costs per slice, at the start and in memory, against worker processes in the same minutes. Needs the extra `ray`.

    python benchmarks/ray_slices.py [--times 10] [--workers 2] [--pairs 3]

The demonstration cases again and again, retrieval metrics alone: there is next to nothing to measure. A run with a slice per case and a run
with a slice per block differ by the slices; what Ray's run takes longer with large slices is its start. Memory is that of all processes of
Ray's session, shared pages counted once, at most at any time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from workers import ROOT, write_cases

sys.path.insert(0, str(ROOT))

from ragpipe.engine.workers.process_sessions import members_of

LARGE = 1_000


def resident(session: int) -> float:
    """Megabytes of the processes of a session."""
    total = 0
    for pid in members_of(session):
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def run(work: Path, *words: str) -> tuple[float, float]:
    """Seconds of a run, and the most megabytes of the sessions that it started."""
    command = [sys.executable, "-m", "ragpipe", "dataset=jsonl", "dataset.path=cases.jsonl", "metrics=[retrieval]"]
    start, most = time.perf_counter(), 0.0
    process = subprocess.Popen(
        [*command, "report.formats=[]", f"name=run-{time.time_ns()}", *words],
        cwd=work,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while process.poll() is None:
        with suppress(OSError):
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            most = max(most, sum(resident(int(child)) for child in children))
        time.sleep(0.25)
    assert process.returncode == 0
    return time.perf_counter() - start, most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=10, help="how often each case of the demonstration set occurs")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        cases = write_cases(work / "cases.jsonl", options.times)
        slices = cases - -(-cases // LARGE)
        per_slice: dict[str, list[float]] = {"processes": [], "ray": []}
        starts, memory = list[float](), {"processes": 0.0, "ray": 0.0}
        for _ in range(options.pairs):
            large = dict[str, float]()
            for kind, times in per_slice.items():
                words = [f"runner={kind}", f"runner.workers={options.workers}"]
                large[kind], _ = run(work, *words, f"runner.slice={LARGE}")
                small, most = run(work, *words, "runner.slice=1")
                times.append(1_000 * (small - large[kind]) / slices)
                memory[kind] = max(memory[kind], most)
            starts.append(large["ray"] - large["processes"])
        middle = {kind: statistics.median(times) for kind, times in per_slice.items()}
        ratio = statistics.median(r / p for r, p in zip(per_slice["ray"], per_slice["processes"], strict=True))
        print(f"{slices:,} slices more, {options.workers} workers, medians of {options.pairs} pairs")
        print(
            f"per slice: processes {middle['processes']:.1f} ms, ray {middle['ray']:.1f} ms, {ratio:.1f} times as much"
        )
        print(f"start: ray {statistics.median(starts):.1f} s more than processes")
        print(f"memory: processes {memory['processes']:.0f} MB, ray {memory['ray']:.0f} MB")


if __name__ == "__main__":
    main()
