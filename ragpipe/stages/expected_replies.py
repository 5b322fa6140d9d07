"""How long a judge's reply will be, by the form of its answer and the texts of its question; nobody has asked yet.

A reply is a JSON object, so most of its form is known: keys, numbers, verdicts, and one entry per claim or passage. What is
not known are the texts. Their lengths below are the means over the 583 recorded replies of the demonstration set
(`demo/judge_replies.jsonl`); other judges are terser or more talkative, and their own replies take precedence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ragpipe.prompting.fences import printable_texts
from ragpipe.schema.judge_answers.answer_schema import answer_schema
from ragpipe.schema.judge_answers.answer_type import Answer

WORD_TOKENS = 1
"""Tokens of a reply that is one word."""
_REASON, _ITEM_REASON, _EXPLAINED_BY_QUOTE = 44, 20, 12
_CLAIM, _QUOTE, _SHORT_TEXT = 14, 16, 3
_CLAIMS_PER_SENTENCE = 1.3
_LISTS = ("claims", "statements", "pairs", "nuggets", "contexts", "passages", "sources", "chunks")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


def expected_tokens(answer: type[Answer], values: Mapping[str, Any]) -> float:
    """Tokens of the reply to a question with these values."""
    return WORD_TOKENS if answer.form == "text" else _object_tokens(answer, *_items(values))


@lru_cache(maxsize=1024)
def _object_tokens(answer: type[Answer], listed: float, found: float) -> float:
    schema = answer_schema(answer)
    return _Form(schema, (listed, found)).tokens(schema, "", in_list=False)


def _items(values: Mapping[str, Any]) -> tuple[float, float]:
    """How many entries a list of verdicts has, and how many a list of claims that the judge finds itself."""
    listed = next((len(values[name]) for name in _LISTS if isinstance(values.get(name), list | tuple)), 1)
    texts = [text for name in ("answer", "text", "response", "reference") for text in printable_texts(values.get(name))]
    sentences = sum(1 for part in _SENTENCE.split(texts[0] if texts else "") if any(c.isalpha() for c in part))
    return float(listed), max(1.0, _CLAIMS_PER_SENTENCE * sentences)


class _Form:
    """Adds up the tokens of a value of a JSON schema."""

    def __init__(self, root: Mapping[str, Any], items: tuple[float, float]):
        self._root, (self._listed, self._found) = root, items

    def tokens(self, schema: Mapping[str, Any], name: str, *, in_list: bool) -> float:
        if "$ref" in schema:
            return self.tokens(self._root["$defs"][schema["$ref"].rsplit("/", 1)[1]], name, in_list=in_list)
        if "anyOf" in schema:
            return self.tokens(schema["anyOf"][0], name, in_list=in_list)
        if "enum" in schema or "const" in schema:
            return 3
        kind = schema.get("type")
        if kind == "object":
            parts = schema.get("properties", {})
            quoted = "evidence" in parts and _is_list(parts["evidence"])
            return 2 + sum(3 + self._part(value, part, in_list=in_list, quoted=quoted) for part, value in parts.items())
        if kind == "array":
            return 2 + self._count(name, in_list=in_list) * (
                2 + self.tokens(schema.get("items", {"type": "string"}), name, in_list=True)
            )
        return _text_tokens(name, in_list=in_list) if kind == "string" else 1

    def _part(self, schema: Mapping[str, Any], name: str, *, in_list: bool, quoted: bool) -> float:
        if name == "reason" and quoted and in_list:
            return _EXPLAINED_BY_QUOTE
        return self.tokens(schema, name, in_list=in_list)

    def _count(self, name: str, *, in_list: bool) -> float:
        if in_list:
            return 1  # quotes of an entry
        if name.endswith("claims"):
            share = 0.5 if name != "claims" else 1.0  # supported and unsupported claims share the claims
            return share * self._found
        return self._listed


def _is_list(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "array"


def _text_tokens(name: str, *, in_list: bool) -> float:
    if name in ("reason", "reasoning", "explanation"):
        return _ITEM_REASON if in_list else _REASON
    if "claim" in name or "question" in name or "nugget" in name:
        return _CLAIM
    return _QUOTE if name in ("evidence", "quote", "span") else _SHORT_TEXT
