"""How far the rules judge and the rules of refusals agree with people: the tables of docs/judges.md and docs/prompts.md.

    python benchmarks/rules.py --data ../shared/data [--parts faithfulness chunks citations refusals planted] [--half development]

- faithfulness: RAGTruth question answering against human spans. Only the development half of the questions was looked at while the
  rules and the threshold were made; the default prints the held-out half.
- chunks: context precision on real labels. For each question the first five passages that BM25 found, relevant when the data set
  says that they belong to it; the reference is the data set's first answer.
- citations: ExpertQA claims that cite a passage and have an expert's verdict; accurate for the expert means `Complete`.
- refusals: `refusals.v3` on answers that no rule was made by: the held-out halves of RAGTruth and MTRAG-UN, MTRAG (human) and ClapNQ
  whole. Beside them stand single phrases, searched anywhere in the answer.
- planted: the failures planted in the demonstration set, as the recorded language model and the rules judge see them.

A slow test recomputes what the pages state.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import measured  # noqa: F401  puts the checkout on the path
import numpy as np

import ragpipe
from ragpipe.core.errors import Skipped
from ragpipe.core.refusals import load_refusals, read_refusal
from ragpipe.judge.answers import ChunkGrades, Claims, Verdicts
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.rules.rules_judge import RulesJudge, check_citations
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
GRADE = prompt(question="question", reference="reference", contexts="sources")


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


# --- chunks


FIRST = 5
CHUNK_SETS = {"clapnq_dev": "clapnq_dev_answerable.jsonl", "mtrag_un": "reference.jsonl"}


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
    references = dict(_reference(row) for row in _lines(folder / CHUNK_SETS[name]))
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


def chunk_row(data: Path, name: str) -> str:
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


# --- citations


LABELS = {"Complete": True, "Partial": False, "Incomplete": False, "Missing": False}
SHORTEST = 6  # words after the address from which a piece of evidence is a passage


def cited(path: Path) -> Iterator[tuple[str, str, bool]]:
    """Claim, cited text, and whether the expert found the support complete."""
    for line in path.read_text(encoding="utf-8").split("\n"):
        for record in json.loads(line)["answers"].values() if line else ():
            for claim in record["claims"]:
                passages = [len(piece.partition("\n")[2].split()) >= SHORTEST for piece in claim["evidence"]]
                if claim["support"] in LABELS and any(passages):
                    yield claim["claim_string"], "\n".join(claim["evidence"]), LABELS[claim["support"]]


def citation_row(path: Path) -> str:
    """The row of the table."""
    rows = list(cited(path))
    truth = np.array([label for *_, label in rows])
    said = np.array([_accurate(claim, passage) for claim, passage, _ in rows])
    agree, always = float((truth == said).mean()), float(truth.mean())
    found, alarms = int((truth & said).sum()), int((~truth & said).sum())
    shares = f"{found} of {int(truth.sum())} | {alarms} of {int((~truth).sum())}"
    return f"| {len(rows)} | {shares} | {agree:.3f} | {always:.3f} | {kappa(truth, said):.3f} |"


def _accurate(claim: str, passage: str) -> bool:
    return check_citations([{"text": claim, "source": 1}], [passage], RulesSettings()).verdicts[0].accurate


# --- refusals


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
class Reply:
    """One answer, and whether it is labelled as declining."""

    answer: str
    declines: bool


def untouched(name: str) -> bool:
    """The half that was not looked at when the rules were written."""
    return int(sha256(f"refusal{name}".encode()).hexdigest(), 16) % 2 == 1


def ragtruth(data: Path) -> Iterator[Reply]:
    for row in _lines(data / "ragtruth_qa" / "ragtruth_qa.jsonl"):
        if untouched(str(row["source_id"])):
            for one in row["responses"]:
                yield Reply(one["response"], (str(row["source_id"]), one["model"]) in DECLINING)


def mtrag_un(data: Path) -> Iterator[Reply]:
    """The written answers; labelled by the task: unanswerable ones should be declined."""
    for row in _lines(data / "mtrag_un" / "reference.jsonl"):
        if untouched(row["conversation_id"]):
            yield Reply(row["targets"][0]["text"], row["answerability"] == ["UNANSWERABLE"])


def mtrag_human(data: Path) -> Iterator[Reply]:
    """Labelled by the data set's own detector, whose verdict is stored as `answerable unless it declines, and vice versa`."""
    found = json.loads((data / "mtrag_human" / "mtrag_human_evaluations.json").read_text(encoding="utf-8"))
    answerable = {task["task_id"]: task["Answerability"] != ["UNANSWERABLE"] for task in found["tasks"]}
    for one in found["evaluations"]:
        right = one["annotations"]["conditional_idk"]["composite"]["value"] == 1
        yield Reply(one["model_response"], right != answerable[one["task_id"]])


def clapnq(data: Path) -> Iterator[Reply]:
    """Answers by people to answerable questions: none declines."""
    for row in _lines(data / "clapnq_dev" / "clapnq_dev_answerable.jsonl"):
        for one in row["output"]:
            yield Reply(one["answer"], False)


REFUSAL_SETS = {
    "RAGTruth, held-out half": ragtruth,
    "MTRAG-UN, held-out half": mtrag_un,
    "MTRAG, human evaluations": mtrag_human,
    "ClapNQ dev, answerable": clapnq,
}


def refusal_row(data: Path, name: str) -> str:
    """One row of the table."""
    answers = list(REFUSAL_SETS[name](data))
    rules = [read_refusal(one.answer, load_refusals("refusals.v3")).refused for one in answers]
    phrases = [bool(PHRASES.search(one.answer)) for one in answers]
    declining = sum(one.declines for one in answers)
    return f"| {name} | {len(answers)} | {declining} | {_told(answers, rules)} | {_told(answers, phrases)} |"


def _told(answers: list[Reply], said: list[bool]) -> str:
    found = sum(one.declines and told for one, told in zip(answers, said, strict=True))
    alarms = sum(told and not one.declines for one, told in zip(answers, said, strict=True))
    return f"{found} / {alarms}"


# --- planted failures


JUDGES = {"recorded language model": [], "rules": ["judge=rules", "store.recorded=null", "transport=live"]}
SHOWN_BY = {
    "unsupported_claim": ("faithfulness", "groundedness"),
    "hallucinated_unanswerable": ("faithfulness", "correctness"),
    "false_rejection": ("answer_relevance", "correctness"),
    "false_acceptance": ("correctness",),
    "incomplete_answer": ("correctness",),
    "irrelevant_answer": ("answer_relevance", "correctness"),
    "irrelevant_context": ("context_relevance",),
    "retrieval_miss": ("context_relevance",),
    "dangling_citation": ("citation",),
}
"""For each kind of planted failure the scores that should be low."""


def records(words: list[str], folder: str) -> Any:
    """The cases of a run with these words."""
    common = ["+experiment=quickstart_llm", f"output_dir={folder}", "report.formats=[]"]
    return ragpipe.run([*common, *words], quiet=True).records


def planted(cases: Any) -> list[list[str]]:
    """The failures that were planted in each output."""
    every = (json.loads(meta or "{}").get("planted", {}) for meta in cases["meta"])
    return [kinds.get(method, []) for kinds, method in zip(every, cases["method"], strict=True)]


def flagged(cases: Any, score: str) -> str:
    """How many of the cases have the score below its threshold: `12 of 18`, `-` where none has it."""
    passed = cases[f"{score}.passed"].dropna()
    return f"{int((passed == False).sum())} of {len(passed)}" if len(passed) else "-"  # noqa: E712


def of_faithfulness(data: Path, half: str) -> Iterator[str]:
    rows, counts = measure(data / "ragtruth_qa" / "ragtruth_qa.jsonl", half)
    yield f"{half}: " + ", ".join(f"{count} {name}" for name, count in counts.items())
    yield "| labels | judge | AUROC [95 %] | kappa [95 %] |\n|---|---|---|---|"
    yield from map(str, rows)


def of_chunks(data: Path, half: str) -> Iterator[str]:
    yield "| set | chunks | relevant | questions without a statement | AUROC [95 %] | precision | recall |\n|---|---|---|---|---|---|---|"
    yield from (chunk_row(data, name) for name in CHUNK_SETS)


def of_citations(data: Path, half: str) -> Iterator[str]:
    yield "| claims | found | false alarms | agreement | always accurate | kappa |\n|---|---|---|---|---|---|"
    yield citation_row(data / "expertqa" / "rand_val.jsonl")


def of_refusals(data: Path, half: str) -> Iterator[str]:
    yield "| set | answers | declining | rules: found / false alarms | phrases: found / false alarms |\n|---|---|---|---|---|"
    yield from (refusal_row(data, name) for name in REFUSAL_SETS)


def of_planted(data: Path, half: str) -> Iterator[str]:
    """For each kind of planted failure and a score that should show it: how many of the answers with it have that score below its
    threshold, of those that have the score. The last rows are false alarms, of answers without any planted failure."""
    with tempfile.TemporaryDirectory() as folder:
        runs = {judge: records(words, folder) for judge, words in JUDGES.items()}
    kinds = planted(next(iter(runs.values())))
    yield f"| planted failure | score | {' | '.join(runs)} |\n|---|---|{'---|' * len(runs)}"
    for kind, scores in SHOWN_BY.items():
        chosen = [kind in of_case for of_case in kinds]
        for score in scores:
            yield f"| `{kind}` | `{score}` | {' | '.join(flagged(cases[chosen], score) for cases in runs.values())} |"
    sound = [not of_case for of_case in kinds]
    for score in dict.fromkeys(score for scores in SHOWN_BY.values() for score in scores):
        yield f"| none | `{score}` | {' | '.join(flagged(cases[sound], score) for cases in runs.values())} |"


PARTS: dict[str, Callable[[Path, str], Iterator[str]]] = {
    "faithfulness": of_faithfulness, "chunks": of_chunks, "citations": of_citations, "refusals": of_refusals,
    "planted": of_planted,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the data sets")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--half", choices=("held_out", "development"), default="held_out", help="of RAGTruth's questions")
    parser.add_argument("--small", action="store_true", help="the smallest size: does it work?")
    args = parser.parse_args()
    for name in ["citations", "planted"] if args.small else args.parts:
        print(*PARTS[name](args.data, args.half), "", sep="\n", flush=True)


if __name__ == "__main__":
    main()
