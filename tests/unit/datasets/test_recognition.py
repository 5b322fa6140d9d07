"""Files that real packages wrote are told by their structure; public sets are mistaken for no tool's."""

import json
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.core.errors import DataError
from ragpipe.core.registry import option_files
from ragpipe.core.resources import data_path
from ragpipe.datasets import known_shapes
from ragpipe.datasets.dataset import open_dataset
from ragpipe.datasets.file_heads import HEAD_BYTES, _closed, read_head
from ragpipe.datasets.path_expressions import Expression
from ragpipe.datasets.recognition import Recognised, recognise, record_list
from ragpipe.datasets.settings import DatasetSettings

NONE = ""
EXPECTED = {
    "beir": "beir",
    "beir/corpus.jsonl": NONE,
    "beir/qrels/test.tsv": NONE,
    "beir/qrels/train.tsv": NONE,
    "beir/queries.jsonl": NONE,
    "beir/results.json": NONE,
    "beir/run.trec": NONE,
    "deepeval/evaluation_result.json": "deepeval",
    "deepeval/goldens.csv": "deepeval",
    "deepeval/goldens.json": "deepeval",
    "deepeval/goldens.jsonl": "deepeval",
    "deepeval/test_run_20261122_011809.json": "deepeval",
    "inspect_ai/2026-11-22T01-09-15-00-00_library-rag_Q6kQ5VqCaKnifULHPiap9w.json": "inspect_ai",
    "inspect_ai/library_rag.eval": NONE,
    "langchain/documents.json": NONE,
    "langchain/retrieval_chain_outputs.dumps.json": "langchain",
    "langchain/retrieval_chain_outputs.dumps.jsonl": "langchain",
    "langchain/retrieval_chain_outputs.model_dump.jsonl": "langchain",
    "langchain/traced_runs.jsonl": "langsmith_runs",
    "langfuse/dataset_items_page.json": NONE,
    "langfuse/dataset_run.json": NONE,
    "langfuse/observations_v2_page.json": "langfuse",
    "langfuse/scores_page.json": NONE,
    "langfuse/traces_full.jsonl": "langfuse",
    "langsmith/examples.json": "langsmith",
    "langsmith/examples.jsonl": "langsmith",
    "langsmith/examples_create.jsonl": "langsmith",
    "langsmith/experiment_results.csv": "langsmith",
    "langsmith/experiment_results.json": "langsmith",
    "langsmith/experiment_rows.jsonl": "langsmith",
    "langsmith/feedback.jsonl": NONE,
    "langsmith/runs.jsonl": "langsmith_runs",
    "langsmith/upload.csv": "jsonl",
    "llama_index/batch_eval_results.json": "llamaindex",
    "llama_index/faithfulness_results.jsonl": "llamaindex",
    "llama_index/labelled_rag_dataset.json": "llamaindex",
    "llama_index/qa_finetune_dataset.json": NONE,
    "llama_index/query_response.jsonl": "llamaindex",
    "llama_index/query_response.v0_14.jsonl": "llamaindex",
    "llama_index/rag_predictions.json": NONE,
    "llama_index/retrieval_eval_results.json": "llamaindex",
    "llama_index/retrieval_metric_vals.json": NONE,
    "mlflow/answers_given_results.csv": "mlflow",
    "mlflow/answers_given_results.parquet": "mlflow",
    "mlflow/evaluate_results.csv": "mlflow",
    "mlflow/evaluate_results.json": "mlflow",
    "mlflow/metrics.json": NONE,
    "mlflow/search_traces.csv": "mlflow",
    "mlflow/traces.jsonl": "mlflow",
    "open_rag_eval/TRECEvaluator-eval_results.csv": NONE,
    "open_rag_eval/answers.csv": "open_rag_eval",
    "open_rag_eval/eval_results.json": "open_rag_eval_results",
    "openinference/console_exporter.jsonl": "openinference",
    "openinference/console_exporter_pretty.txt": "openinference",
    "openinference/otlp.json": "openinference",
    "openinference/otlp_base64_ids.json": "openinference",
    "openinference/otlp_per_batch.jsonl": "openinference",
    "phoenix/dataset.csv": "phoenix_experiment",
    "phoenix/dataset.json": "phoenix_experiment",
    "phoenix/experiment.csv": "phoenix_experiment",
    "phoenix/experiment.json": "phoenix_experiment",
    "phoenix/input_output_context.csv": NONE,
    "phoenix/ran_experiment.json": NONE,
    "phoenix/retrieved_documents.csv": NONE,
    "phoenix/span_annotations.csv": NONE,
    "phoenix/spans_dataframe.csv": "phoenix",
    "phoenix/spans_dataframe.json": "phoenix",
    "phoenix/spans_dataframe.parquet": "phoenix",
    "phoenix/spans_rest.jsonl": "phoenix",
    "promptfoo/results.csv": NONE,
    "promptfoo/results.json": "promptfoo",
    "promptfoo/results.jsonl": "promptfoo",
    "promptfoo/results.yaml": NONE,
    "ragas/dataset.csv": "ragas",
    "ragas/dataset.hf.jsonl": "ragas",
    "ragas/dataset.hf.parquet": "ragas",
    "ragas/dataset.jsonl": "ragas",
    "ragas/dataset_mixed_columns.csv": "ragas",
    "ragas/dataset_mixed_columns.jsonl": "ragas",
    "ragas/multi_turn.jsonl": NONE,
    "ragas/result.csv": "ragas",
    "ragas/result.default_columns.json": "ragas",
    "ragas/result.jsonl": "ragas",
    "ragas/result.parquet": "ragas",
    "ragas/result.records.json": "ragas",
    "ragas/scores.json": NONE,
    "ragchecker/checking_inputs.json": "ragchecker",
    "ragchecker/checking_outputs.json": "ragchecker",
    "squad_v2/dev-v2.0.json": "squad",
    "squad_v2/predictions.json": NONE,
    "trulens/leaderboard.csv": NONE,
    "trulens/records_and_feedback.csv": NONE,
    "trulens/records_and_feedback.json": NONE,
    "trulens/trulens_events.rows.jsonl": "trulens",
}
"""Every file of the shapes, with the option that reads it; NONE where none can and a reason is given."""


@pytest.fixture
def shapes(real_data: Callable[[str], Path]) -> Path:
    return real_data("shapes")


@pytest.mark.parametrize("name", EXPECTED)
def test_a_file_of_a_real_package_is_told_and_no_other_option_fits(shapes: Path, name: str) -> None:
    found = recognise(shapes / name)
    assert found is not None
    assert (found.option, found.others) == (EXPECTED[name], ())
    assert bool(found.unusable) == (not found.option)


def test_every_file_of_the_shapes_is_in_the_table(shapes: Path) -> None:
    files = {path.relative_to(shapes).as_posix() for path in shapes.rglob("*") if path.is_file()}
    assert files - {"README.md"} == set(EXPECTED) - {"beir"}


@pytest.mark.parametrize("name", [name for name in EXPECTED if name != "beir" and not name.endswith((".eval", ".trec"))])
def test_the_name_of_the_file_does_not_decide(shapes: Path, tmp_path: Path, name: str) -> None:
    renamed = tmp_path / f"export{Path(name).suffix}"
    shutil.copyfile(shapes / name, renamed)
    found = recognise(renamed)
    assert found is not None
    assert found.option == EXPECTED[name]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("inspect_ai/library_rag.eval", "inspect log dump"),
        ("promptfoo/results.yaml", "--output results.json"),
        ("promptfoo/results.csv", "--output results.json"),
        ("beir/queries.jsonl", "give the folder"),
        ("beir/run.trec", "dataset.files.main=QRELS"),
        ("ragas/multi_turn.jsonl", "several turns are not read; write a record for each answer"),
        ("ragas/scores.json", "no questions or answers"),
        ("langsmith/feedback.jsonl", "export the runs"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(shapes: Path, name: str, reason: str) -> None:
    found = recognise(shapes / name)
    assert found is not None
    assert reason in found.unusable
    assert reason in found.sentence(name)


@pytest.mark.slow
def test_no_public_set_is_mistaken_for_a_tools(real_data: Callable[[str], Path]) -> None:
    root = real_data("shapes").parent
    told = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        made = name.startswith(("shapes", "cases-", "LICENSES"))  # written in the forms of tools
        if not made and (found := recognise(path)) is not None and found.option:
            told[name] = found.option
    assert told == {}


def test_the_demonstration_data_is_in_the_native_form(shared_demo: Path) -> None:
    found = recognise(shared_demo)
    assert found is not None
    assert (found.option, found.words, found.unusable) == ("jsonl", (), "")


@pytest.fixture
def shared_demo() -> Path:
    return data_path("package:demo/cases.jsonl")


def _written(folder: Path, name: str, content: Any) -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def _told(path: Path) -> Recognised:
    found = recognise(path)
    assert found is not None
    return found


NATIVE = {"id": "q1", "question": "Why?", "answer": "Because.", "contexts": ["c"]}


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", json.dumps(NATIVE), ()),
        ("a.json", [NATIVE, NATIVE], ()),
        ("a.json", {"made": "today", "cases": [NATIVE]}, ("dataset.records=cases",)),
        ("a.json", {"the cases": [NATIVE]}, ('dataset.records="the cases"',)),
        ("a.txt", json.dumps(NATIVE) + "\n" + json.dumps(NATIVE), ("dataset.format=jsonl",)),
        ("a.csv", "id;question;answer\nq1;Why?;A.\n", ("dataset.delimiter=;",)),
        ("a.tsv", "id\tquestion\tanswer\nq1\tWhy?\tA.\n", ()),
    ],
)
def test_the_native_form_with_the_words_that_a_reader_needs(tmp_path: Path, name: str, content: Any, words: tuple[str, ...]) -> None:
    found = _told(_written(tmp_path, name, content))
    assert (found.option, found.words) == ("jsonl", words)


@pytest.mark.parametrize(
    "content",
    [
        {**NATIVE, "ticket": 7}, {"question": "Why?"}, {"q": "Why?", "a": "Because."}, {"id": "1", "text": "a corpus"},
        {"input": "Why?", "output": "Because."},
    ],
    ids=["one unknown name", "a question alone", "own names", "corpus", "input and output"],
)  # fmt: skip
def test_an_unknown_shape_is_not_guessed(tmp_path: Path, content: dict[str, Any]) -> None:
    assert recognise(_written(tmp_path, "a.jsonl", json.dumps(content) + "\n" + json.dumps(content))) is None


def test_a_record_that_fits_two_options_names_both(tmp_path: Path) -> None:
    both = {"user_input": "Why?", "response": "A.", "queryLogId": "7", "question": "Why?"}
    found = _told(_written(tmp_path, "a.jsonl", json.dumps(both) + "\n" + json.dumps(both)))
    assert {found.option, *found.others} == {"ragas", "query_logs"}
    assert "dataset=ragas or dataset=query_logs" in found.sentence("a.jsonl")


def test_names_are_gathered_over_the_first_records(tmp_path: Path) -> None:
    lines = [{"user_input": "Why?", "response": None}, {"user_input": "Who?", "retrieved_contexts": ["c"]}]
    found = _told(_written(tmp_path, "a.jsonl", "\n".join(map(json.dumps, lines))))
    assert (found.option, found.evidence) == ("ragas", ("user_input", "response", "retrieved_contexts"))


def test_a_document_larger_than_what_is_read_is_told_by_its_beginning(tmp_path: Path) -> None:
    rows = [{"query_id": str(n), "query": "q" * 900, "gt_answer": "a", "response": "r", "retrieved_context": []} for n in range(2000)]
    path = _written(tmp_path, "big.json", {"results": rows})
    assert path.stat().st_size > HEAD_BYTES
    assert _told(path).option == "ragchecker"


def test_at_most_the_first_megabyte_is_read(tmp_path: Path) -> None:
    native = json.dumps(NATIVE) + "\n"
    late = native * (HEAD_BYTES // len(native) + 1) + json.dumps({**NATIVE, "unknown": 1}) + "\n"
    assert _told(_written(tmp_path, "a.jsonl", late)).option == "jsonl"


@pytest.mark.parametrize("column", ["plain", 'with "quotes" and \\ signs', "[{,}]"])
def test_one_text_longer_than_what_is_read_is_no_error(tmp_path: Path, column: str) -> None:
    path = _written(tmp_path, "a.json", [{"text": column * (2 * HEAD_BYTES // len(column))}])
    assert recognise(path) is None


def test_pickles_archives_pipes_and_absent_files(tmp_path: Path) -> None:
    (tmp_path / "a.pkl").write_bytes(pickle.dumps({"a": 1}))
    assert "can run code" in _told(tmp_path / "a.pkl").unusable
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("xl/workbook.xml", "")
    assert "CSV" in _told(tmp_path / "a.zip").unusable
    assert "JSON" in _told(_written(tmp_path, "a.html", "<!DOCTYPE html><html></html>")).unusable
    os.mkfifo(tmp_path / "pipe")
    assert recognise(tmp_path / "pipe") is None
    with pytest.raises(FileNotFoundError):
        recognise(tmp_path / "absent.json")


@pytest.mark.parametrize(
    ("record", "option"),
    [
        ({"id": "rag-1", "input": {"query": "What?"}, "expected": {"behavior": "answer"}}, "eval_set"),
        ({"query": "What stock should I buy?", "expected_behavior": "reject", "category": "should_reject_policy"}, "eval_set"),
        ({"query": "What?", "response": "This.", "context": [], "human_faithfulness": 0.8}, "eval_set"),
        ({"id": "g1", "question": "What?", "gold_supports": [{"rel_path": "a.md"}], "multi_hop": False}, "golden_set"),
        ({"queryLogId": "ql-1", "question": "What?", "answer": "This.", "context": []}, "query_logs"),
        ({"question": "What?", "ground_truth": "This.", "method": "local_search", "answer": "It.", "ragas_faithfulness": 100.0}, "graphrag"),
        ({"question": "What?", "ground_truth": "This.", "answers": {"local_search": {"answer": "It."}}}, "graphrag"),
    ],
)  # fmt: skip
def test_the_shapes_of_the_source_documents(tmp_path: Path, record: dict[str, Any], option: str) -> None:
    found = _told(_written(tmp_path, "a.json", [record, record]))
    assert (found.option, found.others) == (option, ())


def test_an_eval_set_is_told_by_its_folders(tmp_path: Path) -> None:
    (tmp_path / "labeled" / "retrieval").mkdir(parents=True)
    _written(tmp_path, "labeled/retrieval/labels.json", [])
    assert _told(tmp_path).option == "eval_set"


def test_the_longest_list_of_a_document_holds_its_records(tmp_path: Path) -> None:
    document = {"models": [{"n": 1}], "rows": [{"q": 1}, {"q": 2}], "texts": ["a", "b", "c"]}
    assert record_list(read_head(_written(tmp_path, "a.json", document))) == ("rows", ({"q": 1}, {"q": 2}))


@pytest.mark.parametrize(("document", "path"), [
    ({"export": {"date": "x", "chats": [{"q": 1}]}}, "export.chats"),
    ({"a b": {"c-d": {"rows": [{"q": 1}]}}, "n": 3}, '"a b"."c-d".rows'),
    ({"one": {"rows": [{"q": 1}]}, "two": {"rows": [{"q": 2}, {"q": 3}]}}, "two.rows"),
    ({"rows": [{"q": 1}], "meta": {"steps": [{"s": 1}, {"s": 2}]}}, "rows"),
    ({"a": {"b": {"c": {"d": {"rows": [{"q": 1}]}}}}}, ""),
    ({"a": {"b": [1, 2]}}, ""),
])  # fmt: skip
def test_a_list_within_objects_is_found_by_a_path_that_leads_to_it(document: dict[str, Any], path: str, tmp_path: Path) -> None:
    found, records = record_list(read_head(_written(tmp_path, "a.json", document)))
    assert found == path
    assert list(records) == (Expression(path)(document) if path else [])


@pytest.mark.parametrize(("file", "option"), [("ragas/dataset.jsonl", "ragas"), ("squad_v2/dev-v2.0.json", "squad"), ("beir", "beir")])
def test_a_file_taken_for_the_native_form_is_told_with_the_words_that_read_it(shapes: Path, file: str, option: str) -> None:
    with pytest.raises(DataError) as refused:
        list(open_dataset(DatasetSettings(name="jsonl", path=file), shapes))
    assert f"dataset={option} dataset.path={file}" in str(refused.value).split("\n")[1]


def test_a_broken_file_in_the_native_form_is_told_as_nothing_else(tmp_path: Path) -> None:
    _written(tmp_path, "a.jsonl", json.dumps({**NATIVE, "anwser": 1}))
    with pytest.raises(DataError) as refused:
        list(open_dataset(DatasetSettings(path="a.jsonl"), tmp_path))
    assert "looks like" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ragas/result.default_columns.json", ("dataset.format=json_columns",)),
        ("openinference/console_exporter_pretty.txt", ()),
        ("mlflow/evaluate_results.csv", ()),
        ("deepeval/goldens.jsonl", ()),
    ],
)
def test_a_format_is_named_where_neither_the_name_nor_the_option_says_it(shapes: Path, name: str, words: tuple[str, ...]) -> None:
    assert _told(shapes / name).words == words


def test_every_option_of_the_table_is_shipped() -> None:
    assert {shape.option for shape in known_shapes.shapes() if shape.option} - set(option_files("dataset")) == set()


def test_every_row_of_the_table_says_an_option_or_why_there_is_none() -> None:
    assert [shape.description for shape in known_shapes.shapes() if bool(shape.option) == bool(shape.unusable)] == []


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('ab"\\[]{},é\n', max_size=6),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text("abc", max_size=3), inside, max_size=4),
    max_leaves=12,
)


def _is_beginning(cut: Any, whole: Any) -> bool:
    if isinstance(cut, dict) and isinstance(whole, dict):
        return all(name in whole and _is_beginning(value, whole[name]) for name, value in cut.items())
    if isinstance(cut, list) and isinstance(whole, list):
        return len(cut) <= len(whole) and all(map(_is_beginning, cut, whole))
    return bool(cut == whole)


@given(st.lists(VALUES, min_size=1, max_size=5), st.integers(1, 400))
def test_json_that_is_cut_anywhere_gives_its_complete_elements_and_nothing_else(values: list[Any], end: int) -> None:
    document = {"first": "text", "rows": values, "last": 1}
    text = json.dumps(document)
    closed = _closed(text[: min(end, len(text))])
    assert _is_beginning(closed, document)
    if end > len('{"first": "text", '):
        assert closed["first"] == "text"
    if end >= len(text):
        assert closed == document
