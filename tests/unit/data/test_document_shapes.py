"""The shapes of the source designs: small files as the documents write them, and what becomes of each name."""

import json
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from ragpipe.core.errors import DataError
from ragpipe.core.resources import conf_dir
from ragpipe.core.sample import Anchor
from ragpipe.data.dataset import open_dataset
from ragpipe.data.settings import DatasetSettings

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test


def read(option, path, *overrides):
    """The records of a shipped option, as the command line composes it."""
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        composed = compose(overrides=[f"+dataset={option}", f"dataset.path={path}", *overrides])
    section: Any = OmegaConf.to_container(composed.dataset, resolve=True, throw_on_missing=True)
    return list(open_dataset(DatasetSettings.model_validate(section), Path("/")))


def put(folder, name, content):
    """A file with JSON, or with a text as it is."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


GENERIC = {
    "id": "rag-001",
    "input": {"query": "What are the 10 highlights?"},
    "expected": {
        "behavior": "answer", "rejection_reason": None, "relevant_docs": ["doc-123", "doc-456"], "answer": "The 10 highlights are ...",
        "policy_tags": ["tier1"], "must_use_direct_quotes": True, "expected_citations": ["doc-123"], "context_has": 5,
    },
    "metadata": {"category": "should_answer_partial", "subcategory": "partial_list_results", "tags": ["earnings"]},
    "output": {
        "response": "Revenue was up [1].",
        "retrieved_context": [
            {"id": "doc-1", "content": "Revenue was up.", "source": "q3.md", "policy": "quote_only"},
            {"id": "doc-2", "content": "Costs were flat."},
        ],
        "citations": [{"marker": "[1]", "source_id": "doc-1", "text": "Revenue was up"}],
    },
}  # fmt: skip


def test_a_test_case_of_the_framework(tmp_path):
    (record,) = read("eval_set", put(tmp_path, "cases.json", [GENERIC]))
    sample, output = record.sample, record.output
    assert (sample.id, sample.question) == ("rag-001", "What are the 10 highlights?")
    assert (sample.references, sample.relevant_docs) == (["The 10 highlights are ..."], ["doc-123", "doc-456"])
    assert (sample.category, sample.subcategory, sample.tags) == ("should_answer_partial", "partial_list_results", ["earnings"])
    assert sample.expected.model_dump(exclude_none=True) == {
        "behavior": "answer", "citations": ["doc-123"], "must_quote": True, "context_has": 5,
    }  # fmt: skip
    assert (sample.meta["policy_tags"], sample.meta["phase"]) == (["tier1"], None)
    assert output.answer == "Revenue was up [1]."
    assert [(c.id, c.doc_id, c.text, c.policy, c.rel_path) for c in output.chunks or ()] == [
        ("doc-1", "doc-1", "Revenue was up.", "quote_only", "q3.md"),
        ("doc-2", "doc-2", "Costs were flat.", "summarize", None),
    ]
    assert [(c.marker, c.chunk_id) for c in output.citations or ()] == [("[1]", "doc-1")]


FLAT = [
    {"query": "Should I buy?", "expected_behavior": "reject", "rejection_reason": "financial_advice"},
    {"query": "List 10 risks", "context_contains": 6, "expected_behavior": "answer", "category": "should_answer_partial"},
    {"query": "Summarize", "context": [{"policy": "quote_only", "content": "..."}], "must_use_direct_quotes": True},
    {"query": "Revenue?", "relevant_doc_ids": ["a", "b"]},
]


def test_flat_cases_without_a_response_are_questions(tmp_path):
    buy, risks, quote, revenue = read("eval_set", put(tmp_path, "cases.json", FLAT))
    assert [record.output for record in (buy, risks, quote, revenue)] == [None] * 4
    assert len({record.sample.id for record in (buy, risks, quote, revenue)}) == 4
    assert (buy.sample.expected.behavior, buy.sample.expected.rejection_reason) == ("reject", "financial_advice")
    assert (risks.sample.expected.context_has, risks.sample.category) == (6, "should_answer_partial")
    assert quote.sample.meta["context"] == [{"policy": "quote_only", "content": "..."}]
    assert revenue.sample.relevant_docs == ["a", "b"]


def test_three_phases_are_one_set(tmp_path):
    folder = tmp_path / "eval_sets"
    answered = {"query": "What?", "response": "This.", "retrieved_context": ["This is it."]}
    put(folder, "production_sample/2026-01-week3.json", [answered])
    put(folder, "production_sample/2026-01-week4.json", [answered])
    reject = {"query": "Buy?", "expected_behavior": "reject", "response": "No."}
    put(folder, "labeled/rejection_calibration/should_reject_policy.json", [reject])
    put(folder, "labeled/rejection_calibration/should_answer_partial.json", [answered | {"context_has": 5}])
    scored = answered | {"human_faithfulness": 0.8, "human_relevance": 0.9, "human_notes": "one claim"}
    put(folder, "labeled/judge_calibration/human_scored.json", [scored])
    put(folder, "labeled/retrieval/retrieval_labels.json", [answered | {"relevant_doc_ids": ["d"]}])
    put(folder, "synthetic/policy_violations.json", [reject | {"category": "should_reject_policy"}])
    put(folder, "synthetic/edge_cases.json", [answered])
    records = read("eval_set", folder)
    found = {record.sample.meta["file"]: record for record in records}
    assert len(found) == len(records) == 8
    assert {name: record.sample.meta["phase"] for name, record in found.items()} == {name: name.split("/", maxsplit=1)[0] for name in found}
    categories = {name.rsplit("/", maxsplit=1)[-1]: record.sample.category for name, record in found.items()}
    assert categories == {
        "2026-01-week3.json": None, "2026-01-week4.json": None, "human_scored.json": None, "retrieval_labels.json": None,
        "should_reject_policy.json": "should_reject_policy", "should_answer_partial.json": "should_answer_partial",
        "policy_violations.json": "should_reject_policy", "edge_cases.json": "edge_cases",
    }  # fmt: skip
    human = found["labeled/judge_calibration/human_scored.json"]
    assert human.output.recorded == {"human_faithfulness": 0.8, "human_relevance": 0.9}
    assert [c.text for c in human.output.chunks or ()] == ["This is it."]
    assert human.sample.meta["human_notes"] == "one claim"
    assert len({record.sample.id for record in records}) == 8, "one question in several files is a case of each"
    before = {name: record.sample.id for name, record in found.items()}
    put(folder, "production_sample/2026-01-week2.json", [answered])
    after = {record.sample.meta["file"]: record.sample.id for record in read("eval_set", folder)}
    assert before.items() < after.items(), "another week changes no id"


def test_a_folder_without_a_file_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"no file fits '\*\*/\*\.json'"):
        read("eval_set", tmp_path)


COURSE = {"courseCode": "CS-101", "courseName": "Python", "matchedOutcomes": ["write programs", "test them"]}


def test_a_query_log_with_its_courses(tmp_path):
    log = {"queryLogId": "ql-123", "question": "What teaches Python?", "answer": "CS-101.", "context": [COURSE]}
    first, second = read("query_logs", put(tmp_path, "set.json", [log, log | {"queryLogId": "ql-124", "context": []}]))
    assert (first.sample.id, first.sample.question) == ("ql-123", "What teaches Python?")
    (chunk,) = first.output.chunks or ()
    assert chunk.id == "CS-101"
    for value in ("Python", "write programs", "test them"):
        assert value in chunk.text
    assert (first.output.answer, second.output.chunks) == ("CS-101.", [])


GOLDEN = {
    "id": "t1",
    "question": "Who signed it?",
    "answerable": True,
    "gold_supports": [{"rel_path": "a.md", "heading_path": "A > B", "snippets": ["Ada signed"]}],
    "required_support_groups": [[{"rel_path": "a.md", "heading_path": "A > B"}], ["b.md"]],
    "recency_conflict_rule": "cite_newer",
    "multi_hop": True,
    "category": "multi_hop",
    "difficulty": "hard",
    "tags": ["work"],
    "vault": "work",
    "folder_mode": "on_with_fallback",
    "selected_folders": ["contracts"],
    "answer": "Ada.",
    "abstained": False,
    "references": [{"rel_path": "a.md", "heading_path": "A > B"}],
    "retrieved_chunks": [{"rel_path": "a.md", "heading_path": "A > B", "score": 0.9, "text": "Ada signed it."}],
    "timings": {"retrieval": 120.0, "generation": 800.0},
}


def test_a_case_of_the_golden_set(tmp_path):
    question = {"id": "t2", "question": "Who else?", "answerable": False, "gold_supports": []}
    first, second = read("golden_set", put(tmp_path, "golden.jsonl", f"{json.dumps(GOLDEN)}\n{json.dumps(question)}\n"))
    sample, output = first.sample, first.output
    place = Anchor(rel_path="a.md", heading_path="A > B")
    assert sample.anchors == [place.model_copy(update={"snippets": ["Ada signed"]})]
    assert sample.required_support_groups == [[place], ["b.md"]]
    assert (sample.recency_conflict_rule, sample.category, sample.difficulty) == ("cite_newer", "multi_hop", "hard")
    assert (sample.vault, sample.tags, sample.answerable, sample.meta) == ("work", ["work"], True, {"multi_hop": True})
    assert sample.references == [], "references are those of the answer"
    assert (output.folder_mode, output.selected_folders, output.abstained) == ("on_with_fallback", ["contracts"], False)
    assert output.timings == {"retrieval": 120.0, "generation": 800.0}
    (chunk,), (citation,) = output.chunks or (), output.citations or ()
    assert (chunk.rel_path, chunk.heading_path, chunk.score) == ("a.md", "A > B", 0.9)
    assert citation.chunk_id == chunk.id == "a.md#A > B"
    assert (second.output, second.sample.anchors, second.sample.answerable) == (None, [], False)


TABLE = """question_id,question,question_type,ground_truth,method,answer,contexts,ragas_faithfulness,ragas_context_precision,ragas_score,correct_answers_count
Novel-73586ddc,Which plant?,Fact Retrieval,Cornish heath,local_search,Cornish heath,"[""the lovely Cornish heath""]",100.0,NaN,93.73,1
Novel-73586ddc,Which plant?,Fact Retrieval,Cornish heath,basic_search,Cornish heath,[],0.0,0.0,24.98,1
Novel-73586ddc,Which plant?,Fact Retrieval,Cornish heath,llm_with_context,Cornish heath,,N/A,N/A,82.29,1
"""
NESTED = [
    {
        "id": "Novel-73586ddc",
        "question": "Which plant?",
        "question_type": "Fact Retrieval",
        "ground_truth": "Cornish heath",
        "answers": {
            "local_search": {
                "answer": "Cornish heath", "contexts": ["the lovely Cornish heath"], "ragas_faithfulness": 100.0, "ragas_score": 93.73,
                "correct_answers_count": 1,
            },
            "basic_search": {
                "answer": "Cornish heath", "contexts": [], "ragas_faithfulness": 0.0, "ragas_context_precision": 0.0,
                "ragas_score": 24.98, "correct_answers_count": 1,
            },
            "llm_with_context": {"answer": "Cornish heath", "ragas_score": 82.29, "correct_answers_count": 1},
        },
    }
]  # fmt: skip


@pytest.mark.parametrize(("name", "content"), [("table.csv", TABLE), ("table.json", NESTED)])
def test_the_table_of_three_methods(tmp_path, name, content):
    records = read("graphrag", put(tmp_path, name, content))
    assert {(r.sample.id, r.sample.question_type, *r.sample.references) for r in records} == {
        ("Novel-73586ddc", "Fact Retrieval", "Cornish heath")
    }
    outputs = [record.output for record in records]
    found = {output.method: output for output in outputs if output}
    assert list(found) == ["local_search", "basic_search", "llm_with_context"]
    assert {output.answer for output in found.values()} == {"Cornish heath"}
    assert [chunk.text for chunk in found["local_search"].chunks or ()] == ["the lovely Cornish heath"]
    assert (found["basic_search"].chunks, found["basic_search"].retrieves) == ([], True)
    assert (found["llm_with_context"].chunks, found["llm_with_context"].retrieves) == (None, False)
    recorded = {method: {name: value for name, value in output.recorded.items() if value is not None} for method, output in found.items()}
    assert recorded == {
        "local_search": {"ragas_faithfulness": 100.0, "ragas_score": 93.73, "correct_answers_count": 1},
        "basic_search": {
            "ragas_faithfulness": 0.0, "ragas_context_precision": 0.0, "ragas_score": 24.98, "correct_answers_count": 1,
        },
        "llm_with_context": {"ragas_score": 82.29, "correct_answers_count": 1},
    }  # fmt: skip
