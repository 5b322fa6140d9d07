"""Files that real packages wrote are told by their structure; public sets are mistaken for no tool's."""

import json
import os
import pickle
import shutil
import zipfile
from pathlib import Path

import pytest

from ragpipe.core.errors import DataError
from ragpipe.core.registry import option_files
from ragpipe.data import recognition
from ragpipe.data.dataset import open_dataset
from ragpipe.data.expressions import Expression
from ragpipe.data.file_formats import HEAD_BYTES, read_head
from ragpipe.data.recognition import recognise, record_list
from ragpipe.data.settings import DatasetSettings

NONE = ""
FILES = {
    "beir": ["beir"],
    "deepeval": ["deepeval/evaluation_result.json", "deepeval/goldens.csv", "deepeval/goldens.json", "deepeval/goldens.jsonl",
                 "deepeval/test_run_20261122_011809.json"],
    "inspect_ai": ["inspect_ai/2026-11-22T01-09-15-00-00_library-rag_Q6kQ5VqCaKnifULHPiap9w.json"],
    "jsonl": ["langsmith/upload.csv"],
    "langchain": ["langchain/retrieval_chain_outputs.dumps.json", "langchain/retrieval_chain_outputs.dumps.jsonl",
                  "langchain/retrieval_chain_outputs.model_dump.jsonl"],
    "langfuse": ["langfuse/observations_v2_page.json", "langfuse/traces_full.jsonl"],
    "langsmith": ["langsmith/examples.json", "langsmith/examples.jsonl", "langsmith/examples_create.jsonl",
                  "langsmith/experiment_results.csv", "langsmith/experiment_results.json", "langsmith/experiment_rows.jsonl"],
    "langsmith_runs": ["langchain/traced_runs.jsonl", "langsmith/runs.jsonl"],
    "llamaindex": ["llama_index/batch_eval_results.json", "llama_index/faithfulness_results.jsonl",
                   "llama_index/labelled_rag_dataset.json", "llama_index/query_response.jsonl",
                   "llama_index/query_response.v0_14.jsonl", "llama_index/retrieval_eval_results.json"],
    "mlflow": ["mlflow/answers_given_results.csv", "mlflow/answers_given_results.parquet", "mlflow/evaluate_results.csv",
               "mlflow/evaluate_results.json", "mlflow/search_traces.csv", "mlflow/traces.jsonl"],
    "open_rag_eval": ["open_rag_eval/answers.csv"],
    "open_rag_eval_results": ["open_rag_eval/eval_results.json"],
    "openinference": ["openinference/console_exporter.jsonl", "openinference/console_exporter_pretty.txt",
                      "openinference/otlp.json", "openinference/otlp_base64_ids.json", "openinference/otlp_per_batch.jsonl"],
    "phoenix": ["phoenix/spans_dataframe.csv", "phoenix/spans_dataframe.json", "phoenix/spans_dataframe.parquet",
                "phoenix/spans_rest.jsonl"],
    "phoenix_experiment": ["phoenix/dataset.csv", "phoenix/dataset.json", "phoenix/experiment.csv", "phoenix/experiment.json"],
    "promptfoo": ["promptfoo/results.json", "promptfoo/results.jsonl"],
    "ragas": ["ragas/dataset.csv", "ragas/dataset.hf.jsonl", "ragas/dataset.hf.parquet", "ragas/dataset.jsonl",
              "ragas/dataset_mixed_columns.csv", "ragas/dataset_mixed_columns.jsonl", "ragas/result.csv",
              "ragas/result.default_columns.json", "ragas/result.jsonl", "ragas/result.parquet", "ragas/result.records.json"],
    "ragchecker": ["ragchecker/checking_inputs.json", "ragchecker/checking_outputs.json"],
    "squad": ["squad_v2/dev-v2.0.json"],
    "trulens": ["trulens/trulens_events.rows.jsonl"],
    NONE: ["beir/corpus.jsonl", "beir/qrels/test.tsv", "beir/qrels/train.tsv", "beir/queries.jsonl", "beir/results.json",
           "beir/run.trec", "inspect_ai/library_rag.eval", "langchain/documents.json", "langfuse/dataset_items_page.json",
           "langfuse/dataset_run.json", "langfuse/scores_page.json", "langsmith/feedback.jsonl",
           "llama_index/qa_finetune_dataset.json", "llama_index/rag_predictions.json", "llama_index/retrieval_metric_vals.json",
           "mlflow/metrics.json", "open_rag_eval/TRECEvaluator-eval_results.csv", "phoenix/input_output_context.csv",
           "phoenix/ran_experiment.json", "phoenix/retrieved_documents.csv", "phoenix/span_annotations.csv",
           "promptfoo/results.csv", "promptfoo/results.yaml", "ragas/multi_turn.jsonl", "ragas/scores.json",
           "squad_v2/predictions.json", "trulens/leaderboard.csv", "trulens/records_and_feedback.csv",
           "trulens/records_and_feedback.json"],
}  # fmt: skip
"""Every file of the shapes by the option that reads it; NONE where none can and a reason is given."""
EXPECTED = {name: option for option, names in FILES.items() for name in names}


@pytest.fixture
def shapes(real_data):
    return real_data("shapes")


@pytest.mark.parametrize("name", EXPECTED)
def test_a_file_of_a_real_package_is_told_whatever_its_name_and_no_other_option_fits(shapes, tmp_path, name):
    file = shapes / name
    if file.is_file():
        file = Path(shutil.copyfile(file, tmp_path / f"export{file.suffix}"))
    found = recognise(file)
    assert (found.option, found.others) == (EXPECTED[name], ())
    assert bool(found.unusable) == (not found.option)


def test_every_file_of_the_shapes_is_in_the_table(shapes):
    files = {path.relative_to(shapes).as_posix() for path in shapes.rglob("*") if path.is_file()}
    assert files - {"README.md"} == set(EXPECTED) - {"beir"}


@pytest.mark.parametrize(("name", "reason"), [
    ("inspect_ai/library_rag.eval", "inspect log dump"),
    ("promptfoo/results.yaml", "--output results.json"),
    ("promptfoo/results.csv", "--output results.json"),
    ("beir/queries.jsonl", "give the folder"),
    ("beir/run.trec", "dataset.files.main=QRELS"),
    ("ragas/multi_turn.jsonl", "several turns are not read; write a record for each answer"),
    ("ragas/scores.json", "no questions or answers"),
    ("langsmith/feedback.jsonl", "export the runs"),
])  # fmt: skip
def test_a_file_that_cannot_be_used_says_why(shapes, name, reason):
    found = recognise(shapes / name)
    assert reason in found.unusable
    assert reason in found.sentence(name)


@pytest.mark.slow
def test_no_public_set_is_mistaken_for_a_tools(real_data):
    root = real_data("shapes").parent
    told = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        made = name.startswith(("shapes", "cases-", "LICENSES"))  # written in the forms of tools
        if not made and (found := recognise(path)) is not None and found.option:
            told[name] = found.option
    assert told == {}


def _written(folder, name, content):
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


NATIVE = {"id": "q1", "question": "Why?", "answer": "Because.", "contexts": ["c"]}


@pytest.mark.parametrize(("name", "content", "words"), [
    ("a.jsonl", json.dumps(NATIVE), ()),
    ("a.json", [NATIVE, NATIVE], ()),
    ("a.json", {"made": "today", "cases": [NATIVE]}, ("dataset.records=cases",)),
    ("a.json", {"the cases": [NATIVE]}, ('dataset.records="the cases"',)),
    ("a.txt", json.dumps(NATIVE) + "\n" + json.dumps(NATIVE), ("dataset.format=jsonl",)),
    ("a.csv", "id;question;answer\nq1;Why?;A.\n", ("dataset.delimiter=;",)),
    ("a.tsv", "id\tquestion\tanswer\nq1\tWhy?\tA.\n", ()),
])  # fmt: skip
def test_the_native_form_with_the_words_that_a_reader_needs(tmp_path, name, content, words):
    found = recognise(_written(tmp_path, name, content))
    assert (found.option, found.arguments) == ("jsonl", words)


@pytest.mark.parametrize("content", [
    {**NATIVE, "ticket": 7}, {"question": "Why?"}, {"q": "Why?", "a": "Because."}, {"id": "1", "text": "a corpus"},
    {"input": "Why?", "output": "Because."},
], ids=["one unknown name", "a question alone", "own names", "corpus", "input and output"])  # fmt: skip
def test_an_unknown_shape_is_not_guessed(tmp_path, content):
    assert recognise(_written(tmp_path, "a.jsonl", json.dumps(content) + "\n" + json.dumps(content))) is None


def test_a_record_that_fits_two_options_names_both(tmp_path):
    both = {"user_input": "Why?", "response": "A.", "queryLogId": "7", "question": "Why?"}
    found = recognise(_written(tmp_path, "a.jsonl", json.dumps(both) + "\n" + json.dumps(both)))
    assert {found.option, *found.others} == {"ragas", "query_logs"}
    assert "dataset=ragas or dataset=query_logs" in found.sentence("a.jsonl")


def test_names_are_gathered_over_the_first_records(tmp_path):
    lines = [{"user_input": "Why?", "response": None}, {"user_input": "Who?", "retrieved_contexts": ["c"]}]
    found = recognise(_written(tmp_path, "a.jsonl", "\n".join(map(json.dumps, lines))))
    assert (found.option, found.evidence) == ("ragas", ("user_input", "response", "retrieved_contexts"))


def test_a_document_larger_than_what_is_read_is_told_by_its_beginning(tmp_path):
    rows = [{"query_id": str(n), "query": "q" * 900, "gt_answer": "a", "response": "r", "retrieved_context": []} for n in range(2000)]
    path = _written(tmp_path, "big.json", {"results": rows})
    assert path.stat().st_size > HEAD_BYTES
    assert recognise(path).option == "ragchecker"


def test_at_most_the_first_megabyte_is_read(tmp_path):
    native = json.dumps(NATIVE) + "\n"
    late = native * (HEAD_BYTES // len(native) + 1) + json.dumps({**NATIVE, "unknown": 1}) + "\n"
    assert recognise(_written(tmp_path, "a.jsonl", late)).option == "jsonl"


def test_pickles_archives_pipes_and_absent_files(tmp_path):
    (tmp_path / "a.pkl").write_bytes(pickle.dumps({"a": 1}))
    assert "can run code" in recognise(tmp_path / "a.pkl").unusable
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("xl/workbook.xml", "")
    assert "CSV" in recognise(tmp_path / "a.zip").unusable
    assert "JSON" in recognise(_written(tmp_path, "a.html", "<!DOCTYPE html><html></html>")).unusable
    os.mkfifo(tmp_path / "pipe")
    assert recognise(tmp_path / "pipe") is None
    with pytest.raises(FileNotFoundError):
        recognise(tmp_path / "absent.json")


@pytest.mark.parametrize(("record", "option"), [
    ({"id": "rag-1", "input": {"query": "What?"}, "expected": {"behavior": "answer"}}, "eval_set"),
    ({"query": "What stock should I buy?", "expected_behavior": "reject", "category": "should_reject_policy"}, "eval_set"),
    ({"query": "What?", "response": "This.", "context": [], "human_faithfulness": 0.8}, "eval_set"),
    ({"id": "g1", "question": "What?", "gold_supports": [{"rel_path": "a.md"}], "multi_hop": False}, "golden_set"),
    ({"queryLogId": "ql-1", "question": "What?", "answer": "This.", "context": []}, "query_logs"),
    ({"question": "What?", "ground_truth": "This.", "method": "local_search", "answer": "It.", "ragas_faithfulness": 100.0}, "graphrag"),
    ({"question": "What?", "ground_truth": "This.", "answers": {"local_search": {"answer": "It."}}}, "graphrag"),
])  # fmt: skip
def test_the_shapes_of_the_source_documents(tmp_path, record, option):
    found = recognise(_written(tmp_path, "a.json", [record, record]))
    assert (found.option, found.others) == (option, ())


def test_an_eval_set_is_told_by_its_folders(tmp_path):
    (tmp_path / "labeled" / "retrieval").mkdir(parents=True)
    _written(tmp_path, "labeled/retrieval/labels.json", [])
    assert recognise(tmp_path).option == "eval_set"


@pytest.mark.parametrize(("document", "path"), [
    ({"export": {"date": "x", "chats": [{"q": 1}]}}, "export.chats"),
    ({"a b": {"c-d": {"rows": [{"q": 1}]}}, "n": 3}, '"a b"."c-d".rows'),
    ({"one": {"rows": [{"q": 1}]}, "two": {"rows": [{"q": 2}, {"q": 3}]}}, "two.rows"),
    ({"rows": [{"q": 1}], "meta": {"steps": [{"s": 1}, {"s": 2}]}}, "rows"),
    ({"a": {"b": {"c": {"d": {"rows": [{"q": 1}]}}}}}, ""),
    ({"a": {"b": [1, 2]}}, ""),
])  # fmt: skip
def test_a_list_within_objects_is_found_by_a_path_that_leads_to_it(document, path, tmp_path):
    found, records = record_list(read_head(_written(tmp_path, "a.json", document)))
    assert found == path
    assert list(records) == (Expression(path)(document) if path else [])


@pytest.mark.parametrize(("file", "option"), [("ragas/dataset.jsonl", "ragas"), ("squad_v2/dev-v2.0.json", "squad"), ("beir", "beir")])
def test_a_file_taken_for_the_native_form_is_told_with_the_words_that_read_it(shapes, file, option):
    with pytest.raises(DataError) as refused:
        list(open_dataset(DatasetSettings(name="jsonl", path=file), shapes))
    assert f"dataset={option} dataset.path={file}" in str(refused.value).split("\n")[1]


@pytest.mark.parametrize(("name", "words"), [
    ("ragas/result.default_columns.json", ("dataset.format=json_columns",)),
    ("openinference/console_exporter_pretty.txt", ()),
    ("mlflow/evaluate_results.csv", ()),
    ("deepeval/goldens.jsonl", ()),
])  # fmt: skip
def test_a_format_is_named_where_neither_the_name_nor_the_option_says_it(shapes, name, words):
    assert recognise(shapes / name).arguments == words


def test_every_option_of_the_table_is_shipped():
    assert {shape.option for shape in recognition.shapes() if shape.option} - set(option_files("dataset")) == set()
