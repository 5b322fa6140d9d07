"""The shipped mappings on the real files: the counts of EXPECTED.json, and no code beside YAML."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from ragpipe.core.resources import conf_dir
from ragpipe.data.dataset import Record, open_dataset
from ragpipe.data.settings import DatasetSettings

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

REFUSAL = "Unable to answer based on given passages"


def shipped(option, path, *overrides):
    """A shipped data set as the command line composes it."""
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        composed = compose(overrides=[f"+dataset={option}", f"dataset.path={path}", *overrides])
    section: Any = OmegaConf.to_container(composed.dataset, resolve=True, throw_on_missing=True)
    return open_dataset(DatasetSettings.model_validate(section), Path("/"))


@pytest.fixture
def expected(real_data):
    return json.loads(real_data("EXPECTED.json").read_text(encoding="utf-8"))


def test_ragtruth(real_data, expected):
    wanted = expected["datasets"]["shared ragtruth_qa"]
    records = list(shipped("ragtruth_qa", real_data("ragtruth_qa/ragtruth_qa.jsonl")))
    assert len({r.sample.id for r in records}) == wanted["sources"] == 70
    assert len(records) == wanted["responses"] == 412
    by_model = {model: numbers[:2] for model, numbers in wanted["by_model"].items()}
    assert {model: [len(rows), sum(_label(r, "hallucinated") for r in rows)] for model, rows in _by_method(records).items()} == by_model
    assert sum(_label(r, "hallucinated") for r in records) == wanted["hallucinated_responses"]
    assert sum(_label(r, "hallucinated_strict") for r in records) == wanted["hallucinated_without_implicit_true"]
    refusals = Counter(r.output.method for r in records if r.output and REFUSAL in r.output.answer)
    assert refusals == wanted["refusals_by_model"]
    assert sum(refusals.values()) == wanted["exact_refusal_sentence"] == 31
    assert {str(len(r.output.chunks)): 70 for r in records if r.output} == wanted["passages_per_question"]
    assert not any("passage 1:" in c.text for r in records if r.output for c in r.output.chunks)


@pytest.mark.parametrize("run", ["bm25", "tfidf"])
def test_clapnq(real_data, expected, run):
    wanted = expected["datasets"]["shared clapnq_dev"]
    records = list(shipped("clapnq_dev", real_data("clapnq_dev"), f"dataset.files.run=run.{run}.trec"))
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
    records = list(shipped("mtrag_un", real_data("mtrag_un"), f"dataset.files.run=run.{run}.trec"))
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
    records = list(shipped("trec", real_data("trec_eval")))
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
    records = list(shipped("graphrag_bench", real_data(f"graphrag_bench/{part}_questions.json")))
    assert len(records) == wanted[part] == len({r.sample.id for r in records})
    assert Counter(r.sample.question_type for r in records) == wanted[f"{part}_types"]
    assert all(r.output is None and r.sample.references for r in records)
    if part == "novel":
        assert len({r.sample.category for r in records}) == wanted["novel_sources"]
        assert set(wanted["seed_questions_present"]) <= {r.sample.id for r in records}


def test_mtrag_human_texts(real_data):
    records = list(shipped("mtrag_human", real_data("mtrag_human/mtrag_human_evaluations.json")))
    answerable = Counter(r.sample.answerable for r in records)
    assert answerable == {True: 3 * (65 + 7), False: 3 * 4, None: 3 * 2}  # three answers a task
    outputs = [r.output for r in records if r.output]
    assert all(chunk.text for output in outputs for chunk in output.chunks)
    assert sum(bool(output.chunks) for output in outputs) == 3 * 72, "unanswerable and conversational tasks have none"
    assert all(turn.role == ("user", "assistant")[i % 2] for r in records for i, turn in enumerate(r.sample.history))
    graders = Counter(len(output.recorded["faithfulness"]) for output in outputs)
    assert graders == {3: 231, 2: 3}


def test_expertqa_texts(real_data, expected):
    records = list(shipped("expertqa", real_data("expertqa/rand_val.jsonl")))
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
    pairs = list(shipped("pandalm", real_data("pandalm")))
    assert not any("\\n" in r.sample.question or r.sample.question.endswith("\n") for r in pairs)
    assert sum(r.output.answer == "true" for r in pairs if r.output) == 3, "the JSON value true"
    summaries = list(shipped("summhay_eval", real_data("summhay_eval/eval_benchmark_data.json")))
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


def _label(record, name):
    return record.output.recorded[name]


def _by_method(records):
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record.output.method, []).append(record)
    return found
