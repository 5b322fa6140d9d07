"""Spans that say everything by attributes: OpenInference, OpenTelemetry's conventions for generative AI, TruLens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragpipe.datasets.expression_functions import json_or_text
from ragpipe.datasets.spans.span import EVALUATOR, LLM, RERANKER, RETRIEVER, SPAN, Span, Status
from ragpipe.datasets.spans.span_values import message_text

_KINDS = {
    "chat": LLM, "text_completion": LLM, "generate_content": LLM, "generation": LLM, "embeddings": "embedding",
    "retrieval": RETRIEVER, "eval": EVALUATOR, "execute_tool": "tool", "invoke_agent": "agent",
}  # fmt: skip
_KIND_NAMES = ("openinference.span.kind", "gen_ai.operation.name", "ai.observability.span_type", "traceloop.span.kind")
_INPUT = ("input.value", "ai.observability.record_root.input", "traceloop.entity.input", "gen_ai.input.messages")
_OUTPUT = ("output.value", "ai.observability.record_root.output", "traceloop.entity.output", "gen_ai.output.messages")
_TOKENS = {
    "tokens_in": ("llm.token_count.prompt", "gen_ai.usage.input_tokens"),
    "tokens_out": ("llm.token_count.completion", "gen_ai.usage.output_tokens"),
    "tokens_cached": ("llm.token_count.prompt_details.cache_read", "gen_ai.usage.cache_read.input_tokens"),
    "tokens_reasoning": ("llm.token_count.completion_details.reasoning", "gen_ai.usage.reasoning.output_tokens"),
    "cost_usd": ("llm.cost.total",),
}
_STATUS: dict[str, Status] = {"0": "unset", "1": "ok", "2": "error", "UNSET": "unset", "OK": "ok", "ERROR": "error"}


def status_of(code: Any) -> Status:
    """The status of an OpenTelemetry code: a number, or a name with or without `STATUS_CODE_`."""
    return _STATUS.get(str(code).removeprefix("STATUS_CODE_").removeprefix("StatusCode."), "unset")


def read_attributes(span: Span) -> Span:
    """The span with what its attributes say of input, output, documents, tokens and model. They stay in it as they are, but
    for the vectors of embeddings, which say nothing here and are most of some exports."""
    span.attributes = {
        name: value for name, value in span.attributes.items() if not name.startswith("embedding.embeddings")
    }
    attributes = span.attributes
    kind = _text(attributes, _KIND_NAMES)
    if kind is not None:
        span.kind = _KINDS.get(kind.lower(), kind.lower())
    span.input = _value(attributes, _INPUT, "input.mime_type")
    span.output = _value(attributes, _OUTPUT, "output.mime_type")
    span.query = _text(attributes, ("reranker.query", "ai.observability.retrieval.query_text", "input.value"))
    span.model = _text(attributes, ("llm.model_name", "gen_ai.response.model", "gen_ai.request.model"))
    if span.kind == RETRIEVER:
        span.documents = _documents(attributes, "retrieval.documents")
        texts = attributes.get("ai.observability.retrieval.retrieved_contexts")
        if isinstance(texts, list):
            span.documents = [{"id": None, "text": text, "score": None, "metadata": {}} for text in texts]
    elif span.kind == RERANKER:
        span.documents = _documents(attributes, "reranker.output_documents")
        span.input_documents = _documents(attributes, "reranker.input_documents")
    elif span.kind == LLM:
        messages = numbered_items(attributes, "llm.output_messages")
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
    prefix = "metadata."
    return {name[len(prefix) :]: item for name, item in attributes.items() if name.startswith(prefix)}


def numbered_items(attributes: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    """A list that is flattened into numbered keys (`prefix.0.a`, `prefix.10.a`), in the order of the numbers; or the list
    itself, its elements flat."""
    value = json_or_text(attributes.get(prefix))
    if isinstance(value, list):
        return [_flat(item) for item in value if isinstance(item, dict)]
    items: dict[int, dict[str, Any]] = {}
    for name, item in attributes.items():
        if name.startswith(prefix + "."):
            number, _, rest = name[len(prefix) + 1 :].partition(".")
            if number.isdigit():
                items.setdefault(int(number), {})[rest] = item
    return [items[number] for number in sorted(items)]


def _documents(attributes: Mapping[str, Any], prefix: str) -> list[dict[str, Any]] | None:
    """The documents of a list attribute. A retriever that found nothing has no such attribute: an empty list."""
    documents = []
    for item in numbered_items(attributes, prefix):
        fields = {name.removeprefix("document."): value for name, value in item.items()}
        identity = fields.get("id")
        documents.append(
            {
                "id": None if identity is None else str(identity),
                "text": fields.get("content"),
                "score": fields.get("score"),
                "metadata": metadata_of(fields),
            }
        )
    return documents


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
    value = next((attributes[name] for name in names if attributes.get(name) is not None), None)
    return value if attributes.get(mime) == "text/plain" else json_or_text(value)


def _text(attributes: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((attributes[name] for name in names if isinstance(attributes.get(name), str)), None)


def _usage(attributes: Mapping[str, Any]) -> dict[str, float]:
    counts: dict[str, float] = {}
    for name, keys in _TOKENS.items():
        for key in keys:
            value = attributes.get(key)
            if isinstance(value, int | float) and not isinstance(value, bool):
                counts.setdefault(name, float(value))
    return counts


def new_span(trace_id: str, span_id: str, parent_id: str | None, name: str) -> Span:
    """A span of which only its place is known yet."""
    return Span(trace_id, span_id, parent_id or None, name, SPAN)
