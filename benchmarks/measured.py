"""What the benchmarks share: commands in processes of their own, cases to judge, and figures beside their goals."""

from __future__ import annotations

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
sys.path.insert(0, str(ROOT))

IMPORTS = ["-c", "import hydra, pydantic, pyarrow"]
"""What every command of ragpipe has to import: the baseline of a start."""
METRICS = "metrics=[faithfulness,answer_relevance,context_precision,context_recall]"
MODEL = "gpt-4o-2024-08-06"
SMALL = "--small" in sys.argv
"""The smallest size of a benchmark, which only shows that it works: no goal counts."""
PLACES = ["harbour", "mill", "orchard", "quarry", "station", "library", "theatre", "brewery", "bridge", "market"]


class Measured(NamedTuple):
    """What one command took: CPU seconds (user and system) and peak MiB of its process, seconds by the clock, and what it printed."""

    cpu: float
    peak: float
    wall: float
    output: str


def measure(words: list[str], folder: Path, **variables: str) -> Measured:
    """Run Python with these words in a process of its own. Exits when it fails; 3 is a gate, which says nothing about speed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "BENCH_KEY": "none", **variables}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # compiled modules are kept, as for a user
    with tempfile.TemporaryFile() as output:
        began = time.monotonic()
        process = subprocess.Popen([sys.executable, *words], cwd=folder, stdout=output, stderr=output, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.monotonic() - began
        output.seek(0)
        printed = output.read().decode("utf-8", "replace")
    if os.waitstatus_to_exitcode(status) not in (0, 3):
        sys.exit(f"{' '.join(words)[:300]}\n{printed[-3000:]}")
    return Measured(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, wall, printed)


def write_judged_cases(path: Path, count: int) -> None:
    """Cases in plain English: 5 contexts of about 200 tokens, an answer and a reference of four sentences."""
    with open(path, "w", encoding="utf-8") as file:
        for i in range(count):
            place = PLACES[i % len(PLACES)]
            facts = [
                f"The {place} of district {i} was opened in {1800 + i} by the town council.",
                f"It lies {2 + i % 7} kilometres north of the old church.",
                f"About {300 + 11 * i} people worked there in its best year.",
                "It was rebuilt after the great flood and given a slate roof.",
            ]
            case = {
                "id": f"q{i}", "question": f"What is known about the {place} of district {i}?",
                "answer": " ".join(facts), "reference": " ".join(facts), "contexts": [_passage(facts, k) for k in range(5)],
            }  # fmt: skip
            file.write(json.dumps(case) + "\n")


def _passage(facts: list[str], number: int) -> str:
    others = [
        f"Visitor {n} of the year {1900 + 10 * number + n} wrote in her diary that the road was muddy and the inn was full."
        for n in range(8)
    ]
    return " ".join([*others[:4], facts[number % len(facts)], *others[4:]])


def write_recorded_cases(path: Path, count: int, chunks: int = 20) -> None:
    """Small records: a question, an answer, `chunks` chunk ids with a score, three of 500 documents relevant."""
    drawn = random.Random(0)
    with open(path, "w", encoding="utf-8") as file:
        for i in range(count):
            ids = drawn.sample(range(500), chunks)
            case = {
                "id": f"q{i}", "question": f"question {i}", "answer": "an answer of a few words", "category": f"c{i % 7}",
                "relevant_docs": [f"d{d}" for d in drawn.sample(range(500), 3)],
                "chunks": [{"id": f"d{d}-0", "doc_id": f"d{d}", "score": 1 - r / chunks} for r, d in enumerate(ids)],
            }  # fmt: skip
            file.write(json.dumps(case) + "\n")


def judge_words(url: str, width: int, client: str = "direct") -> list[str]:
    """The judge behind a local server."""
    return [
        "judge=llm", f"judge.model=openai/{MODEL}", f"judge.api_base={url}", "judge.api_key_env=BENCH_KEY",
        f"judge.client={client}", f"judge.concurrency={width}", "judge.max_calls=1000000", "embedder=none",
    ]  # fmt: skip


def say(what: str, value: float, unit: str, at_most: float | None = None, at_least: float | None = None) -> None:
    """Print a figure beside its goal; in the file that RAGPIPE_GOALS names it becomes a row of the table of goals."""
    at_most, at_least = (None, None) if SMALL else (at_most, at_least)
    limit = at_most if at_most is not None else at_least
    sign, is_met = ("<=", limit is None or value <= limit) if at_least is None else (">=", value >= at_least)
    goal = "" if limit is None else f"{sign} {limit:,g}"
    figure = f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"
    print(f"{what:58} {figure:>9} {unit:24} {goal:>10}{'' if is_met else '  missed'}", flush=True)
    if name := os.environ.get("RAGPIPE_GOALS"):
        row = {"what": what, "figure": f"{figure} {unit}", "goal": goal, "is_met": is_met}
        with open(name, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
