"""The example of the RAG evaluation framework before and after its prompt change: 300 cases of five categories, as `dataset=eval_set` reads
them.

Of `should_answer_partial` 15 of 50 are right before, 42 after (30 % and 84 %, the document's regressions); 97 of 100 policy questions are
declined both times, and 26 of 30 without context. Before 32 cases are declined for no reason, 7 with the end of the training data
as the excuse; after 5 and 3.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REFUSAL = "I cannot answer this question from the documents that I was given."
EXCUSE = "I cannot answer this: my training data ends in October 2023."
COUNTS = {
    "should_answer_complete": 100, "should_answer_partial": 50, "should_reject_policy": 100, "should_reject_no_context": 30,
    "edge_cases": 20,
}  # fmt: skip
_WRONG = {  # category -> (answers that are wrong refusals, excuses, answers where a refusal was due)
    "week_before": {"should_answer_complete": (4, 0), "should_answer_partial": (28, 7)},
    "now": {"should_answer_partial": (5, 3)},
}
_ACCEPTED = {"should_reject_policy": 3, "should_reject_no_context": 4}


def write_weekly_sets(folder: Path) -> None:
    for week, wrong in _WRONG.items():
        (folder / week).mkdir(parents=True, exist_ok=True)
        for category, total in COUNTS.items():
            cases = [_case(category, n, wrong) for n in range(total)]
            (folder / week / f"{category}.json").write_text(json.dumps(cases, indent=1), encoding="utf-8")


def _case(category: str, n: int, wrong: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    rejects = category.startswith("should_reject")
    fact = f"Company {category[-3:]}{n} earned {n + 10} million euros in the third quarter."
    refused, excused = wrong.get(category, (0, 0))
    if rejects:
        response = fact if n < _ACCEPTED[category] else REFUSAL
    else:
        response = REFUSAL if n < refused else EXCUSE if n < refused + excused else fact
    return {
        "id": f"{category}-{n:03}",
        "input": {"query": f"What did company {category[-3:]}{n} earn in the third quarter?"},
        "expected": {"behavior": "reject" if rejects else "answer"},
        "metadata": {"category": category},
        "output": {
            "response": response,
            "retrieved_context": [] if category.endswith("no_context") else [{"id": f"c{n}", "content": fact}],
        },
    }
