"""A million log lines to a frozen test set: seconds, peak MiB, and the ratio to a bare pass of `json.loads` over the file.

    python benchmarks/build_dataset.py [--lines 1000000] [--n 500] [--seed 1] [--folder FOLDER]

The log is made by a seeded script: questions of a help desk with exact duplicates (three lines in ten repeat an earlier question,
often in other letters, blanks or final signs), near duplicates (typing errors) and personal data. Goals for a million
lines: below 90 s and below 500 MiB, and the same hash from the lines in another order.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent

ACTIONS = (
    "return", "exchange", "cancel", "track", "insure", "repair", "order", "reserve", "clean", "assemble", "recycle", "upgrade",
)  # fmt: skip
THINGS = (
    "a lamp", "my bicycle", "the winter coat", "a garden chair", "the coffee machine", "two tickets", "the blue tent", "a gift card",
    "the kitchen scale", "a pair of boots", "my subscription", "the desk", "an electric kettle", "the rain jacket", "a bookshelf",
)  # fmt: skip
TAILS = (
    "that I bought in {month}", "from order {number}", "without the receipt", "in the shop in {town}", "that arrived broken",
    "before {month} {day}", "that was a present", "ordered by phone", "for a friend in {town}", "after {day} days",
)  # fmt: skip
OPENINGS = ("How can I {act} {thing} {tail}?", "May I {act} {thing} {tail}?", "What does it cost to {act} {thing} {tail}?",
            "Who helps me to {act} {thing} {tail}?", "Please tell me how to {act} {thing} {tail}.")  # fmt: skip
TOWNS = ("Fennick", "Oldham Quay", "Brenk", "Tarrow", "Silt", "Marrow Bay", "Upper Nell", "Quarry Hill")
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November")
TOPICS = ("returns", "delivery", "repairs", "orders")
FACTS = (
    "Goods can be returned within 30 days with the receipt, in any shop or by post.",
    "A repair takes five to ten working days; the shop sends a message when it is done.",
    "Orders can be cancelled until they leave the store house, which is usually the next morning.",
    "Large goods are delivered by two people, who also take the old one away.",
)


def log_lines(lines: int, seed: int) -> Iterator[str]:
    """Lines of a log, the same for a seed."""
    drawn = random.Random(seed)
    asked: list[str] = []
    for number in range(lines):
        question = _question(drawn, asked, lines)
        record: dict[str, Any] = {
            "trace": f"t{seed}-{number:07}",
            "time": f"2026-{1 + number * 11 // lines:02}-{1 + drawn.randrange(28):02}T{drawn.randrange(24):02}:{drawn.randrange(60):02}:00Z",
            "request": {"question": question, "topic": drawn.choice(TOPICS), "user": f"u{drawn.randrange(40_000)}"},
            "response": {
                "answer": drawn.choice(FACTS),
                "documents": [{"id": f"d{place}", "text": text} for place, text in enumerate(drawn.sample(FACTS, 2))],
                "grade": drawn.randrange(1, 6),
            },
            "latency": round(drawn.random() * 3, 3),
        }
        yield json.dumps(record, ensure_ascii=False) + "\n"


def _question(drawn: random.Random, asked: list[str], lines: int) -> str:
    """A new question, or one that was asked before, as it was, in another form, or with a typing error."""
    kind = drawn.random()
    if asked and kind < 0.4:
        question = drawn.choice(asked)
        if kind < 0.1:
            return question
        if kind < 0.3:
            return drawn.choice(
                (question.upper(), f"  {question} ", question.rstrip("?.") + " !?", question.replace(" ", "  "))
            )
        place = drawn.randrange(len(question) - 1)
        return question[:place] + question[place + 1] + question[place] + question[place + 2 :]
    tail = drawn.choice(TAILS).format(
        month=drawn.choice(MONTHS), number=drawn.randrange(10**6), town=drawn.choice(TOWNS), day=drawn.randrange(1, 29)
    )
    question = drawn.choice(OPENINGS).format(act=drawn.choice(ACTIONS), thing=drawn.choice(THINGS), tail=tail)
    if drawn.random() < 0.05:
        question += f" Write to ann.{drawn.randrange(1000)}@mail.test or call +44 20 7946 0{drawn.randrange(100, 1000)}."
    if len(asked) < 50_000 or drawn.random() < 0.01:
        asked.append(question)
    return question


MAPPING = """\
# The log that benchmarks/build_dataset.py makes.
path: log.jsonl
fields:
  id: trace
  question: request.question
  category: request.topic
  answer: response.answer
  chunks: {each: response.documents, fields: {id: id, text: text}}
  timings: {fields: {total: {path: latency, unit: s}}}
  recorded: {fields: {grade: response.grade}}
  meta: {fields: {time: time, user: request.user}}
"""
BASELINE = "import json, sys\nfor line in open(sys.argv[1], encoding='utf-8'): json.loads(line)"


class Measured(NamedTuple):
    """What one process took: seconds by the clock and of CPU, and peak resident MiB."""

    seconds: float
    cpu: float
    peak: float


def measure(folder: Path, words: list[str]) -> Measured:
    """Run Python with these words in a process of its own. Exits when it fails."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *words], cwd=folder, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    peak, ended = 0.0, (0, 0, None)
    while not ended[0]:
        peak = max(peak, _peak_of(process.pid))
        time.sleep(0.02)
        ended = os.wait4(process.pid, os.WNOHANG)
    _, status, usage = ended
    if status:
        sys.exit(f"it ended with {os.waitstatus_to_exitcode(status)}: {' '.join(words)}")
    return Measured(time.perf_counter() - start, usage.ru_utime + usage.ru_stime, peak)


def _peak_of(pid: int) -> float:
    """Peak resident MiB so far. Not `ru_maxrss`: that begins with what the parent held when the process was made."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), 0.0)


def write_log(folder: Path, lines: int, seed: int, *, shuffled: bool = False) -> None:
    """`log.jsonl` and its mapping; `shuffled`: the same lines in another order."""
    (folder / "conf" / "dataset").mkdir(parents=True, exist_ok=True)
    (folder / "conf" / "dataset" / "helpdesk.yaml").write_text(MAPPING, encoding="utf-8")
    texts = list(log_lines(lines, seed)) if shuffled else log_lines(lines, seed)
    if isinstance(texts, list):
        random.Random(seed + 1).shuffle(texts)
    with open(folder / "log.jsonl", "w", encoding="utf-8") as file:
        file.writelines(texts)


def build(folder: Path, out: str, n: int) -> tuple[Measured, dict[str, Any]]:
    """One set, and its card."""
    task = ["-m", "ragpipe", "task=build_dataset", "dataset=helpdesk", f"build.dir={out}", f"build.n={n}"]
    measured = measure(folder, task)
    return measured, json.loads((folder / out / "card.json").read_text(encoding="utf-8"))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--n", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where the log is kept; default: a temporary folder")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        write_log(folder, args.lines, args.seed)
        bare = measure(folder, ["-c", BASELINE, "log.jsonl"])
        print(
            f"{args.lines:,} lines, {(folder / 'log.jsonl').stat().st_size / 2**20:.0f} MiB; json.loads alone: {bare.cpu:.1f} s CPU"
        )
        measured, card = build(folder, "set", args.n)
        ratio = measured.cpu / bare.cpu
        print(
            f"{card['cases']} cases in {measured.seconds:.1f} s ({measured.cpu:.1f} s CPU, {ratio:.1f} times json.loads), {measured.peak:.0f} MiB"
        )
        write_log(folder, args.lines, args.seed, shuffled=True)
        _, shuffled = build(folder, "set-shuffled", args.n)
        print(f"the lines in another order: {'the same hash' if shuffled['sha256'] == card['sha256'] else 'ANOTHER HASH'}")


if __name__ == "__main__":
    main()
