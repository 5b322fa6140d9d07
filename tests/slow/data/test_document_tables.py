"""Public sets through whole runs, against counts made without ragpipe: the GraphRAG document's tables."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragpipe.cli.command_line import main
from ragpipe.testing.openai_server import serving

# --- GraphRAG-Bench: three methods that answer by a rule, judged by a rule ------------------------------------------

METHODS = ("local_search", "basic_search", "llm_with_context")
KINDS = ("verbatim", "another", "partial", "dont_know", "empty")
GRADED = {"verbatim": ("A", 100.0), "partial": ("B", 75.0), "another": ("E", 10.0), "dont_know": ("E", 10.0), "empty": ("E", 0.0)}
CLASS = {"verbatim": "correct", "partial": "correct", "another": "wrong", "dont_know": "don't know", "empty": "don't know"}
SAME = r"Reference answer:\n<(\w{12})>\n(.*?)\n</\1>\s+Answer:\n<(\w{12})>\n\2\n</\3>"
PART = r"\(in part\)\n</\w{12}>"


def _criteria(correct: int, complete: int, consistent: int) -> str:
    """A reply of the factual accuracy judge; the mean is 0.5, 0.3 and 0.2 of them."""
    parts = {"correctness": correct, "completeness": complete, "consistency": consistent}
    return json.dumps({name: {"reasoning": "rule", "score": score} for name, score in parts.items()} | {"reason": "rule"})


def _verdict(verdict: str) -> str:
    return json.dumps({"reason": "rule", "verdict": verdict})


JUDGE = [
    {"match": f"{SAME}.*by three criteria", "reply": _criteria(100, 100, 100)},
    {"match": f"{PART}.*by three criteria", "reply": _criteria(90, 40, 90)},  # 45 + 12 + 18 = 75
    {"match": "by three criteria", "reply": _criteria(10, 10, 10)},
    {"match": f"{SAME}|{PART}", "reply": _verdict("CORRECT")},
    {"match": ".", "reply": _verdict("WRONG")},
]


def _kind(question: int, method: int) -> str:
    """Each method gives each kind of answer to every fifth question, each in another order."""
    return KINDS[(question + 2 * method) % len(KINDS)]


def _answer(kind: str, questions: list[dict[str, Any]], number: int) -> str:
    reference = str(questions[number]["answer"])
    if kind == "another":
        return next(str(q["answer"]) for q in (questions[number + 1 :] + questions) if q["answer"] != reference)
    half = " ".join(reference.split()[: max(1, len(reference.split()) // 2)])
    return {"verbatim": reference, "partial": f"{half} (in part)", "dont_know": "I don't know.", "empty": ""}[kind]


@pytest.fixture
def table(real_data: Callable[[str], Path], tmp_path: Path) -> list[dict[str, Any]]:
    """Questions of novels (every fourth, so that each kind is as frequent), written as the document's table."""
    questions = json.loads(real_data("graphrag_bench/novel_questions.json").read_text(encoding="utf-8"))[::4][:250]
    rows = []
    for number, question in enumerate(questions):
        answers = {}
        for place, method in enumerate(METHODS):
            answers[method] = {"answer": _answer(_kind(number, place), questions, number)}
            if method != "llm_with_context":
                answers[method]["contexts"] = ["A page of the novel."]
        names = {"id": question["id"], "source": question["source"], "question_type": question["question_type"]}
        rows.append(names | {"question": question["question"], "ground_truth": question["answer"], "answers": answers})
    (tmp_path / "table.json").write_text(json.dumps(rows), encoding="utf-8")
    return questions


def test_the_tables_of_the_graphrag_document(table: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGPIPE_TEST_KEY", "key")
    metrics = "metrics=[factual_accuracy,answer_class]"
    words = ["dataset=graphrag", f"dataset.path={tmp_path / 'table.json'}", metrics, f"output_dir={tmp_path}", "name=novels"]
    judge = ["judge=llm", "judge.model=openai/gpt-4o-mini-2024-07-18", "judge.api_key_env=RAGPIPE_TEST_KEY"]
    with serving(script=JUDGE) as server:
        assert main([*words, *judge, f"judge.api_base={server.url}"]) == 0
        asked = len({line["question"] for line in server.log})
    types = [question["question_type"] for question in table]
    cases = [(method, types[number], _kind(number, place)) for number in range(len(table)) for place, method in enumerate(METHODS)]
    distinct = len(cases) - sum(kind == "empty" for *_, kind in cases)
    assert asked == distinct + sum(kind not in ("empty", "dont_know") for *_, kind in cases)
    found = json.loads((tmp_path / "novels/latest/iteration-1/metrics.json").read_text(encoding="utf-8"))
    grades, classes = found["grades"]["factual_accuracy"], found["grades"]["answer_class"]
    assert {method: _nonzero(counts) for method, counts in grades["by"]["method"].items()} == {
        method: {"A": 50, "B": 50, "E": 150} for method in METHODS
    }
    assert classes["by"]["method"] == {method: {"correct": 100, "wrong": 50, "don't know": 100} for method in METHODS}
    for field, of in (("question_type", lambda m, t: t), ("method*question_type", lambda m, t: f"{m} * {t}")):
        by_grade: dict[str, Counter[str]] = {}
        by_class: dict[str, Counter[str]] = {}
        for method, question_type, kind in cases:
            by_grade.setdefault(of(method, question_type), Counter())[GRADED[kind][0]] += 1
            by_class.setdefault(of(method, question_type), Counter())[CLASS[kind]] += 1
        assert {group: _nonzero(counts) for group, counts in grades["by"][field].items()} == by_grade
        assert {group: _nonzero(counts) for group, counts in classes["by"][field].items()} == by_class
    extremes = found["extremes"]["factual_accuracy"]
    assert extremes == {
        "n_questions": 250,
        "methods": {method: {"n": 250, "mean": pytest.approx((100 + 75 + 10 + 10) / 5), "best": 100.0, "worst": 0.0} for method in METHODS},
    }
    for group, figures in found["by"]["method*question_type"].items():
        values = [GRADED[kind][1] for method, question_type, kind in cases if f"{method} * {question_type}" == group]
        score = figures["scores"]["factual_accuracy"]
        assert (score["n_ok"], score["mean"]) == (len(values), pytest.approx(sum(values) / len(values))), group
    page = (tmp_path / "novels/latest/report.md").read_text(encoding="utf-8")
    assert "| `method: basic_search` | 100 (40.0%) | 50 (20.0%) | 100 (40.0%) | 250 |" in page
    assert "| `factual_accuracy` | `local_search` | 39.00 | 100.00 | 0.00 | 250 | 250 |" in page
    assert "`method*question_type: llm_with_context * Creative Generation`" in page


def _nonzero(counts: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}
