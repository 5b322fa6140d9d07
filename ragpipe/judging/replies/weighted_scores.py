"""Grades weighted by the probabilities of their tokens: with `judge.weighted_scores`, 4.24 where the judge wrote 4.

A judge that writes 4 may have hesitated between 4 and 5. Where a provider says how probable the digits were, the mean over them
tells more than the digit that was drawn: it has no ties, and moves less from one run to the next (Liu et al., 2023, G-Eval,
arXiv:2303.16634, section 2.1). Only whole grades with one digit have such a mean.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeVar

from ragpipe.judging.replies.reply_json import Unparsable, find_object
from ragpipe.schema.judge_answers.answer_type import Answer
from ragpipe.schema.reply_flags import UNWEIGHTED, WEIGHTED

A = TypeVar("A", bound=Answer)
Path = tuple[str, ...]

ENOUGH = 0.9
"""The grades of the scale must have at least this probability together, else what was seen is too small a part of it."""
_OTHER_TEXT = frozenset({"json_repaired", "text_form", "thinking_removed", "characters_replaced"})
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+', re.S)
_HIGHEST = 9


@lru_cache(maxsize=256)
def integer_scales(schema: str) -> Mapping[Path, tuple[int, int]]:
    """The lowest and the highest grade of each whole grade of an answer, by the path of its field.

    `schema` is the JSON schema of the answer, as text (`Payload.schema_json`). A grade is whole, has bounds, and one digit. Grades in
    lists are left out: the passages of a ranking are counted by them.
    """
    return dict(_scales(json.loads(schema), ()))


def _scales(schema: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, tuple[int, int]]]:
    for name, field in schema.get("properties", {}).items():
        if field.get("type") == "object":
            yield from _scales(field, (*path, name))
        elif (
            field.get("type") == "integer"
            and 0 <= field.get("minimum", -1) < field.get("maximum", math.inf) <= _HIGHEST
        ):
            yield (*path, name), (field["minimum"], field["maximum"])


def weighted(
    answer: A, schema: str, text: str, tokens: str | None, read_with: tuple[str, ...]
) -> tuple[A, tuple[str, ...]]:
    """The answer with the mean over the probabilities in place of each whole grade, and a flag.

    Args:
        answer: as it was read from the text.
        schema: the JSON schema that was asked for, as text.
        text: the reply.
        tokens: the probabilities of its digits (`digit_tokens`); None where the provider gave none.
        read_with: the flags of the reading.

    The mean is the sum of grade x probability over the grades of the scale, divided by the sum of their probabilities, so it is
    on the scale. A grade stays as it was written, and the reply is flagged `not_weighted`, where the provider gave no probabilities for it,
    where the grades of the scale have less than `ENOUGH` of it together, and where the text had to be changed to be read, so that
    places in it mean nothing. An answer without whole grades is given as it is, without a flag.
    """
    scales = integer_scales(schema)
    if not scales:
        return answer, ()
    shares = {} if _OTHER_TEXT & set(read_with) else grade_probabilities(schema, text, tokens)
    means: dict[Path, float] = {}
    for path, grades in shares.items():
        mass = sum(grades.values())
        if mass >= ENOUGH and _at(answer, path) in grades:
            means[path] = sum(grade * p for grade, p in grades.items()) / mass
    for path, mean in means.items():
        answer = _with(answer, path, mean)
    return answer, (WEIGHTED if len(means) == len(scales) else UNWEIGHTED,)


def grade_probabilities(schema: str, text: str, tokens: str | None) -> dict[Path, dict[int, float]]:
    """For each whole grade of an answer, by the path of its field, how probable the grades of its scale were at its place in the reply;
    without the grades for which that is not known."""
    distributions = dict(json.loads(tokens)) if tokens else {}
    places = number_places(text) if distributions else {}
    return {
        path: {int(digit): p for digit, p in distributions[places[path]].items() if low <= int(digit) <= high}
        for path, (low, high) in integer_scales(schema).items()
        if places.get(path) in distributions
    }


def number_places(text: str) -> dict[Path, int]:
    """The places of the numbers in the only JSON object of a reply, by the path of their keys: the characters of `text` before the
    first digit. Empty for a reply without such an object. Numbers in lists are left out."""
    reply = None
    with suppress(Unparsable):
        reply = find_object(text)
    if reply is None or reply.flags:
        return {}
    start = text.rfind(reply.text)
    places: dict[Path, int] = {}
    _note(_TOKEN.finditer(text, start, start + len(reply.text)), (), places)
    return places


def _note(tokens: Iterator[re.Match[str]], path: Path, places: dict[Path, int] | None) -> str:
    """Note the places in the value that comes next, None: pass over it. Returns its first token."""
    first = next(tokens)
    if first[0] == "{":
        for name in tokens:
            if name[0] == "}":
                break
            if name[0] != ",":
                next(tokens)  # the colon
                _note(tokens, (*path, json.loads(name[0], strict=False)), places)
    elif first[0] == "[":
        while _note(tokens, path, None) != "]":
            pass
    elif places is not None and (digit := re.search("[0-9]", first[0])):
        places[path] = first.start() + digit.start()
    return first[0]


def _at(answer: Answer, path: Path) -> Any:
    for name in path:
        answer = getattr(answer, name)
    return answer


def _with(answer: A, path: Path, value: float) -> A:
    """A copy with another value at a path."""
    name, *rest = path
    inner = _with(getattr(answer, name), tuple(rest), value) if rest else value
    return answer.model_copy(update={name: inner})
