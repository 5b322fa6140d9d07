"""What a metric would ask, without a judge: its own `measure` runs over likely replies, and every question is recorded."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar, cast, get_args

import numpy as np

from ragpipe.core.errors import RUN_ENDING, JudgeError, PromptError, PromptTooLong, RagpipeError, Skipped, decisive_error
from ragpipe.core.fences import printable_texts
from ragpipe.core.sample import Case
from ragpipe.judge.answer_type import Answer, answer_schema
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.vectors import Floats, TokenMatch
from ragpipe.metrics.base import Metric

A = TypeVar("A", bound=Answer)
T = TypeVar("T")

MOST_QUESTIONS = 200
"""Questions about one case after which a metric is stopped: no likely reply satisfies it."""
_VECTOR: Floats = np.ones(2, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Asked:
    """One question of a metric: its template, the type of the reply, the values of the template, and how large a likely reply is."""

    prompt: Prompt
    answer: type[Answer]
    values: Mapping[str, Any]
    size: ReplySize


class _TooMany(BaseException):
    """Ends a metric that asks without end, also one that catches every `Exception`."""


@dataclass(slots=True)
class RecordingJudge:
    """A judge for one metric and one case (`ragpipe.judge.question.Judge`) that answers at once, so that the metric asks on: with a
    verdict on every item, in order, and as many claims as the text makes. Raises RagpipeError for an answer type whose own checks take
    none of these.

    `record` is told of each question, and may raise PromptTooLong. `yes` is what it says where YES or NO is asked for. `texts`
    are those for an embedder or an encoder, `count` the questions so far, `unforeseen` why there may be more than these.
    """

    record: Callable[[Asked], None]
    yes: bool = False
    count: int = 0
    texts: set[str] = field(default_factory=set)
    unforeseen: str = ""
    _of_tasks: dict[Any, int] = field(default_factory=dict)
    _steps: set[str] = field(default_factory=set)

    @property
    def rounds(self) -> int:
        """How many of the questions wait for each other, at most: those of one task of `measure`, and those of different steps."""
        return max(len(self._steps), *self._of_tasks.values()) if self._of_tasks else 0

    async def __call__(self, prompt: Prompt, answer: type[A], /, **values: Any) -> A:
        if self.count >= MOST_QUESTIONS:
            raise _TooMany(f"after {MOST_QUESTIONS} questions about a case it asks on, whatever the reply")
        self.count += 1
        task = asyncio.current_task()
        self._of_tasks[task] = self._of_tasks.get(task, 0) + 1
        self._steps.add(prompt.step)
        size = reply_size(answer, values, prompt)
        try:
            self.record(Asked(prompt, answer, values, size))
        except PromptTooLong as error:
            raise JudgeError("too_long", str(error)) from error
        return cast(A, _word(answer, "YES" if self.yes else "NO") if answer.form == "text" else _built(answer, size))

    async def embed(self, texts: Sequence[str], /) -> list[Floats]:
        self.texts.update(texts)
        return [_VECTOR] * len(texts)

    def was_truncated(self, text: str, /) -> bool:
        return False

    async def match(self, encoder: Any, candidate: str, reference: str, /, *, idf: bool = False) -> TokenMatch:
        self.texts.update((candidate, reference))
        return TokenMatch(precision=0.9, recall=0.9, f1=0.9, tokens=[1, 1], cut=[])

    async def run(self, metric: Metric, case: Case) -> None:
        """Let the metric measure the case. Raises only what ends a run; another error is `unforeseen`."""
        try:
            await metric.measure(case, self)
        except _TooMany as error:
            self.unforeseen = str(error)
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            decisive = decisive_error(error) if isinstance(error, Exception) else error
            if isinstance(decisive, (*RUN_ENDING, PromptError)):
                raise decisive from None
            if not isinstance(decisive, Skipped | JudgeError):
                self.unforeseen = f"it raises {type(decisive).__name__}: {decisive}"


def questions_of(metric: Metric, case: Case) -> list[Asked]:
    """What a metric asks about a case that it applies to, over likely replies, in order."""
    asked: list[Asked] = []
    run_in_place(RecordingJudge(asked.append).run(metric, case))
    return asked


def run_in_place(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end on an event loop of its own; inside a running one (a notebook) in a second thread."""
    try:
        running: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is None:
        return _run(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(copy_context().run, _run, work).result()


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Not `asyncio.run`: it would hold an interrupt back until a metric waits for something."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        if left := asyncio.all_tasks(loop):  # those that a metric did not wait for
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.wait(left))
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


Schema = Mapping[str, Any]

_REASON, _ITEM_REASON, _EXPLAINED_BY_QUOTE = 44, 18, 12
_CLAIM, _QUOTE, _SHORT_TEXT = 14, 16, 3
_CLAIMS_PER_SENTENCE = 1.3
_LISTS = ("claims", "statements", "pairs", "nuggets", "contexts", "passages", "sources", "chunks")
_FOUND = ("claims", "statements", "nuggets", "facts")
"""Lists that a judge finds in a text: so many entries as the text makes claims."""
_TEXTS = ("answer", "text", "response", "reference")
_QUOTES = ("evidence", "quote", "span")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_FILLER = "The text says so in one of its parts. " * 8


@dataclass(frozen=True, slots=True)
class ReplySize:
    """What the size of a reply follows from: the numbers of the items that the question asks about, the texts of which the judge
    finds claims, and how many questions it is to write."""

    numbers: tuple[int, ...]
    sentences: tuple[str, ...] = ()
    wanted: int = 1

    @property
    def found(self) -> float:
        """How many claims a judge finds."""
        return max(1.0, _CLAIMS_PER_SENTENCE * len(self.sentences))


_ONE = ReplySize((1,))


def reply_size(answer: type[Answer], values: Mapping[str, Any], prompt: Prompt | None = None) -> ReplySize:
    """The size of the reply to a question with these values."""
    if answer.form == "text":
        return _ONE
    role = _numbered_role(answer)
    named = [name for name, of in prompt.roles.items() if of == role] if prompt is not None and role else []
    items = _items((*named, *_LISTS, *values), values)
    numbers = values["numbers"] if role == "sources" and "numbers" in values else range(1, len(items) + 1)
    wanted = values.get("n")
    return ReplySize(tuple(numbers), _sentences(values) if _is_found(answer) else (), wanted if isinstance(wanted, int) else 1)


def expected_tokens(answer: type[Answer], size: ReplySize) -> float:
    """Tokens of a reply of this size."""
    return 1 if answer.form == "text" else _object_tokens(answer, float(len(size.numbers)), size.found)  # 1: a word


def _items(names: Sequence[str], values: Mapping[str, Any]) -> Sequence[Any]:
    """The first of these values that is a list: its items are asked about. One where nothing is a list."""
    for name in names:
        items = values.get(name)
        if isinstance(items, list | tuple):
            return items
    return (None,)


def _sentences(values: Mapping[str, Any]) -> tuple[str, ...]:
    return _split(next((text for name in _TEXTS for text in printable_texts(values.get(name))), ""))


@lru_cache(maxsize=64)
def _split(text: str) -> tuple[str, ...]:
    return tuple(part for part in _SENTENCE.split(text) if any(c.isalpha() for c in part))


def _claims(sentences: tuple[str, ...]) -> tuple[str, ...]:
    """Texts like the claims of a text: its sentences, each once, and some of them again with another end."""
    texts = list(dict.fromkeys(part.strip() for part in sentences)) or [_FILLER[:56]]
    more = round(_CLAIMS_PER_SENTENCE * len(texts)) - len(texts)
    return (*texts, *(f"{text} Also." for text in texts[:more]))


@lru_cache(maxsize=256)
def _numbered_role(answer: type[Answer]) -> str | None:
    """What the entries of an answer number, where they have an `index` that says so."""
    parts = [part for part_of in answer.model_fields.values() for part in get_args(part_of.annotation)]
    types = [part for part in parts if isinstance(part, type) and issubclass(part, Answer)]
    return next((part.numbered_items["index"] for part in types if "index" in part.numbered_items), None)


@lru_cache(maxsize=256)
def _is_found(answer: type[Answer]) -> bool:
    """Whether a judge finds the entries of a list of this answer itself."""
    return any(name.endswith(_FOUND) for name in answer_schema(answer).get("properties", ()))


@lru_cache(maxsize=64)
def _word(answer: type[Answer], word: str) -> Answer:
    for text in (word, "4", "3", "1", _FILLER[:40]):
        try:
            return answer.from_text(text)
        except ValueError:
            continue
    raise _none_is_valid(answer)


@lru_cache(maxsize=1024)
def _built(answer: type[Answer], size: ReplySize) -> Answer:
    try:
        return answer.model_validate(_Instance(size).value(answer_schema(answer)))
    except ValueError as error:
        raise _none_is_valid(answer) from error


def _none_is_valid(answer: type[Answer]) -> RagpipeError:
    return RagpipeError(f"no made-up reply is a valid {answer.__name__}")


class _Instance:
    """Makes a value of a JSON schema."""

    def __init__(self, size: ReplySize):
        self._numbers, self._texts, self._wanted = size.numbers, _claims(size.sentences), size.wanted

    def value(self, schema: Schema, name: str = "", place: int | None = None) -> Any:
        """The value of a field, in the entry at this place of a list."""
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return schema["enum"][0]
        if "anyOf" in schema:
            return self.value(schema["anyOf"][0], name, place)
        kind = schema.get("type")
        if kind == "object":
            return {part: self.value(of, part, place) for part, of in schema.get("properties", {}).items()}
        if kind == "array":
            return self._list(schema, name, place)
        if kind == "boolean":
            return name != "correct"  # a wrong claim is asked about again
        if kind in ("integer", "number"):
            return self._number(schema, name, place, step=schema.get("multipleOf", 1 if kind == "integer" else 0.5))
        return self._text(schema, name, place) if kind == "string" else None

    def _list(self, schema: Schema, name: str, place: int | None) -> list[Any]:
        entries = schema.get("items", {"type": "string"})
        if name.endswith(_FOUND):
            count = 0 if name.startswith("un") else len(self._texts)
        elif place is not None or name in _QUOTES:  # no quote: each would be looked for in the contexts
            count = int(entries.get("type") != "string")
        elif entries.get("type") == "string" and "enum" not in entries:
            count = self._wanted
        else:
            count = len(self._numbers)
        count = min(max(count, schema.get("minItems", 0)), schema.get("maxItems", count))
        return [self.value(entries, name if entries.get("type") == "string" else "", entry) for entry in range(count)]

    def _number(self, schema: Schema, name: str, place: int | None, step: float) -> float:
        if name == "index" and place is not None and place < len(self._numbers):
            return self._numbers[place]
        low = schema.get("minimum", schema.get("exclusiveMinimum", 1 - step) + step)
        high: float = schema.get("maximum", schema.get("exclusiveMaximum", low + step) - step)
        return high

    def _text(self, schema: Schema, name: str, place: int | None) -> str:
        if f"{name.removesuffix('s')}s".endswith(_FOUND) and place is not None and place < len(self._texts):
            return self._texts[place]
        text = "" if name in _QUOTES else _FILLER[: round(4 * _text_tokens(name, in_list=place is not None))]
        text += f" {place + 1}" if place is not None and text else ""
        return text[: schema.get("maxLength", len(text))].ljust(schema.get("minLength", 0), ".")


@lru_cache(maxsize=1024)
def _object_tokens(answer: type[Answer], listed: float, found: float) -> float:
    """Adds up the tokens of a value of the answer's JSON schema."""

    def tokens(schema: Schema, name: str = "", *, in_list: bool = False) -> float:
        if "anyOf" in schema:
            return tokens(schema["anyOf"][0], name, in_list=in_list)
        if "enum" in schema or "const" in schema:
            return 3
        kind = schema.get("type")
        if kind == "object":
            parts = schema.get("properties", {})
            quoted = in_list and parts.get("evidence", {}).get("type") == "array"
            return 2 + sum(
                3 + (_EXPLAINED_BY_QUOTE if part == "reason" and quoted else tokens(value, part, in_list=in_list))
                for part, value in parts.items()
            )
        if kind == "array":
            share = 0.5 if "_" in name else 1.0  # supported and unsupported claims share the claims
            count = 1.0 if in_list else share * found if name.endswith(_FOUND) else listed  # in a list: its quotes
            return 2 + count * (2 + tokens(schema.get("items", {"type": "string"}), name, in_list=True))
        return _text_tokens(name, in_list=in_list) if kind == "string" else 1

    return tokens(answer_schema(answer))


def _text_tokens(name: str, *, in_list: bool) -> int:
    if name in ("reason", "reasoning", "explanation"):
        return _ITEM_REASON if in_list else _REASON
    if "claim" in name or "question" in name or "nugget" in name:
        return _CLAIM
    return _QUOTE if name in _QUOTES else _SHORT_TEXT
