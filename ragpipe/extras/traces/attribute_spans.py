"""Spans that say everything by attributes and events: OpenInference, OpenTelemetry's conventions for generative AI, Traceloop, the
Vercel AI SDK, TruLens. They come as OTLP requests, or one per row: from the console exporter of OpenTelemetry, Phoenix (REST and data frame)
and TruLens' event table."""

from __future__ import annotations

import base64
import binascii
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ragpipe.core import strict_json
from ragpipe.data.expressions import BadExpression, json_or_text, parsed
from ragpipe.extras.traces.span import (
    EVALUATOR,
    LLM,
    REDACTED,
    RERANKER,
    RETRIEVER,
    SPAN,
    Span,
    Status,
    documents,
    epoch_ms,
    message_text,
    retrieved_document,
    without_redaction,
)

_KINDS = {
    "chat": LLM, "text_completion": LLM, "generate_content": LLM, "generation": LLM, "embeddings": "embedding",
    "retrieval": RETRIEVER, "eval": EVALUATOR, "execute_tool": "tool", "invoke_agent": "agent", "completion": LLM,
    "ai.generatetext": LLM, "ai.streamtext": LLM, "ai.generateobject": LLM, "ai.streamobject": LLM, "ai.toolcall": "tool",
    "ai.embed": "embedding", "ai.embedmany": "embedding",
}  # fmt: skip
_KIND_NAMES = (
    "openinference.span.kind", "gen_ai.operation.name", "ai.observability.span_type", "traceloop.span.kind", "ai.operationId",
    "llm.request.type",
)  # fmt: skip
_INPUT = (
    "input.value", "ai.observability.record_root.input", "traceloop.entity.input", "gen_ai.input.messages", "gen_ai.prompt",
    "ai.prompt", "ai.prompt.messages", "ai.toolCall.args",
)  # fmt: skip
_OUTPUT = (
    "output.value", "ai.observability.record_root.output", "traceloop.entity.output", "gen_ai.output.messages",
    "gen_ai.completion", "ai.response.text", "ai.response.object", "ai.toolCall.result",
)  # fmt: skip
_QUERY = ("reranker.query", "ai.observability.retrieval.query_text", "gen_ai.retrieval.query.text", "input.value")
_DOCUMENTS = ("retrieval.documents", "gen_ai.retrieval.documents", "ai.observability.retrieval.retrieved_contexts")
_FOUND = "db.query.result"
"""The event that a vector store's span has per document found, by Traceloop's conventions."""
_NUMBERED = ("gen_ai.prompt", "gen_ai.completion")
_DETAILS = "gen_ai.client.inference.operation.details"
_TOKENS = {
    "tokens_in": ("llm.token_count.prompt", "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "ai.usage.promptTokens"),
    "tokens_out": (
        "llm.token_count.completion", "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens",
        "ai.usage.completionTokens",
    ),
    "tokens_cached": ("llm.token_count.prompt_details.cache_read", "gen_ai.usage.cache_read.input_tokens"),
    "tokens_reasoning": ("llm.token_count.completion_details.reasoning", "gen_ai.usage.reasoning.output_tokens"),
    "cost_usd": ("llm.cost.total",),
}  # fmt: skip
_STATUS: dict[str, Status] = {"0": "unset", "1": "ok", "2": "error", "UNSET": "unset", "OK": "ok", "ERROR": "error"}


def status_of(code: Any) -> Status:
    """The status of an OpenTelemetry code: a number, or a name with or without `STATUS_CODE_`."""
    return _STATUS.get(str(code).removeprefix("STATUS_CODE_").removeprefix("StatusCode."), "unset")


def read_attributes(span: Span, events: Sequence[Mapping[str, Any]] = ()) -> Span:
    """The span with what its attributes and events say of input, output, documents, tokens and model. The attributes stay in it as
    they are, but for the vectors of embeddings, which say nothing here and are most of some exports."""
    span.attributes = {name: value for name, value in span.attributes.items() if not name.startswith("embedding.embeddings")}
    attributes = {name: value for name, value in (span.attributes | _said_by(events)).items() if value != REDACTED}
    if (kind := _text(attributes, _KIND_NAMES)) is not None:
        span.kind = _KINDS.get(kind.lower(), kind.lower())
    span.input = unwrapped(_value(attributes, _INPUT, "input.mime_type"), "inputs")
    span.output = unwrapped(_value(attributes, _OUTPUT, "output.mime_type"), "outputs")
    span.query = _text(attributes, _QUERY)
    span.model = _text(attributes, ("llm.model_name", "gen_ai.response.model", "gen_ai.request.model", "ai.model.id"))
    matches = [event for event in events if event.get("name") == _FOUND]
    if matches and span.kind == SPAN:
        span.kind = RETRIEVER
    if span.kind == RETRIEVER:
        span.documents = first_documents(*(_documents(attributes, name) for name in _DOCUMENTS), _found(matches), span.output)
    elif span.kind == RERANKER:
        span.documents = first_documents(_documents(attributes, "reranker.output_documents"), span.output)
        span.input_documents = _documents(attributes, "reranker.input_documents")
    elif span.kind == LLM:
        messages = numbered_items(attributes, "llm.output_messages") or []
        span.text = message_text(messages[-1].get("message.content")) if messages else None
        span.text = span.text or message_text(span.output)
    span.usage = _usage(attributes)
    return span


def error_of(status: Status, message: str | None, events: Any) -> str | None:
    """What went wrong in a span whose status is an error: its exception event (`Type: message`), else the status' message."""
    if status != "error":
        return None
    for event in events if isinstance(events, list) else []:
        attributes = event.get("attributes") if isinstance(event, dict) else None
        if isinstance(attributes, dict) and attributes.get("exception.type"):
            return f"{attributes['exception.type']}: {attributes.get('exception.message') or ''}".rstrip(": ")
    return message or "error"


def metadata_of(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attribute `metadata`: an object, JSON in a text, or flattened to `metadata.name`."""
    value = json_or_text(attributes.get("metadata"))
    if isinstance(value, dict):
        return value
    return {name.removeprefix("metadata."): item for name, item in attributes.items() if name.startswith("metadata.")}


def numbered_items(attributes: Mapping[str, Any], prefix: str) -> list[Any] | None:
    """A list that is flattened into numbered keys (`prefix.0.a`, `prefix.10.a`), in the order of the numbers; or the list
    itself, its objects flat. None where neither is there."""
    value = json_or_text(attributes.get(prefix))
    if isinstance(value, list):
        return [_flat(item) if isinstance(item, dict) else item for item in value]
    items: dict[int, dict[str, Any]] = {}
    for name, item in attributes.items():
        if name.startswith(prefix + "."):
            number, _, rest = name[len(prefix) + 1 :].partition(".")
            if number.isdigit():
                items.setdefault(int(number), {})[rest] = item
    return [items[number] for number in sorted(items)] or None


def unwrapped(value: Any, name: str) -> Any:
    """What was given to a step, or came out of it, from the wrapping of Traceloop: `{"inputs": ..., "tags": ...}` of a chain,
    `{"args": [...], "kwargs": {...}}` of a function. Any other value as it is."""
    if isinstance(value, dict) and name in value and value.keys() & {"tags", "kwargs", "metadata"}:
        return value[name]
    if isinstance(value, dict) and value.keys() == {"args", "kwargs"}:
        args, kwargs = value["args"], value["kwargs"]
        return kwargs or (args[0] if isinstance(args, list) and len(args) == 1 else args)
    return value


def first_documents(*candidates: Any) -> list[dict[str, Any]] | None:
    """The documents of the first candidate that is a list of them, be it empty; None where none is. A step whose documents are not
    recorded says nothing of what it found."""
    return next((passages for candidate in candidates if (passages := documents(candidate)) is not None), None)


def _documents(attributes: Mapping[str, Any], prefix: str) -> list[dict[str, Any]] | None:
    """The documents of a list attribute, an empty list only where it says so; None where there is none."""
    if (items := numbered_items(attributes, prefix)) is None:
        return None
    passages = []
    for item in items:
        fields = {name.removeprefix("document."): value for name, value in item.items()} if isinstance(item, dict) else item
        if isinstance(fields, dict):
            fields["metadata"] = metadata_of(fields)
        passages.append(retrieved_document(fields))
    return [document for document in passages if document is not None] if None not in passages else None


def _found(events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]] | None:
    """The documents of a vector store's events; its distance is the smaller the nearer, and no score."""
    names = {"id": "id", "content": "document", "score": "score", "metadata": "metadata"}
    matches = [event.get("attributes") or {} for event in events]
    passages = [{key: match.get(f"{_FOUND}.{name}") for key, name in names.items()} for match in matches]
    return [{**passage, "metadata": json_or_text(passage["metadata"])} for passage in passages] or None


def _said_by(events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What events say of messages, by the names of attributes: today's one event of all details, and the older one per message."""
    texts: dict[str, Any] = {}
    asked: list[dict[str, Any]] = []
    for event in events:
        name, attributes = str(event.get("name")), event.get("attributes")
        if not isinstance(attributes, Mapping):
            continue
        body = json_or_text(event.get("body")) if event.get("body") is not None else attributes
        body = body if isinstance(body, Mapping) else attributes
        if name in (_DETAILS, "gen_ai.content.prompt", "gen_ai.content.completion"):
            texts |= {key: value for key, value in body.items() if key.startswith("gen_ai.")}
        elif name in ("gen_ai.user.message", "gen_ai.system.message"):
            asked.append({"role": name.split(".")[1], "content": body.get("content")})
        elif name == "gen_ai.choice":
            message = json_or_text(body.get("message", body.get("content")))
            texts["gen_ai.output.messages"] = [message if isinstance(message, dict) else {"content": message}]
    return {"gen_ai.input.messages": asked, **texts} if asked else texts


def _flat(item: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"document": {"id": 1}}` as `{"document.id": 1}`; metadata stays an object."""
    flat: dict[str, Any] = {}
    for name, value in item.items():
        path = prefix + name
        if isinstance(value, dict) and not path.endswith("metadata"):
            flat |= _flat(value, path + ".")
        else:
            flat[path] = value
    return flat


def _value(attributes: Mapping[str, Any], names: tuple[str, ...], mime: str) -> Any:
    name = next((name for name in names if attributes.get(name) is not None), None)
    if name is None:  # Traceloop's older form: `gen_ai.prompt.0.role`, `gen_ai.prompt.0.content`
        return next((items for name in names if name in _NUMBERED and (items := numbered_items(attributes, name))), None)
    value = attributes[name]
    if name.startswith("traceloop.entity.") and isinstance(value, str):  # always JSON, of a text too
        with contextlib.suppress(strict_json.InvalidJson):
            value = strict_json.strict_loads(value)
    return without_redaction(value if attributes.get(mime) == "text/plain" else json_or_text(value))


def _text(attributes: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((attributes[name] for name in names if isinstance(attributes.get(name), str)), None)


def _usage(attributes: Mapping[str, Any]) -> dict[str, float]:
    counts: dict[str, float] = {}
    for name, keys in _TOKENS.items():
        for value in map(attributes.get, keys):
            if isinstance(value, int | float) and not isinstance(value, bool):
                counts.setdefault(name, float(value))
    return counts


def is_otlp(row: Mapping[str, Any]) -> bool:
    """Whether the row is an OTLP request of spans or of log records."""
    return not row.keys().isdisjoint(("resourceSpans", "resource_spans", "resourceLogs", "resource_logs"))


def otlp_spans(row: Mapping[str, Any]) -> Iterator[Span]:
    """The spans of a request, and the evaluations among its log records. Raises BadExpression for ids and values that OTLP has
    not."""
    for resource in _list(row, "resourceLogs", "resource_logs"):
        for scope in _list(resource, "scopeLogs", "scope_logs"):
            for record in _list(scope, "logRecords", "log_records"):
                if "gen_ai.evaluation.result" in (record.get("eventName"), record.get("event_name")):
                    yield _evaluation(record)
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
    if len(plain) in (16, 32) and all(sign in "0123456789abcdef" for sign in plain):
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
    span = Span(trace_id, span_id, parent_id, str(row.get("name") or ""))
    span.attributes = decoded_attributes(row.get("attributes"))
    if service := resource.get("service.name"):
        span.attributes.setdefault("service.name", service)
    span.start_ms = nanoseconds(row.get("startTimeUnixNano") or row.get("start_time_unix_nano"))
    span.end_ms = nanoseconds(row.get("endTimeUnixNano") or row.get("end_time_unix_nano"))
    status = row.get("status") or {}
    span.status = status_of(status.get("code"))
    events = [{**event, "attributes": decoded_attributes(event.get("attributes"))} for event in _list(row, "events", "events")]
    span.error = error_of(span.status, status.get("message"), events)
    return read_attributes(span, events)


def _evaluation(record: Mapping[str, Any]) -> Span:
    """The span of an evaluator that gave what an event `gen_ai.evaluation.result` says."""
    trace_id = identifier(record.get("traceId") or record.get("trace_id"))
    if trace_id is None:
        raise BadExpression("an evaluation without traceId")
    attributes = decoded_attributes(record.get("attributes"))
    parent_id = identifier(record.get("spanId") or record.get("span_id"))
    # a span with the id of another is the same one, given twice
    span = Span(trace_id, f"evaluation {attributes}", parent_id, str(attributes.get("gen_ai.evaluation.name")))
    span.kind, span.start_ms = EVALUATOR, nanoseconds(record.get("timeUnixNano") or record.get("time_unix_nano"))
    names = {"score": "score.value", "label": "score.label", "explanation": "explanation"}
    said = {key: attributes.get(f"gen_ai.evaluation.{name}") for key, name in names.items()}
    span.output = said if said["score"] is not None else None
    return span


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


def is_flat_span(row: Mapping[str, Any]) -> bool:
    """Whether the row is one span: `context` with ids, the column `context.trace_id`, or TruLens' `record_attributes`."""
    context = row.get("context")
    has_ids = "context.trace_id" in row or (isinstance(context, dict) and "trace_id" in context)
    return has_ids or {"record_attributes", "trace"} <= row.keys()


def flat_span(row: Mapping[str, Any]) -> Span:
    """The span of a row. Raises BadExpression for ids and times that cannot be read."""
    if "record_attributes" in row:
        return _trulens(row)
    context = row["context"] if isinstance(row.get("context"), dict) else {}
    trace_id = _plain_id(context.get("trace_id") or row.get("context.trace_id"))
    span_id = _plain_id(context.get("span_id") or row.get("context.span_id"))
    if trace_id is None or span_id is None:
        raise BadExpression("a span without trace_id or span_id")
    span = Span(trace_id, span_id, _plain_id(row.get("parent_id")), str(row.get("name") or ""))
    span.attributes = _columns(row)
    if isinstance(row.get("span_kind"), str):
        span.attributes.setdefault("openinference.span.kind", row["span_kind"])
    span.start_ms, span.end_ms = epoch_ms(row.get("start_time")), epoch_ms(row.get("end_time"))
    status = row.get("status") or {}
    span.status = status_of(row.get("status_code") or status.get("status_code"))
    events = _structure(row.get("events"))
    events = [event for event in events if isinstance(event, dict)] if isinstance(events, list) else []
    span.error = error_of(span.status, row.get("status_message") or status.get("description"), events)
    return read_attributes(span, events)


def _plain_id(value: Any) -> str | None:
    return str(value).removeprefix("0x") if value else None


def _columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes: an object, or the columns `attributes.*`; empty cells are left out."""
    if isinstance(row.get("attributes"), dict):
        return dict(row["attributes"])
    columns = {name.removeprefix("attributes."): value for name, value in row.items() if name.startswith("attributes.")}
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
    return parsed(value) if isinstance(value, str) and value.strip() else value


def _trulens(row: Mapping[str, Any]) -> Span:
    """A row of the table `trulens_events`; its columns are JSON in texts, and its ids decimal texts."""
    attributes, record, trace = (_object(row.get(name)) for name in ("record_attributes", "record", "trace"))
    trace_id = attributes.get("ai.observability.record_id") or trace.get("trace_id")
    if not trace_id or not trace.get("span_id"):
        raise BadExpression("a TruLens event without record id or span id")
    parent = trace.get("parent_id")
    span = Span(str(trace_id), str(trace["span_id"]), str(parent) if parent else None, str(record.get("name") or ""))
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
