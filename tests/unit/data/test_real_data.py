"""The shipped options on the real files, with the counts of EXPECTED.json; and on small files as documents write them."""

import json
from collections import Counter
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

REFUSAL = "Unable to answer based on given passages"


def read(option, path, *overrides):
    """The records of a shipped option, as the command line composes it."""
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        composed = compose(overrides=[f"+dataset={option}", f"dataset.path={path}", *overrides])
    section: Any = OmegaConf.to_container(composed.dataset, resolve=True, throw_on_missing=True)
    return list(open_dataset(DatasetSettings.model_validate(section), Path("/")))


@pytest.fixture
def expected(real_data):
    return json.loads(real_data("EXPECTED.json").read_text(encoding="utf-8"))


def test_ragtruth(real_data, expected):
    wanted = expected["datasets"]["shared ragtruth_qa"]
    records = read("ragtruth_qa", real_data("ragtruth_qa/ragtruth_qa.jsonl"))
    assert len({r.sample.id for r in records}) == wanted["sources"] == 70
    assert len(records) == wanted["responses"] == 412
    models = Counter(r.output.method for r in records)
    hallucinated = Counter(r.output.method for r in records if r.output.recorded["hallucinated"])
    by_model = {model: numbers[:2] for model, numbers in wanted["by_model"].items()}
    assert {model: [count, hallucinated[model]] for model, count in models.items()} == by_model
    assert hallucinated.total() == wanted["hallucinated_responses"]
    assert sum(r.output.recorded["hallucinated_strict"] for r in records) == wanted["hallucinated_without_implicit_true"]
    refusals = Counter(r.output.method for r in records if r.output and REFUSAL in r.output.answer)
    assert refusals == wanted["refusals_by_model"]
    assert sum(refusals.values()) == wanted["exact_refusal_sentence"] == 31
    assert {str(len(r.output.chunks)): 70 for r in records if r.output} == wanted["passages_per_question"]
    assert not any("passage 1:" in c.text for r in records if r.output for c in r.output.chunks)


@pytest.mark.parametrize("run", ["bm25", "tfidf"])
def test_clapnq(real_data, expected, run):
    wanted = expected["datasets"]["shared clapnq_dev"]
    records = read("clapnq_dev", real_data("clapnq_dev"), f"dataset.files.run=run.{run}.trec")
    samples = [r.sample for r in records]
    assert Counter(sample.answerable for sample in samples) == {True: wanted["answerable"], False: wanted["unanswerable"]}
    answers = [sample.meta["answers"] for sample in samples if sample.answerable]
    assert (sum(answers), answers.count(2)) == (wanted["answers"], wanted["answerable_with_2_answers"])
    assert not any(sample.references for sample in samples if not sample.answerable)
    assert all(text for sample in samples for text in sample.references)
    assert sum(len(sample.meta["gold_sentences"]) for sample in samples) == wanted["selected_sentences"]
    assert all((sample.expected.behavior == "answer") is sample.answerable for sample in samples if sample.expected)
    _retrieval(records, expected["retrieval"][f"shared clapnq_dev run.{run}"], run)


@pytest.mark.parametrize("run", ["bm25", "tfidf"])
def test_mtrag(real_data, expected, run):
    wanted = expected["datasets"]["shared mtrag_un"]
    records = read("mtrag_un", real_data("mtrag_un"), f"dataset.files.run=run.{run}.trec")
    samples = [r.sample for r in records]
    assert len(samples) == wanted["tasks"] == 142
    assert Counter(sample.subcategory for sample in samples) == wanted["answerability"]
    assert Counter(sample.category for sample in samples) == wanted["collection"]
    assert Counter(tag for sample in samples for tag in sample.tags) == wanted["multi_turn"]
    assert Counter(sample.answerable for sample in samples) == {True: 83 + 9, False: 23, None: 27}
    gold = [len(sample.relevant_docs) for sample in samples if sample.relevant_docs is not None]
    assert (sum(gold), max(gold), len(samples) - len(gold)) == (342, 38, 36)
    assert (wanted["contexts"], wanted["max_contexts"], wanted["without_contexts"]) == (342, 38, 36)
    assert [sample.meta["contexts"] for sample in samples if sample.relevant_docs] == gold
    assert all(turn.role == ("user", "assistant")[i % 2] for sample in samples for i, turn in enumerate(sample.history))
    _retrieval(records, expected["retrieval"][f"shared mtrag_un run.{run}"], run)


def test_trec_eval(real_data, expected):
    records = read("trec", real_data("trec_eval"))
    lines = [line.split() for line in (real_data("trec_eval") / "results.test").read_text().splitlines()]
    assert len(records) == expected["retrieval"]["trec_eval results.test"]["queries_in_both"]
    for record in records:
        query = record.sample.id
        in_file = sorted((int(rank), doc, float(score)) for q, _, doc, rank, score, _ in lines if q == query)
        assert [(c.id, c.score) for c in record.output.chunks] == [(doc, score) for _, doc, score in in_file]
        assert [c.rank for c in record.output.chunks] == list(range(1, 501))
        assert record.sample.relevant_docs == [doc for doc, gain in (record.sample.gains or {}).items() if gain > 0]


@pytest.mark.parametrize("part", ["novel", "medical"])
def test_graphrag_bench(real_data, expected, part):
    wanted = expected["datasets"]["shared graphrag_bench"]
    records = read("graphrag_bench", real_data(f"graphrag_bench/{part}_questions.json"))
    assert len(records) == wanted[part] == len({r.sample.id for r in records})
    assert Counter(r.sample.question_type for r in records) == wanted[f"{part}_types"]
    assert all(r.output is None and r.sample.references for r in records)
    if part == "novel":
        assert len({r.sample.category for r in records}) == wanted["novel_sources"]
        assert set(wanted["seed_questions_present"]) <= {r.sample.id for r in records}


def test_mtrag_human_texts(real_data):
    records = read("mtrag_human", real_data("mtrag_human/mtrag_human_evaluations.json"))
    answerable = Counter(r.sample.answerable for r in records)
    assert answerable == {True: 3 * (65 + 7), False: 3 * 4, None: 3 * 2}  # three answers a task
    outputs = [r.output for r in records if r.output]
    assert all(chunk.text for output in outputs for chunk in output.chunks)
    assert sum(bool(output.chunks) for output in outputs) == 3 * 72, "unanswerable and conversational tasks have none"
    assert all(turn.role == ("user", "assistant")[i % 2] for r in records for i, turn in enumerate(r.sample.history))
    graders = Counter(len(output.recorded["faithfulness"]) for output in outputs)
    assert graders == {3: 231, 2: 3}


def test_expertqa_texts(real_data, expected):
    records = read("expertqa", real_data("expertqa/rand_val.jsonl"))
    claims = Counter[str]()
    for record in records:
        claims[record.sample.category or ""] += len(record.sample.meta["claims"])
    wanted = {name.removeprefix("field "): block["claims"] for name, block in expected["expertqa"].items() if name.startswith("field ")}
    assert claims == wanted
    outputs = [r.output for r in records if r.output]
    assert all(output.citations is not None for output in outputs)
    assert sum(bool(output.chunks) for output in outputs) == sum(any(o.recorded["cited"]) for o in outputs)
    assert all("|" not in tag for r in records for tag in r.sample.tags)


def test_lists_of_texts_become_lines(real_data, expected):
    pairs = read("pandalm", real_data("pandalm"))
    assert not any("\\n" in r.sample.question or r.sample.question.endswith("\n") for r in pairs)
    assert sum(r.output.answer == "true" for r in pairs if r.output) == 3, "the JSON value true"
    summaries = read("summhay_eval", real_data("summhay_eval/eval_benchmark_data.json"))
    assert sum(len(r.sample.references) for r in summaries) == expected["summhay"]["insights"]
    assert all("\\n" not in r.output.answer and "\n" in r.output.answer for r in summaries if r.output)
    summarizers = {r.output.method.rpartition("_")[2] for r in summaries if r.output}
    assert summarizers == set(expected["summhay"]["bias_by_summarizer"]["predictions_9fs_gpt-4o"])


def _retrieval(records, wanted, run):
    both = [r for r in records if r.sample.gains is not None and r.output and r.output.chunks]
    assert len(both) == wanted["queries_in_both"]
    assert {r.output.method for r in records if r.output} == {f"run.{run}.trec"}
    retrieved = [sum(c.id in (r.sample.relevant_docs or []) for c in r.output.chunks) for r in both if r.output]
    assert round(sum(retrieved) / len(both), 6) == wanted["mean_over_intersection"]["num_rel_ret"]
    tops = [(r, max(r.output.chunks, key=lambda c: (c.score, c.id))) for r in both if r.output]  # trec_eval's first
    first = [chunk.id in (r.sample.relevant_docs or []) for r, chunk in tops]
    assert round(sum(first) / len(both), 6) == wanted["mean_over_intersection"]["P_1"]
    assert all(c.text for r in both if r.output for c in r.output.chunks)


# small files as the documents write them, and what becomes of each name


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
    expected = {"behavior": "answer", "citations": ["doc-123"], "must_quote": True, "context_has": 5}
    assert sample.expected.model_dump(exclude_none=True) == expected
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
    buy, risks, quote, revenue = records = read("eval_set", put(tmp_path, "cases.json", FLAT))
    assert [record.output for record in records] == [None] * 4
    assert len({record.sample.id for record in records}) == 4
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


def test_a_query_log_with_its_courses(tmp_path):
    course = {"courseCode": "CS-101", "courseName": "Python", "matchedOutcomes": ["write programs", "test them"]}
    log = {"queryLogId": "ql-123", "question": "What teaches Python?", "answer": "CS-101.", "context": [course]}
    first, second = read("query_logs", put(tmp_path, "set.json", [log, log | {"queryLogId": "ql-124", "context": []}]))
    assert (first.sample.id, first.sample.question) == ("ql-123", "What teaches Python?")
    (chunk,) = first.output.chunks or ()
    assert chunk.id == "CS-101"
    assert [value for value in ("Python", "write programs", "test them") if value not in chunk.text] == []
    assert (first.output.answer, second.output.chunks) == ("CS-101.", [])


GOLDEN = {
    "id": "t1", "question": "Who signed it?", "answerable": True,
    "gold_supports": [{"rel_path": "a.md", "heading_path": "A > B", "snippets": ["Ada signed"]}],
    "required_support_groups": [[{"rel_path": "a.md", "heading_path": "A > B"}], ["b.md"]],
    "recency_conflict_rule": "cite_newer", "multi_hop": True, "category": "multi_hop", "difficulty": "hard", "tags": ["work"],
    "vault": "work", "folder_mode": "on_with_fallback", "selected_folders": ["contracts"], "answer": "Ada.", "abstained": False,
    "references": [{"rel_path": "a.md", "heading_path": "A > B"}],
    "retrieved_chunks": [{"rel_path": "a.md", "heading_path": "A > B", "score": 0.9, "text": "Ada signed it."}],
    "timings": {"retrieval": 120.0, "generation": 800.0},
}  # fmt: skip


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
NESTED = [{
    "id": "Novel-73586ddc", "question": "Which plant?", "question_type": "Fact Retrieval", "ground_truth": "Cornish heath",
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
}]  # fmt: skip


@pytest.mark.parametrize(("name", "content"), [("table.csv", TABLE), ("table.json", NESTED)])
def test_the_table_of_three_methods(tmp_path, name, content):
    records = read("graphrag", put(tmp_path, name, content))
    expected = {("Novel-73586ddc", "Fact Retrieval", "Cornish heath")}
    assert {(r.sample.id, r.sample.question_type, *r.sample.references) for r in records} == expected
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
