"""A span and a trace, whatever tool wrote them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

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
    kind: str
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
        if self.start_ms is None or self.end_ms is None:
            return None
        return round(self.end_ms - self.start_ms, 3)


@dataclass(slots=True)
class Trace:
    """The spans of a trace, and what the tool says of the trace as a whole, by the names of the record (`input`, `metadata`,
    `scores` ...), which then counts and not what its root span says."""

    trace_id: str
    spans: list[Span]
    facts: dict[str, Any] = field(default_factory=dict)
