"""Scores as the files that other tools import: literal bodies, and read back beside their traces."""

import json
from pathlib import Path

import pytest

from ragpipe.cli.command_line import main

TRACE, ROOT, STEP = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "00f067aa0ba902b7"
FORMATS = "formats=[otlp,langfuse,phoenix,mlflow]"


def attribute(name, value):
    return {"key": name, "value": {"stringValue": value}}


def span(span_id, kind, *attributes, **more):
    return {
        "traceId": TRACE, "spanId": span_id, "name": kind.lower(), "startTimeUnixNano": "1000000000", "endTimeUnixNano": "1400000000",
        "attributes": [attribute("openinference.span.kind", kind), *attributes], **more,
    }  # fmt: skip


SPANS = [
    span(ROOT, "CHAIN", attribute("input.value", "Who wrote it?"), attribute("output.value", "Ada wrote it.")),
    span(
        STEP, "RETRIEVER", attribute("retrieval.documents.0.document.id", "d1"),
        attribute("retrieval.documents.0.document.content", "Ada wrote it in 1843."), parentSpanId=ROOT,
    ),
]  # fmt: skip


@pytest.fixture
def export(here):
    """The folder of files of a run over a trace, judged by the rules judge."""
    Path("spans.jsonl").write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": SPANS}]}]}) + "\n")

    def exported(*options):
        chosen = ["dataset=openinference", "dataset.path=spans.jsonl", "metrics=[faithfulness]", "judge=rules", "report.formats=[]"]
        assert main([*chosen, *options]) == 0
        assert main(["task=export", "run=run", FORMATS, "dir=scores"]) == 0
        return here / "scores"

    return exported


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_an_event_per_score_by_the_conventions(export):
    (request,) = lines(export() / "otlp.jsonl")
    (resource,) = request["resourceLogs"]
    assert attribute("service.name", "ragpipe") in resource["resource"]["attributes"]
    (scope,) = resource["scopeLogs"]
    events = {event["attributes"][0]["value"]["stringValue"]: event for event in scope["logRecords"]}
    event = events["faithfulness"]
    assert (event["eventName"], event["traceId"], event["spanId"]) == ("gen_ai.evaluation.result", TRACE, ROOT)
    assert event["attributes"][:4] == [
        attribute("gen_ai.evaluation.name", "faithfulness"),
        {"key": "gen_ai.evaluation.score.value", "value": {"doubleValue": 1.0}},
        attribute("gen_ai.evaluation.score.label", "pass"),
        attribute("gen_ai.evaluation.explanation", "1 of 1 claims are supported"),
    ]
    assert attribute("ragpipe.judge", "rules-v1") in event["attributes"]
    assert {"key": "ragpipe.iteration", "value": {"intValue": "1"}} in event["attributes"]


def test_bodies_of_the_other_tools(export):
    folder = export()
    langfuse = lines(folder / "langfuse.jsonl")[0]
    shown = {"traceId": TRACE, "name": "faithfulness", "value": 1.0, "dataType": "NUMERIC", "comment": "1 of 1 claims are supported"}
    assert {name: langfuse[name] for name in shown} == shown
    phoenix = json.loads((folder / "phoenix.json").read_text())["data"][0]
    assert (phoenix["span_id"], phoenix["name"], phoenix["annotator_kind"]) == (ROOT, "faithfulness", "CODE")
    assert phoenix["result"] == {"label": "pass", "score": 1.0, "explanation": "1 of 1 claims are supported"}
    assert phoenix["identifier"] == langfuse["id"]
    mlflow = lines(folder / "mlflow.jsonl")[0]
    assert (mlflow["assessment_name"], mlflow["trace_id"], mlflow["span_id"]) == ("faithfulness", f"tr-{TRACE}", ROOT)
    assert mlflow["source"] == {"source_type": "CODE", "source_id": "rules-v1"}
    assert (mlflow["feedback"], mlflow["rationale"]) == ({"value": 1.0}, "1 of 1 claims are supported")


def test_the_same_run_gives_the_same_files_and_the_events_are_read_back(export, capsys):
    folder = export()
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert main(["task=export", "run=run", FORMATS, "dir=scores"]) == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == first
    Path("back.jsonl").write_bytes(Path("spans.jsonl").read_bytes() + first["otlp.jsonl"] * 2)
    capsys.readouterr()
    assert main(["task=plan", "dataset=openinference", "dataset.path=back.jsonl", "metrics=[faithfulness]", "judge=rules"]) == 0
    assert "recorded.faithfulness (1 of 1 cases)" in capsys.readouterr().out


def test_a_case_of_no_trace_has_no_event_and_is_counted(export, capsys):
    folder = export("dataset.fields.id=name", "~dataset.fields.meta.fields.span")
    assert (folder / "otlp.jsonl").read_bytes() == b""
    assert len(lines(folder / "langfuse.jsonl")) == 2
    said = capsys.readouterr().out
    assert "2 scores of 2 not written: the data set does not say the trace id of their cases" in said
    assert "2 scores of 2 not written: the data set does not say the span of their cases" in said


def test_without_a_run_nothing_is_written(here, capsys):
    assert main(["task=export", "formats=[otlp]"]) == 2
    assert "run=NAME" in capsys.readouterr().err
    assert list(here.iterdir()) == []


@pytest.mark.slow
def test_the_first_run_says_what_a_trace_lacks(here, capsys):
    """Its step of retrieval says nothing of documents: the contexts are not recorded, and a line says what is lacking."""
    ids, times = (
        {"trace_id": f"0x{TRACE}", "span_id": f"0x{ROOT}"},
        {"start_time": "2026-01-01T00:00:00Z", "end_time": "2026-01-01T00:00:01Z"},
    )
    root = {"openinference.span.kind": "CHAIN", "input.value": "When?", "output.value": "At six."}
    rows = [
        {"name": "rag", "context": ids, "parent_id": None, "attributes": root},
        {"name": "search", "context": {**ids, "span_id": f"0x{STEP}"}, "parent_id": ids["span_id"],
         "attributes": {"openinference.span.kind": "RETRIEVER"}},
    ]  # fmt: skip
    common = {"kind": "INTERNAL", "status": {}, "events": [], **times}
    Path("spans.jsonl").write_text("".join(json.dumps(row | common) + "\n" for row in rows))
    assert main(["spans.jsonl"]) == 0
    out = capsys.readouterr()
    said = " ".join((out.out + out.err).split())
    assert "the step search records no documents" in said
    assert "faithfulness" in said.partition("not measured")[2]
