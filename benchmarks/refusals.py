"""How well the rules of `refusals.v3` tell refusals from answers, on answers that no rule was made by.

    python benchmarks/refusals.py --data data

The rules were written on the development halves (by the hash of the question's id) of RAGTruth and MTRAG-UN, on the
demonstration data and on sentences of our own. The figures are of what is left: the held-out halves, and MTRAG (human) and
ClapNQ whole. Beside them stand single phrases, searched anywhere in the answer. docs/refusals.md states the table, and a
slow test recomputes it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragpipe.core.refusals import load_refusals, read_refusal

# The phrases of a widely used plan for evaluating rejections, as they stand there.
PHRASES = re.compile(
    r"I (am|'m) unable to|I cannot (provide|answer)|I don't have enough information|This question cannot be answered"
    r"|my (training|knowledge) (cutoff|cut-off)|as of (my|the) (training|knowledge)",
    re.I,
)
# By reading (beginning and end of the long ones), before the rules were run on them, all answers of the held-out half with
# any word of denial: these two give nothing of what was asked. (question, model)
DECLINING = {("15388", "llama-2-7b-chat"), ("15308", "llama-2-13b-chat")}


@dataclass(frozen=True)
class Labelled:
    """One answer, and whether it is labelled as declining."""

    answer: str
    declines: bool


def held_out(name: str) -> bool:
    """The half that was not looked at when the rules were written."""
    return int(hashlib.sha256(f"refusal{name}".encode()).hexdigest(), 16) % 2 == 1


def ragtruth(data: Path) -> Iterator[Labelled]:
    for row in _lines(data / "ragtruth_qa" / "ragtruth_qa.jsonl"):
        if held_out(str(row["source_id"])):
            for one in row["responses"]:
                yield Labelled(one["response"], (str(row["source_id"]), one["model"]) in DECLINING)


def mtrag_un(data: Path) -> Iterator[Labelled]:
    """The written answers; labelled by the task: unanswerable ones should be declined."""
    for row in _lines(data / "mtrag_un" / "reference.jsonl"):
        if held_out(row["conversation_id"]):
            yield Labelled(row["targets"][0]["text"], row["answerability"] == ["UNANSWERABLE"])


def mtrag_human(data: Path) -> Iterator[Labelled]:
    """Labelled by the data set's own detector, whose verdict is stored as `answerable unless it declines, and vice versa`."""
    found = json.loads((data / "mtrag_human" / "mtrag_human_evaluations.json").read_text(encoding="utf-8"))
    answerable = {task["task_id"]: task["Answerability"] != ["UNANSWERABLE"] for task in found["tasks"]}
    for one in found["evaluations"]:
        right = one["annotations"]["conditional_idk"]["composite"]["value"] == 1
        yield Labelled(one["model_response"], right != answerable[one["task_id"]])


def clapnq(data: Path) -> Iterator[Labelled]:
    """Answers by people to answerable questions: none declines."""
    for row in _lines(data / "clapnq_dev" / "clapnq_dev_answerable.jsonl"):
        for one in row["output"]:
            yield Labelled(one["answer"], False)


SETS = {
    "RAGTruth, held-out half": ragtruth,
    "MTRAG-UN, held-out half": mtrag_un,
    "MTRAG, human evaluations": mtrag_human,
    "ClapNQ dev, answerable": clapnq,
}


def measure(data: Path, name: str) -> str:
    """One row of the table."""
    answers = list(SETS[name](data))
    rules = [read_refusal(one.answer, load_refusals("refusals.v3")).refused for one in answers]
    phrases = [bool(PHRASES.search(one.answer)) for one in answers]
    declining = sum(one.declines for one in answers)
    return f"| {name} | {len(answers)} | {declining} | {_told(answers, rules)} | {_told(answers, phrases)} |"


def _told(answers: list[Labelled], said: list[bool]) -> str:
    found = sum(one.declines and told for one, told in zip(answers, said, strict=True))
    alarms = sum(told and not one.declines for one, told in zip(answers, said, strict=True))
    return f"{found} / {alarms}"


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line:
            yield json.loads(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    data = parser.parse_args().data
    print("| set | answers | declining | rules: found / false alarms | phrases: found / false alarms |\n|---|---|---|---|---|")
    for name in SETS:
        print(measure(data, name))


if __name__ == "__main__":
    main()
