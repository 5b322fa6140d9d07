"""The shipped mappings of tools on files that the tools wrote: the number of cases, and four cases field by field.

The values are copied by hand from the files. q02 is answered wrongly, q06 too, q09 is not answered (or fails), q10 has quotation
marks and one passage.
"""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from ragpipe.core.errors import DataError
from ragpipe.core.registry import option_folders
from ragpipe.core.resources import conf_dir
from ragpipe.data.dataset import open_dataset
from ragpipe.data.settings import DatasetSettings

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test


CARDS = (
    "A library card is free for everyone who lives or works in Fennick Harbour. Visitors can buy a guest card for 4 crowns; "
    "it is valid for 30 days."
)
FINES = "The fine for a late book is 0.20 crowns a day, up to 5 crowns per item. Children under 14 pay no fines."
ARCHIVE = "The town archive in the cellar may be used by appointment only, on Tuesdays and Thursdays. Pencils only; ink is not allowed."
Q02 = "How much does a guest card cost and how long is it valid?"
Q06 = "Which meeting room is big enough for 15 people?"
Q09 = "Can I get a hot soup in the caf\u00e9 at six o'clock?"
Q10 = 'May I bring a fountain pen, "ink" and all, into the archive?'
A02 = "A guest card costs 4 crowns and is valid for 60 days."
A05 = "The Heron comes every second Wednesday at 11:15.\nIt stays for two hours."
A06 = "The Slate Room."
A09 = "I don't know."
A10 = "No; only pencils are allowed, and you need an appointment (Tuesday, Thursday)."
R02 = ["4 crowns, valid for 30 days."]
R09 = ["No, no hot food is served after 17:00."]
TIMEOUT = "TimeoutError: the model did not answer in 10 s"


@cache
def section(option):
    """The option as the command line composes it, without a path."""
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        folders = ",".join(f"file://{folder}" for folder in option_folders())
        composed = compose("ragpipe", overrides=[f"dataset={option}", "dataset.path=unset", f"hydra.searchpath=[{folders}]"])
    return OmegaConf.to_container(composed.dataset, resolve=True)


def read(real_data, option, file, more=""):
    """The records of a file; `more` is YAML that is added to the option, as its comment says how."""
    settings = {**section(option), "path": str(real_data(f"shapes/{file}"))}
    for name, value in (yaml.safe_load(more) or {}).items():
        settings[name] = {**(settings.get(name) or {}), **value} if isinstance(value, dict) else value
    settings["fields"] = {name: field for name, field in settings["fields"].items() if field is not None}
    return list(open_dataset(DatasetSettings.model_validate(settings), Path("/")))


def by_question(records):
    return {record.sample.question: record for record in records}


def texts(record):
    return [chunk.text for chunk in record.output.chunks or []]


@pytest.mark.parametrize(("option", "file"), [
    ("ragas", "ragas/dataset.jsonl"), ("ragas", "ragas/dataset.csv"), ("ragas", "ragas/dataset.hf.jsonl"),
    ("ragas", "ragas/dataset.hf.parquet"), ("ragas", "ragas/dataset_mixed_columns.csv"),
    ("ragas", "ragas/dataset_mixed_columns.jsonl"), ("ragas", "ragas/result.csv"), ("ragas", "ragas/result.jsonl"),
    ("ragas", "ragas/result.records.json"), ("ragas", "ragas/result.parquet"),
    ("deepeval", "deepeval/goldens.json"), ("deepeval", "deepeval/goldens.csv"), ("deepeval", "deepeval/goldens.jsonl"),
    ("deepeval", "deepeval/test_run_20261122_011809.json"), ("deepeval", "deepeval/evaluation_result.json"),
    ("langfuse", "langfuse/traces_full.jsonl"), ("langfuse", "langfuse/observations_v2_page.json"),
    ("langsmith_runs", "langsmith/runs.jsonl"), ("mlflow", "mlflow/evaluate_results.csv"),
    ("mlflow", "mlflow/evaluate_results.json"), ("trulens", "trulens/trulens_events.rows.jsonl"),
    ("ragchecker", "ragchecker/checking_inputs.json"), ("ragchecker", "ragchecker/checking_outputs.json"),
    ("llamaindex", "llama_index/query_response.jsonl"), ("llamaindex", "llama_index/faithfulness_results.jsonl"),
    ("llamaindex", "llama_index/batch_eval_results.json"),
    ("langchain", "langchain/retrieval_chain_outputs.dumps.jsonl"),
    ("langchain", "langchain/retrieval_chain_outputs.dumps.json"),
    ("langchain", "langchain/retrieval_chain_outputs.model_dump.jsonl"),
])  # fmt: skip
def test_ten_questions_their_answers_and_passages(real_data, option, file):
    """Of files in which all are answered and have their passages."""
    records = read(real_data, option, file)
    assert len(records) == (11 if file in ("deepeval/test_run_20261122_011809.json", "deepeval/evaluation_result.json") else 10)
    cases = by_question(records)
    answers = {question: cases[question].output.answer for question in (Q02, Q06, Q09, Q10)}
    assert answers == {Q02: A02, Q06: A06, Q09: A09, Q10: A10}
    assert cases["When does the book boat come to Gull Island?"].output.answer == A05
    assert texts(cases[Q02]) == [CARDS, FINES]
    assert texts(cases[Q10]) == [ARCHIVE]
    assert all(len(texts(cases[question])) == 2 for question in (Q06, Q09))
    assert not any(record.output.error for record in records)


@pytest.mark.parametrize(("option", "file"), [
    ("openinference", "openinference/otlp.json"), ("openinference", "openinference/otlp_per_batch.jsonl"),
    ("openinference", "openinference/console_exporter.jsonl"), ("phoenix", "phoenix/spans_rest.jsonl"),
    ("phoenix", "phoenix/spans_dataframe.csv"),
])  # fmt: skip
def test_the_same_spans_are_the_same_cases(real_data, option, file):
    """The same 56 spans five times."""
    records = read(real_data, option, file)
    assert len(records) == 10
    cases = by_question(records)
    q02, q06, q09, q10 = (cases[question].output for question in (Q02, Q06, Q09, Q10))
    assert (q02.answer, q06.answer, q09.answer, q10.answer) == (A02, A06, None, A10)
    assert [q02.error, q06.error, q09.error, q10.error] == [None, None, TIMEOUT, None]
    expected = [("cards", "cards.md", 0.91, CARDS), ("fines", "fines.md", 0.74, FINES)]
    assert [(c.id, c.doc_id, c.score, c.text) for c in q02.chunks] == expected
    assert [c.id for c in q09.chunks] == ["hours"]  # what the reranker left of hours and boat
    assert [c.text for c in q10.chunks] == [ARCHIVE]
    assert cases[Q02].sample.id == "6b0d549b6f03675a1600a35a099950d8"
    assert (q02.usage, q09.usage) == ({"tokens_in": 81, "tokens_out": 13}, {})
    assert (q02.timings["generation"], q02.timings["total"]) == pytest.approx((19.292, 27.977), abs=0.002)
    assert q02.recorded == {"judge": 0.5}
    assert cases[Q02].sample.meta["metadata"] == {"case": "q02"}
    assert cases[Q02].sample.tags == ["library", "test"]
    twice = cases["When is the library open on Saturdays?"].output
    assert [c.id for c in twice.chunks] == ["hours"]
    two_searches = cases["Who founded the library, and in which year?"].output
    assert [c.id for c in two_searches.chunks] == ["history"]


def test_all_retrievers_count_where_the_mapping_says_so(real_data):
    more = "fields: {chunks: {each: 'retrievals[].documents[]', fields: {id: id, text: text, score: score}}}"
    cases = by_question(read(real_data, "openinference", "openinference/otlp.json", more))
    first, founded = "When is the library open on Saturdays?", "Who founded the library, and in which year?"
    assert [c.id for c in cases[first].output.chunks] == ["hours", "rooms", "hours"]
    expected = [("history", 0.91), ("archive", 0.74), ("history", None)]
    assert [(c.id, c.score) for c in cases[founded].output.chunks] == expected


@pytest.mark.parametrize(("option", "file", "complete"), [
    ("phoenix", "phoenix/spans_dataframe.json", 2), ("phoenix", "phoenix/spans_dataframe.parquet", 4),
    ("openinference", "openinference/console_exporter_pretty.txt", 1),
    ("openinference", "openinference/otlp_base64_ids.json", 0),
])  # fmt: skip
def test_a_trace_that_the_export_cut_is_refused_or_left_out_on_request(real_data, option, file, complete):
    with pytest.raises(DataError, match=r"dataset\.filter=question"):
        read(real_data, option, file)
    if complete:
        assert len(read(real_data, option, file, "filter: question")) == complete


def said(record, name):
    """What a record says under a name of the table: a field, a name in one, or the ids and places of its chunks."""
    field, _, inner = name.partition(".")
    if field in ("ids", "places"):
        chunks = record.output.chunks or []
        return [chunk.id if field == "ids" else (chunk.id, chunk.doc_id, chunk.score) for chunk in chunks]
    of = next(part for part in (record, record.sample, record.output) if hasattr(part, field))
    found = getattr(of, field)
    return found.get(inner) if inner else found


EXAMPLES = ["langsmith/examples.jsonl", "langsmith/examples.json", "langsmith/examples_create.jsonl"]
EXPERIMENTS = ["langsmith/experiment_results.csv", "langsmith/experiment_results.json", "langsmith/experiment_rows.jsonl"]
GOLDENS = [f"deepeval/goldens.{form}" for form in ("json", "jsonl", "csv")]
GRADES = {"words": 3.0, "exact": False, "grade": {"unreadable": "bad"}, "broken": {"unreadable": "no grade for this one"}}
RESULTS = [f"ragas/result.{form}" for form in ("csv", "jsonl", "records.json", "parquet")]
RUNS = ["deepeval/test_run_20261122_011809.json", "deepeval/evaluation_result.json"]
TOLD = "TimeoutError('the model did not answer in 10 s')"
SATURDAYS = "When is the library open on Saturdays?"

FIELDS: list[tuple[str, list[str], int, str, dict[str, Any]]] = [
    ("ragas", RESULTS[:1], 10, Q02, {
        "references": R02, "relevant_chunks": ["cards"], "ids": ["cards", "fines"],
        "recorded": {
            "faithfulness": 0.0, "context_recall": 1.0, "context_precision": 0.99999999995, "harmfulness": 0.0,
            "id_based_context_precision": 0.5, "id_based_context_recall": 1.0, "non_llm_string_similarity": 0.49056603773584906,
        },
    }),
    ("ragas", RESULTS, 10, Q09, {
        "relevant_chunks": ["caf\u00e9"],
        "meta.reference_contexts": ["The reading caf\u00e9 \u201cZum Anker\u201d sells tea & rolls; no hot food is served after 17:00."],
        "recorded.faithfulness": None, "recorded.context_recall": None, "recorded.harmfulness": None,
        "recorded.id_based_context_recall": 0.0, "recorded.non_llm_string_similarity": pytest.approx(0.15789473684),
    }),
    ("deepeval", RUNS, 11, Q02, {
        "id": "test_case_1", "references": R02,
        "recorded": {
            "Faithfulness": 0.5, "Answer Relevancy": 0.5, "Contextual Precision": 1.0, "Contextual Recall": 1.0, "Correctness [GEval]": 1.0,
        },
    }),
    ("deepeval", RUNS[:1], 11, Q02, {"timings": {"total": 1250.0}, "usage": {"cost_usd": 0.0003}}),
    ("deepeval", GOLDENS, 10, Q02, {
        "id": "q02", "references": R02, "recorded": {}, "meta.ideal_context": [CARDS],
        "meta.additional": {"id": "q02", "retrieved_ids": ["cards", "fines"]},
    }),
    ("langfuse", ["langfuse/traces_full.jsonl"], 10, Q02, {
        "id": "d71e9a72937116d10f35970d13a48f1b", "recorded": {"faithfulness": 0.57, "verdict": {"unreadable": "good"}},
        "timings": {"retrieval": 60.0, "generation": 700.0, "total": 820.0},
        "usage": {"tokens_in": 121, "tokens_out": 13, "cost_usd": 0.000147},
    }),
    ("langfuse", ["langfuse/traces_full.jsonl"], 10, "Does my ten-year-old have to pay a fine for a late book?", {
        "recorded": {"faithfulness": [0.16, 0.1], "verdict": {"unreadable": "bad"}},
    }),
    ("langsmith", EXPERIMENTS, 10, Q02, {
        "id": "309d6b79-965e-4a32-9ae4-45508201e2bd", "answer": A02, "references": R02, "ids": ["cards", "fines"],
        "recorded": {"correctness": 0.0, "verdict": {"unreadable": "good"}},
    }),
    ("langsmith", EXPERIMENTS[:2], 10, Q02, {"timings": {"total": pytest.approx(0.114)}}),  # execution_time 0.000114 s
    ("langsmith", EXPERIMENTS, 10, Q09, {"answer": None, "error": TOLD, "references": R09, "chunks": None}),
    ("langsmith", EXAMPLES, 10, Q02, {"output": None, "references": R02}),
    ("langsmith_runs", ["langsmith/runs.jsonl"], 10, Q02, {
        "usage": {"tokens_in": 100, "tokens_out": 12, "cost_usd": 0.00031}, "recorded": {"correctness": 1.0},
        "timings": {"retrieval": 57.0, "generation": 730.0, "total": 820.0},
    }),
    ("langsmith_runs", ["langchain/traced_runs.jsonl"], 3, Q02, {"answer": A02, "ids": ["doc-cards", "c2"]}),
    ("langsmith_runs", ["langchain/traced_runs.jsonl"], 3, Q09, {"answer": None, "error": TOLD}),
    ("langchain", ["langchain/retrieval_chain_outputs.dumps.jsonl"], 10, Q02, {
        "usage": {"tokens_in": 100, "tokens_out": 12}, "places": [("doc-cards", "cards.md", 0.91), ("c2", "fines.md", 0.74)],
    }),
    ("ragchecker", ["ragchecker/checking_outputs.json"], 10, Q02, {
        "id": "q02", "references": R02,
        "recorded": {
            "precision": 1.0, "recall": 0.5, "f1": 0.6666666666666666, "claim_recall": 1.0, "context_precision": 1.0,
            "context_utilization": 0.5, "noise_sensitivity_in_relevant": 0.0, "noise_sensitivity_in_irrelevant": 0.0,
            "hallucination": 0.0, "self_knowledge": 0.0, "faithfulness": 1.0,
        },
    }),
    ("llamaindex", ["llama_index/query_response.jsonl"], 10, Q02, {
        "places": [("node-cards", "cards.md", 0.91), ("node-fines", "fines.md", 0.74)],
    }),
    ("llamaindex", ["llama_index/query_response.v0_14.jsonl"], 3, Q02, {"answer": A02}),
    ("llamaindex", ["llama_index/batch_eval_results.json"], 10, Q02, {
        "recorded": {"faithfulness": 1.0, "relevancy": 1.0, "correctness": 3.0},
    }),
    ("llamaindex", ["llama_index/faithfulness_results.jsonl"], 10, Q02, {"recorded": {"score": 1.0}}),
    ("llamaindex", ["llama_index/retrieval_eval_results.json"], 10, Q02, {
        "relevant_chunks": ["node-cards"], "ids": ["node-cards", "node-fines"],
    }),
    ("llamaindex", ["llama_index/retrieval_eval_results.json"], 10, Q09, {"answer": None, "recorded": {"hit_rate": 0.0, "mrr": 0.0}}),
    *(
        ("mlflow", [f"mlflow/{file}"], count, Q09, {
            "references": R09, "answer": A09, "recorded": GRADES, "usage": {"tokens_in": 100, "tokens_out": 12}, "timings.total": 62.0,
            "places": [("hours", "hours.md", 0.9), ("boat", "boat.md", 0.8)],
        })
        for file, count in (("evaluate_results.csv", 10), ("evaluate_results.json", 10), ("traces.jsonl", 6), ("search_traces.csv", 3))
    ),
    ("mlflow", [f"mlflow/answers_given_results.{form}" for form in ("csv", "parquet")], 4, Q02, {
        "answer": A02, "chunks": None, "references": R02, "recorded": {"words": 12.0, "exact": False},
    }),
    ("phoenix_experiment", ["phoenix/experiment.csv", "phoenix/experiment.json"], 10, Q02, {
        "answer": A02, "id": "RGF0YXNldEV4YW1wbGU6Mg==", "references": R02,
    }),
    ("phoenix_experiment", ["phoenix/experiment.csv", "phoenix/experiment.json"], 10, SATURDAYS, {
        "recorded": {"exact": 1.0}, "timings": {"total": pytest.approx(0.421)},
    }),
    ("phoenix_experiment", ["phoenix/dataset.csv", "phoenix/dataset.json"], 10, Q09, {"output": None, "references": R09}),
    ("squad", ["squad_v2/dev-v2.0.json"], 10, Q02, {"output": None, "id": "fq02q02q02", "references": ["4 crowns"], "answerable": True}),
    ("squad", ["squad_v2/dev-v2.0.json"], 10, Q09, {"references": [], "answerable": False}),
]  # fmt: skip


@pytest.mark.parametrize(("option", "files", "count", "question", "expected"), FIELDS)
def test_a_case_field_by_field(real_data, option, files, count, question, expected):
    for file in files:
        records = read(real_data, option, file)
        assert len(records) == count
        record = by_question(records)[question]
        assert {name: said(record, name) for name in expected} == expected, file


def test_ragas_ids_pair_files_with_the_same_references(real_data):
    ids = [[r.sample.id for r in read(real_data, "ragas", f"ragas/{file}")] for file in ("dataset.csv", "result.parquet")]
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 10
    references = [
        [r.sample.references for r in read(real_data, "ragas", f"ragas/dataset_mixed_columns.{form}")] for form in ("csv", "jsonl")
    ]
    assert references[0] == references[1] == [["From 10:00 to 14:00."]] + [[]] * 9
    columns = read(real_data, "ragas", "ragas/result.default_columns.json", "format: json_columns")
    assert by_question(columns)[Q06].output.answer == A06


@pytest.mark.parametrize(("option", "file"), [("ragas", "ragas/multi_turn.jsonl"), ("langsmith", "langsmith/runs.jsonl")])
def test_several_turns_and_the_runs_of_an_experiment_are_no_cases(real_data, option, file):
    with pytest.raises(DataError, match="question"):
        read(real_data, option, file)


def test_langfuse_with_the_references_of_its_data_set(real_data):
    more = """
      files: {main: traces_full.jsonl, run: dataset_run.json, items: dataset_items_page.json}
      join:
        run: {file: run, records: datasetRunItems, by: traceId, key: trace_id}
        item: {file: items, records: data, by: id, key: run.datasetItemId}
      fields: {reference: "item.expectedOutput.answer || item.expectedOutput"}
    """
    case = by_question(read(real_data, "langfuse", "langfuse", more))
    assert len(case) == 10
    assert (case[Q02].sample.references, case[Q09].sample.references) == (R02, R09)


@pytest.mark.parametrize("file", ["results.json", "results.jsonl"])
def test_promptfoo(real_data, file):
    records = read(real_data, "promptfoo", f"promptfoo/{file}")
    assert len(records) == 20
    case = {(r.sample.id, r.output.method): r for r in records}
    text, structured = "library-bot #0", "library-bot-structured #1"
    q02 = case["test-1", text]
    assert (q02.sample.question, q02.sample.references, q02.output.answer, q02.output.error) == (Q02, R02, A02, None)
    assert texts(q02) == [f"{CARDS}\n\n{FINES}"]
    assert q02.output.recorded == {"recall": 0, "rubric": 1, "faithfulness": 1}
    assert q02.output.timings == {"total": 812.0}
    assert q02.output.usage["cost_usd"] == 0.0003
    q09 = case["test-8", text].output
    assert (q09.answer, q09.error, q09.recorded) == (None, "the model did not answer in 10 s", {})
    assert case["test-8", structured].output.answer == A09
    assert case["test-9", structured].output.answer == A10
    assert "cost_usd" not in case["test-9", structured].output.usage
    assert "apiKey" not in str([r.sample for r in records])


def test_open_rag_eval(real_data):
    records = read(real_data, "open_rag_eval", "open_rag_eval/answers.csv")
    assert len(records) == 13
    case = {(r.sample.id, r.output.repeat): r.output for r in records}
    assert case["q02", 1].answer == "A guest card costs 4 crowns and is valid for 60 days [1]."
    assert [(c.id, c.text) for c in case["q02", 1].chunks] == [("[1]", CARDS), ("[2]", FINES)]
    assert {repeat for name, repeat in case if name in ("q01", "q02", "q03")} == {1, 2}
    assert case["q06", 1].answer == "The Slate Room [1]."
    assert [(case[name, 1].answer, case[name, 1].chunks, case[name, 1].error) for name in ("q08", "q09")] == [
        (None, None, "Runtime error: the model did not answer in 10 s"),
        (None, None, "NO_ANSWER: the system gave no answer"),
    ]
    assert [c.text for c in case["q10", 1].chunks] == [ARCHIVE]


def test_open_rag_eval_results(real_data):
    records = read(real_data, "open_rag_eval_results", "open_rag_eval/eval_results.json")
    case = {(r.sample.id, r.output.repeat): r.output for r in records}
    assert len(records) == len(case) == 11  # 8 queries, 3 of them with two runs
    assert case["q01", 1].answer == "On Saturdays the library is open from 10:00 to 14:00"
    assert case["q01", 1].recorded == {
        "umbrela": 2.0, "nuggets": 0.25, "vital_nuggets": 0.0, "hallucination": 0.1081, "citation_f1": 0.6666666666666666,
        "answered": False,
    }  # fmt: skip
    assert not {name for name, _ in case} & {"q08", "q09"}
    assert case["q07", 1].recorded["citation_f1"] is None


def test_llamaindex_predictions_by_position(real_data):
    questions = read(real_data, "llamaindex", "llama_index/labelled_rag_dataset.json")
    assert [(r.sample.references, r.output) for r in questions][1] == (R02, None)
    more = """
      files: {main: labelled_rag_dataset.json, predictions: rag_predictions.json}
      join: {prediction: {file: predictions, records: predictions, by: _index, key: _index}}
      fields: {answer: prediction.response, contexts: prediction.contexts, chunks: null}
    """
    case = by_question(read(real_data, "llamaindex", "llama_index", more))
    assert [case[question].output.answer for question in (Q02, Q06, Q09, Q10)] == [A02, A06, A09, A10]
    assert texts(case[Q02]) == [CARDS, FINES]


def test_trulens_with_its_feedback(real_data):
    more = """
      files: {main: trulens_events.rows.jsonl, feedback: records_and_feedback.csv}
      join: {feedback: {file: feedback, by: record_id, key: trace_id}}
      fields: {recorded: {fields: {overlap: verdict(feedback.Overlap)}}}
    """
    case = by_question(read(real_data, "trulens", "trulens", more))
    assert case["When is the library open on Saturdays?"].output.recorded == {"overlap": 0.5}
    assert case[Q09].output.recorded == {"overlap": 0.1}


def test_beir(real_data):
    records = read(real_data, "beir", "beir")
    assert {r.sample.id: r.sample.gains for r in records} == {
        "q05": {"boat": 1}, "q06": {"rooms": 1, "history": 0}, "q07": {"history": 2}, "q08": {"printing": 1},
        "q09": {"caf\u00e9": 1}, "q10": {"archive": 2}, "q11": {"007": 1},
    }  # fmt: skip
    train = read(real_data, "beir", "beir", "files: {qrels: qrels/train.tsv}")
    assert [r.sample.id for r in train] == ["q01", "q02", "q03", "q04"]


def test_beir_with_a_run(real_data):
    more = """
      files: {run: results.json, corpus: corpus.jsonl}
      join:
        run: {file: run, records: entries(@), by: key, key: _id}
        hits: {each: "run && reverse(sort_by(entries(run.value), &value))", file: corpus, by: _id, key: key, as: document}
      fields:
        method: {const: bm25}
        chunks: {each: hits, default: null, fields: {id: key, score: value, text: document.text}}
    """
    case = by_question(read(real_data, "beir", "beir", more))
    assert [(c.id, c.score) for c in case[Q06].output.chunks] == [("rooms", 0.91), ("history", 0.74)]
    assert texts(case[Q10]) == [ARCHIVE]


def test_squad_with_predictions(real_data):
    more = """
      files: {main: dev-v2.0.json, predictions: predictions.json}
      join: {predicted: {file: predictions, records: entries(@), by: key, key: qa.id}}
      fields: {answer: predicted.value, abstained: "predicted.value == ''", contexts: "[context]"}
    """
    case = by_question(read(real_data, "squad", "squad_v2", more))
    assert (case[Q02].output.answer, case[Q02].output.abstained, texts(case[Q02])) == (A02, False, [CARDS])
    assert (case[Q09].output.answer, case[Q09].output.abstained) == ("", True)


def test_inspect_ai(real_data):
    file = "inspect_ai/2026-11-22T01-09-15-00-00_library-rag_Q6kQ5VqCaKnifULHPiap9w.json"
    records = read(real_data, "inspect_ai", file)
    case = {(r.sample.id, r.output.repeat): r for r in records}
    assert len(records) == len(case) == 20
    assert case["3", 2].sample.question == "How long may I keep a board game?"
    assert case["q01", 1].sample.references == ["From 10:00 to 14:00.", "from 10:00 to 14:00."]
    expected = {"includes": True, "overlap": 0.8, "both": {"faithful": 1.0, "complete": 0.5}}
    assert case["q01", 1].output.recorded == expected
    q02 = case["q02", 1]
    assert (q02.sample.references, q02.output.answer, texts(q02)) == (R02, A02, [CARDS, FINES])
    assert q02.output.recorded["includes"] is False
    assert case["q09", 1].output.recorded["overlap"] == 0.0
    assert case["q01", 1].output.timings == {"total": 404.0}
    assert case["q01", 1].output.usage == {"tokens_in": 96, "tokens_out": 13}
