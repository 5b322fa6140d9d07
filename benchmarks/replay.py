"""Commands over stored replies: CPU of each judge call that nobody is asked again.

    python benchmarks/replay.py [--cases 1667 10000] [--folder FOLDER]

A local server answers the first run of each size (4 metrics, 6 calls a case); its replies are in the call store. Then each
command below runs in a process of its own over both sizes, and asks nobody. Marginal: what the larger run takes beyond the
smaller one, per call, so that start, imports and reports of a fixed size are subtracted.

- new run: another threshold, a sibling of the first run
- rescore: `task=rescore` with another threshold
- rejudge, stored: `task=rejudge rejudge.mode=stored` with another threshold
- rejudge, same judge: `task=rejudge` with the judge named again and another threshold
- replay: the configuration of the first run under another name, where there is no sibling to take from: every question is
  rendered, found in the call store and read again
- verify: `task=verify`, which renders every prompt again
- plan: `task=plan` of the configuration of the first run

Printed: CPU seconds of both sizes, calls per second of CPU, and the ratio to the baselines of the same session (marginal,
too): reading every stored call by its key from SQLite, and reading the tables of the run with pyarrow. With `--folder` the
data and the first runs are kept there, and used again.

Goals: new run and rescore >= 10,000 calls a second, verify >= 3,000.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "paris", "budget", "revenue", "capital"]
METRICS = "metrics=[faithfulness,answer_relevance,context_precision,context_recall]"
MODEL = "openai/bench-2026-01-01"
GOALS = {"new run": 10_000, "rescore": 10_000, "verify": 3_000}
READ_CALLS = """
import sqlite3, sys
import pyarrow.parquet as pq
db = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
for key in pq.read_table(sys.argv[2], columns=["key"])["key"].to_pylist():
    assert db.execute("SELECT * FROM calls WHERE key = ? AND failed_in = 0", (bytes.fromhex(key),)).fetchone()
"""
READ_TABLES = """
import sys
from pathlib import Path
import pyarrow.parquet as pq
for path in sorted(Path(sys.argv[1]).rglob("*.parquet")):
    pq.read_table(path)
"""


def write_cases(path: Path, count: int) -> None:
    """Cases with five contexts of sixty words, a reference, and an answer of two sentences."""
    draw = random.Random(1)

    def text(length: int) -> str:
        return " ".join(draw.choice(WORDS) for _ in range(length)).capitalize() + "."

    with open(path, "w", encoding="utf-8") as file:
        for number in range(count):
            contexts = [
                {"id": f"c{number}-{k}", "doc_id": f"d{number}-{k}", "text": f"Passage {k} of case {number}. {text(60)}"}
                for k in range(5)
            ]
            case = {
                "id": f"q{number}", "question": f"What does case {number} say about the {draw.choice(WORDS)}?",
                "answer": f"{text(12)} {text(12)}", "references": [contexts[0]["text"][:120]], "contexts": contexts,
            }  # fmt: skip
            file.write(json.dumps(case) + "\n")


def cpu_of(command: Sequence[str], folder: Path) -> float:
    """CPU seconds of a command in a process of its own. Its output is shown where it fails."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENAI_API_KEY": "none"}
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([sys.executable, *command], cwd=folder, stdout=output, stderr=output, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            output.seek(0)
            sys.exit(f"{' '.join(command)}\n{output.read().decode('utf-8', 'replace')}")
    return usage.ru_utime + usage.ru_stime


class Runs:
    """The runs of one size. The first one is made in `folder`; what is measured works on a copy, `copy`."""

    def __init__(self, folder: Path, url: str, cases: int):
        self.folder, self.copy, self.name = folder, folder / "copy", f"cases-{cases}"
        self.calls = 0
        self.judge = ["judge=llm", f"judge.model={MODEL}", f"judge.api_base={url}", "judge.max_calls=1000000"]
        data = ["dataset=jsonl", f"dataset.path={folder / 'cases.jsonl'}", f"dataset.limit={cases}"]
        self.words = [*data, *self.judge, "judge.concurrency=64", "embedder=none", METRICS, f"name={self.name}"]

    def ask(self) -> None:
        """The first run: every question is asked, unless the store has its reply."""
        if not (self.folder / self.name / "latest" / "seal.json").exists():
            cpu_of(["-m", "ragpipe", *self.words, f"output_dir={self.folder}"], self.folder)

    @property
    def first(self) -> Path:
        """The folder of the first run, in the copy."""
        return self.copy / self.name / (self.folder / self.name / "latest").resolve().name

    @property
    def inputs(self) -> Path:
        """The table of the first run's calls."""
        return self.first / "iteration-1" / "judge_inputs.parquet"

    def plan(self) -> float:
        """CPU seconds of planning the first run again."""
        return cpu_of(["-m", "ragpipe", "task=plan", *self.words, f"output_dir={self.copy}"], self.folder)

    def run(self, change: str) -> float:
        """CPU seconds of a run that differs from the first one by one word of the command line."""
        return cpu_of(["-m", "ragpipe", *self.words, f"output_dir={self.copy}", change], self.folder)

    def task(self, name: str, *words: str) -> float:
        """CPU seconds of a task over the first run."""
        return cpu_of(["-m", "ragpipe", f"task={name}", f"run={self.first}", *words], self.folder)

    def read_calls(self) -> float:
        """CPU seconds of reading each stored call by its key."""
        return cpu_of(["-c", READ_CALLS, str(self.copy / ".store" / "calls.sqlite"), str(self.inputs)], self.folder)

    def read_tables(self) -> float:
        """CPU seconds of reading every table of the first run."""
        return cpu_of(["-c", READ_TABLES, str(self.first)], self.folder)


THRESHOLD = "scoring.thresholds.faithfulness="
COMMANDS: dict[str, Callable[[Runs], float]] = {
    "plan": Runs.plan,
    "verify": lambda runs: runs.task("verify"),
    "rescore": lambda runs: runs.task("rescore", f"{THRESHOLD}0.81"),
    "new run": lambda runs: runs.run(f"{THRESHOLD}0.82"),
    "rejudge, stored": lambda runs: runs.task("rejudge", "rejudge.mode=stored", f"{THRESHOLD}0.83"),
    "rejudge, same judge": lambda runs: runs.task("rejudge", *runs.judge, f"{THRESHOLD}0.84"),
    "replay": lambda runs: runs.run(f"name=replay-of-{runs.name}"),
}


def prepare(folder: Path, sizes: Sequence[int]) -> list[Runs]:
    """The first runs, made where the folder does not have them, and the copy that is measured."""
    import pyarrow.parquet as pq

    from ragpipe.testing.openai_server import serving_in_subprocess

    data, address = folder / "cases.jsonl", folder / "address.txt"
    if not address.exists():
        write_cases(data, max(sizes))
        with serving_in_subprocess() as url:
            for size in sizes:
                Runs(folder, url, size).ask()
        address.write_text(url)
    prepared = [Runs(folder, address.read_text(), size) for size in sizes]
    shutil.rmtree(folder / "copy", ignore_errors=True)
    for name in (".store", *(runs.name for runs in prepared)):
        shutil.copytree(folder / name, folder / "copy" / name, symlinks=True)
    for runs in prepared:
        runs.calls = pq.read_metadata(runs.inputs).num_rows
    return prepared


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, nargs=2, default=[1_667, 10_000], help="the smaller and the larger run")
    parser.add_argument("--folder", type=Path, help="where the data and the first runs are kept; default: nowhere")
    parser.add_argument("--only", nargs="+", choices=COMMANDS, default=list(COMMANDS), help="default: every command")
    args = parser.parse_args()
    kept: AbstractContextManager[str] = nullcontext(str(args.folder)) if args.folder else tempfile.TemporaryDirectory()
    with kept as folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        small, large = prepare(Path(folder).absolute(), args.cases)
        more = large.calls - small.calls

        def measure(seconds: Callable[[Runs], float]) -> tuple[float, float, float]:
            """CPU seconds of the smaller and of the larger run, and of each call between them."""
            first, second = seconds(small), seconds(large)
            return first, second, (second - first) / more

        *_, by_key = measure(Runs.read_calls)
        *_, tables = measure(Runs.read_tables)
        print(f"marginal CPU between {small.calls:,} and {large.calls:,} calls")
        print(f"baselines: {by_key * 1e6:.1f} us a call by its key from SQLite, {tables * 1e6:.1f} us of reading tables")
        for name in args.only:
            first, second, each = measure(COMMANDS[name])
            goal = f", goal {GOALS[name]:,}" if name in GOALS else ""
            ratios = f"{each / by_key:5.1f} x SQLite, {each / tables:5.1f} x the tables"
            rate = f"{1 / each:7,.0f} calls/s{goal:14s} {each * 1e6:6.1f} us a call"
            print(f"{name:20s} {first:5.1f} s, {second:5.1f} s: {rate}, {ratios}", flush=True)


if __name__ == "__main__":
    main()
