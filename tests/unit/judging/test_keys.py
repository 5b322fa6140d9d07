"""The key of a question: what is in it, what is not, and golden values that must never change by accident."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from ragpipe.judging.cache_key import judge_parts, key_parts, question_key
from ragpipe.judging.settings import JudgeSettings
from ragpipe.schema.call import Payload
from ragpipe.schema.judge_answers.all_answers import ANSWER_TYPES
from ragpipe.schema.judge_answers.answer_schema import answer_schema
from ragpipe.schema.judge_answers.answer_type import Answer, Number
from ragpipe.schema.judge_answers.claim_answers import Claims, Verdicts
from ragpipe.schema.judge_answers.grade_answers import TwoAxes, YesNo

GOLDEN_PAYLOADS = {
    "claims": "cdcc930ac6bb9536",
    "verdicts": "7e4ceb5db88b7e69",
    "two_axes": "77e6eb368938634b",
    "yes_no": "10129dd667adc042",
}
MESSAGES = ({"role": "system", "content": "Judge."}, {"role": "user", "content": "Is it?\nZürich"})


def key(
    answer: type[Answer] = Claims, iteration: int = 1, repeat: int = 1, messages: Any = MESSAGES, **judge: Any
) -> str:
    settings = JudgeSettings(**{"model": "openai/gpt-4o-mini-2024-07-18", **judge})
    return question_key(
        key_parts(
            Payload(messages, answer_schema(answer)), judge_parts(settings.identity_of_judge()), iteration, repeat
        )
    )


def _sha(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def test_the_key_is_the_hash_of_the_hashes_of_its_parts() -> None:
    parts = {
        "messages": _sha(list(MESSAGES)),
        "schema": _sha({"type": "object", "properties": {"claims": {"type": "array", "items": {"type": "string"}}}, "required": ["claims"]}),
        "judge.model": hashlib.sha256(b"openai/gpt-4o-mini-2024-07-18").hexdigest(),
        "judge.endpoint": hashlib.sha256(b"").hexdigest(),
        "judge.sampling": _sha({"temperature": 0.0}),
        "judge.season": hashlib.sha256(b"").hexdigest(),
        "iteration": _sha(1),
        "repeat": _sha(1),
    }  # fmt: skip
    assert key() == _sha(parts)


@pytest.mark.parametrize(
    "edit",
    [
        {"iteration": 2}, {"repeat": 2}, {"answer": YesNo}, {"season": "s2"}, {"temperature": 0.5}, {"seed": 1}, {"top_p": 0.5},
        {"model": "openai/gpt-4o-2024-08-06"}, {"endpoint": "mine", "api_base": "http://127.0.0.1:1/v1"},
        {"messages": (MESSAGES[0], {"role": "user", "content": "Is it? Zürich"})},
    ],
)  # fmt: skip
def test_another_question(edit: dict[str, Any]) -> None:
    assert key(**edit) != key()


@pytest.mark.parametrize(
    "edit",
    [
        {"max_tokens": 99}, {"concurrency": 3}, {"retries": 0}, {"timeout_s": 5.0}, {"rpm": 10.0}, {"client": "litellm"},
        {"output_mode": "plain"}, {"max_calls": 5}, {"api_key_env": "MY_KEY"}, {"allow_unpinned": True},
        {"prices": {"input": 1.0, "output": 1.0}}, {"retry_after_cap_s": 1.0},
    ],
)  # fmt: skip
def test_the_same_question(edit: dict[str, Any]) -> None:
    assert key(**edit) == key()


def test_a_named_endpoint_outlives_its_address() -> None:
    moved = [key(api_base=f"http://127.0.0.1:{port}/v1", endpoint="lab") for port in (8000, 9000)]
    assert moved[0] == moved[1]
    assert key(api_base="http://127.0.0.1:8000/v1") != key(api_base="http://127.0.0.1:9000/v1")


def test_names_and_docstrings_of_answer_types_are_not_in_the_key() -> None:
    class Other(Answer):
        """Another name, another docstring."""

        claims: list[str]

    assert key(Other) == key(Claims)


def test_a_field_more_is_in_the_key() -> None:
    class More(Answer):
        claims: list[str]
        confidence: Number

    assert key(More) != key(Claims)


def test_no_answer_schema_holds_a_title_a_description_or_a_reference() -> None:
    assert len(ANSWER_TYPES) >= 40
    for kind in ANSWER_TYPES.values():
        text = json.dumps(answer_schema(kind))
        assert not [
            word for word in ('"title"', '"description"', '"$ref"', '"$defs"', '"ge"', '"le"') if word in text
        ], kind


def test_golden_keys() -> None:
    """Frozen when the first version was published: a change here bills every user again. Payload ids of fixed messages."""
    found = {
        name: Payload(MESSAGES, answer_schema(kind)).id[:16]
        for name, kind in (("claims", Claims), ("verdicts", Verdicts), ("two_axes", TwoAxes), ("yes_no", YesNo))
    }
    assert found == GOLDEN_PAYLOADS
