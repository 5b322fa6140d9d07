"""A span and a trace, whatever tool wrote them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ragpipe.data.expressions import BadExpression, json_or_text, time_ms

REDACTED = "__REDACTED__"
"""What OpenInference writes in place of a text that is hidden."""
_TEXT = ("page_content", "pageContent", "content", "text")
_IDS = ("id", "id_", "document_id", "doc_id")
_USAGE = {
    "tokens_in": ("prompt_tokens", "input_tokens", "input", "prompt"),
    "tokens_out": ("completion_tokens", "output_tokens", "output", "completion"),
    "tokens_cached": ("cache_read_input_tokens", "input_cached_tokens", "cached_tokens"),
    "tokens_reasoning": ("reasoning_tokens", "output_reasoning_tokens"),
}


def retrieved_document(item: Any) -> dict[str, Any] | None:
    """`{id, text, score, metadata}` of a retrieved document as LangChain, Langfuse, MLflow and others write it; None for
    anything else.

    The text is `page_content`, `pageContent`, `content` or `text`, None where only an id is recorded, or the text is hidden; the id
    and the score stand beside it or in the metadata. A text alone is a document too.
    """
    if isinstance(item, str):
        return {"id": None, "text": item, "score": None, "metadata": {}}
    if not isinstance(item, dict):
        return None
    fields = item["kwargs"] if isinstance(item.get("kwargs"), dict) else item
    fields = fields["node"] | {"score": fields.get("score")} if isinstance(fields.get("node"), dict) else fields
    text = next((fields[name] for name in _TEXT if isinstance(fields.get(name), str) and fields[name] != REDACTED), None)
    metadata: dict[str, Any] = fields["metadata"] if isinstance(fields.get("metadata"), dict) else {}
    identity, score = _first(_IDS, fields, metadata), _first(("score",), fields, metadata)
    if text is None and identity is None:
        return None
    if isinstance(score, bool) or not isinstance(score, int | float):
        score = None
    return {"id": None if identity is None else str(identity), "text": text, "score": score, "metadata": metadata}


def documents(value: Any) -> list[dict[str, Any]] | None:
    """The documents of a retriever's output: a list of them, or an object with such a list (`{documents: [...]}`).

    None where the value is no such list.
    """
    value = json_or_text(value)
    if isinstance(value, dict):
        lists = [item for item in value.values() if isinstance(item, list)]
        value = value.get("documents", lists[0] if len(lists) == 1 else None)
    if not isinstance(value, list):
        return None
    items = [retrieved_document(without_redaction(item)) for item in value]
    return None if None in items else [item for item in items if item is not None]


def are_documents(value: Any) -> bool:
    """Whether a value can only be retrieved documents: a list of objects that each have `page_content` or `pageContent`."""
    value = json_or_text(value)
    if isinstance(value, dict) and value.keys() == {"documents"}:
        value = value["documents"]
    names = {"page_content", "pageContent"}
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) and names & item.keys() for item in value)


def message_text(value: Any) -> str | None:
    """The text of a model's output: a text, a message, the last of a list of them, or a response with `choices` or
    `generations`; None where there is none."""
    value = json_or_text(value)
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return message_text(value[-1]) if value else None
    if isinstance(value, dict):
        for name in ("content", "text", "message", "choices", "generations", "messages", "parts", "kwargs", "output"):
            if value.get(name):
                return message_text(value[name])
    return None


def usage(counts: Any) -> dict[str, float]:
    """Token counts under the names of an output (`tokens_in`, `tokens_out` ...). A count of 0 on both sides means unknown."""
    if not isinstance(counts, Mapping):
        return {}
    tokens = {}
    for name, aliases in _USAGE.items():
        value = next((counts[alias] for alias in aliases if _is_number(counts.get(alias))), None)
        if value is not None:
            tokens[name] = float(value)
    return tokens if tokens.get("tokens_in") or tokens.get("tokens_out") else {}


def epoch_ms(value: Any) -> float | None:
    """A time in milliseconds since 1970: of ISO 8601 text, or of a number that is milliseconds already (as pandas writes it).

    Raises BadExpression for another text.
    """
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return time_ms(value)
    if _is_number(value):
        return float(value)
    raise BadExpression(f"no time: {value!r:.60}")


def without_redaction(value: Any) -> Any:
    """The value; None for a text that says only that it is hidden."""
    return None if value == REDACTED else value


def _first(names: Sequence[str], *places: Mapping[str, Any]) -> Any:
    return next((place[name] for place in places for name in names if place.get(name) is not None), None)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


Status = Literal["ok", "error", "unset"]

RETRIEVER, RERANKER, LLM, EVALUATOR, SPAN = "retriever", "reranker", "llm", "evaluator", "span"
"""The kinds that mean something here. Others (chain, tool, embedding, agent ...) keep the tool's name in small letters; `span`
is a step whose tool does not say what it is."""


@dataclass(slots=True)
class Span:
    """One step of a trace.

    `start_ms` and `end_ms` are milliseconds since 1970, None where the export has none. `documents` are what a retriever or
    reranker gave, `usage` the tokens and the price by the names of an output, `text` what a model answered. `input_documents`
    are those that a reranker was given.
    """

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    kind: str = SPAN
    input: Any = None
    output: Any = None
    start_ms: float | None = None
    end_ms: float | None = None
    status: Status = "unset"
    error: str | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    query: str | None = None
    documents: list[dict[str, Any]] | None = None
    input_documents: list[dict[str, Any]] | None = None
    usage: dict[str, float] = field(default_factory=dict)
    model: str | None = None
    text: str | None = None

    @property
    def duration_ms(self) -> float | None:
        """Milliseconds from start to end, to the microsecond."""
        return None if self.start_ms is None or self.end_ms is None else round(self.end_ms - self.start_ms, 3)


@dataclass(slots=True)
class Trace:
    """The spans of a trace, and what the tool says of the trace as a whole, by the names of the record (`input`, `metadata`,
    `scores` ...), which then counts and not what its root span says."""

    trace_id: str
    spans: list[Span]
    facts: dict[str, Any] = field(default_factory=dict)
