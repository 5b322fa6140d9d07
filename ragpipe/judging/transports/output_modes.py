"""The form in which an answer is asked for: json_schema where the provider takes it, else json_object, else plain.

Each answer type goes its own way down: a provider may refuse the schema of one and take those of all others. What was
learnt holds for every later call of the start. None of it is in a question's key: the logical question is the same in
every form.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ragpipe.judging.cache_key import Question
from ragpipe.judging.capabilities import capabilities
from ragpipe.judging.clients.client import AttemptError
from ragpipe.judging.settings import JudgeSettings, OutputMode
from ragpipe.schema.call import Message

_RUNGS: tuple[OutputMode, ...] = ("json_schema", "json_object", "plain")
_ASKED = "\n\nReply with one JSON object that is valid against this JSON schema, and with nothing else:\n"


@dataclass(frozen=True, slots=True)
class RequestForm:
    """How one request is put: its output mode and the name under which the token limit goes."""

    mode: OutputMode
    limit: str


class OutputModeFallback:
    """What one judge was found to take, by answer schema."""

    def __init__(self, settings: JudgeSettings):
        self._settings = settings
        fixed = settings.output_mode
        self._auto = fixed == "auto"
        self._first: OutputMode = capabilities(settings.provider).mode if fixed == "auto" else fixed
        self._rungs: dict[str, OutputMode] = {}  # by schema, where it was refused in the first mode
        self._limit = "max_tokens"
        self._sampling = settings.sampling()
        self._forms: dict[str, dict[str, Any]] = {}  # by schema, whose text has its own order of fields
        self._taken: set[tuple[str, str]] = set()  # schemas and modes with which a call came back
        self._names: set[str] = set()  # parameters with which a call came back

    def shape(self, question: Question) -> RequestForm:
        return RequestForm("plain" if question.answer.form == "text" else self._mode(question), self._limit)

    def _mode(self, question: Question) -> OutputMode:
        return self._rungs.get(question.payload.schema_json, self._first)

    def sent(self, shape: RequestForm) -> dict[str, Any]:
        """The parameters that go over the wire beside the messages."""
        limit = self._settings.max_tokens
        return self._sampling if limit is None else {**self._sampling, shape.limit: limit}

    def body(self, question: Question, shape: RequestForm) -> dict[str, Any]:
        """The request without its model."""
        messages = list(question.payload.messages)
        form: dict[str, Any] = {}
        if question.answer.form == "json":
            schema = question.payload.schema
            if shape.mode == "json_schema":
                form = self._strict(question)
            else:
                messages = _with_schema(messages, schema)
                form = {"response_format": {"type": "json_object"}} if shape.mode == "json_object" else {}
        return {"messages": messages, **self.sent(shape), **form}

    def _strict(self, question: Question) -> dict[str, Any]:
        """The response format of an answer's schema, built once."""
        name = question.payload.schema_json
        form = self._forms.get(name)
        if form is None:
            named = {"name": "answer", "strict": True, "schema": strict_schema(question.payload.schema)}
            form = {"response_format": {"type": "json_schema", "json_schema": named}}
            self._forms[name] = form
        return form

    def passed(self, question: Question, shape: RequestForm) -> None:
        """A call in this shape came back."""
        self._names |= self.sent(shape).keys()
        if question.answer.form == "json":
            self._taken.add((question.payload.schema_json, shape.mode))

    def _blames_a_question(self, fault: AttemptError, question: Question, shape: RequestForm) -> bool:
        """Whether a refusal of what others were answered with can only be about this one request: its text may repeat
        words of the case."""
        if fault.named:
            return False
        if fault.refuses == "response_format":
            return (question.payload.schema_json, shape.mode) in self._taken
        return (shape.limit if fault.refuses == "max_tokens" else fault.refuses) in self._names

    def learn(self, fault: AttemptError, question: Question, shape: RequestForm) -> bool:
        """Whether the question should go again at once, in another shape, because this one was refused."""
        if self._blames_a_question(fault, question, shape):
            return False
        if fault.refuses == "response_format" and self._auto and shape.mode != "plain":
            if self._mode(question) == shape.mode:  # otherwise another call has learnt it already
                self._down(question, shape.mode)
            return True
        if fault.refuses == "max_tokens" and shape.limit == "max_tokens" and self._settings.max_tokens is not None:
            self._limit = "max_completion_tokens"
            return True
        return False

    def _down(self, question: Question, refused: OutputMode) -> None:
        """One rung down for this schema. Where a second one is refused in the first mode, and none was ever taken in it,
        it is the provider that does not know it: the rest begin one rung down."""
        lower = _RUNGS[_RUNGS.index(refused) + 1]
        again = refused == self._first and any(
            _RUNGS.index(mode) > _RUNGS.index(refused) for mode in self._rungs.values()
        )
        self._rungs[question.payload.schema_json] = lower
        if again and not any(mode == refused for _, mode in self._taken):
            self._first = lower

    def fix(self, fault: AttemptError, question: Question, shape: RequestForm) -> str | None:
        """What the user must set when a parameter is refused for good; None when no parameter of ours was."""
        name = fault.refuses
        if name is None or self._blames_a_question(fault, question, shape):
            return None
        if name == "response_format":
            return None if self._auto else "judge.output_mode: auto"
        if name in self._sampling or (name == "max_tokens" and self._settings.max_tokens is not None):
            return f"judge.{name}: null (it is then not sent, and that is part of the judge's identity)"
        return None


def strict_schema(node: Any) -> Any:
    """An answer's schema as strict modes want it: every key required, no others allowed, no defaults."""
    if isinstance(node, list):
        return [strict_schema(item) for item in node]
    if not isinstance(node, dict):
        return node
    found = {
        key: {name: strict_schema(item) for name, item in value.items()}
        if key == "properties"
        else strict_schema(value)
        for key, value in node.items()
        if key != "default"
    }
    if isinstance(node.get("properties"), dict):
        found |= {"required": list(node["properties"]), "additionalProperties": False}
    return found


def _with_schema(messages: list[Message], schema: dict[str, Any]) -> list[Message]:
    """The messages with the schema at the end of the last one, so that their beginnings stay shared."""
    last, text = messages[-1], json.dumps(schema, ensure_ascii=False)  # its order is the order of the reply's keys
    return [*messages[:-1], {**last, "content": last["content"] + _ASKED + text}]
