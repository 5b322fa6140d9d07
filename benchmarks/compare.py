"""`task=compare` over two runs of 100,000 cases x 8 scores, in a process of its own: seconds and peak memory.

    python benchmarks/compare.py [--cases 100000] [--chunks 5] [--keep FOLDER]

Writes two scored runs once, of two methods on each question, that differ in every score. Printed: wall and CPU seconds with the
start of the process, peak resident memory, and the size of what was written. Goal: at most 20 s and 1 GiB on two shared cores.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from rescore import SCORE, SPECS, measure, write

from ragpipe.core.version import FORMAT
from ragpipe.runs.combine_iterations import combine_iterations
from ragpipe.score.settings import ScoringSettings
from ragpipe.store.run_folder import RunFolder

COMPARE = """
import sys
from ragpipe.cli.command_line import main
sys.exit(main(["task=compare", f"base={sys.argv[1]}", f"candidate={sys.argv[2]}"]))
"""
SCORING = {"slices": ["method*question_type", "meta.region"]}


def scored_run(root: Path, cases: int, chunks: int, seed: int) -> RunFolder:
    """A run with scores of its own over the same questions."""
    folder = RunFolder(root)
    if folder.final.metrics.is_file():
        return folder
    write(root, cases, chunks, seed)
    measure(SCORE, str(root), json.dumps(SPECS), json.dumps(SCORING))
    combine_iterations(folder, [1], ScoringSettings(**SCORING))
    identity = {name: {} for name in ("judge_identity", "embedder", "parser", "system", "scoring", "metrics")}
    manifest = {
        "format": FORMAT, "run_id": f"{seed:012x}", "name": "benchmark", "created_at": "2026-01-01T00:00:00.000+00:00",
        "data": {"name": "benchmark", "digest": "", "tables": ""}, "prompts": {}, "identity": identity, "iterations": {"1": "complete"},
    }  # fmt: skip
    folder.manifest.write_text(json.dumps(manifest))
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--chunks", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="folder for the runs; used again when they are there")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        home = args.keep or Path(temporary)
        folders = [scored_run(home / f"{seed:012x}", args.cases, args.chunks, seed) for seed in (1, 2)]
        wall, cpu, peak = measure(COMPARE, *(str(folder.root) for folder in folders))
        print(f"{args.cases:,} cases x {len(SPECS)} scores: {wall:.1f} s wall, {cpu:.1f} s CPU, peak {peak:,.0f} MiB")
        for path in sorted((home / "comparisons").rglob("*.*")):
            print(f"  {path.name:<24}{path.stat().st_size / 2**20:8.1f} MiB")


if __name__ == "__main__":
    main()
