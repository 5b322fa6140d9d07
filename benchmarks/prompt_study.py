"""Draw labelled answers once, and judge them by several versions of a template: the study of docs/prompts.md.

    python benchmarks/prompt_study.py draw --data ../shared/data
    python benchmarks/prompt_study.py run --data ../shared/data --half development --versions v1 v2 -- judge=llm judge.model=...

`draw` writes prompt_study.json beside this file: a seed, and the answers of two halves that share no question. What is chosen
about a template is chosen on the development half; the reporting half is read once. `trial` and `held_out` are fresh RAGTruth
answers of the two halves, a third of them bad, for the next version. `run` makes one run folder per set and
version below --to, with people's labels beside the judge's scores; words after `--` are the judge's. Runs that stand there are
resumed, so stored replies (`transport=stored`) ask nothing. `benchmarks/prompts.py` compares the folders.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ragpipe

DRAWN = Path(__file__).with_name("prompt_study.json")
SEED = 20261122
HALVES = ("development", "reporting")
FRESH = {"trial": ("development", 7, 13), "held_out": ("reporting", 20, 40)}
"""Draws for a later version: of which half, how many answers that people marked and that they did not."""


@dataclass(frozen=True)
class LabelledSet:
    """One set with human labels: where it is, how many answers are drawn per half, and which of its answers qualify.

    `take` are the labels, as parameters of the metric `recorded`; `keep` is a condition on the records of the data set.
    """

    name: str
    file: str
    per_half: int
    label: str
    take: dict[str, dict[str, Any]]
    keep: str = "id != ''"

    def words(self, data: Path) -> list[str]:
        """The words that compose the set, with people's labels as scores."""
        return [f"dataset={self.name}", f"dataset.path={data / self.name / self.file}"]

    def group(self, sample_id: str) -> str:
        """What must not be in both halves: the question, or the conversation that it is part of."""
        return sample_id.split("<::>")[0]


SETS = (
    LabelledSet(
        "ragtruth_qa", "ragtruth_qa.jsonl", 60, "human_hallucinated",
        {"human_hallucinated": {"from": "hallucinated", "higher_is_better": False, "binary": True}},
    ),
    LabelledSet(
        "expertqa", "rand_val.jsonl", 30, "human_supported", {"human_supported": {"from": "supported"}},
        "(starts_with(method, 'post_hoc_') || starts_with(method, 'rr_')) && length(contexts[?length(text) > `200`]) > `0`",
    ),
    LabelledSet(
        "mtrag_human", "mtrag_human_evaluations.json", 30, "human_faithfulness",
        {"human_faithfulness": {"from": "faithfulness", "low": 1, "high": 4}}, "method != 'reference' && length(chunks) > `0`",
    ),
)  # fmt: skip


def draw(data: Path, scratch: Path) -> dict[str, Any]:
    """Answers of each set at random, in two halves without a common question; only such as people labelled."""
    halves: dict[str, dict[str, list[list[str]]]] = {half: {} for half in HALVES}
    for labelled in SETS:
        words = [*labelled.words(data), {"dataset.filter": labelled.keep}, "metrics=[recorded]", "judge=rules"]
        labels = {"metrics.recorded.take": labelled.take}
        run = ragpipe.run([*words, f"name=draw_{labelled.name}", f"output_dir={scratch}", labels], quiet=True)
        records = run.records[run.records[labelled.label].notna()]
        answers = sorted(zip(records["sample_id"], records["method"], strict=True))
        generator = random.Random(f"{SEED}-{labelled.name}")
        groups = sorted({labelled.group(sample) for sample, _ in answers})
        generator.shuffle(groups)
        for position, half in enumerate(HALVES):
            mine = set(groups[position::2])
            pool = [list(answer) for answer in answers if labelled.group(answer[0]) in mine]
            halves[half][labelled.name] = sorted(generator.sample(pool, labelled.per_half))
        if labelled.name == "ragtruth_qa":
            bad = {
                (sample, method) for sample, method, label in records[["sample_id", "method", labelled.label]].values if label
            }
            fresh = _fresh(labelled, answers, groups, bad, halves)
    return {"seed": SEED, **halves, **fresh}


def _fresh(
    labelled: LabelledSet, answers: list[Any], groups: list[str], bad: set[Any], halves: dict[str, Any]
) -> dict[str, Any]:
    """Answers of each half that were not drawn before, so many bad and so many good ones."""
    fresh = {}
    for name, (half, wanted_bad, wanted_good) in FRESH.items():
        mine, drawn = set(groups[HALVES.index(half) :: 2]), halves[half][labelled.name]
        pool = [list(answer) for answer in answers if labelled.group(answer[0]) in mine and list(answer) not in drawn]
        generator = random.Random(f"{SEED}-{labelled.name}-{name}")
        parts = [[answer for answer in pool if (tuple(answer) in bad) == is_bad] for is_bad in (True, False)]
        rows = [generator.sample(part, size) for part, size in zip(parts, (wanted_bad, wanted_good), strict=True)]
        fresh[name] = {labelled.name: sorted(rows[0] + rows[1])}
    return fresh


def run_versions(data: Path, half: str, versions: list[str], to: Path, judge: list[str], sets: list[str]) -> None:
    """One run per set and version; all at once, so that a judge sees the versions in no order.

    Args:
        data: the folder of the sets.
        half: the half of the answers.
        versions: versions of `faithfulness/combined`.
        to: the folder of the runs.
        judge: words that compose the judge.
        sets: names of the sets.
    """
    answers = json.loads(DRAWN.read_text(encoding="utf-8"))[half]
    sets = [name for name in sets if name in answers]
    jobs = [
        _words(labelled, data, answers[labelled.name], version, f"{labelled.name}_{half}_{version}", to) + judge
        for labelled in SETS
        for version in versions
        if labelled.name in sets
    ]
    with ThreadPoolExecutor(len(jobs)) as threads:
        for run in threads.map(lambda words: ragpipe.run(words, quiet=True), jobs):
            print(run.path)


def _words(labelled: LabelledSet, data: Path, answers: list[list[str]], version: str, name: str, to: Path) -> list[Any]:
    drawn = json.dumps([" / ".join(answer) for answer in answers])
    return [
        *labelled.words(data),
        {"dataset.filter": f"contains(`{drawn}`, join(' / ', [id, method]))"},
        "metrics=[faithfulness,recorded]",
        "metrics.faithfulness.steps=combined",
        f"metrics.faithfulness.prompts.combined={version}",
        {"metrics.recorded.take": labelled.take},
        f"name={name}",
        f"output_dir={to}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("draw", "run"))
    parser.add_argument("--data", type=Path, required=True, help="the folder of the labelled sets")
    parser.add_argument("--half", choices=(*HALVES, *FRESH), default="development")
    parser.add_argument("--versions", nargs="+", default=["v1", "v2"])
    parser.add_argument("--sets", nargs="+", default=[labelled.name for labelled in SETS])
    parser.add_argument("--to", type=Path, default=Path("outputs/prompt_study"))
    words = sys.argv[1:]
    own = words.index("--") if "--" in words else len(words)
    options, judge = parser.parse_args(words[:own]), words[own + 1 :]
    if options.action == "draw":
        drawn = draw(options.data.resolve(), options.to / "draw")
        DRAWN.write_text(json.dumps(drawn, indent=1) + "\n", encoding="utf-8")
        return
    run_versions(options.data.resolve(), options.half, options.versions, options.to, judge, options.sets)


if __name__ == "__main__":
    main()
