"""Payload and Call: a question to a judge, and a call that asks it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from pydantic_core import PydanticSerializationError, to_json

from ragpipe.core.digest import canonical_json, sha256

Message = dict[str, str]  # {"role": "system" | "user" | "assistant", "content": text}


def canonical_messages(messages: Iterable[Message]) -> str:
    """The `canonical_json` of messages, made by the faster encoder: they are most of what a question costs. For objects of
    texts both encoders give the same characters; only a lone surrogate is beyond the faster one."""
    ordered = [dict(sorted(message.items())) for message in messages]
    try:
        return to_json(ordered).decode("utf-8")
    except PydanticSerializationError:
        return canonical_json(ordered)


def hash_of_parts(parts: Mapping[str, str]) -> str:
    """The `sha256` of hashes by name: the key of a question is one. Made by the faster encoder, too."""
    return sha256(to_json(dict(sorted(parts.items()))))


class Schema(dict[str, Any]):
    """The JSON schema of an answer; not changed any more. A run has a handful of them, and questions by the thousand."""

    @cached_property
    def text(self) -> str:
        """The schema as JSON, its keys in their own order. Raises ValueError and TypeError for what is no plain JSON."""
        return json.dumps(self, ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    @cached_property
    def hash(self) -> str:
        """Hex sha256: another one for another order of the fields of an object."""
        return sha256(_ordered(json.loads(self.text)))


@dataclass(frozen=True)
class Payload:
    """A logical question: messages before any transport or output mode touches them, and the schema of the answer.

    `id` is the hash of its `parts`, the hashes of messages and schema; `messages_json` the messages in
    canonical form, as they are hashed and stored. `schema` is the answer's JSON schema without titles and docstrings, or
    `{"form": "<name>"}` for a text answer; `schema_json` its text with the keys in their own order, which is the order in
    which a judge gives its answer.
    """

    messages: tuple[Message, ...]
    schema: Schema
    id: str = field(init=False)
    parts: dict[str, str] = field(init=False, repr=False)
    messages_json: str = field(init=False, repr=False, compare=False)
    schema_json: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        text = canonical_messages(self.messages)
        parts = {"messages": sha256(text), "schema": self.schema.hash}
        object.__setattr__(self, "messages_json", text)
        object.__setattr__(self, "schema_json", self.schema.text)
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "id", hash_of_parts(parts))


@dataclass(frozen=True, slots=True)
class Payment:
    """An attempt that was answered, and so is paid for, whatever happened to its call.

    `model` is the one that was asked, `at` the time (UTC, ISO 8601) at which the answer came. The counts of tokens are the
    reply's own: all None where it named no usage, `tokens_cached` and `tokens_written` (of `tokens_in`: found in the provider's
    cache, and written to it) and `tokens_reasoning` (of `tokens_out`) None where it did not name them. `usd` is the price on that
    day, None when it is unknown. The ledger adds who paid for which question: `mark` is the beginning of its key as a number.
    """

    model: str
    at: str
    tokens_in: int | None = None
    tokens_out: int | None = None
    tokens_cached: int | None = None
    tokens_reasoning: int | None = None
    tokens_written: int | None = None
    usd: float | None = None
    mark: int = 0
    run_id: str = ""
    iteration: int = 1


class Paid(Protocol):
    """What a transport tells of every try that was answered, at once: before it waits for anything else. It never blocks. The payment stands
    `alone` where another try may come before a call that is stored."""

    def __call__(self, payment: Payment, *, alone: bool = False) -> None: ...


@dataclass(frozen=True, slots=True)
class Call:
    """A call to a judge, as the call store keeps it.

    `status` is `ok`, a failure kind (`ragpipe.core.errors.FailureKind`), or `skipped` for a question that a rules judge
    cannot answer (`message` says why; nobody was asked). Only `ok` calls are ever served to another run.
    `text` is the raw reply. `attempts` counts HTTP attempts; the counts of tokens are those of the final reply, of the
    last attempt that was answered (what all tries cost together is in the ledger, try by try: `Payment`). `answers` counts the tries that
    were answered and so are paid for, `paid_usd` is what the last of them cost on that day, None when that was unknown.
    `fingerprint` is the provider's `system_fingerprint`. `latency_ms` is that of the last try, without waiting for a slot. `sent` holds the sampling
    parameters that really went over the wire, `wire_hash` the sha256 of the request body. `fields` are the hashes of
    the parts of the key, so that `why was this asked again` can be answered. `run_id` is the run that paid, `iteration`
    the one in which it asked.
    """

    key: str
    payload_id: str
    judge: str
    status: str
    text: str | None = None
    message: str | None = None
    model: str | None = None
    finish_reason: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    tokens_cached: int | None = None
    tokens_reasoning: int | None = None
    tokens_written: int | None = None
    fingerprint: str | None = None
    paid_usd: float | None = None
    latency_ms: float | None = None
    attempts: int = 1
    answers: int = 0
    output_mode: str | None = None
    sent: dict[str, Any] = field(default_factory=dict)
    wire_hash: str | None = None
    fields: dict[str, str] = field(default_factory=dict)
    run_id: str = ""
    iteration: int = 1
    created_at: str = ""


KNOWN = frozenset(
    {
        ("claim", "marker", "cited"),
        ("correctness", "completeness", "consistency", "reason", "confidence"),
        ("evidence", "reason", "acknowledged"),
        ("evidence", "reason", "kept"),
        ("faithfulness", "completeness"),
        ("index", "evidence", "reason", "accurate"),
        ("index", "evidence", "reason", "severity", "violated"),
        ("index", "evidence", "reason", "supported"),
        ("index", "evidence", "reason", "use"),
        ("index", "reason", "contexts"),
        ("index", "reason", "correct"),
        ("index", "reason", "grade"),
        ("nugget", "importance"),
        ("precision", "recall", "f1", "tokens", "cut", "weightless"),
        ("reason", "addresses_question", "on_topic", "completeness", "score"),
        ("reason", "training_cutoff", "declines"),
        ("supported_claims", "unsupported_claims", "major_claims_cited", "reason", "score"),
        ("verdicts", "reason", "score"),
    }
)
"""Orders of fields that were hashed as if they were sorted before the order counted: changing one would bill its questions
again. No two of them have the same fields, so that the sorted form still says which order is meant. Nothing is added."""


def _ordered(node: Any) -> Any:
    if isinstance(node, list):
        return [_ordered(item) for item in node]
    if not isinstance(node, dict):
        return node
    ordered = {key: _ordered(value) for key, value in node.items() if key != "properties"}
    if "properties" in node:
        ordered["properties"] = _fields(node["properties"])
    return ordered


def _fields(fields: Any) -> Any:
    if not isinstance(fields, dict):
        return _ordered(fields)
    ordered = {name: _ordered(schema) for name, schema in fields.items()}
    order = tuple(ordered)
    return ordered if order in KNOWN or list(order) == sorted(order) else [[*pair] for pair in ordered.items()]
