"""Contexts that do not fit are asked in parts: which questions are split, and how the parts become one answer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.core.resources import prompts_dir
from ragpipe.judging.context_split import ContextMeasure, halved, joined_parts
from ragpipe.judging.settings import JudgeSettings
from ragpipe.prompting.library import PromptLibrary
from ragpipe.schema.judge_answers.claim_answers import Claims, QuotedVerdict, QuotedVerdicts, Verdict, Verdicts
from ragpipe.schema.sample import Chunk

VERIFY = PromptLibrary([prompts_dir()]).load("faithfulness", "verify", "v2")
EXTRACT = PromptLibrary([prompts_dir()]).load("faithfulness", "extract", "v2")


def chunks(count: int) -> list[Chunk]:
    return [Chunk(id=f"c{n}", rank=n, text=f"text {n}") for n in range(1, count + 1)]


def quoted(*verdicts: str) -> QuotedVerdicts:
    return QuotedVerdicts(
        verdicts=[
            QuotedVerdict(index=n, verdict=verdict, reason=f"{verdict} {n}")  # type: ignore[arg-type]
            for n, verdict in enumerate(verdicts, 1)
        ]
    )


@pytest.mark.parametrize("count", [2, 3, 7])
def test_a_question_is_halved_by_its_contexts(count: int) -> None:
    contexts = chunks(count)
    parts = halved(VERIFY, QuotedVerdicts, {"contexts": contexts, "claims": ["a", "b"]})
    assert parts is not None
    assert [part["claims"] for part in parts] == [["a", "b"]] * 2
    assert parts[0]["contexts"] + parts[1]["contexts"] == contexts
    assert len(parts[0]["contexts"]) == count // 2


@pytest.mark.parametrize(
    ("prompt", "answer", "values"),
    [
        (VERIFY, QuotedVerdicts, {"contexts": chunks(1), "claims": ["a"]}),
        (VERIFY, QuotedVerdicts, {"contexts": [], "claims": ["a"]}),
        (VERIFY, Claims, {"contexts": chunks(4), "claims": ["a"]}),
        (EXTRACT, QuotedVerdicts, {"answer": "text"}),
    ],
)
def test_other_questions_are_not_split(prompt: Any, answer: Any, values: dict[str, Any]) -> None:
    assert halved(prompt, answer, values) is None


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([["supported"], ["not_supported"]], ["supported"]),
        ([["not_supported"], ["supported"]], ["supported"]),
        ([["contradicted"], ["supported"]], ["supported"]),
        ([["not_supported"], ["contradicted"]], ["contradicted"]),
        ([["not_supported"], ["not_supported"]], ["not_supported"]),
        ([["supported", "not_supported"], ["not_supported", "supported"]], ["supported", "supported"]),
    ],
)
def test_a_claim_has_the_best_verdict_of_all_parts(parts: list[list[str]], expected: list[str]) -> None:
    answer = joined_parts([quoted(*verdicts) for verdicts in parts])
    assert [verdict.verdict for verdict in answer.verdicts] == expected
    assert [verdict.reason for verdict in answer.verdicts] == [f"{v} {n}" for n, v in enumerate(expected, 1)]


def test_plain_verdicts_are_joined_by_number_whatever_their_order() -> None:
    first = Verdicts(verdicts=[Verdict(index=2, supported=False), Verdict(index=1, supported=True)])
    second = Verdicts(verdicts=[Verdict(index=1, supported=False), Verdict(index=2, supported=True)])
    assert {v.index: v.supported for v in joined_parts([first, second]).verdicts} == {1: True, 2: True}


@pytest.mark.parametrize(
    "faulty",
    [
        quoted("supported"),
        QuotedVerdicts(verdicts=[*quoted("supported", "supported").verdicts, *quoted("supported").verdicts]),
    ],
)
def test_an_incomplete_part_is_not_covered_up(faulty: QuotedVerdicts) -> None:
    assert joined_parts([quoted("supported", "supported"), faulty]) is faulty


@given(
    st.lists(
        st.lists(st.sampled_from(["supported", "contradicted", "not_supported"]), min_size=3, max_size=3),
        min_size=1,
        max_size=5,
    )
)
def test_no_part_hides_support(parts: list[list[str]]) -> None:
    found = [verdict.verdict for verdict in joined_parts([quoted(*verdicts) for verdicts in parts]).verdicts]
    for place, verdict in enumerate(found):
        assert (verdict == "supported") == any(part[place] == "supported" for part in parts)
        assert verdict in {part[place] for part in parts}


def judge(**options: Any) -> JudgeSettings:
    return JudgeSettings(model="openai/gpt-4o-2024-08-06", max_tokens=100, **options)


@pytest.mark.slow
def test_the_measure_counts_prompt_and_reply() -> None:
    measure = ContextMeasure.of(judge(overflow="split", capabilities={"context_tokens": 1000}))
    assert measure is not None
    assert measure.fits([{"role": "user", "content": "word " * 850}])
    assert not measure.fits([{"role": "user", "content": "word " * 950}])
    assert ContextMeasure.of(judge()) is None


def test_a_window_that_nobody_knows_cannot_be_split_for() -> None:
    with pytest.raises(ValueError, match=r"capabilities\.context_tokens"):
        JudgeSettings(model="openai/nobody-2024-08-06", overflow="split")
