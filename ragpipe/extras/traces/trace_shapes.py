"""How files of traces are told, and the files beside them that no data set can be made of."""

from __future__ import annotations

from functools import partial

from ragpipe.data.recognition import SCORES_ONLY, Shape

_SPANS_INSTEAD = "a row of it is a part of a case, and its lists are lost: export the spans (get_spans_dataframe)"
_LINKS_ONLY = "it links ids and holds neither questions nor answers"
_document, _useless = partial(Shape, within="document"), partial(Shape, "")

TRACE_SHAPES: tuple[Shape, ...] = (
    Shape(
        "langfuse",
        "Langfuse traces",
        ("input", "output"),
        ("observations", "htmlPath", "totalCost", "bookmarked"),
        ("record_id", "app_id", "traceId"),
        forms=("json", "jsonl", "json_objects", "json_columns", "parquet"),
    ),
    _document("langfuse", "a page of Langfuse traces", ("data.input", "data.output", "data.timestamp", "meta")),
    _document("langfuse", "a page of Langfuse observations", ("data.traceId", "data.type", "data.startTime", "meta")),
    Shape("langfuse", "Langfuse observations", ("traceId", "type", "startTime"), ("input", "output")),
    _useless(
        "a page of Langfuse data set items",
        ("data.expectedOutput", "data.datasetId", "meta"),
        within="document",
        unusable="it holds questions with references and no answers: ragpipe/extras/traces/conf/dataset/langfuse.yaml shows how traces are joined with it",
    ),
    _useless(
        "a page of Langfuse scores",
        ("data.traceId", "data.value", "data.source", "meta"),
        within="document",
        unusable=f"{SCORES_ONLY}: export the traces, which hold their scores",
    ),
    _useless(
        "a Langfuse data set run",
        ("datasetRunItems", "datasetId"),
        within="document",
        unusable=f"{_LINKS_ONLY}: export the traces",
    ),
    Shape(
        "phoenix",
        "spans of a Phoenix server",
        ("context.trace_id", "context.span_id", "span_kind"),
        ("attributes", "attributes.*"),
    ),
    _useless(
        "a table of retrieved documents by Phoenix",
        ("context.span_id", "document_position", "document"),
        unusable=_SPANS_INSTEAD,
    ),
    _useless(
        "a table of questions, answers and contexts by Phoenix",
        ("context.span_id", "input", "output", "context"),
        unusable=_SPANS_INSTEAD,
    ),
    _useless(
        "annotations of Phoenix", ("span_id", "annotation_name", "annotator_kind"), unusable=f"{SCORES_ONLY}: export the spans"
    ),
    Shape(
        "langsmith_runs",
        "runs of LangSmith",
        ("run_type", "trace_id", "parent_run_id", "inputs"),
        none_of=("child_runs.run_type",),
    ),
    Shape("langsmith_runs", "traced runs of LangChain", ("run_type", "inputs", "outputs", "child_runs.run_type")),
    _useless("LangSmith feedback", ("run_id", "key", "score", "feedback_source"), unusable=f"{SCORES_ONLY}: export the runs"),
    Shape("openinference", "an OTLP export of spans", ("resourceSpans",)),
    _document("openinference", "an OTLP export of spans", ("resourceSpans",)),
    Shape(
        "openinference",
        "spans of OpenTelemetry's console exporter",
        ("context.trace_id", "context.span_id", "kind", "attributes"),
    ),
    Shape("mlflow", "traces or evaluation results of MLflow", ("trace_id", "request", "response", "execution_duration")),
    Shape("mlflow", "MLflow traces", ("info.trace_id", "data.spans")),
    _useless(
        "TruLens records",
        ("record_id", "app_id", "record_json", "input", "output"),
        unusable="they hold no contexts: the table trulens_events does (dataset=trulens), and ragpipe/extras/traces/conf/dataset/trulens.yaml shows how this "
        "feedback is joined with it",
    ),
    Shape("trulens", "events of a TruLens database", ("record_attributes", "event_id", "record_type")),
    _useless(
        "a TruLens leaderboard",
        ("app_name", "app_version", "latency", "total_cost"),
        none_of=("record_id",),
        unusable=f"{SCORES_ONLY}: export the records",
    ),
)
