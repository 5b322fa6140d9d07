"""What it costs to look at a finished run: its reports written, one case explained, the same command started again.

    python benchmarks/reports.py [--cases 5000] [--rounds 5] [--tree FOLDER]

Makes one run over cases with five contexts, judged by the offline judge, then prints CPU seconds (user + sys), each the
least of all rounds:

- reports: `report.html` and `report.md` written from the tables, beside `html.escape` and a write of the same number of
  bytes;
- explain: the whole command for one case in the middle, and a second start of the run: the whole command again. Beside
  them stand an interpreter that only imports pyarrow, pydantic and hydra, and the sha256 of the data and of all tables,
  without which nobody knows that nothing has changed.

`--tree` measures the ragpipe of another folder. Goals: reports in at most half of what they cost before marks were painted
as stretches; explain at most 2 s and a second start at most 1 s with 100,000 recorded cases.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORDS = "the quick brown fox jumps over a lazy dog while nobody looks at all paris budget revenue capital member office"
IMPORTS = "import pyarrow.parquet, pydantic, hydra"
REPORTS = """
import html, sys, time
from pathlib import Path
from ragpipe.report.settings import ReportSettings
from ragpipe.runs.write_reports import write_report_files
from ragpipe.store.run_folder import RunFolder
run = RunFolder(Path(sys.argv[1]).resolve())
times = []
for _ in range(int(sys.argv[2])):
    for page in (run.report, run.html):
        page.unlink(missing_ok=True)
    start = time.process_time()
    write_report_files(run, run.iteration(1), ReportSettings())
    written = time.process_time()
    text = run.html.read_text(encoding="utf-8")
    read = time.process_time()
    Path(sys.argv[3]).write_text(html.escape(text)[: len(text)], encoding="utf-8")
    times.append((written - start, time.process_time() - read, len(text)))
print(*(min(column) for column in zip(*times)))
"""
DIGESTS = """
import hashlib, sys
from pathlib import Path
paths = [Path(sys.argv[1]), *Path(sys.argv[2]).resolve().rglob("*.parquet")]
for path in paths:
    with open(path, "rb") as file:
        hashlib.file_digest(file, "sha256")
"""


def write_cases(path: Path, count: int) -> None:
    """Cases whose answers hold one sentence of a context and one that stands nowhere."""
    drawn, words = random.Random(1), WORDS.split()
    with path.open("w") as file:
        for number in range(count):
            texts = [" ".join(drawn.choices(words, k=60)) for _ in range(5)]
            quoted = " ".join(drawn.choice(texts).split()[10:25])
            contexts = [{"id": f"c{number}-{rank}", "text": f"Passage {rank}. {text}."} for rank, text in enumerate(texts)]
            case = {
                "id": f"q{number}", "question": f"What does case {number} say about the {drawn.choice(words)}?",
                "answer": f"{quoted.capitalize()}. {' '.join(drawn.choices(words, k=12)).capitalize()}.", "contexts": contexts,
            }  # fmt: skip
            file.write(json.dumps(case) + "\n")


def cpu_seconds(words: list[str], tree: Path) -> tuple[float, str]:
    """CPU seconds of a Python process that must succeed, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # compiled modules are kept, as for a user
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment, cwd=tree)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 3):  # 3: a gate blocks, which says nothing about speed
        sys.exit(f"{' '.join(words[:4])} ...\n{done.stdout}{done.stderr}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tree", type=Path, default=ROOT)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cases, run = folder / "cases.jsonl", folder / "runs" / "looks" / "latest"
        write_cases(cases, args.cases)
        evaluate = ["-m", "ragpipe", "dataset=jsonl", f"dataset.path={cases}", "metrics=[faithfulness,groundedness]"]
        evaluate += [f"output_dir={folder / 'runs'}", "name=looks"]
        cpu_seconds(evaluate, args.tree)
        commands = {
            "only imports": ["-c", IMPORTS],
            "digests of data and tables": ["-c", DIGESTS, str(cases), str(run)],
            "explain one case": ["-m", "ragpipe", "task=explain", f"run={run}", f"case=q{args.cases // 2}"],
            "second start": evaluate,
        }
        least = {what: min(cpu_seconds(words, args.tree)[0] for _ in range(args.rounds)) for what, words in commands.items()}
        words = ["-c", REPORTS, str(run), str(args.rounds), str(folder / "escaped.html")]
        reports, escaped, size = map(float, cpu_seconds(words, args.tree)[1].split())
        print(f"{args.cases:,} judged cases, a page of {size / 1e6:.1f} MB; CPU seconds")
        print(f"{'reports':28} {reports:6.3f}   {reports / escaped:6.1f} x html.escape and write of the page ({escaped:.3f})")
        for what, seconds in least.items():
            print(f"{what:28} {seconds:6.2f}   {seconds / least['only imports']:6.1f} x only imports")


if __name__ == "__main__":
    main()
