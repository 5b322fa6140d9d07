"""Grades weighted by the probabilities of their tokens: what is kept of a response, where a grade stands in a reply, and the mean."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.judging.clients.digit_tokens import digit_tokens
from ragpipe.judging.replies.weighted_scores import grade_probabilities, integer_scales, number_places, weighted
from ragpipe.schema.call import Payload
from ragpipe.schema.judge_answers.all_answers import ANSWER_TYPES
from ragpipe.schema.judge_answers.answer_schema import answer_schema
from ragpipe.schema.judge_answers.answer_type import Answer
from ragpipe.schema.judge_answers.grade_answers import Grade05, TwoAxes, YesNo, rubric_grade
from ragpipe.testing.openai_logprobs import chat_logprobs


def schema_of(answer: type[Answer]) -> str:
    return Payload((), answer_schema(answer)).schema_json


def token(text: str, *alternatives: tuple[str, float], data: list[int] | None = None) -> dict[str, Any]:
    """A token as OpenAI gives it; the alternatives with their probabilities."""
    top = [{"token": name, "logprob": math.log(p), "bytes": list(name.encode())} for name, p in alternatives]
    return {
        "token": text,
        "logprob": 0.0,
        "bytes": list(text.encode()) if data is None else data,
        "top_logprobs": top,
    }


FOUR = (("4", 0.7), ("5", 0.2), ("3", 0.08))
REPLY = '{"score": 4}'
HEAD = [token('{"'), token("score"), token('":'), token(" ")]


@pytest.mark.parametrize(
    ("tokens", "text", "expected"),
    [
        ([*HEAD, token("4", *FOUR), token("}")], REPLY, [[10, {"3": 0.08, "4": 0.7, "5": 0.2}]]),
        # the space in the token, and once more without it: one grade
        ([*HEAD[:3], token(" 4", (" 4", 0.6), ("4", 0.1), (" 5", 0.2)), token("}")], REPLY, [[10, {"4": 0.7, "5": 0.2}]]),
        # words, several digits, and other numbers that begin with a digit are no grade
        ([*HEAD, token("4", ("4", 0.7), ("four", 0.1), ("40", 0.1), ("-4", 0.05), ("4.", 0.05)), token("}")], REPLY, [[10, {"4": 0.7}]]),
        ([*HEAD, token("4", ("4", 1.0)), token("}"), token("<|im_end|>")], REPLY, [[10, {"4": 1.0}]]),
        ([token("<think>4"), token("</think>"), *HEAD, token("4", *FOUR), token("}")], REPLY, [[10, {"3": 0.08, "4": 0.7, "5": 0.2}]]),
        # one character in two tokens, whose texts are then no parts of it
        (
            [token('{"r": "'), token("\ufffd", data=[0xE2, 0x82]), token("\ufffd", data=[0xAC]), token('", "score": '), token("4", *FOUR), token("}")],
            '{"r": "€", "score": 4}',
            [[20, {"3": 0.08, "4": 0.7, "5": 0.2}]],
        ),
        ([*HEAD, token("4"), token("}")], REPLY, [[10, {"4": 1.0}]]),  # no alternatives: the token itself
        ([*HEAD, token("3", *FOUR), token("}")], REPLY, None),  # they do not spell the reply
        ([], REPLY, None),
    ],
)  # fmt: skip
def test_the_digits_of_a_reply_keep_their_probabilities(
    tokens: list[dict[str, Any]], text: str, expected: list[Any] | None
) -> None:
    kept = digit_tokens({"content": tokens}, text)
    assert (None if kept is None else json.loads(kept)) == expected


@pytest.mark.parametrize(
    "logprobs",
    [
        None,
        [],
        {"content": None},
        {"content": [1]},
        {"content": [{"token": None}]},
        {"content": [{"logprob": -1.0}]},
        {"tokens": ["4"], "token_logprobs": [-0.1]},  # the older shape of completions
    ],
)
def test_what_has_another_shape_is_as_good_as_nothing(logprobs: Any) -> None:
    assert digit_tokens(logprobs, REPLY) is None


@pytest.mark.slow
@given(st.recursive(st.none() | st.floats() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["token", "logprob", "bytes", "top_logprobs", "content"]), inner, max_size=4)))  # fmt: skip
def test_no_response_ends_a_run(value: Any) -> None:
    digit_tokens(value, REPLY)
    digit_tokens({"content": [value, token("4", *FOUR)]}, "4")


@given(st.text(max_size=30), st.integers(0, 9), st.text(max_size=30))
def test_places_are_those_of_the_text(before: str, digit: int, after: str) -> None:
    """The test server's tokens spell any text; each kept offset is that of its digit."""
    text = f"{before} {digit} {after}"
    kept = json.loads(digit_tokens(chat_logprobs(text, 5), text) or "null")
    assert all(text[offset] in shares for offset, shares in kept if text[offset].isascii())
    assert len(before) + 1 in [offset for offset, _ in kept]


def test_scales_are_whole_bounded_and_of_one_digit() -> None:
    found = {name: dict(integer_scales(schema_of(kind))) for name, kind in ANSWER_TYPES.items()}
    assert {name: scales for name, scales in found.items() if scales} == {
        "Grade05": {("score",): (0, 5)},
        "Groundedness": {("score",): (0, 5)},
        "AxisGrade": {("score",): (1, 5)},
        "TwoAxes": {("faithfulness", "score"): (1, 5), ("completeness", "score"): (1, 5)},
        "PassageGrade": {("grade",): (0, 3)},  # of one passage; the list of them, which is asked for, has none
    }
    assert integer_scales(schema_of(rubric_grade(1, 9, True))) == {("score",): (1, 9)}
    for other in (rubric_grade(1, 10, True), rubric_grade(1, 5, False), rubric_grade(-1, 5, True)):
        assert not integer_scales(schema_of(other))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (REPLY, {("score",): 10}),
        ('{"score": "4"}', {("score",): 11}),
        ('Here:\n```json\n{"score": 4}\n```', {("score",): 24}),
        ('{"a": [1, {"score": 2}, [3]], "score": 4}', {("score",): 39}),
        ('{"reason": "{\\"score\\": 1}, 5 of 5", "b": {"score": 3}, "score": 4}', {("reason",): 24, ("b", "score"): 52, ("score",): 65}),
        ('{"score": 4} {"score": 5}', {}),
        ('{"score": 4', {}),
        ("4", {}),
        ("", {}),
    ],
)  # fmt: skip
def test_numbers_are_found_by_their_keys(text: str, expected: dict[tuple[str, ...], int]) -> None:
    assert number_places(text) == expected


def kept(text: str, *grades: dict[str, float]) -> str:
    """Probabilities of the digits of a reply, in their order."""
    offsets = [place for place, character in enumerate(text) if character.isdigit()]
    return json.dumps([[offset, shares] for offset, shares in zip(offsets, grades, strict=True)])


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        # by hand: (3 x .08 + 4 x .7 + 5 x .2) / .98
        ({"3": 0.08, "4": 0.7, "5": 0.2}, 4.04 / 0.98),
        ({"4": 1.0}, 4.0),
        ({"4": 0.5, "5": 0.5}, 4.5),
        ({"4": 0.9, "9": 0.1}, 4.0),  # 9 is off the scale
        ({"4": 0.85, "9": 0.15}, None),  # too little on the scale
        ({"5": 1.0}, None),  # not the grade that was read
        ({}, None),
    ],
)
def test_a_grade_becomes_the_mean_over_its_scale(shares: dict[str, float], expected: float | None) -> None:
    answer, flags = weighted(Grade05(score=4), schema_of(Grade05), REPLY, kept(REPLY, shares), ())
    assert answer.score == pytest.approx(4 if expected is None else expected, abs=1e-12)
    assert flags == (("not_weighted",) if expected is None else ("weighted",))


def test_each_axis_has_a_mean_of_its_own() -> None:
    text = '{"faithfulness": {"reason": "", "score": 4}, "completeness": {"reason": "", "score": 2}}'
    two = TwoAxes.model_validate(json.loads(text))
    tokens = kept(text, {"4": 0.5, "5": 0.5}, {"2": 0.75, "1": 0.25})
    answer, flags = weighted(two, schema_of(TwoAxes), text, tokens, ())
    assert (answer.faithfulness.score, answer.completeness.score, flags) == (4.5, 1.75, ("weighted",))
    answer, flags = weighted(two, schema_of(TwoAxes), text, kept(text, {"4": 0.5, "5": 0.5}, {"2": 0.5}), ())
    assert (answer.faithfulness.score, answer.completeness.score, flags) == (4.5, 2, ("not_weighted",))


@pytest.mark.parametrize("flag", ["json_repaired", "text_form", "thinking_removed", "characters_replaced"])
def test_a_reply_that_had_to_be_changed_keeps_its_grade(flag: str) -> None:
    answer, flags = weighted(Grade05(score=4), schema_of(Grade05), REPLY, kept(REPLY, {"4": 0.5, "5": 0.5}), (flag,))
    assert (answer.score, flags) == (4, ("not_weighted",))


def test_without_probabilities_the_grade_stays_and_says_so() -> None:
    assert weighted(Grade05(score=4), schema_of(Grade05), REPLY, None, ())[1] == ("not_weighted",)
    answer = YesNo(verdict="YES")
    assert weighted(answer, schema_of(YesNo), "YES 4", kept("YES 4", {"4": 1.0}), ()) == (answer, ())


@given(st.lists(st.floats(0, 1), min_size=6, max_size=6).filter(lambda shares: sum(shares) > 0))
def test_a_mean_is_on_the_scale(shares: list[float]) -> None:
    shares = [share / sum(shares) for share in shares]
    tokens = kept(REPLY, {str(grade): share for grade, share in enumerate(shares)})
    assert grade_probabilities(schema_of(Grade05), REPLY, tokens)[("score",)] == dict(enumerate(shares))
    answer, _ = weighted(Grade05(score=4), schema_of(Grade05), REPLY, tokens, ())
    assert 0 <= answer.score <= 5
