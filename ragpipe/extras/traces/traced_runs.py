"""Runs of LangSmith (a flat list, several per trace) and of LangChain's tracers (a root with `child_runs`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ragpipe.datasets.expression_functions import BadExpression, finite_number
from ragpipe.extras.traces.span import EVALUATOR, LLM, RETRIEVER, Span, Trace, documents, epoch_ms, message_text, usage

_KINDS = {"llm": LLM, "chat_model": LLM, "retriever": RETRIEVER, "evaluator": EVALUATOR}
_TRACEBACK = "Traceback (most recent call last)"


def is_run(row: Mapping[str, Any]) -> bool:
    """Whether the row is a run."""
    return "run_type" in row and "inputs" in row


def run_spans(row: Mapping[str, Any]) -> Iterator[Span]:
    """The run and all below it. Raises BadExpression for a run without ids."""
    yield _span(row)
    for child in row.get("child_runs") or []:
        if isinstance(child, dict):
            yield from run_spans({"trace_id": row.get("trace_id"), "parent_run_id": row.get("id"), **child})


def run_trace(row: Mapping[str, Any]) -> Trace | None:
    """The trace of a root run: whole, with its child runs, or as far as the root itself says; None for another run."""
    return None if row.get("parent_run_id") else Trace(_trace_id(row), list(run_spans(row)), run_facts(row))


def run_facts(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a root run says of its trace: tags, metadata, scores (the mean of each feedback key), its data set's example."""
    extra, feedback = (row[name] if isinstance(row.get(name), dict) else {} for name in ("extra", "feedback_stats"))
    scores = [
        {"name": name, "value": stats.get("avg"), "source": "feedback", "comment": None}
        for name, stats in feedback.items()
        if isinstance(stats, dict)
    ]
    return {
        "tags": [tag for tag in row.get("tags") or [] if isinstance(tag, str)],
        "metadata": extra.get("metadata") or {},
        "scores": scores,
        "example_id": row.get("reference_example_id"),
    }


def _trace_id(row: Mapping[str, Any]) -> str:
    identity = row.get("trace_id") or row.get("id")
    if not isinstance(identity, str):
        raise BadExpression("a run without trace_id or id")
    return identity


def _span(row: Mapping[str, Any]) -> Span:
    kind = str(row.get("run_type") or "").lower()
    span = Span(
        trace_id=_trace_id(row),
        span_id=str(row.get("id")),
        parent_id=str(row["parent_run_id"]) if row.get("parent_run_id") else None,
        name=str(row.get("name") or ""),
        kind=_KINDS.get(kind, kind),
        input=row.get("inputs"),
        output=row.get("outputs") or None,
        start_ms=epoch_ms(row.get("start_time")),
        end_ms=epoch_ms(row.get("end_time")),
    )
    if row.get("error"):
        span.status, span.error = "error", str(row["error"]).split(_TRACEBACK)[0].strip() or "error"
    elif span.end_ms is not None:
        span.status = "ok"
    span.attributes = {name: row[name] for name in ("tags", "status", "session_name") if row.get(name)}
    query = row.get("inputs")
    span.query = query.get("query") if isinstance(query, dict) else None
    if span.kind == RETRIEVER and not span.error:
        span.documents = documents(row.get("outputs"))
    if span.kind == LLM:
        span.text = message_text(row.get("outputs"))
    span.usage = _usage(row)
    return span


def _usage(row: Mapping[str, Any]) -> dict[str, float]:
    counts = usage(row)
    outputs = row.get("outputs") if isinstance(row.get("outputs"), dict) else {}
    if not counts and outputs:
        counts = usage((outputs.get("llm_output") or {}).get("token_usage")) or _of_message(outputs)
    cost = finite_number(row.get("total_cost"))
    return counts if cost is None else {**counts, "cost_usd": float(cost)}


def _of_message(outputs: Mapping[str, Any]) -> dict[str, float]:
    """The usage in the message of the first generation."""
    value: Any = outputs.get("generations")
    while isinstance(value, list) and value:
        value = value[0]
    for name in ("message", "kwargs", "usage_metadata"):
        value = value.get(name) if isinstance(value, dict) else None
    return usage(value)
