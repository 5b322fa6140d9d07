"""A second score or verdict beside the one that was read: in another key of the object, or in the prose around it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, get_args, get_origin

from ragpipe.schema.judge_answers.answer_type import Answer
from ragpipe.schema.text_forms import other_grades, stated_words

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
        is_other = key != name and item is not None and item != first and str(item) != str(first)
        if is_other and _LATER.sub("", key.strip(), count=1).casefold() == name:
            return key
    return None


@lru_cache(maxsize=64)
def _classes(answer: type[Answer]) -> dict[str, tuple[str, ...]]:
    """The fields of an answer that take one of several words."""
    annotations = {name: field.annotation for name, field in answer.model_fields.items()}
    return {name: get_args(kind) for name, kind in annotations.items() if get_origin(kind) is Literal}
