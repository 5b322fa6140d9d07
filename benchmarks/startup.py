"""How long commands take to start, each the best of five: `--help`, a plan, the third start of a finished run, a re-scoring,
the first call. Beside the wall time stand the CPU seconds (user + sys), which other work on the machine changes less.

    python benchmarks/startup.py

Goals: `--help`, `task=plan`, rescoring and reports in at most 1 s; the first call to an OpenAI-compatible endpoint within 1.2 s.
The baseline in the same run is an interpreter that only imports pyarrow, pydantic and hydra.
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


def best(command: list[str], folder: Path, times: int = 5) -> tuple[float, float]:
    """Best wall and best CPU seconds of a command that must succeed. `{n}` in its words is the number of the start."""
    walls, cpus = [], []
    for number in range(times):
        words = [word.replace("{n}", str(number)) for word in command]
        started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, env=environment())
        walls.append(time.perf_counter() - started)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpus.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        if done.returncode:
            sys.exit(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
    return min(walls), min(cpus)


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
        finished = [*ragpipe, "+experiment=quickstart"]
        rescore = [
            "task=rescore",
            "run=outputs/quickstart/latest",
            "scoring.thresholds.faithfulness=0.7{n}",
            "output_dir=r{n}",
        ]
        subprocess.run(finished, cwd=folder, capture_output=True, check=True, env=environment())
        rows = {
            "baseline: import pyarrow, pydantic, hydra": best(
                [sys.executable, "-c", "import pyarrow.parquet, pydantic, hydra"], folder
            ),
            "--help": best([*ragpipe, "--help"], folder),
            "task=plan +experiment=quickstart": best([*ragpipe, "task=plan", "+experiment=quickstart"], folder),
            "a finished quickstart, started again": best(finished, folder),
            "task=rescore of it, report.html included": best([*ragpipe, *rescore], folder),
            "the first call at the server": (min(first_call(folder, data) for _ in range(5)), None),
        }
    base = next(wall for wall, _ in rows.values())
    for what, (wall, cpu) in rows.items():
        print(f"{what:<44} {wall:6.2f} s   {wall / base:5.2f} x baseline" + (f"   {cpu:6.2f} s CPU" if cpu else ""))


if __name__ == "__main__":
    main()
