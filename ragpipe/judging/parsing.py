"""From the text of a reply to a typed answer, strictly.

The reply is one JSON object, perhaps in a code fence or between prose, or the answer's documented plain-text form. What
stands in it is never guessed: NaN, infinities, duplicate keys, two different objects, a missing key or a number out of
range make the reply unparsable. A malformed object is mended by json-repair last, and flagged.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

from pydantic import ValidationError

from ragpipe.judging.strict_json import MAX_CHARACTERS, Unparsable, find_object, loads
from ragpipe.schema.answers import Answer

__all__ = ["Unparsable", "read_answer"]

A = TypeVar("A", bound=Answer)

_ESCAPED = re.compile(r"\\u[dD][89a-fA-F]")
_HALF = re.compile("[\ud800-\udfff]")
_FENCED = re.compile(r"\A```[\w-]*[ \t]*\n(.*?)(?:\n?```)?\Z", re.S)
_THINKING = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>", re.S)
_OPENED = re.compile(r"<think(?:ing)?>")
_CLOSED = re.compile(r"</think(?:ing)?>")


def read_answer(text: str, answer: type[A]) -> tuple[A, tuple[str, ...]]:
    """The answer in a reply, and flags: `json_repaired`, `text_form` (a JSON type that came as text), `thinking_removed`,
    `characters_replaced` (half a character, written as an escape, which no file could hold).

    Raises Unparsable.
    """
    if len(text) > MAX_CHARACTERS:
        raise Unparsable(f"the reply has {len(text):,} characters; more than {MAX_CHARACTERS:,} are not read")
    whole = text.lstrip("\ufeff")
    text = _without_thinking(whole)
    flags = () if text == whole else ("thinking_removed",)
    text = text.strip().lstrip("\ufeff")
    if answer.form == "text":
        return _from_text(text, answer), flags
    found, how = find_object(text)
    if found is None:
        return _other_form(text, answer), (*flags, "text_form")
    if _ESCAPED.search(text) and (clean := _whole(found)) != found:
        found, how = clean, (*how, "characters_replaced")
    try:
        return answer.model_validate(found), (*flags, *how)
    except ValidationError as error:
        raise Unparsable(_told(error, found)) from error


def _without_thinking(text: str) -> str:
    """What follows the thoughts at the beginning of a reply.

    Where the chat template opens them in the prompt, only their closing tag is in the reply. A tag inside an object that
    is the whole reply is part of its texts.
    """
    thought = _THINKING.match(text)
    if thought:
        text = text[thought.end() :]
    opened, start = _OPENED.search(text), text.lstrip()
    closed = list(_CLOSED.finditer(text, 0, opened.start() if opened else len(text)))
    if not closed or (start.startswith("{") and _is_object(start)):
        return text
    return text[closed[-1].end() :]


def _is_object(text: str) -> bool:
    try:
        return isinstance(loads(text), dict)
    except (ValueError, RecursionError):
        return False


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
    fenced = _FENCED.match(text)
    try:
        return answer.from_text(fenced[1] if fenced else text)
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
