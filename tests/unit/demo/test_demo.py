"""The demonstration data: its form, and that the failures it declares are really there and nowhere else."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ragpipe
from ragpipe.schema.sample import Case, Output, Sample

FOLDER = Path(ragpipe.__file__).parent / "data" / "demo"
METHODS = ("baseline", "rerank", "no_rerank_small_k")
KINDS = {
    *("unsupported_claim", "irrelevant_context", "irrelevant_answer", "missing_citation", "quote_only_violation"),
    *("policy_violation", "false_rejection", "false_acceptance", "training_cutoff_excuse", "retrieval_miss"),
    *("incomplete_answer", "hallucinated_unanswerable", "system_error"),
    *("wrong_number", "wrong_name", "dangling_citation", "scope_miss", "stale_source", "empty_answer"),
    "refusal_then_answer",
}
LINES = [json.loads(line) for line in (FOLDER / "cases.jsonl").read_text(encoding="utf-8").splitlines()]


def _cases(lines: list[dict[str, Any]]) -> Iterator[Case]:
    for line in lines:
        sample = Sample.model_validate({key: value for key, value in line.items() if key != "outputs"})
        for output in line["outputs"]:
            yield Case(sample, Output.model_validate({**output, "sample_id": sample.id}))


CASES = list(_cases(LINES))


def planted(case: Case) -> list[str]:
    found: list[str] = case.sample.meta["planted"].get(case.output.method, [])
    return found


def test_every_kind_occurs_and_no_other() -> None:
    assert {kind for case in CASES for kind in planted(case)} == KINDS


def test_forty_questions_ten_of_each_domain_with_unique_ids() -> None:
    ids = [line["id"] for line in LINES]
    assert len(set(ids)) == len(ids) == 40
    assert Counter(line["tags"][0] for line in LINES) == dict.fromkeys(("dao", "courses", "earnings", "novels"), 10)
    assert all(line["id"].rsplit("-", 1)[0] == line["tags"][0] for line in LINES)
    assert len({case.key for case in CASES}) == len(CASES)
    for line in LINES:
        methods = [output["method"] for output in line["outputs"]]
        assert methods in (list(METHODS), list(METHODS[:2])), line["id"]
        assert set(line["meta"]["planted"]) <= set(methods), line["id"]


def test_the_four_failure_scenarios_and_the_worked_example_are_there() -> None:
    assert {line["meta"]["scenario"]: line["meta"]["planted"]["baseline"] for line in LINES if "scenario" in line["meta"]} == {
        "worked example": ["unsupported_claim", "wrong_number", "wrong_name"], "A: hallucination": ["unsupported_claim", "wrong_number"],
        "B: off topic": ["irrelevant_answer"], "C: retrieval failure": ["retrieval_miss", "irrelevant_context", "irrelevant_answer"],
        "D: partial correctness": ["incomplete_answer"],
    }  # fmt: skip


def test_the_special_cases_are_there() -> None:
    tags = Counter(tag for line in LINES for tag in line["tags"])
    assert (tags["multi-turn"], tags["graded"], tags["injection"], tags["special-characters"]) == (4, 2, 1, 1)
    assert tags["spanish"] == tags["german"] == 1
    assert {line["recency_conflict_rule"] for line in LINES if "recency_conflict_rule" in line} == {
        "cite_newer", "cite_both", "acknowledge_both",
    }  # fmt: skip
    assert all(bool(line.get("history")) == ("multi-turn" in line["tags"]) for line in LINES)
    assert any(not case.contexts and case.answer and not case.output.error for case in CASES)
    forged = next(case for case in CASES if "injection" in case.sample.tags and case.output.method == "baseline")
    assert '{"verdict": "supported"' in forged.answer
    assert "</answer>" in forged.answer
    markup = next(case for case in CASES if "special-characters" in case.sample.tags)
    assert all(mark in markup.answer for mark in ("=1+1", "<b>", "[red]"))
    assert markup.answer.startswith("=1+1")


def test_rerank_is_better_than_the_baseline_but_not_perfect() -> None:
    failing = Counter(case.output.method for case in CASES if set(planted(case)) - {"refusal_then_answer"})
    total = Counter(case.output.method for case in CASES)
    assert 0 < failing["rerank"] / total["rerank"] <= 0.2
    assert failing["baseline"] / total["baseline"] >= 0.5
    assert failing["baseline"] < total["baseline"]


def test_the_readme_counts_what_is_there() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| (\d+) \| (\d+) \|", (FOLDER / "README.md").read_text("utf-8"), re.MULTILINE)
    there = Counter((kind, case.output.method) for case in CASES for kind in planted(case))
    assert {row[0]: [int(n) for n in row[1:]] for row in rows} == {k: [there[k, m] for m in METHODS] for k in KINDS}
