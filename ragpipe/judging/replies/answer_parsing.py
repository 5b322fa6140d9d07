"""From the text of a reply to a typed answer, strictly.

A reply is one JSON object, perhaps in a code fence or inside prose, or the answer's documented plain-text form. Only its
final part is read (`final_text`), and nothing is guessed: NaN, infinities, duplicate keys, two different objects or scores, a
missing key or a number out of range make the reply unparsable. So does JSON that is copied from the texts under test
(`echoed_json`). As a last resort json-repair fixes a malformed object, which is then flagged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ragpipe.judging.replies.echoed_json import is_echo
from ragpipe.judging.replies.final_text import final_part, without_turn_tokens
from ragpipe.judging.replies.reply_json import MAX_CHARACTERS, ReplyObject, Unparsable, find_object
from ragpipe.judging.replies.second_values import second_value
from ragpipe.schema.judge_answers.answer_type import Answer

__all__ = ["PARSER", "Unparsable", "read_answer"]

PARSER = 4
"""Version of the parser; part of a run's identity. It is raised whenever the same reply would be parsed differently: stored
replies are then parsed again in a new run, without a call."""

A = TypeVar("A", bound=Answer)

_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_FENCED = re.compile(r"\A```[\w-]*[ \t]*\r?\n(.*?)(?:\r?\n?```)?\Z", re.S)
_ECHO = (
    "the JSON in the reply also occurs in the material that is judged: give a verdict of your own, with the "
    "reasons in your own words"
)


def read_answer(text: str, answer: type[A], material: Iterable[str] = ()) -> tuple[A, tuple[str, ...]]:
    """The answer in a reply, and flags.

    Flags: `json_repaired`, `text_form` (a JSON type that came as text), `json_form` (a text type that came as JSON),
    `thinking_removed`, `echoed`, `characters_replaced` (an escaped lone surrogate, which no file could store).

    `material` are the texts under test that the question showed (`Prompt.material`). A reply whose JSON occurs in one of
    them is an echo, not a verdict. Raises Unparsable. A text type is instead parsed from an empty text where the reply is
    an echo or never gets past its thinking.
    """
    if len(text) > MAX_CHARACTERS:
        raise Unparsable(f"the reply has {len(text):,} characters; more than {MAX_CHARACTERS:,} are not read")
    complete = text.lstrip("\ufeff")
    try:
        text = final_part(complete)
    except Unparsable:
        if answer.form != "text":
            raise
        text = ""
    flags = () if text == complete else ("thinking_removed",)
    text = without_turn_tokens(text).strip().lstrip("\ufeff")
    parse = _text_answer if answer.form == "text" else _json_answer
    parsed, more_flags = parse(text, answer, material)
    return parsed, (*flags, *more_flags)


def _json_answer(text: str, answer: type[A], material: Iterable[str]) -> tuple[A, tuple[str, ...]]:
    reply = find_object(text)
    if reply is None:
        return _other_form(text, answer), ("text_form",)
    if is_echo(reply, material):
        raise Unparsable(_ECHO)
    value, flags = reply.value, reply.flags
    if _ESCAPED_SURROGATE.search(text) and (clean := _without_surrogates(value)) != value:
        value, flags = clean, (*flags, "characters_replaced")
    try:
        parsed = answer.model_validate(value)
    except ValidationError as error:
        raise Unparsable(_describe(error, value)) from error
    if contradiction := second_value(parsed, value, reply.prose):
        raise Unparsable(contradiction)
    return parsed, flags


def _text_answer(text: str, answer: type[A], material: Iterable[str]) -> tuple[A, tuple[str, ...]]:
    text = _unfenced(text)
    reply = _object_in(text)
    parsed = answer.from_object(reply.value, reply.prose) if reply else None
    if reply is None or parsed is None:
        return _from_text(reply.prose if reply else text, answer), ()  # a word that is a key of an object is no verdict
    if is_echo(reply, material):
        return _from_text("", answer), ("echoed",)
    return parsed, ("json_form",)


def _object_in(text: str) -> ReplyObject | None:
    """The only JSON object of a plain text; None for none or several, since prose may contain braces."""
    try:
        return find_object(text) if "{" in text else None
    except Unparsable:
        return None


def _unfenced(text: str) -> str:
    fenced = _FENCED.match(text)
    return fenced[1] if fenced else text


def _without_surrogates(value: Any) -> Any:
    """The value with U+FFFD for each lone surrogate in its texts."""
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    return _SURROGATE.sub("\ufffd", value) if isinstance(value, str) else value


def _from_text(text: str, answer: type[A]) -> A:
    try:
        return answer.from_text(text)
    except ValidationError as error:
        raise Unparsable(_describe(error, {})) from error
    except (ValueError, OverflowError) as error:
        raise Unparsable(str(error)) from error


def _other_form(text: str, answer: type[A]) -> A:
    """The text form of a JSON type, for a reply without an object."""
    try:
        return answer.from_text(_unfenced(text))
    except (ValueError, OverflowError) as error:
        reason = _describe(error, {}) if isinstance(error, ValidationError) else str(error)
        raise Unparsable(f"the reply holds no JSON object ({reason}): {text[:80]!r}") from error


def _describe(error: ValidationError, value: Any) -> str:
    """The problems of an answer, by key, in one line."""
    return "; ".join(_describe_problem(problem, value) for problem in error.errors(include_url=False)[:5])


def _describe_problem(problem: ErrorDetails, value: Any) -> str:
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"]).lstrip(".")
    if problem["type"] == "missing":
        parent = _at(value, problem["loc"][:-1])
        keys = f", found the keys {sorted(parent)[:12]}" if isinstance(parent, dict) else ""
        return f"the key `{where}` is missing{keys}"
    message = problem["msg"].removeprefix("Value error, ")
    return f"`{where}`: {message}" + ("" if "found" in message else f", found {repr(problem['input'])[:80]}")


def _at(value: Any, path: tuple[int | str, ...]) -> Any:
    for part in path:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return None
    return value
