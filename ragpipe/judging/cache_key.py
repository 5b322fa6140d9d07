"""A question on its way to a transport, and the key under which its reply is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ragpipe.core.digest import sha256
from ragpipe.schema.call import Payload
from ragpipe.schema.judge_answers.answers import Answer


@dataclass(frozen=True)
class Question:
    """One payload for one judge, and the type its reply will be read as.

    `key` names the logical question in the call store and `fields` are the hashes of its parts. `judge` is the judge's
    printable name, `asker` is `case / metric / step`: both stand in messages only. `iteration` is the one in which it is
    asked: that of the key, but for a vector, whose key all iterations share.
    """

    key: str
    payload: Payload
    answer: type[Answer]
    judge: str
    fields: dict[str, str]
    asker: str
    iteration: int = 1

    @property
    def step(self) -> str:
        """The metric and the step that ask, without the case."""
        return " / ".join(self.asker.rsplit(" / ", 2)[-2:])


def judge_parts(judge: Mapping[str, Any]) -> dict[str, str]:
    """Hashes of everything that identifies a judge, field by field."""
    return {f"judge.{name}": sha256(value) for name, value in judge.items()}


def key_parts(payload: Payload, judge: Mapping[str, str], iteration: int, repeat: int) -> dict[str, str]:
    """Hashes of everything that makes a question another question; comparing two says why one was asked again.

    `judge` are its `judge_parts`.

    Messages before any transport touches them, the bare answer schema, what identifies the judge (model, endpoint,
    sampling parameters, season), the iteration and the repeat. Not in it: max_tokens, output mode, client, retries,
    timeouts, prices, template files and comments, names of metrics and classes.
    """
    return {**payload.parts, **judge, "iteration": _number(iteration), "repeat": _number(repeat)}


@lru_cache(maxsize=64)
def _number(value: int) -> str:
    return sha256(value)


def question_key(parts: Mapping[str, str]) -> str:
    """The name of a question in the call store: the sha256 over the hashes of its parts."""
    return sha256(dict(parts))
