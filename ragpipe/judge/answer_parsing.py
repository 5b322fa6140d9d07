"""From the text of a reply to a typed answer, strictly.

A reply is one JSON object, perhaps in a code fence or inside prose, or the answer's documented plain-text form. Only its
final part is read (`final_text`), and nothing is guessed: NaN, infinities, duplicate keys, two different objects or scores, a
missing key or a number out of range make the reply unparsable. So does JSON that is copied from the texts under test
(`echoed_json`). As a last resort json-repair fixes a malformed object, which is then flagged.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ragpipe.core.text_forms import other_grades, stated_words
from ragpipe.judge.answer_type import Answer
from ragpipe.judge.reply_json import MAX_CHARACTERS, MAX_GROUPS, ReplyObject, Unparsable, find_object, object_end, objects_in

__all__ = ["PARSER", "Unparsable", "read_answer"]

PARSER = 5
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
    if "<|" in text or "</s>" in text:  # the tokens that begin and end a turn: `<|im_start|>assistant`, `<|im_end|>`, `</s>`
        text = _TURN_END.sub("", _TURN_BEGIN.sub("", text))
    text = text.strip().lstrip("\ufeff")
    parse = _text_answer if answer.form == "text" else _json_answer
    parsed, more_flags = parse(text, answer, material)
    return parsed, (*flags, *more_flags)


def _json_answer(text: str, answer: type[A], material: Iterable[str]) -> tuple[A, tuple[str, ...]]:
    text = _unfenced(text)
    reply = find_object(text, _list_key(answer))
    if reply is None:
        try:
            return _from_text(text, answer), ("text_form",)
        except Unparsable as error:
            raise Unparsable(f"the reply holds no JSON object ({error}): {text[:80]!r}") from error
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


def _list_key(answer: type[Answer]) -> str | None:
    """The only key of an answer, where it holds a list."""
    [(name, field), *others] = answer.model_fields.items() or [("", None)]
    return name if field and not others and get_origin(field.annotation) is list else None


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


def _describe(error: ValidationError, value: Any) -> str:
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


_NAMES = r"(?:(?:\w{1,12}:|ant)?think(?:ing)?|thoughts?|reason(?:ing)?|reflection|scratchpad|analysis|inner_monologue)"
_OPENED = (
    rf"<{_NAMES}(?:\s[^<>]{{0,80}})?>|\[THINK\]|\u25c1think\u25b7|<\|(?:begin_of_|start_)(?:thinking|thought|reasoning)\|>"
)
_CLOSED = rf"</{_NAMES}>|\[/THINK\]|\u25c1/think\u25b7|<\|end_(?:of_)?(?:thinking|thought|reasoning)\|>"
_STEM = re.compile("think|thought|reason|reflection|scratchpad|analysis|monologue", re.I)
_CHANNEL = r"<\|channel\|>\s*(?P<channel>\w*)[^\S\n]*(?:<\|constrain\|>\s*\w*\s*)?(?:<\|message\|>)?"
_TAG = re.compile(rf"{_OPENED}|{_CLOSED}|{_CHANNEL}", re.I)
_HINTS = ("<", "\u25c1", "THINK]", "think]", "Think]")  # one of them is in every tag; most replies have none
_MARK = re.compile(rf"(?P<brace>\{{)|(?P<opened>{_OPENED})|(?P<closed>{_CLOSED})|{_CHANNEL}", re.I)
_OBJECT = re.compile(r'\{\s*"')
_CLOSING = re.compile(_CLOSED, re.I)
_MESSAGE_END = re.compile(r"<\|(?:end|return|call|start)\|>")
_STRIPPED_ANALYSIS = re.compile(r"\s*(?:analysis|commentary)(?=[A-Z])")
_STRIPPED_FINAL = "assistantfinal"
_TURN_BEGIN = re.compile(r"\A(?:\s*<\|\w{1,40}\|>(?:assistant\b)?)+")
_TURN_END = re.compile(r"(?:<\|\w{1,40}\|>|</s>|\s)+\Z")
_NO_FINAL = "the reply breaks off inside its thoughts: it holds no final answer"


def final_part(text: str) -> str:
    """The reply without thinking and drafts; the text itself where it has none.

    Closed thinking is removed. A closing tag without an opening one ends thinking that was opened in the prompt. Of several
    channels the last one counts, and it must be the final one. Tags inside a JSON object belong to its texts. Raises
    Unparsable for a reply that breaks off inside its thinking, and for a tag or channel after the start of an unclosed
    object: it may be part of the object's texts.
    """
    if any(hint in text for hint in _HINTS) and _TAG.search(text):
        return _Scanner(text).final_part()
    return _after_stripped_channels(text) if _STRIPPED_ANALYSIS.match(text) else text


def _after_stripped_channels(text: str) -> str:
    """The final channel of a reply in the harmony format whose special tokens were stripped."""
    _, *final = text.split(_STRIPPED_FINAL)
    if len(final) > 1:
        raise Unparsable("the reply holds two final channels in its thoughts: give exactly one")
    if not final:
        raise Unparsable(_NO_FINAL)
    return final[0]


class _Scanner:
    """Walks through the tags and objects of a text, and keeps what is outside of thinking."""

    def __init__(self, text: str):
        self._text = text
        self._kept: list[str] = []
        self._start = 0  # of the part that is not kept yet
        self._position = 0
        self._objects = 0
        self._channel = ""
        self._in_unclosed_object = False

    def final_part(self) -> str:
        while mark := _MARK.search(self._text, self._position):
            self._position = mark.end()
            if mark["brace"]:
                self._skip_object(mark.start())
            elif mark["opened"]:
                self._skip_thinking(mark.start())
            else:  # the end of thinking that was opened in the prompt, or the beginning of a channel
                if self._in_unclosed_object and self._channel in ("", "final"):
                    what = "the end of thoughts" if mark["closed"] else "a channel"
                    raise Unparsable(f"{what} inside a JSON object that has no end: it may be part of its texts")
                self._in_unclosed_object = False
                self._channel = self._channel if mark["closed"] else mark["channel"].lower()
                self._kept, self._start, self._in_unclosed_object = [], self._position, False
        text = "".join([*self._kept, self._text[self._start :]])
        if self._channel not in ("", "final"):
            raise Unparsable(f"the reply breaks off inside its thoughts (channel {self._channel!r}): it holds no final answer")
        return _MESSAGE_END.split(text, maxsplit=1)[0] if self._channel else text

    def _skip_object(self, start: int) -> None:
        self._objects += 1
        if self._objects > MAX_GROUPS:
            return
        end = object_end(self._text, start)
        if end is None and _OBJECT.match(self._text, start):
            self._in_unclosed_object = True
        self._position = end or self._position

    def _skip_thinking(self, start: int) -> None:
        if self._in_unclosed_object:
            raise Unparsable("thoughts inside a JSON object that has no end: what was said cannot be told from them")
        stem = _stem(self._text[start : self._position])
        closing = next((c for c in _CLOSING.finditer(self._text, self._position) if _stem(c[0]) == stem), None)
        if closing is None:  # the end of another tag inside is not the end of this one
            raise Unparsable(_NO_FINAL)
        self._kept.append(self._text[self._start : start])
        self._start = self._position = closing.end()


def _stem(tag: str) -> str:
    """What a tag is about, in whatever spelling: `<thinking>` is closed by `</think>`."""
    stem = _STEM.search(tag)
    return stem[0].lower() if stem else ""


_QUOTES = re.compile("['`\u00b4\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f]")
_TRAILING_COMMA = re.compile(r",(?=[}\]])")
_DECIMAL = re.compile(r"[+-]?[0-9]{1,9}(?:\.[0-9]{1,9})?")


def is_echo(reply: ReplyObject, material: Iterable[str]) -> bool:
    """Whether the object of a reply occurs in a text of the material.

    Both the values are compared (whatever the order of keys, line breaks, Unicode forms and quotes around numbers) and the
    text, which finds malformed and quoted copies (`{'score': 5}`, `{\\"score\\": 5}`). An object with other reasons is
    another object.
    """
    keys = () if reply.text.lstrip().startswith("[") else reply.value  # a list that came alone has lost its key
    suspects = [text for text in material if ("{" if keys else "[") in text and all(key in text for key in keys)]
    if not suspects:
        return False
    value = _comparable(reply.value)
    spellings = {_bare(reply.text), _bare(json.dumps(reply.value, ensure_ascii=False))}
    for text in suspects:
        bare = _bare(text)
        if any(_comparable(item) == value for item in objects_in(text)) or any(said in bare for said in spellings):
            return True
    return False


def _bare(text: str) -> str:
    text = "".join(unicodedata.normalize("NFKC", text).split()).replace("\\", "")
    return _TRAILING_COMMA.sub("", _QUOTES.sub('"', text))


def _comparable(value: Any) -> Any:
    if isinstance(value, dict):
        return {_comparable_text(key): _comparable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_comparable(item) for item in value]
    if isinstance(value, str):
        text = _comparable_text(value)
        return float(text) if _DECIMAL.fullmatch(text) else text
    return value


def _comparable_text(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).split())


_LATER = re.compile(r"(?:final|revised|corrected|adjusted|updated|edited|actual|new)[_ -]?", re.I)


def second_value(answer: Answer, value: Mapping[str, Any], prose: str) -> str | None:
    """What contradicts the score or the class of an answer, as a message; None where nothing does.

    `value` is the object that the answer was read from, `prose` the text around it. Another value counts under the same
    key in other letters (`Score`), under a later one (`final_score`, `revised_verdict`), and in prose as a line or a plain
    statement (`Score: 3`, `the score should be 2`, `Verdict: WRONG`). A text that only mentions a number or a class is no
    second value. Classes are the top-level fields that take one of several words.
    """
    score = getattr(answer, "score", None)
    if isinstance(score, int | float):
        if grades := other_grades(prose, score):
            return f"the reply holds two different scores, {score:g} in its JSON and {grades[0]:g} beside it"
        if name := _other_key(value, "score"):
            return f"the reply holds two different scores, under the keys `score` and `{name}`"
    for field, words in _classes(type(answer)).items():
        chosen = getattr(answer, field)
        others = [word for word in stated_words(prose, words) if word != chosen]
        if others:
            return f"the reply holds two different verdicts, {chosen} in its JSON and {others[0]} beside it"
        if name := _other_key(value, field):
            return f"the reply holds two different verdicts, under the keys `{field}` and `{name}`"
    return None


def _other_key(value: Mapping[str, Any], name: str) -> str | None:
    """A key that gives the field `name` once more, with another value."""
    first = value.get(name)
    for key, item in value.items():
        is_like = key != name and _LATER.sub("", key.strip(), count=1).casefold() == name
        if is_like and item is not None and item != first and str(item) != str(first):
            return key
    return None


@lru_cache(maxsize=64)
def _classes(answer: type[Answer]) -> dict[str, tuple[str, ...]]:
    annotations = {name: field.annotation for name, field in answer.model_fields.items()}
    return {name: get_args(kind) for name, kind in annotations.items() if get_origin(kind) is Literal}
