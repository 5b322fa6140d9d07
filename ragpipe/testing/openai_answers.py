"""What the test server answers: a valid instance of the schema that was asked for, a pure function of the question.

It reads the question as a dutiful judge would: claims are the sentences of the answer between the fences, verdicts come
one per item, quotes are taken from the first fenced text, grades stay in their range. The "judgement" itself is a draw
from a generator seeded by the question's hash.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from typing import Any

_FENCE = re.compile(r"<([0-9a-f]{12})>(?P<space>[\n ])(?P<text>.*?)(?P=space)</\1>", re.S)
_HEADING = re.compile(r"^[A-Z][\w ]*:$", re.M)
_BRACKETED = re.compile(r"^\[(\d{1,4})\]$", re.M)
_ITEM = re.compile(r"^[ \t]*(?:[-*][ \t]*)?[\[(]?(\d{1,3})[\]).:](?!\d)", re.M)


def question_hash(messages: Any) -> str:
    """sha256 of the messages alone: equal whichever client or parameters sent them."""
    return hashlib.sha256(json.dumps(messages, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def answer_schema_of(body: dict[str, Any]) -> dict[str, Any] | None:
    """The answer schema: from `response_format`, or the last JSON schema in the messages; None for a text answer."""
    form = body.get("response_format")
    if isinstance(form, dict) and form.get("type") == "json_schema":
        schema: dict[str, Any] = form["json_schema"]["schema"]
        return schema
    for message in reversed(body.get("messages") or []):
        text = _FENCE.sub("", str(message.get("content") or ""))
        decoder, place, last_schema = json.JSONDecoder(), 0, None
        while (place := text.find("{", place)) >= 0:
            try:
                value, place = decoder.raw_decode(text, place)
            except ValueError:
                place += 1
                continue
            if isinstance(value, dict) and value.get("type") == "object" and isinstance(value.get("properties"), dict):
                last_schema = value
        if last_schema is not None:
            return last_schema
    return None


def chat_reply(body: dict[str, Any]) -> str:
    """The reply to a chat completion request."""
    messages = body.get("messages") or []
    draw = random.Random(question_hash(messages))
    user = next((str(m.get("content") or "") for m in reversed(messages) if m.get("role") == "user"), "")
    schema = answer_schema_of(body)
    if schema is not None:
        return json.dumps(_Instance(draw, user, schema).value(schema), ensure_ascii=False)
    words = _FENCE.sub("", "\n".join(str(m.get("content") or "") for m in messages))
    if re.search(r"\bYES\b", words) and re.search(r"\bNO\b", words):
        return draw.choice(["YES", "NO"])
    if re.search(r"\b(score|grade|rate|rating)\b", words, re.I):
        return f"{draw.choice(['3', '3.5', '4', '4.5', '5'])}\nThe answer says what the reference says."
    return "This is the answer of the test server."


class _Instance:
    def __init__(self, draw: random.Random, user: str, root: dict[str, Any]):
        self.draw, self.root = draw, root
        self.fenced = [match["text"] for match in _FENCE.finditer(user)]
        self.outside = _FENCE.sub("\n\x00\n", user)

    def value(self, schema: dict[str, Any], name: str = "", index: int = 0) -> Any:
        if "$ref" in schema:
            return self.value(self.root["$defs"][schema["$ref"].rsplit("/", 1)[1]], name, index)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self.draw.choice(schema["enum"])
        if "anyOf" in schema:
            return self.value(schema["anyOf"][0], name, index)
        kind = schema.get("type")
        if kind == "object":
            return {k: self.value(v, k, index) for k, v in schema.get("properties", {}).items()}
        if kind == "array":
            return self._array(schema, name)
        if kind in ("integer", "number"):
            return index if name in ("index", "id", "number") and index else self._number(schema, kind)
        if kind == "boolean":
            return self.draw.random() < 0.8
        return self._text(name)

    def _array(self, schema: dict[str, Any], name: str) -> list[Any]:
        items = schema.get("items", {"type": "string"})
        if "claim" in items.get("properties", {}):
            return [self.value(items, "", i) | {"claim": claim} for i, claim in enumerate(self._last_sentences(), 1)]
        if items.get("type") == "string" and "enum" not in items:
            sentences = self._last_sentences()
            if name.startswith("unsupported"):
                return sentences[:1] if self.draw.random() < 0.2 else []
            return sentences
        return [self.value(items, "", i) for i in self._numbers()]

    def _numbers(self) -> list[int]:
        """The numbers of the items: those in brackets under the first heading where the question asks for these, else from 1."""
        if "as in its brackets" in self.outside:
            return [int(number) for number in _BRACKETED.findall(_HEADING.split(self.outside)[1])]
        return list(range(1, max(1, self._asked()) + 1))

    def _asked(self) -> int:
        """How many items the question asks about: the longest list 1, 2, 3 ... outside the fences, or a fenced JSON list."""
        for text in reversed(self.fenced):
            try:
                value = json.loads(text)
            except ValueError:
                continue
            if isinstance(value, list):
                return len(value)
        last = run = 0
        for item in _ITEM.finditer(self.outside):
            number = int(item[1])
            run = number if number == run + 1 else (1 if number == 1 else 0)
            if run:
                last = run
        return last

    def _number(self, schema: dict[str, Any], kind: str) -> float | int:
        low: float = schema.get("minimum", schema.get("ge", 0))
        high: float = schema.get("maximum", schema.get("le", low + 4))
        if kind == "integer":
            return self.draw.randint(int(low), int(high))
        return low + self.draw.randint(0, int((high - low) * 2)) / 2

    def _text(self, name: str) -> str:
        if name in ("evidence", "quote", "span") and self.fenced:
            return self.draw.choice(self._sentences(self.fenced[0]))
        return "by the test server"

    def _last_sentences(self) -> list[str]:
        return self._sentences(self.fenced[-1] if self.fenced else "Nothing was said.")

    @staticmethod
    def _sentences(text: str) -> list[str]:
        sentences = [s.strip() for s in re.split(r"(?<=[.!?])\s+", text) if s.strip()]
        return sentences[:20] or [text[:200]]
