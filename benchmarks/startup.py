"""How long commands take to start, each the best of five: `--help`, a plan, the third start of a finished run, the first call.

    python benchmarks/startup.py

Goals: `--help`, `task=plan`, rescoring and reports in at most 1 s; the first call to an OpenAI-compatible endpoint within 1.2 s.
The baseline in the same run is an interpreter that only imports pyarrow, pydantic and hydra.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from openai_server import in_subprocess, read_log  # noqa: E402  its folder is on the path only now


def best(command: list[str], folder: Path, times: int = 5) -> float:
    """Best wall seconds of a command that must succeed."""
    found = []
    for _ in range(times):
        started = time.perf_counter()
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        found.append(time.perf_counter() - started)
        if done.returncode:
            sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return min(found)


def first_call(folder: Path, data: Path) -> float:
    """Seconds from the start of the process to the arrival of its first request at the server."""
    log = folder / "log.jsonl"
    with in_subprocess("--log", str(log)) as url:
        started = time.time()
        subprocess.run(
            [sys.executable, "-m", "ragpipe", "dataset=jsonl", f"dataset.path={data}", "metrics=[groundedness]", "judge=llm",
             "judge.model=openai/m-2026-01-01", f"judge.api_base={url}", f"output_dir={folder / str(started)}"],
            cwd=folder, capture_output=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT), "OPENAI_API_KEY": "none"},
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
        subprocess.run(
            finished, cwd=folder, capture_output=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        rows = {
            "baseline: import pyarrow, pydantic, hydra": best(
                [sys.executable, "-c", "import pyarrow.parquet, pydantic, hydra"], folder
            ),
            "--help": best([*ragpipe, "--help"], folder),
            "task=plan +experiment=quickstart": best([*ragpipe, "task=plan", "+experiment=quickstart"], folder),
            "a finished quickstart, started again": best(finished, folder),
            "the first call at the server": min(first_call(folder, data) for _ in range(5)),
        }
    base = next(iter(rows.values()))
    for what, seconds in rows.items():
        print(f"{what:<44} {seconds:6.2f} s   {seconds / base:5.2f} x baseline")


if __name__ == "__main__":
    main()
