"""The failures planted in the demonstration set, as the recorded language model and the rules judge see them.

    python benchmarks/planted.py

Both judge the same 101 answers by the same templates (`+experiment=quickstart_llm`); nobody is asked. For each kind of planted failure
and a score that should show it: how many of the answers with it have that score below its threshold, of those that have the score.
The last rows are false alarms: the same for answers without any planted failure. Prints the tables of docs/judges.md.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import ragpipe  # noqa: E402

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


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        runs = {judge: records(words, folder) for judge, words in JUDGES.items()}
    kinds = planted(next(iter(runs.values())))
    print(f"| planted failure | score | {' | '.join(runs)} |\n|---|---|{'---|' * len(runs)}")
    for kind, scores in SHOWN_BY.items():
        chosen = [kind in of_case for of_case in kinds]
        for score in scores:
            print(f"| `{kind}` | `{score}` | {' | '.join(flagged(cases[chosen], score) for cases in runs.values())} |")
    sound = [not of_case for of_case in kinds]
    for score in dict.fromkeys(score for scores in SHOWN_BY.values() for score in scores):
        print(f"| none | `{score}` | {' | '.join(flagged(cases[sound], score) for cases in runs.values())} |")


if __name__ == "__main__":
    main()
