"""How far the rules judge agrees with people: RAGTruth question answering, faithfulness against human spans.

    python benchmarks/rules.py --data ../shared/data/ragtruth_qa/ragtruth_qa.jsonl [--half development]

Only the development half of the questions was looked at while the rules and the threshold were made. The default
prints the held-out half; docs/judges.md states its figures and a slow test recomputes them.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

from ragpipe.core.errors import Skipped
from ragpipe.judge.answers import Claims, Groundedness, Verdicts, YesNo
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.rules.rules_judge import RulesJudge
from ragpipe.judge.rules.settings import RulesSettings

PASSED = 0.85  # the documents' threshold of faithfulness: an answer under it counts as flagged
RESAMPLES = 2000


def half(source_id: object) -> str:
    """`development` or `held_out`; whole questions, by the second bit of their id's hash (the data kept even ones)."""
    return "held_out" if (int(sha256(str(source_id).encode()).hexdigest(), 16) // 2) % 2 else "development"


def prompt(**roles: str) -> Prompt:
    """A prompt of which the judge reads the roles only."""
    return Prompt("benchmark/step", "v1", Path(), "", "", roles, {}, (), frozenset(roles), {})


EXTRACT = prompt(answer="text")
VERIFY = prompt(claims="claims", contexts="sources")
GROUND = prompt(answer="text", contexts="sources")
FIRST = prompt(information="text", context="sources")
REFINE = prompt(information="text", existing="existing", context="sources")


@dataclass(frozen=True)
class Labelled:
    """One answer with its passages and what people marked in it."""

    question: str
    answer: str
    passages: list[str]
    hallucinated: bool
    strict: bool  # without spans that are true but not in the passages


def labelled(path: Path, which: str) -> Iterator[Labelled]:
    """The answers of one half, in file order."""
    for line in path.read_text(encoding="utf-8").split("\n"):
        if not line or half((row := json.loads(line))["source_id"]) != which:
            continue
        passages = [p.strip() for p in re.split(r"passage \d+:", row["source"]["passages"]) if p.strip()]
        for response in row["responses"]:
            labels = response["labels"]
            yield Labelled(
                str(row["source_id"]), response["response"], passages,
                bool(labels), any(not label["implicit_true"] for label in labels),
            )  # fmt: skip


def faithfulness(judge: RulesJudge, case: Labelled) -> float:
    """Supported claims over claims, 1.0 without claims, as the metric has it."""
    claims = judge.answer(EXTRACT, Claims, {"answer": case.answer}).claims
    if not claims:
        return 1.0
    asked = {"claims": claims, "contexts": case.passages}
    verdicts = judge.answer(VERIFY, Verdicts, asked).verdicts
    return sum(v.supported for v in verdicts) / len(verdicts)


def all_three(judge: RulesJudge, case: Labelled) -> None:
    """What the three metrics ask about one case: for the clock."""
    faithfulness(judge, case)
    try:
        judge.answer(GROUND, Groundedness, {"answer": case.answer, "contexts": case.passages})
        judge.answer(FIRST, YesNo, {"information": case.answer, "context": case.passages[0]})
        for passage in case.passages[1:]:
            judge.answer(REFINE, YesNo, {"information": case.answer, "existing": "NO", "context": passage})
    except Skipped:
        pass


def auroc(flag: np.ndarray, suspicion: np.ndarray) -> float:
    """Chance that a flagged answer is more suspect than another one, ties count half; NaN with one class."""
    bad, good = suspicion[flag], suspicion[~flag]
    if not len(bad) or not len(good):
        return float("nan")
    wins = np.sign(bad[:, None] - good[None, :])
    return float((wins.mean() + 1) / 2)


def kappa(truth: np.ndarray, said: np.ndarray) -> float:
    """Cohen's kappa of two yes/no columns; 0 when one of them never varies."""
    agree = (truth == said).mean()
    chance = truth.mean() * said.mean() + (1 - truth.mean()) * (1 - said.mean())
    return round(float((agree - chance) / (1 - chance)), 12) + 0.0 if chance < 1 else 0.0


def interval(questions: np.ndarray, statistic: Callable[[np.ndarray], float]) -> tuple[float, float]:
    """95 % percentile bootstrap over whole questions: the answers to one question are not independent."""
    generator = np.random.default_rng(20240718)
    groups = [np.flatnonzero(questions == q) for q in np.unique(questions)]
    values = [
        statistic(np.concatenate([groups[i] for i in generator.integers(len(groups), size=len(groups))]))
        for _ in range(RESAMPLES)
    ]
    low, high = np.nanpercentile(values, [2.5, 97.5])
    return float(low), float(high)


@dataclass(frozen=True)
class Row:
    """One line of the table: a figure with its interval."""

    labels: str
    judge: str
    auroc: float
    auroc_interval: tuple[float, float]
    kappa: float
    kappa_interval: tuple[float, float]

    def __str__(self) -> str:
        (al, ah), (kl, kh) = self.auroc_interval, self.kappa_interval
        area, agreement = f"{self.auroc:.3f} [{al:.3f}, {ah:.3f}]", f"{self.kappa:.3f} [{kl:.3f}, {kh:.3f}]"
        return f"| {self.labels} | {self.judge} | {area} | {agreement} |"


def _row(labels: str, judge: str, questions: np.ndarray, truth: np.ndarray, suspicion: np.ndarray, said: np.ndarray) -> Row:
    area, agreement = (lambda at: auroc(truth[at], suspicion[at])), (lambda at: kappa(truth[at], said[at]))
    every = np.arange(len(truth))
    return Row(
        labels, judge, area(every), interval(questions, area), agreement(every), interval(questions, agreement)
    )  # fmt: skip


def longest_passing(cases: list[Labelled], strict: bool) -> int:
    """The answer length that gives the best kappa to `longer answers are hallucinated`, on the development half."""
    lengths = np.array([len(case.answer) for case in cases])
    truth = np.array([case.strict if strict else case.hallucinated for case in cases])
    return int(max(sorted(set(lengths)), key=lambda cut: kappa(truth, lengths > cut)))


def measure(path: Path, which: str = "held_out") -> tuple[list[Row], dict[str, int]]:
    """The table of one half, and its counts."""
    cases, development = list(labelled(path, which)), list(labelled(path, "development"))
    judge = RulesJudge(RulesSettings())
    value = np.array([faithfulness(judge, case) for case in cases])
    length = np.array([float(len(case.answer)) for case in cases])
    questions = np.array([case.question for case in cases])
    never = np.zeros(len(cases))
    rows = []
    for labels, strict in (("all spans", False), ("without implicit_true", True)):
        truth = np.array([case.strict if strict else case.hallucinated for case in cases])
        cut = longest_passing(development, strict)
        rows += [
            _row(labels, judge.settings.label, questions, truth, -value, value < PASSED),
            _row(labels, "always supported", questions, truth, never, never > 0),
            _row(labels, "shorter answer", questions, truth, length, length > cut),
        ]
    counts = {
        "questions": len(set(questions)), "answers": len(cases), "hallucinated": sum(c.hallucinated for c in cases),
        "strict": sum(c.strict for c in cases), "flagged": int((value < PASSED).sum()),
    }  # fmt: skip
    return rows, counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="ragtruth_qa.jsonl")
    parser.add_argument("--half", choices=("held_out", "development"), default="held_out")
    options = parser.parse_args()
    cases = list(labelled(options.data, options.half))
    judge, start = RulesJudge(RulesSettings()), time.process_time()
    for case in cases:
        all_three(judge, case)
    spent = 1000 * (time.process_time() - start) / len(cases)
    rows, counts = measure(options.data, options.half)
    print(f"{options.half}: " + ", ".join(f"{count} {name}" for name, count in counts.items()))
    print("| labels | judge | AUROC [95 %] | kappa [95 %] |\n|---|---|---|---|")
    print(*rows, sep="\n")
    print(f"faithfulness, groundedness and chunk_faithfulness: {spent:.1f} ms of processor a case, nothing read before")


if __name__ == "__main__":
    main()
