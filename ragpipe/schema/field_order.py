"""The hash of an answer's schema, with the order of its fields.

A judge that is held to a schema writes its fields in order, so that the same fields in another order are another question.
Canonical JSON sorts keys. Fields whose order it keeps (alphabetical ones), and those of `KNOWN`, are hashed in its form;
all others as a list of [name, schema] pairs.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from ragpipe.core.digest import sha256

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


def schema_text(schema: dict[str, Any]) -> str:
    """The schema as JSON, its keys in their own order. Raises ValueError and TypeError for what is no plain JSON."""
    return json.dumps(schema, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


@lru_cache(maxsize=256)  # a run has a handful of schemas, and questions by the thousand
def schema_hash(text: str) -> str:
    """Hex sha256 of a schema given as its `schema_text`: another one for another order of the fields of an object."""
    return sha256(_ordered(json.loads(text)))


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
