"""Traces as three tools keep them: Langfuse (traces with all their observations, and lists of observations without traces), MLflow
(`Trace.to_json()`, and the tables of `search_traces` and `genai.evaluate`, whose column `trace` holds it), LangSmith's runs (a flat list,
several per trace) and those of LangChain's tracers (a root with `child_runs`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ragpipe.core import strict_json
from ragpipe.core.sample import UNREADABLE
from ragpipe.data.expressions import BadExpression, finite_number, json_or_text, verdict
from ragpipe.extras.traces.attribute_spans import error_of, first_documents, identifier, nanoseconds, read_attributes, status_of
from ragpipe.extras.traces.span import EVALUATOR, LLM, RETRIEVER, SPAN, Span, Trace, documents, epoch_ms, message_text, usage

_OBSERVATION_KINDS = {"GENERATION": LLM, "SPAN": SPAN, "EVENT": "event"}


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
        "scores": [_langfuse_score(score) for score in row.get("scores") or [] if isinstance(score, dict)],
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
        kind=_OBSERVATION_KINDS.get(kind, kind.lower()),
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
    span.attributes = {"metadata": row["metadata"]} if row.get("metadata") else {}
    if isinstance(span.input, dict) and isinstance(span.input.get("query"), str):
        span.query = span.input["query"]
    elif isinstance(span.input, str):
        span.query = span.input
    if span.kind == RETRIEVER:
        span.documents = documents(span.output)
    elif span.kind == LLM:
        span.text = message_text(span.output)
    span.usage = usage(row.get("usageDetails") if "usageDetails" in row else row.get("usage"))
    cost = (row.get("costDetails") or {}).get("total") or row.get("calculatedTotalCost")
    if isinstance(cost, int | float) and cost > 0:
        span.usage["cost_usd"] = float(cost)
    return span


def _langfuse_score(score: Mapping[str, Any]) -> dict[str, Any]:
    """A score; a category, whose number means nothing, is unreadable and keeps its label."""
    label, value = score.get("stringValue"), score.get("value")
    if label in ("True", "False"):
        value = label == "True"
    elif isinstance(label, str):
        value = {UNREADABLE: label}
    return {"name": str(score.get("name")), "value": value, "source": score.get("source"), "comment": score.get("comment")}


_MLFLOW_KINDS = {"CHAT_MODEL": LLM, "UNKNOWN": "span"}


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
    spans = [_mlflow_span(span) for span in trace["data"]["spans"]]
    facts = trace["info"]
    duration = facts.get("execution_duration_ms")
    assessments = [item for item in facts.get("assessments") or [] if isinstance(item, dict)]
    expected = [item for item in assessments if isinstance(item.get("expectation"), dict)]
    said = {
        "start_ms": epoch_ms(facts.get("request_time")),
        "duration_ms": float(duration) if isinstance(duration, int | float) else None,
        "metadata": {name: value for name, value in (facts.get("tags") or {}).items() if "mlflow." not in name},
        "session": (facts.get("trace_metadata") or {}).get("mlflow.trace.session"),
        "user": (facts.get("trace_metadata") or {}).get("mlflow.trace.user"),
        "scores": [_mlflow_score(item) for item in assessments if "expectation" not in item],
        "expectations": {str(item.get("assessment_name")): _expectation(item["expectation"]) for item in expected},
    }
    return Trace(str(facts.get("trace_id")), spans, said)


def _mlflow_span(row: Mapping[str, Any]) -> Span:
    attributes = {name: _parsed(value) for name, value in (row.get("attributes") or {}).items()}
    kind = str(attributes.get("mlflow.spanType") or "UNKNOWN")
    status = row.get("status") or {}
    span = Span(
        trace_id=str(attributes.get("mlflow.traceRequestId") or identifier(row.get("trace_id"))),
        span_id=str(identifier(row.get("span_id"))),
        parent_id=identifier(row.get("parent_span_id") or row.get("parent_id")),
        name=str(row.get("name") or ""),
        kind=_MLFLOW_KINDS.get(kind, kind.lower()),
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
        # a span that MLflow took by OTLP keeps its documents under the names of OpenInference or OpenTelemetry
        span.documents = first_documents(span.output, read_attributes(replace(span)).documents)
    elif span.kind == LLM:
        span.text = message_text(span.output)
    return span


def _mlflow_score(assessment: Mapping[str, Any]) -> dict[str, Any]:
    """A judgement: a scorer that failed gives an unreadable one with its message, a grade in words one with its text."""
    feedback = assessment.get("feedback") or {}
    value, source = verdict(feedback.get("value")), (assessment.get("source") or {}).get("source_type")
    if error := feedback.get("error"):
        value = {UNREADABLE: str(error.get("error_message") or error.get("error_code") or "error")}
    name, comment = str(assessment.get("assessment_name")), assessment.get("rationale")
    return {"name": name, "value": value, "source": source, "comment": comment}


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


_RUN_KINDS = {"llm": LLM, "chat_model": LLM, "retriever": RETRIEVER, "evaluator": EVALUATOR}
_TRACEBACK = "Traceback (most recent call last)"


def is_run(row: Mapping[str, Any]) -> bool:
    """Whether the row is a run."""
    return "run_type" in row and "inputs" in row


def run_spans(row: Mapping[str, Any]) -> Iterator[Span]:
    """The run and all below it. Raises BadExpression for a run without ids."""
    yield _run_span(row)
    for child in row.get("child_runs") or []:
        if isinstance(child, dict):
            yield from run_spans({"trace_id": row.get("trace_id"), "parent_run_id": row.get("id"), **child})


def run_trace(row: Mapping[str, Any]) -> Trace | None:
    """The trace of a root run: whole, with its child runs, or as far as the root itself says; None for another run."""
    return None if row.get("parent_run_id") else Trace(_trace_id(row), list(run_spans(row)), run_facts(row))


def run_facts(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a root run says of its trace: tags, metadata, scores (the mean of each feedback key), its data set's example."""
    extra, feedback = (row[name] if isinstance(row.get(name), dict) else {} for name in ("extra", "feedback_stats"))
    means = {name: stats.get("avg") for name, stats in feedback.items() if isinstance(stats, dict)}
    return {
        "tags": [tag for tag in row.get("tags") or [] if isinstance(tag, str)],
        "metadata": extra.get("metadata") or {},
        "scores": [{"name": name, "value": mean, "source": "feedback", "comment": None} for name, mean in means.items()],
        "example_id": row.get("reference_example_id"),
    }


def _trace_id(row: Mapping[str, Any]) -> str:
    identity = row.get("trace_id") or row.get("id")
    if not isinstance(identity, str):
        raise BadExpression("a run without trace_id or id")
    return identity


def _run_span(row: Mapping[str, Any]) -> Span:
    kind = str(row.get("run_type") or "").lower()
    span = Span(
        trace_id=_trace_id(row),
        span_id=str(row.get("id")),
        parent_id=str(row["parent_run_id"]) if row.get("parent_run_id") else None,
        name=str(row.get("name") or ""),
        kind=_RUN_KINDS.get(kind, kind),
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
    span.query = span.input.get("query") if isinstance(span.input, dict) else None
    if span.kind == RETRIEVER and not span.error:
        span.documents = documents(row.get("outputs"))
    if span.kind == LLM:
        span.text = message_text(row.get("outputs"))
    span.usage = _run_usage(row)
    return span


def _run_usage(row: Mapping[str, Any]) -> dict[str, float]:
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
