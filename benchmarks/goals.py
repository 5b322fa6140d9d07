"""All benchmarks, and their figures beside the goals in one page: benchmarks/README.md.

    python benchmarks/goals.py [--small] [--only NAME ...] [--data ../shared/data]

Takes about an hour on two free cores; figures are ratios within one run, so that a slow machine drops out. With `--small` each benchmark
runs in its smallest size, which shows that it works, and the page is left as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
BENCHMARKS = {
    "calls": [], "startup": [], "scale": [], "replay": [], "retrieval": [], "pages": [], "rules": ["--data", "DATA"],
    "intervals": ["--small"], "decisions": ["--small"],
}  # fmt: skip
"""Arguments of each. Of the simulations the page has a sample; docs/statistics.md has their tables. `prompts` reads runs of yours."""


def rows_of(name: str, arguments: list[str]) -> list[dict[str, str]]:
    """Run a benchmark; its figures with a goal."""
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder, "rows.jsonl")
        command = [sys.executable, str(FOLDER / f"{name}.py"), *arguments]
        done = subprocess.run(command, env={**os.environ, "RAGPIPE_GOALS": str(rows)})
        if done.returncode:
            sys.exit(f"{' '.join(command)}: exit code {done.returncode}")
        return [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()] if rows.exists() else []


def page(figures: dict[str, list[dict[str, str]]], load: float) -> str:
    """The table of goals."""
    lines = [
        "# How fast, and the goals",
        "",
        f"Made by `python benchmarks/goals.py` on {datetime.now(UTC):%Y-%m-%d}: Python {platform.python_version()}, {os.cpu_count()} cores, load {load:.1f}",
        "at the start. Each figure is a ratio to a baseline of the same run, where it has one; what is measured, and how, stands at the head of each file.",
        "",
        "| benchmark | what | figure | goal | |",
        "|---|---|---|---|---|",
    ]
    for name, rows in figures.items():
        for row in rows:
            lines.append(
                f"| {name} | {row['what']} | {row['figure']} | {row['goal']} | {'' if row['is_met'] else '**missed**'} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS))
    parser.add_argument("--data", default=os.environ.get("RAGPIPE_DATA", "../shared/data"), help="the folder of the data sets")
    parser.add_argument("--small", action="store_true", help="the smallest size of each, and no page")
    args = parser.parse_args()
    load, figures = os.getloadavg()[0], {}
    for name in args.only:
        arguments = [args.data if argument == "DATA" else argument for argument in BENCHMARKS[name]]
        figures[name] = rows_of(name, [*arguments, *(["--small"] if args.small else [])])
    if not args.small:
        (FOLDER / "README.md").write_text(page(figures, load), encoding="utf-8")


if __name__ == "__main__":
    main()
