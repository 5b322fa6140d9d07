"""OTLP as JSON: `resourceSpans`, with ids in hex (JSON exporters) or in base64 (protobuf's own JSON)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any

from ragpipe.datasets.expression_functions import BadExpression
from ragpipe.extras.traces.attribute_spans import error_of, new_span, read_attributes, status_of
from ragpipe.extras.traces.span import Span

_HEX_LENGTHS = (16, 32)


def is_otlp(row: Mapping[str, Any]) -> bool:
    """Whether the row is an OTLP request."""
    return "resourceSpans" in row or "resource_spans" in row


def otlp_spans(row: Mapping[str, Any]) -> Iterator[Span]:
    """The spans of a request. Raises BadExpression for ids and values that OTLP has not."""
    for resource in _list(row, "resourceSpans", "resource_spans"):
        resource_attributes = decoded_attributes((resource.get("resource") or {}).get("attributes"))
        for scope in _list(resource, "scopeSpans", "scope_spans"):
            for span in _list(scope, "spans", "spans"):
                yield _span(span, resource_attributes)


def identifier(text: Any) -> str | None:
    """A trace or span id in hex, from hex, `0x` and hex, or base64; None for an empty one. Raises BadExpression."""
    if not text:
        return None
    if not isinstance(text, str):
        raise BadExpression(f"an id that is no text: {text!r:.60}")
    plain = text.removeprefix("0x").removeprefix("tr-").lower()
    if len(plain) in _HEX_LENGTHS and all(sign in "0123456789abcdef" for sign in plain):
        return plain
    try:
        return base64.b64decode(text, validate=True).hex()
    except (binascii.Error, ValueError):
        raise BadExpression(f"an id that is neither hex nor base64: {text[:60]!r}") from None


def nanoseconds(value: Any) -> float | None:
    """Milliseconds since 1970 of nanoseconds as a number or, as in OTLP, a text. Raises BadExpression."""
    if value in (None, "", 0, "0"):
        return None
    try:
        return int(value) / 1_000_000
    except (TypeError, ValueError):
        raise BadExpression(f"no time in nanoseconds: {value!r:.60}") from None


def decoded_attributes(attributes: Any) -> dict[str, Any]:
    """The attributes by name: `[{key, value: {stringValue: ...}}]` as plain values. Raises BadExpression."""
    if not isinstance(attributes, list):
        return {}
    return {str(item.get("key")): _decoded(item.get("value")) for item in attributes if isinstance(item, dict)}


def _span(row: Mapping[str, Any], resource: dict[str, Any]) -> Span:
    trace_id = identifier(row.get("traceId") or row.get("trace_id"))
    span_id = identifier(row.get("spanId") or row.get("span_id"))
    if trace_id is None or span_id is None:
        raise BadExpression("a span without traceId or spanId")
    parent_id = identifier(row.get("parentSpanId") or row.get("parent_span_id"))
    span = new_span(trace_id, span_id, parent_id, str(row.get("name") or ""))
    span.attributes = decoded_attributes(row.get("attributes"))
    if service := resource.get("service.name"):
        span.attributes.setdefault("service.name", service)
    span.start_ms = nanoseconds(row.get("startTimeUnixNano") or row.get("start_time_unix_nano"))
    span.end_ms = nanoseconds(row.get("endTimeUnixNano") or row.get("end_time_unix_nano"))
    status = row.get("status") or {}
    span.status = status_of(status.get("code"))
    events = [
        {**event, "attributes": decoded_attributes(event.get("attributes"))} for event in _list(row, "events", "events")
    ]
    span.error = error_of(span.status, status.get("message"), events)
    return read_attributes(span, events)


def _decoded(value: Any) -> Any:
    if not isinstance(value, dict) or len(value) != 1:
        return None
    ((kind, content),) = value.items()
    if kind == "intValue":
        try:
            return int(content)
        except (TypeError, ValueError):
            raise BadExpression(f"an intValue that is no whole number: {content!r:.60}") from None
    if kind == "arrayValue":
        return [_decoded(item) for item in (content or {}).get("values", [])]
    if kind == "kvlistValue":
        return decoded_attributes((content or {}).get("values", []))
    return content


def _list(row: Mapping[str, Any], *names: str) -> list[dict[str, Any]]:
    for name in names:
        if isinstance(row.get(name), list):
            return [item for item in row[name] if isinstance(item, dict)]
    return []
