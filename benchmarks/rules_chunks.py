"""How far the rules judge tells the chunks that belong to a question from others: context precision on real labels.

    python benchmarks/rules_chunks.py --data ../shared/data

For each question the first five passages that BM25 found, labelled relevant when the data set says that they belong to the
question, else not; the reference is the data set's first answer. The threshold is the one of the claims, chosen on other
data; whether to answer such questions at all, and the rule about the question's words, were decided on these. docs/judges.md
states the figures, and a slow test recomputes them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from rules import auroc, interval, prompt

from ragpipe.core.errors import Skipped
from ragpipe.judge.answers import ChunkGrades
from ragpipe.judge.rules.rules_judge import RulesJudge
from ragpipe.judge.rules.settings import RulesSettings

FIRST = 5
SETS = {"clapnq_dev": "clapnq_dev_answerable.jsonl", "mtrag_un": "reference.jsonl"}
GRADE = prompt(question="question", reference="reference", contexts="sources")


@dataclass(frozen=True)
class JudgeQuestion:
    """One question with its reference answer, the passages found for it and which of them belong to it."""

    id: str
    question: str
    reference: str
    passages: list[str]
    relevant: list[bool]


def asked(data: Path, name: str) -> Iterator[JudgeQuestion]:
    """The questions that have a reference answer, in file order."""
    folder = data / name
    texts = {row["id"]: row["text"] for row in _lines(folder / "corpus.jsonl")}
    references = dict(_reference(row) for row in _lines(folder / SETS[name]))
    belongs, found = defaultdict[str, set[str]](set), defaultdict[str, list[str]](list)
    for line in _rows(folder / "qrels.txt"):
        if int(line[3]) > 0:
            belongs[line[0]].add(line[2])
    for line in _rows(folder / "run.bm25.trec"):
        found[line[0]].append(line[2])
    for row in _lines(folder / "queries.jsonl"):
        key = row["id"]
        if belongs[key] and references.get(key):
            ids = found[key][:FIRST]
            relevant = [i in belongs[key] for i in ids]
            yield JudgeQuestion(key, row["text"], references[key], [texts[i] for i in ids], relevant)


def _lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def _rows(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text(encoding="utf-8").split("\n") if line]


def _reference(row: dict) -> tuple[str, str]:
    if "output" in row:
        return row["id"], row["output"][0]["answer"]
    return row["task_id"].replace("<::>", "_"), (row.get("targets") or [{"text": ""}])[0]["text"]


def measure(data: Path, name: str) -> str:
    """One row of the table: counts, AUROC of the relevance with its interval, precision and recall of the verdict.

    Resampled by whole conversations: the turns of one share their passages.
    """
    judge, groups, truth, relevance, said, skipped = RulesJudge(RulesSettings()), [], [], [], [], 0
    for one in asked(data, name):
        values = {"question": one.question, "reference": one.reference, "contexts": one.passages}
        try:
            grades = judge.answer(GRADE, ChunkGrades, values).verdicts
        except Skipped:
            skipped += 1
            continue
        groups += [one.id.partition("_")[0]] * len(grades)
        truth += one.relevant
        relevance += [grade.relevance for grade in grades]
        said += [grade.relevant for grade in grades]
    flags, scores, verdicts, every = np.array(truth), np.array(relevance), np.array(said), np.array(groups)
    low, high = interval(every, lambda at: auroc(flags[at], scores[at]))
    area = f"{auroc(flags, scores):.3f} [{low:.3f}, {high:.3f}]"
    precision, recall = flags[verdicts].mean(), verdicts[flags].mean()
    return f"| {name} | {len(flags)} | {flags.sum()} | {skipped} | {area} | {precision:.2f} | {recall:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder with clapnq_dev and mtrag_un")
    options = parser.parse_args()
    print("| set | chunks | relevant | questions without a statement | AUROC [95 %] | precision | recall |")
    print("|---|---|---|---|---|---|---|")
    for name in SETS:
        print(measure(options.data, name))


if __name__ == "__main__":
    main()
