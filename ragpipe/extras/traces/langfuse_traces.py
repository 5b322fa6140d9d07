"""Langfuse: traces with all their observations, and lists of observations without traces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragpipe.datasets.expression_functions import BadExpression, json_or_text
from ragpipe.extras.traces.span import LLM, SPAN, Span, Trace, documents, epoch_ms, message_text, usage
from ragpipe.schema.sample import UNREADABLE

_KINDS = {"GENERATION": LLM, "SPAN": SPAN, "EVENT": "event"}


def is_langfuse_trace(row: Mapping[str, Any]) -> bool:
    """Whether the row is a trace with its observations."""
    return "observations" in row and "htmlPath" in row


def is_observation(row: Mapping[str, Any]) -> bool:
    """Whether the row is an observation by itself."""
    return {"traceId", "type", "startTime"} <= row.keys()


def langfuse_trace(row: Mapping[str, Any]) -> Trace:
    """The trace of a row. Raises BadExpression where it names its observations and does not hold them."""
    observations = row.get("observations")
    if not isinstance(observations, list) or not all(isinstance(item, dict) for item in observations):
        raise BadExpression("a trace with the ids of its observations only; get each trace in full (trace.get)")
    spans = [observation_span(item) for item in observations]
    latency, cost = row.get("latency"), row.get("totalCost")
    facts = {
        "name": row.get("name"),
        "input": json_or_text(row.get("input")),
        "output": json_or_text(row.get("output")),
        "start_ms": epoch_ms(row.get("timestamp")),
        "duration_ms": latency * 1000 if isinstance(latency, int | float) else None,
        "cost_usd": cost if isinstance(cost, int | float) and cost > 0 else None,
        "metadata": row.get("metadata"),
        "tags": row.get("tags"),
        "session": row.get("sessionId"),
        "user": row.get("userId"),
        "version": row.get("version") or row.get("release"),
        "scores": [_score(score) for score in row.get("scores") or [] if isinstance(score, dict)],
    }
    return Trace(str(row.get("id")), spans, {name: value for name, value in facts.items() if value is not None})


def observation_span(row: Mapping[str, Any]) -> Span:
    """The span of an observation, whose input and output may be JSON in texts."""
    kind = str(row.get("type") or SPAN)
    span = Span(
        trace_id=str(row.get("traceId")),
        span_id=str(row.get("id")),
        parent_id=row.get("parentObservationId") or None,
        name=str(row.get("name") or ""),
        kind=_KINDS.get(kind, kind.lower()),
        input=json_or_text(row.get("input")),
        output=json_or_text(row.get("output")),
        start_ms=epoch_ms(row.get("startTime")),
        end_ms=epoch_ms(row.get("endTime")),
        model=row.get("model") or row.get("providedModelName"),
    )
    if row.get("level") == "ERROR":
        span.status, span.error = "error", row.get("statusMessage") or "error"
    elif row.get("endTime"):
        span.status = "ok"
    metadata = row.get("metadata")
    span.attributes = {"metadata": metadata} if metadata else {}
    if isinstance(span.input, dict) and isinstance(span.input.get("query"), str):
        span.query = span.input["query"]
    elif isinstance(span.input, str):
        span.query = span.input
    if span.kind == "retriever":
        span.documents = documents(span.output)
    elif span.kind == LLM:
        span.text = message_text(span.output)
    span.usage = usage(row.get("usageDetails") if "usageDetails" in row else row.get("usage"))
    cost = (row.get("costDetails") or {}).get("total") or row.get("calculatedTotalCost")
    if isinstance(cost, int | float) and cost > 0:
        span.usage["cost_usd"] = float(cost)
    return span


def _score(score: Mapping[str, Any]) -> dict[str, Any]:
    """A score; a category, whose number means nothing, is unreadable and keeps its label."""
    label, value = score.get("stringValue"), score.get("value")
    if label in ("True", "False"):
        value = label == "True"
    elif isinstance(label, str):
        value = {UNREADABLE: label}
    return {
        "name": str(score.get("name")),
        "value": value,
        "source": score.get("source"),
        "comment": score.get("comment"),
    }
