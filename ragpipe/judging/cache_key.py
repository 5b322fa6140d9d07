"""A question for a judge, and the key under which its reply is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ragpipe.core.digest import sha256
from ragpipe.schema.call import Payload
from ragpipe.schema.judge_answers.answer_type import Answer


@dataclass(frozen=True)
class Question:
    """One payload for one judge, and the type that its reply is parsed into.

    `key` identifies the question in the call store; `fields` are the hashes of its parts. `judge` (the printable name) and
    `asker` (`case / metric / step`) are for messages only. `iteration` is the one that asks: that of the key, except for vectors and token matches, whose keys all iterations share.
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
        """The metric and the step, without the case."""
        return " / ".join(self.asker.rsplit(" / ", 2)[-2:])


def judge_parts(judge: Mapping[str, Any]) -> dict[str, str]:
    """The hash of each field that identifies a judge, but for `shuffle_seed`: it shows in the messages of the questions that it
    changes, and a question with nothing to shuffle stays the same."""
    return {f"judge.{name}": sha256(value) for name, value in judge.items() if name != "shuffle_seed"}


def key_parts(payload: Payload, judge: Mapping[str, str], iteration: int, repeat: int) -> dict[str, str]:
    """The hash of each part of a question. Comparing the parts of two questions shows why one was asked again.

    In the key: the messages before any transport changes them, the answer schema, what identifies the judge (model,
    endpoint, sampling parameters, season; as `judge_parts`), the iteration and the repeat. Not in it: max_tokens, output
    mode, client, retries, timeouts, prices, template files and comments, names of metrics and classes.
    """
    return {**payload.parts, **judge, "iteration": _number(iteration), "repeat": _number(repeat)}


@lru_cache(maxsize=64)
def _number(value: int) -> str:
    return sha256(value)


def question_key(parts: Mapping[str, str]) -> str:
    """The key of a question: the sha256 of the hashes of its parts."""
    return sha256(dict(parts))
