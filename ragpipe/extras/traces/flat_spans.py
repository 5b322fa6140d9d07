"""One span per row: the console exporter of OpenTelemetry, Phoenix's spans (REST and data frame), TruLens' event table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragpipe.core import strict_json
from ragpipe.datasets.expression_functions import BadExpression, json_or_text, python_literal
from ragpipe.extras.traces.attribute_spans import error_of, new_span, read_attributes, status_of
from ragpipe.extras.traces.span import Span, epoch_ms

_COLUMN = "attributes."


def is_flat_span(row: Mapping[str, Any]) -> bool:
    """Whether the row is one span: `context` with ids, the column `context.trace_id`, or TruLens' `record_attributes`."""
    context = row.get("context")
    return (
        (isinstance(context, dict) and "trace_id" in context)
        or "context.trace_id" in row
        or {"record_attributes", "trace"} <= row.keys()
    )


def flat_span(row: Mapping[str, Any]) -> Span:
    """The span of a row. Raises BadExpression for ids and times that cannot be read."""
    if "record_attributes" in row:
        return _trulens(row)
    context = row["context"] if isinstance(row.get("context"), dict) else {}
    trace_id = _plain_id(context.get("trace_id") or row.get("context.trace_id"))
    span_id = _plain_id(context.get("span_id") or row.get("context.span_id"))
    if trace_id is None or span_id is None:
        raise BadExpression("a span without trace_id or span_id")
    span = new_span(trace_id, span_id, _plain_id(row.get("parent_id")), str(row.get("name") or ""))
    span.attributes = _attributes(row)
    if isinstance(row.get("span_kind"), str):
        span.attributes.setdefault("openinference.span.kind", row["span_kind"])
    span.start_ms, span.end_ms = epoch_ms(row.get("start_time")), epoch_ms(row.get("end_time"))
    status = row.get("status") or {}
    span.status = status_of(row.get("status_code") or status.get("status_code"))
    message = row.get("status_message") or status.get("description")
    events = _structure(row.get("events"))
    events = [event for event in events if isinstance(event, dict)] if isinstance(events, list) else []
    span.error = error_of(span.status, message, events)
    return read_attributes(span, events)


def _plain_id(value: Any) -> str | None:
    return str(value).removeprefix("0x") if value else None


def _attributes(row: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes: an object, or the columns `attributes.*`; empty cells are left out."""
    if isinstance(row.get("attributes"), dict):
        return dict(row["attributes"])
    columns = {name[len(_COLUMN) :]: value for name, value in row.items() if name.startswith(_COLUMN)}
    return {name: _cell(name, value) for name, value in columns.items() if value is not None and value != ""}


def _cell(name: str, value: Any) -> Any:
    """A cell of a data frame: lists and objects that CSV holds as Python or JSON texts, and token counts as numbers."""
    if not isinstance(value, str):
        return value
    if name.startswith("llm.token_count.") or name.endswith(".top_k"):
        return float(value)
    if name.endswith((".documents", "_documents", "_messages", ".embeddings", ".tags")) or name == "metadata":
        return _structure(value)
    return value


def _structure(value: Any) -> Any:
    if not isinstance(value, str) or not value.strip():
        return value
    parsed = json_or_text(value)
    return python_literal(value) if isinstance(parsed, str) else parsed


def _trulens(row: Mapping[str, Any]) -> Span:
    """A row of the table `trulens_events`; its columns are JSON in texts, and its ids decimal texts."""
    attributes, record, trace = (_object(row.get(name)) for name in ("record_attributes", "record", "trace"))
    trace_id = attributes.get("ai.observability.record_id") or trace.get("trace_id")
    if not trace_id or not trace.get("span_id"):
        raise BadExpression("a TruLens event without record id or span id")
    parent = trace.get("parent_id")
    span = new_span(
        str(trace_id), str(trace["span_id"]), str(parent) if parent else None, str(record.get("name") or "")
    )
    span.attributes = attributes
    span.start_ms, span.end_ms = epoch_ms(row.get("start_timestamp")), epoch_ms(row.get("timestamp"))
    status = record.get("status")
    span.status = status_of(status.get("code") if isinstance(status, dict) else status)
    span.error = error_of(span.status, None, None)
    return read_attributes(span)


def _object(value: Any) -> dict[str, Any]:
    try:
        parsed = strict_json.strict_loads(value) if isinstance(value, str) else value
    except strict_json.InvalidJson as error:
        raise BadExpression(f"a TruLens event: {error}") from None
    return parsed if isinstance(parsed, dict) else {}
