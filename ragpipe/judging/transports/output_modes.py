"""The form of a request: json_schema where the provider takes it, else json_object, else plain; with or without a system
message; the token limit under its older or newer name.

Each answer schema falls back on its own: a provider may refuse one schema and take all others. What is learned applies to
every later call of the process. It is not in a question's key: the question is the same in every form.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ragpipe.judging.cache_key import Question
from ragpipe.judging.capabilities import OutputMode
from ragpipe.judging.clients.client import AttemptError
from ragpipe.judging.settings import JudgeSettings
from ragpipe.schema.call import Message

_SCHEMA_REQUEST = "\n\nReply with one JSON object that is valid against this JSON schema, and with nothing else:\n"


@dataclass(frozen=True, slots=True)
class RequestForm:
    """The output mode of one request, the name of its token limit (`max_tokens`, `max_completion_tokens`), and whether it
    has a system message: without one, its text begins the first message of the user."""

    mode: OutputMode
    limit_name: str
    system_role: bool = True


class OutputModeFallback:
    """Which output modes and parameters one judge's provider takes, by answer schema."""

    def __init__(self, settings: JudgeSettings):
        self._settings = settings
        supported, fixed = settings.supported, settings.output_mode
        self._auto = fixed == "auto"
        self._modes: tuple[OutputMode, ...] = supported.modes if fixed == "auto" else (fixed,)
        self._first = self._modes[0]
        self._lowered: dict[str, OutputMode] = {}  # by schema, where the first mode was refused
        self._limit_name: str = supported.limit_name
        self._system_role = supported.system_role
        self._sampling = settings.sampling()
        self._strict_formats: dict[str, dict[str, Any]] = {}  # by schema text: the order of its fields matters
        self._accepted_modes: set[tuple[str, str]] = set()  # (schema, mode) of calls that came back
        self._accepted_parameters: set[str] = set()  # of calls that came back

    def form(self, question: Question) -> RequestForm:
        """The form in which this question is asked next."""
        mode = "plain" if question.answer.form == "text" else self._mode(question)
        return RequestForm(mode, self._limit_name, self._system_role)

    def unproven(self, question: Question) -> str:
        """What the first call of a question's kind proves: its answer form, and its schema where that may be refused."""
        form = question.answer.form
        return question.payload.schema_json if form == "json" and len(self._modes) > 1 else form

    def _mode(self, question: Question) -> OutputMode:
        return self._lowered.get(question.payload.schema_json, self._first)

    def parameters(self, form: RequestForm) -> dict[str, Any]:
        """The parameters that are sent with the messages."""
        limit = self._settings.max_tokens
        return self._sampling if limit is None else {**self._sampling, form.limit_name: limit}

    def body(self, question: Question, form: RequestForm) -> dict[str, Any]:
        """The request body without the model's name."""
        messages = list(question.payload.messages)
        if not form.system_role:
            messages = _without_system(messages)
        response_format: dict[str, Any] = {}
        if question.answer.form == "json":
            if form.mode == "json_schema":
                response_format = self._strict_format(question)
            else:
                messages = _with_schema(messages, question.payload.schema)
                response_format = {"response_format": {"type": "json_object"}} if form.mode == "json_object" else {}
        return {"messages": messages, **self.parameters(form), **response_format}

    def _strict_format(self, question: Question) -> dict[str, Any]:
        """The response format of an answer's schema, built once."""
        schema_json = question.payload.schema_json
        response_format = self._strict_formats.get(schema_json)
        if response_format is None:
            named_schema = {"name": "answer", "strict": True, "schema": strict_schema(question.payload.schema)}
            response_format = {"response_format": {"type": "json_schema", "json_schema": named_schema}}
            self._strict_formats[schema_json] = response_format
        return response_format

    def record_success(self, question: Question, form: RequestForm) -> None:
        """A call in this form came back."""
        self._accepted_parameters |= self.parameters(form).keys()
        if form.system_role:
            self._accepted_parameters.add("system_role")
        if question.answer.form == "json":
            self._accepted_modes.add((question.payload.schema_json, form.mode))

    def _is_about_the_question(self, error: AttemptError, question: Question, form: RequestForm) -> bool:
        """Whether a parameter is refused that other requests were answered with."""
        if error.names_parameter:
            return False
        if error.refused_parameter == "response_format":
            return (question.payload.schema_json, form.mode) in self._accepted_modes
        name = form.limit_name if error.refused_parameter == "max_tokens" else error.refused_parameter
        return name in self._accepted_parameters

    def fall_back(self, error: AttemptError, question: Question, form: RequestForm) -> bool:
        """Learn from a refusal. Whether the question should be sent again at once, in another form."""
        if self._is_about_the_question(error, question, form):
            return False
        if error.refused_parameter == "system_role" and form.system_role:
            self._system_role = False
            return True
        if error.refused_parameter == "response_format" and self._auto and form.mode != self._modes[-1]:
            if self._mode(question) == form.mode:  # otherwise another call has learned it already
                self._lower(question, form.mode)
            return True
        limited = self._settings.max_tokens is not None
        if error.refused_parameter == "max_tokens" and form.limit_name == "max_tokens" and limited:
            self._limit_name = "max_completion_tokens"
            return True
        return False

    def _lower(self, question: Question, refused: OutputMode) -> None:
        """Use the next mode for this schema."""
        place = self._modes.index(refused)
        lower = self._modes[place + 1]
        second_refusal = refused == self._first and any(
            self._modes.index(mode) > place for mode in self._lowered.values()
        )
        self._lowered[question.payload.schema_json] = lower
        if second_refusal and not any(mode == refused for _, mode in self._accepted_modes):
            self._first = lower

    def fix(self, error: AttemptError, question: Question, form: RequestForm) -> str | None:
        """The setting that the user must change when a parameter is refused for good; None when none of ours was."""
        name = error.refused_parameter
        if name is None or self._is_about_the_question(error, question, form):
            return None
        if name == "response_format":
            return None if self._auto else "judge.output_mode: auto"
        if name in self._sampling or (name == "max_tokens" and self._settings.max_tokens is not None):
            return f"judge.{name}: null (it is then not sent, and that is part of the judge's identity)"
        return None


def _without_system(messages: list[Message]) -> list[Message]:
    """The messages with the text of a system message at the beginning of the next one."""
    if len(messages) < 2 or messages[0]["role"] != "system":
        return messages
    system, first, *others = messages
    return [{**first, "content": system["content"] + "\n\n" + first["content"]}, *others]


def strict_schema(node: Any) -> Any:
    """An answer's schema as strict modes want it: every key required, no others allowed, no defaults."""
    if isinstance(node, list):
        return [strict_schema(item) for item in node]
    if not isinstance(node, dict):
        return node
    strict = {
        key: {name: strict_schema(item) for name, item in value.items()}
        if key == "properties"
        else strict_schema(value)
        for key, value in node.items()
        if key != "default"
    }
    if isinstance(node.get("properties"), dict):
        strict |= {"required": list(node["properties"]), "additionalProperties": False}
    return strict


def _with_schema(messages: list[Message], schema: dict[str, Any]) -> list[Message]:
    """The messages with the schema at the end of the last one, so that requests share their beginnings."""
    last = messages[-1]
    return [*messages[:-1], {**last, "content": last["content"] + schema_request(schema)}]


def schema_request(schema: dict[str, Any]) -> str:
    """The end of the last message where the schema is not sent beside the messages."""
    return _SCHEMA_REQUEST + json.dumps(schema, ensure_ascii=False)  # its order is the order of the reply's keys
