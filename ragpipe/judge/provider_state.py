"""What this process has learned about each provider. All iterations share it, so nothing is paid for twice."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ragpipe.core.call import Call, Message
from ragpipe.core.digest import sha256
from ragpipe.judge.answer_type import without_defaults
from ragpipe.judge.attempts import CircuitBreaker, ServerState
from ragpipe.judge.capabilities import LOCAL, OutputMode, is_pinned
from ragpipe.judge.client import AttemptError
from ragpipe.judge.limits import RateLimiter, TokenDemand, limit_rules
from ragpipe.judge.pricing import count_tokens, how_counted
from ragpipe.judge.question import Question
from ragpipe.judge.settings import JudgeSettings

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
                last = messages[-1]["content"] + schema_request(question.payload.schema)
                messages[-1] = {**messages[-1], "content": last}  # at the end, so that requests share their beginnings
                response_format = {"response_format": {"type": "json_object"}} if form.mode == "json_object" else {}
        return {"messages": messages, **self.parameters(form), **response_format}

    def _strict_format(self, question: Question) -> dict[str, Any]:
        """The response format of an answer's schema, built once."""
        schema_json = question.payload.schema_json
        response_format = self._strict_formats.get(schema_json)
        if response_format is None:
            named_schema = {"name": "answer", "strict": True, "schema": without_defaults(question.payload.schema, strict=True)}
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
        place = self._modes.index(refused)
        lower = self._modes[place + 1]
        second_refusal = refused == self._first and any(self._modes.index(mode) > place for mode in self._lowered.values())
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
    if len(messages) < 2 or messages[0]["role"] != "system":
        return messages
    system, first, *others = messages
    return [{**first, "content": system["content"] + "\n\n" + first["content"]}, *others]


def schema_request(schema: dict[str, Any]) -> str:
    """The end of the last message where the schema is not sent beside the messages."""
    return _SCHEMA_REQUEST + json.dumps(schema, ensure_ascii=False)  # its order is the order of the reply's keys


_TOKENS_PER_MESSAGE = 8  # what a chat template adds
_MARGIN = 1.2  # where our count is an estimate


def context_excess(settings: JudgeSettings, messages: Sequence[Message]) -> str | None:
    """Why these messages do not fit into the window of the judge, in words; None where they do, and where no window is given."""
    window, reply = settings.supported.context_tokens, settings.max_tokens or 0
    if window is None:
        return None
    overhead = _TOKENS_PER_MESSAGE * len(messages)
    if sum(len(m["content"].encode("utf-8", "replace")) for m in messages) + overhead <= window - reply:
        return None  # no tokenizer makes more tokens than there are bytes
    margin = _MARGIN if how_counted(settings.model).startswith("estimated") else 1.0
    needed = round(count_tokens("\n".join(m["content"] for m in messages), settings.model) * margin) + overhead
    if needed <= window - reply:
        return None
    return (
        f"about {needed:,} tokens by our own count and {reply:,} for the reply (judge.max_tokens) do not fit into the "
        f"model's context window of {window:,} (judge.capabilities.context_tokens); it was not sent"
    )


@dataclass(slots=True, kw_only=True)
class ProviderState(ServerState):
    """What is known about one provider under one set of settings.

    `asked` counts questions. `proven_forms` are the answer schemas and forms that a call came back in
    (`OutputModeFallback.unproven`); until then one question goes alone. `responded`: any HTTP response came.
    `announced` are the schemas and modes that the user was told are refused. `rate_limiter` is that of the
    server and key, which several settings may share.
    """

    token_demand: TokenDemand
    output_modes: OutputModeFallback
    asked: int = 0
    proven_forms: set[str] = field(default_factory=set)
    responded: bool = False
    circuit_breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    announced: set[tuple[str, str]] = field(default_factory=set)


class ProviderRegistry:
    """The states of all providers that a start of a run asks. `answered_before`: an earlier start was answered."""

    def __init__(self) -> None:
        self.answered_before = False
        self._states: dict[str, ProviderState] = {}
        self._limits: dict[tuple[str, ...], RateLimiter] = {}

    def state(self, settings: JudgeSettings) -> ProviderState:
        """The state under these settings; a new one where there is none yet."""
        name = f"{settings.section} {settings.model_dump_json()}"
        limiter = self._limiter_of(settings)
        if name not in self._states:
            demand = TokenDemand(limiter.rules.counts, settings.max_tokens)
            self._states[name] = ProviderState(
                limiter, answered_before=self.answered_before, token_demand=demand, output_modes=OutputModeFallback(settings)
            )
        return self._states[name]

    def _limiter_of(self, settings: JudgeSettings) -> RateLimiter:
        """The limits of a server under one key, and of one model where each has its own there."""
        rules = limit_rules(settings.provider, own_address=settings.api_base is not None)
        server = (settings.api_base or settings.provider, sha256(settings.api_key()))
        account = (*server, settings.name) if rules.is_per_model else server
        known = self._limits.setdefault(account, RateLimiter(rules=rules))
        known.configure(settings.rpm, settings.tpm)
        return known


Kind = Literal["asked", "dated", "other", "unknown"]
OTHER, DATED = "other_model", "dated_model"
"""Flags of a reply in `judge_inputs.parquet`."""
_FLAGS: dict[Kind, tuple[str, ...]] = {"other": (OTHER,), "dated": (DATED,)}

_DATE = re.compile(r"[-@:_](20\d\d-?\d\d-?\d\d|\d\d-\d\d|\d{3,4}|sha256[:-]?[0-9a-f]+|[0-9a-f]{7,64})(-preview)?")


class ServedModel:
    """Which models may answer for one judge, by its settings."""

    def __init__(self, settings: JudgeSettings):
        self._provider = settings.provider.lower()
        name = self._bare(settings.name)
        self._asked = {name, name.partition("/")[2] or name}
        self._aliases = {self._bare(alias) for alias in settings.served_as}
        public = settings.api_base is None and settings.provider not in LOCAL
        option = settings.served_model
        self.refuses = option == "refuse" if option else public and is_pinned(settings.name)
        """Whether a reply of another model ends the run, and counts as missing in the store."""

    def kind(self, model: str | None) -> Kind:
        """`asked`: the requested model or one of `served_as`. `dated`: a dated version of a requested name without a date.
        `unknown`: the reply names no model. `other`: any other."""
        if not model:
            return "unknown"
        name = self._bare(model)
        if name in self._asked or name in self._aliases:
            return "asked"
        for asked in self._asked:
            if name.startswith(asked) and not is_pinned(asked) and _DATE.fullmatch(name[len(asked) :]):
                return "dated"
        return "other"

    def flags(self, call: Call) -> tuple[str, ...]:
        """The flags of a reply."""
        if call.status != "ok" or not call.attempts:
            return ()
        return _FLAGS.get(self.kind(call.model), ())

    def refuse(self, call: Call) -> bool:
        """Whether a stored reply may not be used for this judge."""
        return self.refuses and OTHER in self.flags(call)

    def _bare(self, name: str) -> str:
        """A name without the prefixes and suffixes that providers add."""
        bare = name.strip().lower().removeprefix("models/").removeprefix(f"{self._provider}/")
        return bare.removesuffix(":latest")
