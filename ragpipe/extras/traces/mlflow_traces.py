"""MLflow traces: `Trace.to_json()`, and the tables of `search_traces` and `genai.evaluate`, whose column `trace` holds it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragpipe.core import strict_json
from ragpipe.datasets.expression_functions import BadExpression, json_or_text, verdict
from ragpipe.extras.traces.attribute_spans import error_of, identifier, nanoseconds, status_of
from ragpipe.extras.traces.span import LLM, RETRIEVER, Span, Trace, documents, epoch_ms, message_text, usage
from ragpipe.schema.sample import UNREADABLE

_KINDS = {"CHAT_MODEL": LLM, "UNKNOWN": "span"}


def is_mlflow_trace(row: Mapping[str, Any]) -> bool:
    """Whether the row is a trace, or a row of a table with the column `trace`."""
    if "trace" in row and "trace_id" in row and "record_attributes" not in row:
        return True
    return isinstance(row.get("info"), dict) and isinstance(row.get("data"), dict) and "spans" in row["data"]


def mlflow_trace(row: Mapping[str, Any]) -> Trace:
    """The trace of a row. Raises BadExpression where its JSON cannot be read."""
    trace: Any = row if "info" in row else _parsed(row["trace"])
    if not isinstance(trace, dict) or "info" not in trace:
        raise BadExpression("a trace without `info`")
    spans = [_span(span) for span in trace["data"]["spans"]]
    facts = trace["info"]
    duration = facts.get("execution_duration_ms")
    assessments = [item for item in facts.get("assessments") or [] if isinstance(item, dict)]
    return Trace(
        str(facts.get("trace_id")),
        spans,
        {
            "start_ms": epoch_ms(facts.get("request_time")),
            "duration_ms": float(duration) if isinstance(duration, int | float) else None,
            "metadata": {name: value for name, value in (facts.get("tags") or {}).items() if "mlflow." not in name},
            "session": (facts.get("trace_metadata") or {}).get("mlflow.trace.session"),
            "user": (facts.get("trace_metadata") or {}).get("mlflow.trace.user"),
            "scores": [_score(item) for item in assessments if "expectation" not in item],
            "expectations": {
                str(item.get("assessment_name")): _expectation(item["expectation"])
                for item in assessments
                if isinstance(item.get("expectation"), dict)
            },
        },
    )


def _span(row: Mapping[str, Any]) -> Span:
    attributes = {name: _parsed(value) for name, value in (row.get("attributes") or {}).items()}
    kind = str(attributes.get("mlflow.spanType") or "UNKNOWN")
    status = row.get("status") or {}
    span = Span(
        trace_id=str(attributes.get("mlflow.traceRequestId") or identifier(row.get("trace_id"))),
        span_id=str(identifier(row.get("span_id"))),
        parent_id=identifier(row.get("parent_span_id") or row.get("parent_id")),
        name=str(row.get("name") or ""),
        kind=_KINDS.get(kind, kind.lower()),
        input=attributes.pop("mlflow.spanInputs", None),
        output=attributes.pop("mlflow.spanOutputs", None),
        start_ms=nanoseconds(row.get("start_time_unix_nano")),
        end_ms=nanoseconds(row.get("end_time_unix_nano")),
        status=status_of(status.get("code")),
        attributes=attributes,
        usage=usage(attributes.get("mlflow.chat.tokenUsage")),
        model=attributes.get("mlflow.llm.model"),
    )
    span.error = error_of(span.status, status.get("message"), row.get("events"))
    if isinstance(span.input, dict):
        span.query = next((value for value in span.input.values() if isinstance(value, str)), None)
    if span.kind == RETRIEVER:
        span.documents = documents(span.output)
    elif span.kind == LLM:
        span.text = message_text(span.output)
    return span


def _score(assessment: Mapping[str, Any]) -> dict[str, Any]:
    """A judgement: a scorer that failed gives an unreadable one with its message, a grade in words one with its text."""
    feedback = assessment.get("feedback") or {}
    error = feedback.get("error") or {}
    value = verdict(feedback.get("value"))
    if error:
        value = {UNREADABLE: str(error.get("error_message") or error.get("error_code") or "error")}
    return {
        "name": str(assessment.get("assessment_name")),
        "value": value,
        "source": (assessment.get("source") or {}).get("source_type"),
        "comment": assessment.get("rationale"),
    }


def _expectation(expectation: Mapping[str, Any]) -> Any:
    serialized = expectation.get("serialized_value")
    return _parsed(serialized.get("value")) if isinstance(serialized, dict) else expectation.get("value")


def _parsed(value: Any) -> Any:
    """The value of a JSON text, also where that is a JSON object or list in a text again; a text that is no JSON as it is."""
    if not isinstance(value, str):
        return value
    try:
        return json_or_text(strict_json.strict_loads(value))
    except strict_json.InvalidJson:
        return value
