"""From the text of a reply to a typed answer, strictly.

The reply is one JSON object, perhaps in a code fence or between prose, or the answer's documented plain-text form. Only
its final part is read (`ragpipe.judging.replies.final_text`), and nothing in it is guessed: NaN, infinities, duplicate keys, two
different objects or scores, a missing key or a number out of range make the reply unparsable, and so does JSON that is
copied from the texts under test (`ragpipe.judging.replies.echoed_json`). A malformed object is fixed by json-repair last, and flagged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TypeVar

from pydantic import ValidationError

from ragpipe.judging.replies.echoed_json import is_echo
from ragpipe.judging.replies.final_text import final_part
from ragpipe.judging.replies.reply_json import MAX_CHARACTERS, ReplyObject, Unparsable, find_object
from ragpipe.schema.judge_answers.answers import Answer
from ragpipe.schema.text_forms import other_grades

__all__ = ["PARSER", "Unparsable", "read_answer"]

PARSER = 3
"""Part of a run's identity. Raised whenever the same raw reply would be read otherwise: stored replies are then read again
in a run of their own, without a call."""

A = TypeVar("A", bound=Answer)

_ESCAPED = re.compile(r"\\u[dD][89a-fA-F]")
_HALF = re.compile("[\ud800-\udfff]")
_FENCED = re.compile(r"\A```[\w-]*[ \t]*\n(.*?)(?:\n?```)?\Z", re.S)
_ECHO = (
    "the JSON in the reply also occurs in the material that is judged: give a verdict of your own, with the "
    "reasons in your own words"
)


def read_answer(text: str, answer: type[A], material: Iterable[str] = ()) -> tuple[A, tuple[str, ...]]:
    """The answer in a reply, and flags: `json_repaired`, `text_form` (a JSON type that came as text), `json_form` (a text
    type that came as JSON), `thinking_removed`, `echoed`, `characters_replaced` (half a character, written as an escape,
    which no file could hold).

    `material` are the texts under test that the question showed (`Prompt.material`). A reply whose JSON occurs in one of
    them is an echo, not a verdict. Raises Unparsable; a text type is instead read from an empty text where the reply is
    an echo or never leaves its thoughts.
    """
    if len(text) > MAX_CHARACTERS:
        raise Unparsable(f"the reply has {len(text):,} characters; more than {MAX_CHARACTERS:,} are not read")
    whole = text.lstrip("\ufeff")
    try:
        text = final_part(whole)
    except Unparsable:
        if answer.form != "text":
            raise
        text = ""
    flags = () if text == whole else ("thinking_removed",)
    text = text.strip().lstrip("\ufeff")
    read = _text_answer if answer.form == "text" else _json_answer
    typed, more_flags = read(text, answer, material)
    return typed, (*flags, *more_flags)


def _json_answer(text: str, answer: type[A], material: Iterable[str]) -> tuple[A, tuple[str, ...]]:
    reply = find_object(text)
    if reply is None:
        return _other_form(text, answer), ("text_form",)
    if is_echo(reply, material):
        raise Unparsable(_ECHO)
    value, flags = reply.value, reply.flags
    if _ESCAPED.search(text) and (clean := _whole(value)) != value:
        value, flags = clean, (*flags, "characters_replaced")
    try:
        typed = answer.model_validate(value)
    except ValidationError as error:
        raise Unparsable(_told(error, value)) from error
    score = getattr(typed, "score", None)
    if isinstance(score, int | float) and (grades := other_grades(reply.prose, score)):
        raise Unparsable(f"the reply holds two different scores, {score:g} in its JSON and {grades[0]:g} beside it")
    return typed, flags


def _text_answer(text: str, answer: type[A], material: Iterable[str]) -> tuple[A, tuple[str, ...]]:
    text = _unfenced(text)
    reply = _object_in(text)
    typed = answer.from_object(reply.value, reply.prose) if reply else None
    if reply is None or typed is None:
        return _from_text(text, answer), ()
    if is_echo(reply, material):
        return _from_text("", answer), ("echoed",)
    return typed, ("json_form",)


def _object_in(text: str) -> ReplyObject | None:
    """The one JSON object of a plain text; None for several: braces in prose are no fault there."""
    try:
        return find_object(text) if "{" in text else None
    except Unparsable:
        return None


def _unfenced(text: str) -> str:
    fenced = _FENCED.match(text)
    return fenced[1] if fenced else text


def _whole(value: Any) -> Any:
    """The value with U+FFFD for each lone surrogate in its texts, as where a reply holds one outright."""
    if isinstance(value, dict):
        return {_whole(key): _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return _HALF.sub("\ufffd", value) if isinstance(value, str) else value


def _from_text(text: str, answer: type[A]) -> A:
    try:
        return answer.from_text(text)
    except ValidationError as error:
        raise Unparsable(_told(error, {})) from error
    except (ValueError, OverflowError) as error:
        raise Unparsable(str(error)) from error


def _other_form(text: str, answer: type[A]) -> A:
    """The text form of a JSON type, for a reply without an object."""
    try:
        return answer.from_text(_unfenced(text))
    except (ValueError, OverflowError) as error:
        why = _told(error, {}) if isinstance(error, ValidationError) else str(error)
        raise Unparsable(f"the reply holds no JSON object ({why}): {text[:80]!r}") from error


def _told(error: ValidationError, found: Any) -> str:
    """The faults of an answer, by key, in one line."""
    told = []
    for fault in error.errors(include_url=False)[:5]:
        where = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in fault["loc"]).lstrip(".")
        if fault["type"] == "missing":
            there = _at(found, fault["loc"][:-1])
            keys = f", found the keys {sorted(there)[:12]}" if isinstance(there, dict) else ""
            told.append(f"the key `{where}` is missing{keys}")
        else:
            shown = repr(fault["input"])
            message = fault["msg"].removeprefix("Value error, ")
            told.append(f"`{where}`: {message}" + ("" if "found" in message else f", found {shown[:80]}"))
    return "; ".join(told)


def _at(value: Any, path: tuple[int | str, ...]) -> Any:
    for part in path:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return None
    return value
