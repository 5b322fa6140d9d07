"""Stored replies: commands that ask nobody again, the size of a stored call, the journal.

    python benchmarks/replay.py [--cases 500 3000] [--only NAME ...] [--small]

A local server of no latency answers the first run of each size (four metrics, 6 calls a case); its replies are in the call store.
Then each command runs in a process of its own over both sizes, and asks nobody. Figures are margins: the CPU that the larger run
takes beyond the smaller one, per call, so that start and report are subtracted.

- asking: the first run itself, whose server takes no time
- new run: another threshold, a sibling of the first run
- rescore: `task=rescore` with another threshold
- rejudge, stored: `task=rejudge rejudge.mode=stored` with another threshold
- replay: the configuration of the first run under another name, where there is no sibling to take from: every question is
  rendered, found in the call store and read again
- verify: `task=verify`, which renders every prompt again
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
from measured import METRICS, judge_words, measure, say, write_judged_cases

from ragpipe.store.journal import Journal
from ragpipe.testing.openai_server import serving_in_subprocess

THRESHOLD = "scoring.thresholds.faithfulness="
READ_CALLS = """
import sqlite3, sys
import pyarrow.parquet as pq
db = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
for key in pq.read_table(sys.argv[2], columns=["key"])["key"].to_pylist():
    assert db.execute("SELECT * FROM calls WHERE key = ? AND failed_in = 0", (bytes.fromhex(key),)).fetchone()
"""


class Runs:
    """The runs of one size: the first one, and what comes after it."""

    def __init__(self, folder: Path, url: str, cases: int):
        self.folder, self.name = folder, f"cases-{cases}"
        data = folder / f"{self.name}.jsonl"
        write_judged_cases(data, cases)
        self.words = ["dataset=jsonl", f"dataset.path={data}", METRICS, *judge_words(url, 64)]
        self.asked = self._run(f"name={self.name}")
        self.first = (self.outputs / self.name / "latest").resolve()
        self.inputs = self.first / "iteration-1" / "judge_inputs.parquet"
        self.calls = pq.read_metadata(self.inputs).num_rows
        self.store = self.outputs / ".store" / "calls.sqlite"

    @property
    def outputs(self) -> Path:
        return self.folder / f"outputs-{self.name}"

    def _run(self, *more: str) -> float:
        return measure(["-m", "ragpipe", *self.words, f"output_dir={self.outputs}", *more], self.folder).cpu

    def task(self, name: str, *words: str) -> float:
        return measure(["-m", "ragpipe", f"task={name}", f"run={self.first}", *words], self.folder).cpu

    def new_run(self) -> float:
        return self._run(f"name={self.name}", f"{THRESHOLD}0.82")

    def replay(self) -> float:
        """CPU seconds under another name, where the first run's folder is not beside it."""
        aside = self.folder / "aside"
        shutil.move(self.outputs / self.name, aside)
        try:
            return self._run("name=replay")
        finally:
            shutil.move(aside, self.outputs / self.name)

    def read_calls(self) -> float:
        return measure(["-c", READ_CALLS, str(self.store), str(self.inputs)], self.folder).cpu


COMMANDS: dict[str, Callable[[Runs], float]] = {
    "verify": lambda runs: runs.task("verify"),
    "rescore": lambda runs: runs.task("rescore", f"{THRESHOLD}0.81"),
    "new run": Runs.new_run,
    "rejudge, stored": lambda runs: runs.task("rejudge", "rejudge.mode=stored", f"{THRESHOLD}0.83"),
    "replay": Runs.replay,
}


def journal(folder: Path, records: tuple[int, ...]) -> None:
    """Cost of a record that is flushed, beside a bare write and flush."""
    entry = {
        "sample_id": "q00001", "method": "rerank", "question": "What does the case say, and since when?",
        "case": "0123456789abcdef", "result": {"faithfulness": 0.8, "groundedness": 4}, "completed_at": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    opened, count = Journal.open(folder / "journal.jsonl"), 0
    for upto in records:
        began, before = time.process_time(), count
        for _ in range(before, upto):
            opened.append(entry)
        each, count = (time.process_time() - began) / (upto - before) * 1e6, upto
        with open(folder / "bare.jsonl", "w", encoding="utf-8") as file:
            began = time.process_time()
            for _ in range(1000):
                file.write(json.dumps(entry) + "\n")
                file.flush()
        bare = (time.process_time() - began) / 1000 * 1e6
        say(f"journal: a record up to {upto:,}", each, f"us ({each / bare:.2f} x a write)", 20)
    opened.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, nargs=2, default=[500, 3000], help="of the small and of the large run")
    parser.add_argument("--only", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--small", action="store_true", help="the smallest size: does it work?")
    args = parser.parse_args()
    sizes = [5, 20] if args.small else args.cases
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with serving_in_subprocess() as url:
            small, large = (Runs(folder, url, cases) for cases in sizes)
        more = large.calls - small.calls
        bare = (large.read_calls() - small.read_calls()) / more
        asking = (large.asked - small.asked) / more
        say("asking a server of no latency", asking * 1e6, "us CPU a call")
        each = {what: (COMMANDS[what](large) - COMMANDS[what](small)) / more for what in args.only}
        for what, seconds in each.items():
            goal = {"new run": 10_000, "verify": 3_000}.get(what)
            say(f"{what}: calls a second", 1 / seconds, f"({seconds / bare:.1f} x reading them)", at_least=goal)
        if "replay" in each:
            say("replay without a sibling", each["replay"] / asking, "x asking", 0.25)
        size = sum(path.stat().st_size for path in large.store.parent.glob("calls.sqlite*"))
        say("a stored call with its payment", size / large.calls, "bytes", 550)
        journal(folder, (100, 1000) if args.small else (1_000, 10_000, 100_000))


if __name__ == "__main__":
    main()
