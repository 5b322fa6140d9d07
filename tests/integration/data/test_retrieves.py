"""`retrieves: false`: a method that retrieves nothing by design has no score in what measures retrieval, and no 0."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import ragpipe
from ragpipe.cli.command_line import main
from ragpipe.core.errors import DataError
from ragpipe.data.dataset import open_dataset
from ragpipe.data.settings import DatasetSettings
from ragpipe.data.system_settings import PythonSystem, RecordedSystem
from ragpipe.metrics.base import Computed, Metric, run_skip_reason
from ragpipe.runs.collected_outputs import mark_closed_book
from ragpipe.testing.scripted import make_case, shipped_metric
from tests.support.rows import first_rows

REASON = "retrieves_nothing"
# Sections 1 and 2 of the metrics paper, and whatever else shows contexts or is 0 without any: citations are of chunks.
ON_RETRIEVAL = {
    "retrieval", "scope_miss", "attribution_hit", "recency_conflict",
    "context_relevance", "context_precision", "context_recall", "context_utilization", "noise_sensitivity",
    "context_sufficiency", "relevance_grade",
    "faithfulness", "chunk_faithfulness", "chunk_relevancy", "groundedness", "answer_synthesis", "contextual_correctness",
    "citation", "expected_citation_recall", "source_policy", "must_quote",
}  # fmt: skip
BESIDE_RETRIEVAL = {
    "abstention", "answer_class", "answer_relevance", "correctness", "factual_accuracy", "format",
    "list_completeness", "nuggets", "policy_compliance", "recorded", "rejection_calibration", "rubric",
    "semantic_similarity",
}  # fmt: skip
LABELLED: dict[str, Any] = {
    "answer": "Ada wrote it in 1843, for the engine.", "references": ["Ada, in 1843."], "relevant_chunks": ["c1"],
    "anchors": [{"rel_path": "a.md", "role": "newer"}, {"rel_path": "b.md", "role": "older"}],
    "recency_conflict_rule": "cite_newer", "citations": [], "answerable": True, "folder_mode": "on",
    "selected_folders": ["x"],
    "expected": {"behavior": "answer", "requires_citations": True, "citations": ["a.md"], "must_quote": True},
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(ON_RETRIEVAL | BESIDE_RETRIEVAL))
def test_what_measures_retrieval_is_skipped_and_nothing_else(name):
    metric = shipped_metric(name)
    closed = run_skip_reason(metric, make_case(chunks=(), retrieves=False, **LABELLED), embedder=True)
    assert (closed == REASON) is (name in ON_RETRIEVAL)
    assert run_skip_reason(metric, make_case(chunks=(), **LABELLED), embedder=True) != REASON


@pytest.mark.parametrize("name", ["context_precision", "context_recall", "context_relevance", "retrieval", "citation"])
def test_a_method_that_found_nothing_is_measured(name):
    assert run_skip_reason(shipped_metric(name), make_case(chunks=(), **LABELLED), embedder=True) is None


def test_a_rubric_goes_by_what_it_shows():
    closed = make_case(chunks=(), retrieves=False)
    for shows, why in ((["answer"], None), (["answer", "contexts"], REASON)):
        assert run_skip_reason(shipped_metric("rubric", shows=shows), closed, embedder=True) == why


def test_a_metric_of_the_users_own_says_it_by_one_attribute():
    class Found(Computed):
        pass

    class OnRetrieval(Found):
        measures_retrieval = True

    closed = make_case(chunks=(), retrieves=False)
    own: list[Metric] = [Found(name="a"), OnRetrieval(name="b")]
    assert [run_skip_reason(metric, closed, embedder=True) for metric in own] == [None, REASON]


def records(folder, text, name="d.jsonl", **settings):
    (folder / name).write_text(text, encoding="utf-8")
    return list(open_dataset(DatasetSettings(path=name, **settings), folder))


def said(found):
    return {record.output.method: record.output.retrieves for record in found if record.output}


def test_a_data_set_says_it_in_every_form(tmp_path):
    line = '{"id": "q", "question": "?", "outputs": [{"method": "a", "answer": "x"}, {"method": "b", "answer": "y", "retrieves": false}]}'
    assert said(records(tmp_path, line + "\n")) == {"a": True, "b": False}
    cells = "id,question,method,answer,retrieves\nq,?,a,x,\nq,?,b,y,false\nq,?,c,z,TRUE\n"
    assert said(records(tmp_path, cells, "d.csv")) == {"a": True, "b": False, "c": True}
    fields = {
        "id": "id", "question": "q", "method": "m", "answer": "a",
        "retrieves": {"path": "m", "map": {"closed": False}, "otherwise": True},
    }  # fmt: skip
    lines = "".join(json.dumps({"id": "s", "q": "?", "m": m, "a": "x"}) + "\n" for m in ("dense", "closed"))
    assert said(records(tmp_path, lines, fields=fields)) == {"dense": True, "closed": False}


TWO = (
    '{"id": "q1", "question": "Who wrote it?", "reference": "Ada.", "relevant_chunks": ["c1"], "expected": {"behavior": "answer"},'
    ' "outputs": [{"method": "dense", "answer": "Ada wrote it.", "contexts": ["Ada wrote it in 1843."]},'
    ' {"method": "closed", "answer": "Ada wrote it."}]}\n'
    '{"id": "q2", "question": "When?", "reference": "1843.", "relevant_chunks": ["c1"], "expected": {"behavior": "answer"},'
    ' "outputs": [{"method": "dense", "answer": "In 1843.", "contexts": []}, {"method": "closed", "answer": "In 1843."}]}\n'
)


def test_the_system_section_says_it_of_single_methods_and_of_all(tmp_path):
    found = records(tmp_path, TWO)
    assert said(list(mark_closed_book(found, RecordedSystem(retrieves={"closed": False})))) == {"dense": True, "closed": False}
    assert list(mark_closed_book(found, RecordedSystem(retrieves={"closed": True}))) == found
    with pytest.raises(DataError) as error:
        list(mark_closed_book(found, RecordedSystem(retrieves=False)))
    assert len(error.value.problems) == 1
    for part in ("d.jsonl:1", "'q1'", "'dense'", "system.retrieves", "1 chunks"):
        assert part in str(error.value)


def test_true_never_overrules_what_an_output_says_of_itself(tmp_path):
    found = records(tmp_path, '{"id": "q", "question": "?", "answer": "x", "retrieves": false}\n')
    assert said(list(mark_closed_book(found, RecordedSystem(retrieves={"default": True})))) == {"default": False}


def test_only_what_is_false_is_part_of_the_identity():
    default = RecordedSystem().identity()
    assert default == {"kind": "recorded"}
    assert RecordedSystem(retrieves={"a": True}).identity() == default
    assert RecordedSystem(retrieves=False).identity() == {**default, "retrieves": False}
    expected = {**default, "retrieves": {"a": False, "b": False}}
    assert RecordedSystem(retrieves={"b": False, "a": False, "c": True}).identity() == expected

    def live(retrieves):
        return PythonSystem(kind="python", callable="a:b", method="mine", retrieves=retrieves).identity()

    assert "retrieves" not in live(True)
    assert live({"other": False}) == live(True)
    assert live({"mine": False}) == live(False) == {**live(True), "retrieves": False}


@pytest.fixture
def here(code_here):
    (code_here / "two.jsonl").write_text(TWO)
    (code_here / "closedsystem.py").write_text(LIVE)
    return code_here


def recorded_run(*extra):
    return main([
        "dataset=jsonl", "dataset.path=two.jsonl", "metrics=[retrieval,context_precision,rejection_calibration]", "name=x", *extra,
    ])  # fmt: skip


CLOSED = "system.retrieves={closed: false, clsed: false}"


@pytest.mark.slow
def test_the_plan_says_what_is_skipped_and_why(here, capfd):
    assert recorded_run("task=plan", CLOSED) == 0
    out, err = capfd.readouterr()
    rows = {line.split()[0]: line for line in out.splitlines() if line.split()[1:2] in (["2"], ["4"])}
    assert f"2 {REASON}" in rows["retrieval"]
    assert f"2 {REASON}" in rows["context_precision"]
    assert REASON not in rows["rejection_calibration"]
    assert err.count("'clsed'") == 1


@pytest.mark.slow
def test_a_run_leaves_a_closed_book_method_out_of_retrieval_and_its_failures(here, capfd):
    assert recorded_run(CLOSED) == 0
    assert capfd.readouterr().err.count("'clsed'") == 1
    run = Path("outputs/x/latest").resolve()
    table = pq.read_table(run / "outputs.parquet").to_pylist()
    assert {row["method"]: row["retrieves"] for row in table} == {"dense": True, "closed": False}
    found = ragpipe.load(str(run)).records.set_index(["sample_id", "method"])
    for sample in ("q1", "q2"):
        row = found.loc[sample, "closed"]
        for score in ("mrr", "retrieval_score", "context_precision"):
            assert (row[f"{score}.status"], row[f"{score}.reason"]) == ("skipped", REASON)
        assert list(row["failure_modes"]) == []
        assert row["overall_score"] == 1.0  # the weights are renormalised over rejection_calibration, which is right
        assert not row["retrieves"]
    assert "retrieval_miss" in list(found.loc["q2", "dense"]["failure_modes"])  # it does retrieve, and found nothing
    metrics = json.loads((run / "iteration-1" / "metrics.json").read_text())
    assert metrics["overall"]["scores"]["context_precision"]["mean"] == 50.0  # of dense alone: 100 and 0
    assert metrics["overall"]["scores"]["mrr"]["mean"] == 0.5
    assert f"`{REASON}` 2" in (run / "report.md").read_text()
    assert REASON in (run / "report.html").read_text()


@pytest.mark.slow
def test_a_case_with_chunks_stops_the_run_before_anything_is_judged(here, capfd):
    assert recorded_run("system.retrieves=false") == 2
    said = capfd.readouterr().err
    assert "'q1'" in said
    assert "'dense'" in said
    assert not Path("outputs/x").exists()


LIVE = """
import os
def closed(sample):
    if os.path.exists("fail") and sample["id"] == "q1":
        raise ConnectionError("down")
    return "Ada wrote it."
def mixed(sample):
    if sample["id"] == "q1":
        return {"answer": "Ada wrote it.", "retrieves": False}
    return {"answer": "In 1843.", "contexts": ["In 1843."]}
def both(sample):
    return {"answer": "In 1843.", "contexts": ["In 1843."], "retrieves": False}
"""


@pytest.fixture
def live(here):
    (here / "q.jsonl").write_text('{"id": "q1", "question": "Who?"}\n{"id": "q2", "question": "When?"}\n')

    def run(function, *extra):
        return main([
            "dataset=jsonl", "dataset.path=q.jsonl", "metrics=[context_precision,faithfulness]", "name=live", "system=python",
            "plugins=[closedsystem]", f"system.callable=closedsystem:{function}", "system.concurrency=1", *extra,
        ])  # fmt: skip

    return run


def frozen():
    return pq.read_table("outputs/live/latest/outputs.parquet")["retrieves"].to_pylist()


def reasons():
    found = ragpipe.load("outputs/live/latest").records
    return dict(zip(found["sample_id"], found["context_precision.reason"], strict=True))


@pytest.mark.slow
def test_a_closed_book_system_that_fails_is_a_system_error(here, live):
    (here / "fail").touch()
    assert live("closed", "system.retrieves=false", "system.retries=0") == 4
    assert reasons() == {"q1": REASON, "q2": REASON}  # the failure takes away no score that was due
    assert ragpipe.load("outputs/live/latest").records["system_error"].notna().tolist() == [True, False]
    assert frozen() == [False, False]


@pytest.mark.slow
def test_a_live_system_may_say_it_of_each_output(here, live, capfd):
    assert live("mixed", "system.retrieves={other: false}") == 0
    assert "no output has the method 'other'; there are 'default'" in capfd.readouterr().err
    assert frozen() == [False, True]
    found = reasons()
    assert found["q1"] == REASON
    assert found["q2"] != REASON
    assert live("both") == 2
    assert "1 chunks" in capfd.readouterr().err


RAG = """
def answer(sample):
    with open("asked.txt", "a") as file:
        file.write(sample["params"]["name"] + "\\n")
    if sample["params"]["name"] == "closed":
        return "Paris is the capital of France."
    return {"answer": "Paris is the capital of France.", "contexts": ["Paris is the capital of France."]}
"""
METHODS = "{dense: {params: {name: dense}}, closed: {params: {name: closed}, retrieves: false}}"


@pytest.fixture
def here_many(code_here):
    (code_here / "several.py").write_text(RAG)
    (code_here / "q.jsonl").write_text("".join(f'{{"id": "q{i}", "question": "Capital?"}}\n' for i in range(3)))
    return code_here


def several(methods, *words):
    return main([
        "dataset=jsonl", "dataset.path=q.jsonl", "metrics=[faithfulness]", "name=several", "system=python",
        "plugins=[several]", "system.callable=several:answer", f"system.methods={methods}", *words,
    ])  # fmt: skip


def asked(here_many):
    path = here_many / "asked.txt"
    return Counter(path.read_text().split()) if path.exists() else Counter()


@pytest.mark.slow
def test_a_changed_or_a_new_method_is_asked_alone(here_many, capfd):
    assert several(METHODS) == 0
    assert asked(here_many) == {"dense": 3, "closed": 3}
    run = ragpipe.load("outputs/several/latest")
    assert list(run.records["method"]) == ["dense", "closed"] * 3
    assert list(run.records["faithfulness.status"]) == ["ok", "skipped"] * 3
    assert run.metrics["by"]["method"]["dense"]["scores"]["faithfulness"]["mean"] == 1.0
    out = capfd.readouterr().out
    assert "collected 3 outputs of dense" in out
    assert "collected 3 outputs of closed" in out
    assert several(METHODS.replace("{name: dense}}", "{name: dense, k: 9}}")) == 0
    assert asked(here_many) == {"dense": 6, "closed": 3}
    out = capfd.readouterr().out
    assert "outputs of dense are collected again: another system than in run" in out
    assert "3 outputs of closed are those of run" in out
    more = METHODS.replace("{name: dense}}", "{name: dense, k: 9}}")[:-1] + ", new: {params: {name: new}}}"
    assert several(more) == 0
    assert asked(here_many) == {"dense": 6, "closed": 3, "new": 3}
    assert set(ragpipe.load("outputs/several/latest").records["method"]) == {"dense", "closed", "new"}
    assert several(more, "judge.threshold=0.5") == 0, "another judge's settings ask no system"
    assert asked(here_many) == {"dense": 6, "closed": 3, "new": 3}
    assert main(["task=verify", "run=outputs/several/latest"]) == 0
    manifest = json.loads((here_many / "outputs/several/latest/manifest.json").read_text())
    assert set(manifest["identity"]["system"]["methods"]) == {"dense", "closed", "new"}


@pytest.mark.thorough(tried=2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("methods", "words", "told"),
    first_rows([
        ("{a: {calable: 'x:y'}}", (), "system.methods.a.calable"),
        ("{a: {prices: {input: 1, output: 1}}}", (), "prices in the section, for all methods"),
        ("{a: {repeats: 0}}", (), "system.methods.a.repeats"),
        ("{a: {}}", ("system.method=mine",), "no name, where system.methods names the methods"),
        ("{a: {callable: 'several:nothing'}}", (), "several:nothing"),
    ], keep=2),
)  # fmt: skip
def test_a_wrong_method_is_refused_with_its_key(here_many, capfd, methods, words, told):
    assert several(methods, "task=plan", *words) == 2
    assert told in capfd.readouterr().err
