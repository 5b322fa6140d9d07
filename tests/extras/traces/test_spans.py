"""Spans of literal exports: one record per trace, under one set of names."""

import json

import pytest
import yaml

from ragpipe.core.errors import DataError
from ragpipe.core.registry import option_files
from ragpipe.data.expressions import Expression
from ragpipe.data.faults import Faults
from ragpipe.data.text_lines import DataFile
from ragpipe.extras.traces.attribute_spans import identifier, numbered_items
from ragpipe.extras.traces.span import documents, message_text, retrieved_document, usage
from ragpipe.extras.traces.span_reader import read_spans

TRACE, ROOT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def traces(tmp_path):
    def read(*rows, name="spans.jsonl"):
        path, faults = tmp_path / name, Faults("spans")
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        records = [record for _, record in read_spans(DataFile(path, name, name, "spans"), faults)]
        faults.raise_all()
        return records

    return read


def span(span_id, parent, kind, start, end, **attributes):
    """A span in the console exporter's form, with a second of its minute as its start and end."""
    return {
        "name": kind.lower(), "context": {"trace_id": f"0x{TRACE}", "span_id": f"0x{span_id}"},
        "parent_id": parent and f"0x{parent}", "start_time": f"2026-01-01T00:00:{start:02d}Z",
        "end_time": f"2026-01-01T00:00:{end:02d}Z", "status": {"status_code": attributes.pop("status", "OK")},
        "attributes": {"openinference.span.kind": kind, **{k.replace("__", "."): v for k, v in attributes.items()}},
        "events": attributes.pop("events", []),
    }  # fmt: skip


def test_children_before_parents_and_tokens_that_are_counted_once(traces):
    counted = {"llm__token_count__prompt": 10, "llm__token_count__completion": 2}
    (record,) = traces(
        span("000000000000000c", "000000000000000b", "LLM", 5, 8, **counted),  # an instrumented client inside a model call
        span("000000000000000b", ROOT, "LLM", 4, 9, **counted),
        span("000000000000000d", ROOT, "LLM", 10, 11, llm__token_count__prompt=5, llm__token_count__completion=1),
        span("000000000000000e", ROOT, "EVALUATOR", 12, 14, output__value='{"score": 0.25, "label": "poor"}'),
        span("000000000000000f", "000000000000000e", "LLM", 12, 13, llm__token_count__prompt=1000),
        span(ROOT, None, "CHAIN", 0, 14, input__value="Who?", output__value="Ada.", **counted),
    )
    assert (record["trace_id"], record["input"], record["output"]) == (TRACE, "Who?", "Ada.")
    assert record["usage"] == {"tokens_in": 15.0, "tokens_out": 3.0}
    assert record["timings"] == {"generation": 6000.0, "total": 14_000.0}
    assert record["scores"] == [{"name": "evaluator", "value": 0.25, "source": "span", "comment": "poor"}]
    assert [step["name"] for step in record["spans"]] == ["chain", "llm", "llm", "llm", "evaluator", "llm"]
    assert (record["retrievals"], record["rerankings"], record["error"]) == (None, None, None)


def test_the_roots_tokens_count_where_no_model_call_has_any(traces):
    (record,) = traces(
        span(ROOT, None, "CHAIN", 0, 1, llm__token_count__prompt=7, llm__token_count__completion=1),
        span("000000000000000b", ROOT, "LLM", 0, 1),
    )
    assert record["usage"] == {"tokens_in": 7.0, "tokens_out": 1.0}


def test_a_step_that_failed_and_was_repaired_is_no_error_of_the_trace(traces):
    failed = span("000000000000000b", ROOT, "LLM", 0, 1, status="ERROR")
    failed["events"] = [{"name": "exception", "attributes": {"exception.type": "TimeoutError", "exception.message": "late"}}]
    repaired = traces(failed, span(ROOT, None, "CHAIN", 0, 2, input__value="Who?", output__value="Ada."))
    assert repaired[0]["error"] is None
    silent = traces(failed, span(ROOT, None, "CHAIN", 0, 2, input__value="Who?", status="UNSET"))
    assert silent[0]["error"] == "TimeoutError: late"
    root = span(ROOT, None, "CHAIN", 0, 2, input__value="Who?", status="ERROR")
    root["status"]["description"] = "late"
    assert traces(failed, root)[0]["error"] == "TimeoutError: late"


def document(identity, text, score=None, **metadata):
    return {"id": identity, "text": text, "score": score, "metadata": metadata}


NO_DOCUMENTS = ["the step retriever records no documents (is its content captured?)"]
IDS_ALONE = ["documents are recorded by their ids, without their texts"]


@pytest.mark.parametrize(("attributes", "found", "lacks"), [
    ({}, None, NO_DOCUMENTS),  # silence says nothing of what was found
    ({"input.value": "__REDACTED__", "output.value": "__REDACTED__"}, None, NO_DOCUMENTS),
    ({"output.value": "null"}, None, NO_DOCUMENTS),
    ({"output.value": "[]"}, [], []),
    ({"output.value": '{"documents": []}'}, [], []),
    ({"retrieval.documents": "[]"}, [], []),
    ({"gen_ai.retrieval.documents": "[]"}, [], []),
    ({"output.value": '[{"page_content": "Six.", "metadata": {"source": "a.md"}}]'}, [document(None, "Six.", source="a.md")], []),
    ({"output.value": '[{"node": {"id_": "n1", "text": "Six.", "metadata": {}}, "score": 0.5}]'}, [document("n1", "Six.", 0.5)], []),
    ({"gen_ai.retrieval.documents": '[{"id": "d1", "score": 0.9, "content": "Six."}]'}, [document("d1", "Six.", 0.9)], []),
    ({"gen_ai.retrieval.documents": '[{"id": "d1", "score": 0.9}]'}, [document("d1", None, 0.9)], IDS_ALONE),
    ({"retrieval.documents.0.document.id": "d1"}, [document("d1", None)], IDS_ALONE),
    ({"retrieval.documents.0.document.id": "d1", "retrieval.documents.0.document.content": "__REDACTED__"},
     [document("d1", None)], IDS_ALONE),
    ({"retrieval.documents.0.document.score": 0.5}, None, NO_DOCUMENTS),  # neither a text nor an id
])  # fmt: skip
def test_documents_are_recorded_only_where_something_says_so(traces, attributes, found, lacks):
    step = span("000000000000000b", ROOT, "RETRIEVER", 0, 1, **attributes)
    (record,) = traces(span(ROOT, None, "CHAIN", 0, 1), step)
    assert (record["documents"], record["lacks"]) == (found, lacks)


def test_a_trace_without_a_retriever_records_no_documents(traces):
    (record,) = traces(span(ROOT, None, "CHAIN", 0, 1))
    assert (record["documents"], record["lacks"]) == (None, [])


def test_documents_of_several_steps(traces):
    def step(number, kind, parent=ROOT, **attributes):
        return span(f"00000000000000b{number}", parent, kind, number, number + 1, **attributes)

    one, two = ({"output__value": json.dumps([{"page_content": text, "metadata": {}}])} for text in ("One.", "Two."))
    texts = lambda record: record["documents"] and [item["text"] for item in record["documents"]]  # noqa: E731
    root = span(ROOT, None, "CHAIN", 0, 9)
    assert texts(traces(root, step(1, "RETRIEVER", **one), step(2, "RETRIEVER", **two))[0]) == ["One.", "Two."]
    assert texts(traces(root, step(1, "RETRIEVER", **one), step(2, "RETRIEVER"))[0]) is None  # half of it is not known
    inner = step(2, "RETRIEVER", "00000000000000b1", **one)
    assert texts(traces(root, step(1, "RETRIEVER"), inner)[0]) == ["One."]  # a wrapper that records nothing itself
    assert texts(traces(root, step(1, "RETRIEVER", **one), step(2, "RERANKER", **two))[0]) == ["Two."]
    assert texts(traces(root, step(1, "RETRIEVER", **one), step(2, "RERANKER"))[0]) is None
    failed = step(2, "RETRIEVER", status="ERROR")
    assert texts(traces(root, step(1, "RETRIEVER", **one), failed)[0]) == ["One."]


def otlp(*spans):
    """An OTLP request with spans of (id, parent, name, attributes, events)."""

    def listed(attributes):
        return [
            {"key": key, "value": {"stringValue": value if isinstance(value, str) else json.dumps(value)}}
            for key, value in attributes.items()
        ]

    rows = [
        {
            "traceId": TRACE, "spanId": f"00000000000000{number}", "name": name, "attributes": listed(attributes),
            "parentSpanId": parent and f"00000000000000{parent}",
            "startTimeUnixNano": str(10**9 + n), "endTimeUnixNano": str(2 * 10**9),
            "events": [{"name": event["name"], "attributes": listed(event["attributes"])} for event in events],
        }
        for n, (number, parent, name, attributes, events) in enumerate(spans)
    ]  # fmt: skip
    return {"resourceSpans": [{"scopeSpans": [{"spans": rows}]}]}


ASKED, SAID = "When does it close?", "It closes at six."
_PARTS_IN = [{"role": "user", "parts": [{"type": "text", "content": ASKED}]}]
_PARTS_OUT = [{"role": "assistant", "parts": [{"type": "text", "content": SAID}]}]


@pytest.mark.parametrize(("name", "attributes", "events"), [
    ("attributes of OpenTelemetry", {"gen_ai.operation.name": "invoke_agent", "gen_ai.input.messages": _PARTS_IN,
                                     "gen_ai.output.messages": _PARTS_OUT}, []),
    ("the event of all details", {"gen_ai.operation.name": "chat"}, [
        {"name": "gen_ai.client.inference.operation.details",
         "attributes": {"gen_ai.input.messages": _PARTS_IN, "gen_ai.output.messages": _PARTS_OUT}}]),
    ("an event per message", {"gen_ai.operation.name": "chat"}, [
        {"name": "gen_ai.system.message", "attributes": {"content": "Be short."}},
        {"name": "gen_ai.user.message", "attributes": {"content": ASKED}},
        {"name": "gen_ai.choice", "attributes": {"message": {"role": "assistant", "content": SAID}}}]),
    ("events of content", {"gen_ai.operation.name": "chat"}, [
        {"name": "gen_ai.content.prompt", "attributes": {"gen_ai.prompt": [{"role": "user", "content": ASKED}]}},
        {"name": "gen_ai.content.completion", "attributes": {"gen_ai.completion": [{"role": "assistant", "content": SAID}]}}]),
    ("a workflow of Traceloop", {"traceloop.span.kind": "workflow", "traceloop.entity.input": {"args": [], "kwargs": {"question": ASKED}},
                                 "traceloop.entity.output": f'"{SAID}"'}, []),
    ("a chain under Traceloop", {"traceloop.span.kind": "workflow",
                                 "traceloop.entity.input": {"inputs": {"question": ASKED}, "tags": [], "metadata": {}, "kwargs": {}},
                                 "traceloop.entity.output": {"outputs": {"answer": SAID}, "kwargs": {"tags": []}}}, []),
    ("a function with one argument", {"traceloop.span.kind": "workflow", "traceloop.entity.input": {"args": [ASKED], "kwargs": {}},
                                      "traceloop.entity.output": f'"{SAID}"'}, []),
    ("a model call of Traceloop", {"llm.request.type": "chat", "gen_ai.prompt.0.role": "system", "gen_ai.prompt.0.content": "Short.",
                                   "gen_ai.prompt.1.role": "user", "gen_ai.prompt.1.content": ASKED,
                                   "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": SAID}, []),
    ("the Vercel AI SDK", {"ai.operationId": "ai.generateText", "ai.prompt": {"system": "Short.", "prompt": ASKED},
                           "ai.response.text": SAID}, []),
    ("messages of the Vercel AI SDK", {"ai.operationId": "ai.streamText", "ai.response.text": SAID, "ai.prompt": {
        "messages": [{"role": "user", "content": [{"type": "text", "text": ASKED}]}]}}, []),
])  # fmt: skip
@pytest.mark.parametrize("below", [False, True])
def test_question_and_answer_of_conventions(traces, name, attributes, events, below):
    """At the root, and below the span of a web server."""
    server = ("a1", None, "POST /ask", {"http.request.method": "POST"}, [])
    row = otlp(server, ("a2", "a1", name, attributes, events)) if below else otlp(("a2", None, name, attributes, events))
    (record,) = traces(row)
    fields = yaml.safe_load(option_files("dataset")["openinference"].read_text(encoding="utf-8"))["fields"]
    assert Expression(fields["question"])(record) == ASKED
    assert Expression(fields["answer"]["path"])(record) == SAID


def test_documents_of_a_vector_store(traces):
    events = [{"name": "db.query.result", "attributes": {"db.query.result.id": "d1", "db.query.result.document": SAID}}]
    store = ("a2", "a1", "chroma.query", {"db.system": "chroma"}, events)
    (record,) = traces(otlp(("a1", None, "rag", {"traceloop.span.kind": "workflow"}, []), store))
    assert record["documents"] == [document("d1", SAID)]


@pytest.mark.parametrize(("parents", "root"), [
    ((("CHAIN", None),), "chain"),
    ((("CHAIN", "00000000000000ff"), ("LLM", "first")), "chain"),  # the parent is in another service
    ((("RETRIEVER", "00000000000000ff"),), None),
    ((("CHAIN", "00000000000000ff"), ("LLM", "00000000000000ff")), None),
])  # fmt: skip
def test_the_root_of_a_trace(traces, parents, root):
    first = "000000000000000a"
    rows = [
        span(f"000000000000000{'ab'[n]}", first if parent == "first" else parent, kind, n, n + 1)
        for n, (kind, parent) in enumerate(parents)
    ]
    assert traces(*rows)[0]["name"] == root


def test_a_span_that_is_written_twice_counts_once(traces):
    model = span("000000000000000b", ROOT, "LLM", 0, 1, llm__token_count__prompt=7, llm__token_count__completion=1)
    (record,) = traces(model, model, span(ROOT, None, "CHAIN", 0, 1))
    assert record["usage"]["tokens_in"] == 7.0


def test_generative_ai_names_of_opentelemetry(traces):
    attributes = [
        {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
        {"key": "gen_ai.request.model", "value": {"stringValue": "m1"}},
        {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "12"}},
        {"key": "gen_ai.usage.output_tokens", "value": {"intValue": "3"}},
        {"key": "gen_ai.output.messages", "value": {"stringValue": '[{"role": "assistant", "content": "Ada."}]'}},
    ]
    row = {"traceId": TRACE, "spanId": ROOT, "name": "chat m1", "attributes": attributes, "startTimeUnixNano": "1000000000"}
    (record,) = traces({"resourceSpans": [{"scopeSpans": [{"spans": [row | {"endTimeUnixNano": 1_002_500_000}]}]}]})
    assert record["llms"][0] == {
        "name": "chat m1", "model": "m1", "input": None, "text": "Ada.", "usage": {"tokens_in": 12.0, "tokens_out": 3.0},
        "duration_ms": 2.5, "error": None,
    }  # fmt: skip
    assert record["start"] == "1970-01-01T00:00:01+00:00"


def test_numbered_keys_are_in_the_order_of_numbers():
    attributes = {f"x.{n}.document.id": str(n) for n in (10, 2, 0, 1, 11)} | {"x.y": 1}
    assert [item["document.id"] for item in numbered_items(attributes, "x")] == ["0", "1", "2", "10", "11"]
    expected = [{"document.id": "a", "document.metadata": {"b": {"c": 1}}}]
    assert numbered_items({"x": [{"document": {"id": "a", "metadata": {"b": {"c": 1}}}}]}, "x") == expected


@pytest.mark.parametrize(("text", "plain"), [
    (TRACE, TRACE), (f"0x{ROOT}", ROOT), ("CvdlGRbNQ92ESOshHIAxnA==", TRACE), ("t61rcWkgMzE=", ROOT), ("", None),
])  # fmt: skip
def test_ids_in_hex_and_base64(text, plain):
    assert identifier(text) == plain


def test_documents_as_the_tools_write_them():
    expected = {"id": "d1", "text": "t", "score": 0.5, "metadata": {"a": 1}}
    for item in (
        {"page_content": "t", "id": "d1", "score": 0.5, "metadata": {"a": 1}},
        {"kwargs": {"page_content": "t", "id": "d1", "score": 0.5, "metadata": {"a": 1}}, "lc": 1},
        {"content": "t", "id": "d1", "score": 0.5, "metadata": {"a": 1}},
    ):
        assert retrieved_document(item) == expected
    inside = {"pageContent": "t", "metadata": {"id": 7, "score": "high"}}
    assert retrieved_document(inside) == {"id": "7", "text": "t", "score": None, "metadata": {"id": 7, "score": "high"}}
    assert documents('{"documents": ["a", "b"]}') == [retrieved_document("a"), retrieved_document("b")]
    assert documents({"answer": "x"}) is None
    assert documents([{"name": "no text"}]) is None


def test_texts_and_tokens_of_model_outputs():
    for output in ("Ada.", {"content": "Ada."}, [{"content": "x"}, {"content": "Ada."}],
                   {"choices": [{"message": {"content": "Ada."}}]}, {"generations": [[{"text": "Ada."}]]},
                   [{"role": "assistant", "parts": [{"type": "text", "content": "Ada."}]}]):  # fmt: skip
        assert message_text(output) == "Ada."
    assert message_text({"tool_calls": [1]}) is None
    assert usage({"prompt_tokens": 3, "completion_tokens": 0}) == {"tokens_in": 3.0, "tokens_out": 0.0}
    assert usage({"input": 0, "output": 0, "unit": "TOKENS"}) == {}


def test_other_rows_are_refused_with_their_names(traces):
    with pytest.raises(DataError, match="question, answer"):
        traces({"question": "Who?", "answer": "Ada."})
    with pytest.raises(DataError, match="get each trace in full"):
        traces({"id": "t", "htmlPath": "/x", "observations": ["o1", "o2"]})
    with pytest.raises(DataError, match="neither hex nor base64"):
        traces({"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "?", "spanId": ROOT}]}]}]})


def test_documents_of_a_step_that_does_not_say_what_it_is(traces):
    """Langfuse's plain spans: the one whose output is a list of documents, but not the one around a retriever."""
    base = {"traceId": "t1", "startTime": "2026-01-01T00:00:00Z", "endTime": "2026-01-01T00:00:01Z"}
    found = [{"pageContent": "p", "metadata": {"id": "d1"}}]
    around = {**base, "id": "o2", "parentObservationId": "o1", "type": "SPAN", "name": "step", "output": found}
    root = {**base, "id": "o1", "type": "SPAN", "name": "rag", "input": "Who?", "output": "Ada."}
    inner = {**base, "id": "o3", "parentObservationId": "o2", "type": "RETRIEVER", "name": "search", "output": found}
    assert [search["name"] for search in traces(root, around)[0]["retrievals"]] == ["step"]
    assert [search["name"] for search in traces(root, around, inner)[0]["retrievals"]] == ["search"]


def test_vectors_of_embeddings_are_left_out(traces):
    vector = {"embedding__embeddings__0__embedding__vector": [0.1] * 3, "embedding__model_name": "e1"}
    (record,) = traces(span(ROOT, None, "CHAIN", 0, 1), span("000000000000000b", ROOT, "EMBEDDING", 0, 1, **vector))
    assert record["spans"][1]["attributes"] == {"openinference.span.kind": "EMBEDDING", "embedding.model_name": "e1"}


WHOLE = {
    "otlp": {"resourceSpans": [{"scopeSpans": [{"spans": [
        {"traceId": TRACE, "spanId": ROOT, "name": "rag", "startTimeUnixNano": "1", "endTimeUnixNano": "2", "status": {"code": 2},
         "attributes": [{"key": "retrieval.documents.0.document.id", "value": {"stringValue": "d"}}], "events": [{"name": "e"}]}]}]}]},
    "console": span(ROOT, None, "RETRIEVER", 0, 1, input__value="x"),
    "langfuse": {"id": "t", "htmlPath": "/", "input": {"q": 1}, "latency": 0.5, "totalCost": 0.1, "scores": [{"name": "s", "value": 1}],
                 "observations": [{"id": "o", "traceId": "t", "type": "GENERATION", "startTime": "2026-01-01T00:00:00Z",
                                   "usageDetails": {"input": 1}, "costDetails": {"total": 0.1}, "output": {"content": "a"}}]},
    "run": {"id": "r", "trace_id": "r", "run_type": "llm", "inputs": {"q": "x"}, "outputs": {"generations": [[{"text": "a"}]]},
            "start_time": "2026-01-01T00:00:00Z", "extra": {"metadata": {}}, "feedback_stats": {"s": {"avg": 1}}, "total_cost": "0.1",
            "child_runs": [{"id": "c", "run_type": "retriever", "inputs": {}, "outputs": {"documents": []}}]},
    "mlflow": {"info": {"trace_id": "t", "request_time": "2026-01-01T00:00:00Z", "tags": {"a": "b"}, "assessments": [
                   {"assessment_name": "s", "feedback": {"value": 1}}, {"assessment_name": "e", "expectation": {"value": "x"}}]},
               "data": {"spans": [{"trace_id": TRACE, "span_id": ROOT, "attributes": {"mlflow.spanType": '"LLM"'}, "status": {}}]}},
}  # fmt: skip


def places(value):
    """Every place inside a value, as its container and its key."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, inner in items for place in ((value, key), *places(inner))]


@pytest.mark.parametrize("tool", WHOLE)
@pytest.mark.parametrize("value", [None, "text", [1], {"a": 1}, 1e300], ids=repr)
def test_a_value_of_another_type_is_a_fault_or_no_matter(traces, tool, value):
    """Every value of every export, replaced by another: no reader stops with anything but a fault that names the row."""
    for place in range(len(places(WHOLE[tool]))):
        row = json.loads(json.dumps(WHOLE[tool]))
        container, key = places(row)[place]
        container[key] = value
        message = "spans.jsonl:1"
        try:
            json.dumps(traces(row))
        except DataError as error:
            message = str(error)
        assert "spans.jsonl:1" in message


@pytest.mark.parametrize(("question", "answer"), [
    ({"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Who?"}]},
     {"choices": [{"message": {"role": "assistant", "content": "Ada."}}]}),
    ([{"role": "user", "parts": [{"type": "text", "content": "Who?"}]}],
     [{"role": "assistant", "parts": [{"type": "text", "content": "Ada."}]}]),
    ({"input": "Who?"}, {"answer": {"content": "Ada."}, "context": []}),
    ({"query": "Who?"}, {"response": "Ada."}),
    ("Who?", "Ada."),
])  # fmt: skip
def test_questions_and_answers_as_instrumentations_write_them(traces, question, answer):
    """The shipped paths on inputs and outputs of model calls, chains and plain functions."""
    mapping = yaml.safe_load(option_files("dataset")["openinference"].read_text(encoding="utf-8"))["fields"]
    values = {"input__value": json.dumps(question), "output__value": json.dumps(answer)}
    if isinstance(question, str):
        values = {"input__value": question, "output__value": answer}
    (record,) = traces(span(ROOT, None, "LLM", 0, 1, **values))
    assert (Expression(mapping["question"])(record), Expression(mapping["answer"]["path"])(record)) == ("Who?", "Ada.")


@pytest.mark.parametrize(("expectations", "reference"), [
    ({"expected_response": "Ada.", "expected_facts": ["Ada wrote it."]}, "Ada."),
    ({"expected_facts": ["Ada wrote it.", "In 1843."]}, "Ada wrote it. In 1843."),
    ({}, None),
])  # fmt: skip
def test_expectations_of_mlflow_are_references(traces, expectations, reference):
    mapping = yaml.safe_load(option_files("dataset")["mlflow"].read_text(encoding="utf-8"))["fields"]
    row = json.loads(json.dumps(WHOLE["mlflow"]))
    row["info"]["assessments"] = [
        {"assessment_name": name, "expectation": {"serialized_value": {"value": json.dumps(value)}}}
        if isinstance(value, list)
        else {"assessment_name": name, "expectation": {"value": value}}
        for name, value in expectations.items()
    ]
    (record,) = traces(row)
    assert Expression(mapping["reference"])(record) == reference


@pytest.mark.parametrize(("attributes", "found"), [
    ({"retrieval.documents.0.document.id": '"d1"', "retrieval.documents.0.document.content": '"Ada wrote it."'}, "d1"),
    ({"gen_ai.retrieval.documents": '[{"id": "d2", "content": "Ada wrote it."}]'}, "d2"),
    ({"mlflow.spanOutputs": '[{"id": "d3", "page_content": "Ada wrote it."}]', "retrieval.documents": "[]"}, "d3"),
])  # fmt: skip
def test_documents_of_a_span_that_mlflow_took_by_otlp(traces, attributes, found):
    """MLflow keeps attributes of other conventions as they came, each as JSON; its own outputs come first."""
    row = json.loads(json.dumps(WHOLE["mlflow"]))
    row["data"]["spans"][0]["attributes"] = {"mlflow.spanType": '"RETRIEVER"', **attributes}
    (record,) = traces(row)
    assert [(document["id"], document["text"]) for document in record["retrievals"][0]["documents"]] == [(found, "Ada wrote it.")]
