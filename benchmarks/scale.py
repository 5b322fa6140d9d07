"""Recorded cases with the retrieval metrics: CPU and peak memory of each command, beside plain reading and writing.

    python benchmarks/scale.py [--cases 10000 100000] [--chunks 20] [--runner local] [--small]

The floor is a process that reads the same lines with `json.loads` and writes their samples and outputs as two Parquet tables with
pyarrow, run before and after each command: the mean of both counts, because a shared machine changes its speed. Goals are of the
larger size. Sizes of the folder are said too.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from measured import measure, say, write_recorded_cases

FLOOR = """
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
GOALS = {"run": 2.5, "rescore": 1.2, "verify": 2.0}
"""CPU as a multiple of the floor."""


def commands(data: Path, cases: int, runner: str) -> dict[str, list[str]]:
    """The commands to measure, in the order in which they can run. All but the first use what `run` makes."""
    ragpipe, run = ["-m", "ragpipe"], f"run=outputs{cases}/scale/latest"
    evaluate = [
        "dataset=jsonl", f"dataset.path={data}", "metrics=[retrieval]", "name=scale", f"output_dir=outputs{cases}",
        f"runner={runner}",
    ]  # fmt: skip
    rescore = [*ragpipe, "task=rescore", run]
    plan = [*ragpipe, "task=plan", *evaluate, "scoring.thresholds.faithfulness=0.82"]
    return {
        "plan of new data": plan,
        "run": [*ragpipe, *evaluate],
        "second start": [*ragpipe, *evaluate],
        "explain": [*ragpipe, "task=explain", run, f"case=q{cases // 2}"],
        "plan of data that was run": plan,
        "verify": [*ragpipe, "task=verify", run],
        "rescore without a page": [*rescore, "scoring.thresholds.faithfulness=0.83", "report.formats=[terminal]"],
        "rescore": [*rescore, "scoring.thresholds.faithfulness=0.84"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, nargs=2, default=[10_000, 100_000], help="of the small and of the large run")
    parser.add_argument("--chunks", type=int, default=20)
    parser.add_argument("--runner", default="local")
    parser.add_argument("--small", action="store_true", help="the smallest size: does it work?")
    args = parser.parse_args()
    small, large = [100, 300] if args.small else args.cases
    peaks = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for cases in (small, large):
            data = folder / f"cases{cases}.jsonl"
            write_recorded_cases(data, cases, args.chunks)
            floor, floors, ratios = ["-c", FLOOR, str(data), str(folder)], [], {}
            floors.append(measure(floor, folder).cpu)
            for command, words in commands(data, cases, args.runner).items():
                found = measure(words, folder)
                floors.append(measure(floor, folder).cpu)
                beside = sum(floors[-2:]) / 2
                ratios[command] = found.cpu / beside
                unit, goal = f"x the floor ({beside:.1f} s CPU)", GOALS.get(command) if cases == large else None
                say(f"{cases:,} cases: {command}", ratios[command], unit, goal)
                if command == "run":
                    peaks[cases] = found.peak
            for command in [name for name in ratios if name.startswith("plan")]:
                say(
                    f"{cases:,} cases: {command}",
                    ratios[command] / ratios["run"],
                    "x the run",
                    0.35 if cases == large else None,
                )
            page = ratios["rescore"] / ratios["rescore without a page"]
            say(f"{cases:,} cases: rescore", page, "x without a page", 1.25 if cases == large else None)
            say(f"{cases:,} cases: peak memory of the run", peaks[cases], "MiB", 300 if cases == large else None)
        more = (peaks[large] - peaks[small]) * 1024 / (large - small)
        say(f"memory beyond {small:,} cases", more, "KiB a case", 0.3)
        run = (folder / f"outputs{large}" / "scale" / "latest").resolve()
        size = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
        say(f"{large:,} cases: folder of the run", size / large, "bytes a case")
        say(f"{large:,} cases: journals left in it", len(list(run.rglob("journal*"))), "", 0)


if __name__ == "__main__":
    main()
