"""What it takes to start a command: CPU seconds (user + sys) of `--help`, and of a plan, a start of a finished run, an
explanation, a list of runs and a re-scoring of the quickstart; and how long the first call of a judge takes to arrive.

    python benchmarks/startup.py

Each command runs five times; the least CPU time counts, since other work on the machine only adds to it. Beside it stands
its ratio to an interpreter of the same minutes that only imports pyarrow, pydantic and hydra.

Goals: `--help` at most 0.1 s; `task=plan`, a finished run started again, `task=explain` and `task=runs` at most 1 s of CPU on a
machine where those imports take 0.45 s; the first call to an OpenAI-compatible endpoint within 1.2 s of the start.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ragpipe.testing.openai_server import read_log, serving_in_subprocess  # noqa: E402  its folder is on the path only now


def environment() -> dict[str, str]:
    """That of a user: compiled modules are kept, where this process may have been told not to write any."""
    found = {**os.environ, "PYTHONPATH": str(ROOT)}
    found.pop("PYTHONDONTWRITEBYTECODE", None)
    return found


def best(command: list[str], folder: Path, times: int = 5) -> float:
    """Least CPU seconds of a command that must succeed. `{n}` in its words is the number of the start."""
    cpus = []
    for number in range(times):
        words = [word.replace("{n}", str(number)) for word in command]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, env=environment())
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpus.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        if done.returncode:
            sys.exit(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
    return min(cpus)


def first_call(folder: Path, data: Path) -> float:
    """Seconds from the start of the process to the arrival of its first request at the server."""
    log = folder / "log.jsonl"
    with serving_in_subprocess("--log", str(log)) as url:
        started = time.time()
        subprocess.run(
            [sys.executable, "-m", "ragpipe", "dataset=jsonl", f"dataset.path={data}", "metrics=[groundedness]", "judge=llm",
             "judge.model=openai/m-2026-01-01", f"judge.api_base={url}", f"output_dir={folder / str(started)}"],
            cwd=folder, capture_output=True, check=True, env={**environment(), "OPENAI_API_KEY": "none"},
        )  # fmt: skip
        return min(line["arrived"] for line in read_log(log) if line["arrived"] >= started) - started


IMPORTS = [sys.executable, "-c", "import pyarrow.parquet, pydantic, hydra"]
RUN = "run=outputs/quickstart/latest"
COMMANDS: list[tuple[str, float | None]] = [
    ("--help", 0.1),
    ("task=plan +experiment=quickstart", 1.0),
    ("+experiment=quickstart", 1.0),
    (f"task=explain {RUN} case=dao-04 metric=faithfulness", 1.0),
    ("task=runs", 1.0),
    (f"task=rescore {RUN} scoring.thresholds.faithfulness=0.7{{n}} output_dir=r{{n}}", None),
]
"""The words of each command and its goal in seconds."""


def main() -> None:
    ragpipe = [sys.executable, "-m", "ragpipe"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = folder / "cases.jsonl"
        data.write_text(
            "".join(
                json.dumps({"id": f"q{i}", "question": "q", "answer": "An answer.", "contexts": ["A text."]}) + "\n"
                for i in range(20)
            )
        )
        subprocess.run([*ragpipe, "+experiment=quickstart"], cwd=folder, capture_output=True, check=True, env=environment())
        base = best(IMPORTS, folder)
        print(f"{base:6.2f} s CPU   1.00 x   baseline: import pyarrow, pydantic, hydra")
        for words, goal in COMMANDS:
            cpu = best([*ragpipe, *words.split()], folder)
            goal_text = f"   (goal {goal:.2f} s)" if goal else ""
            print(f"{cpu:6.2f} s CPU {cpu / base:6.2f} x   {words}{goal_text}", flush=True)
        call = min(first_call(folder, data) for _ in range(5))
        print(f"{call:6.2f} s wall           the first call at the server (goal 1.20 s)")


if __name__ == "__main__":
    main()
