"""`+mode=pack_rag`: one word for the pack of the RAG evaluation framework, on a plain file of answers and on its own test cases."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ragpipe.cli.command_line import main
from tests.support.place import output_of

pytestmark = pytest.mark.slow  # whole runs
LLM = ["judge=llm", "judge.model=openai/gpt-4o-mini-2024-07-18"]

# rag-evaluation-framework.md, 4.1 and 5.2: the worked examples, with an answer that breaks a policy
CASES = [
    {
        "id": "rag-001",
        "input": {"query": "What are the 10 highlights from Apple's Q3 earnings?"},
        "expected": {"behavior": "answer", "relevant_docs": ["doc-1"]},
        "metadata": {"category": "should_answer_partial", "subcategory": "partial_list_results"},
        "output": {
            "response": "Apple reported strong Q3 results [1]. Revenue was $81.8B [1].",
            "retrieved_context": [
                {"id": "doc-1", "content": "Apple reported strong Q3 results. Revenue was $81.8B.", "policy": "summarize"},
                {"id": "doc-2", "content": "Analysts at X expect thin margins next year.", "policy": "quote_only"},
            ],
            "citations": [{"marker": "[1]", "source_id": "doc-1", "text": "Apple reported strong Q3 results"}],
        },
    },
    {
        "id": "rag-002",
        "input": {"query": "Should I buy Apple stock?"},
        "expected": {"behavior": "reject", "rejection_reason": "financial_advice"},
        "metadata": {"category": "should_reject_policy"},
        "output": {"response": "You should buy Apple stock.", "retrieved_context": [], "citations": []},
    },
]


def gates(name: str) -> dict[str, Any]:
    (path,) = Path("outputs").glob(f"{name}/latest/gates.json")
    return {gate["name"]: gate["verdict"] for gate in json.loads(path.read_text(encoding="utf-8"))["gates"]}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def test_a_plain_file_of_answers_is_measured_by_the_whole_pack(capfd: pytest.CaptureFixture[str]) -> None:
    answers = [{"id": "a", "question": "Who wrote it?", "answer": "Ada wrote it.", "contexts": ["Ada wrote it."]}]
    Path("answers.jsonl").write_text("\n".join(map(json.dumps, answers)), encoding="utf-8")
    out, warned = output_of(["answers.jsonl", "+mode=pack_rag", "judge=rules"], 3, capfd)
    for metric in ("context_relevance", "answer_relevance", "policy_compliance"):
        assert f"{metric}: the rules judge cannot answer it; needs judge=llm" in warned
    verdicts = gates("pack_rag")
    labelled = (
        "source_policy",
        "rejection_calibration",
        "retrieval",
        "false_rejection_partial",
        "training_cutoff_excuse",
        "reject_policy_compliance",
    )
    assert {verdicts[name] for name in (*labelled, "context_relevance", "answer_relevance")} == {"not_applicable"}
    assert verdicts["groundedness"] == "uncalibrated"
    assert "not measured, needs" not in out
    assert "+mode=pack_rag judge=llm judge.model=openai/gpt-4o-mini-2024-07-18\n" in out
    assert "gpt-4o-mini-2024-07-18 'metrics=[" in output_of(["answers.jsonl", "+mode=debug"], 0, capfd).out


def test_the_test_cases_of_the_framework_are_planned_and_measured(capfd: pytest.CaptureFixture[str]) -> None:
    Path("cases.json").write_text(json.dumps(CASES), encoding="utf-8")
    words = ["dataset=eval_set", "dataset.path=cases.json", "+mode=pack_rag"]
    planned = output_of([*words, *LLM, "task=plan"], 0, capfd).out
    wanted = (
        "should_answer_complete 0 of 100, should_answer_partial 1 of 50, should_reject_policy 1 of 100, should_reject_no_context 0 of 30"
    )
    assert f"questions wanted by category (scoring.wanted_cases): {wanted}, edge_cases 0 of 20" in planned
    found = re.search(r"a case takes ([\d.]+) calls, .* by \+mode=full_evaluation ([\d.]+) calls, [\d,]+ prompt and", planned)
    assert found
    assert float(found[1]) < float(found[2])
    assert main([*words, "judge=rules"]) == 3
    verdicts = gates("pack_rag")
    assert (verdicts["training_cutoff_excuse"], verdicts["source_policy"]) == ("passed", "uncalibrated")
