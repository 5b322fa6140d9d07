"""Nothing was retrieved and there is an answer: by the design page, the purest hallucination, or no claim at all."""

import asyncio
from typing import Any

import pytest

from ragpipe.judging.heuristic.heuristic_judge import HeuristicJudge
from ragpipe.judging.heuristic.settings import HeuristicSettings
from ragpipe.metrics.shared.claim_metric import ClaimMetric
from ragpipe.testing.scripted import ScriptedJudge, make_case, score_of, shipped_metric
from tests.support.claim_verdicts import in_both_forms

INVENTED = "Ada Lovelace wrote it in 1843. It was printed in Paris."
CLAIMS = {"claims": ["Ada Lovelace wrote it in 1843.", "It was printed in Paris."]}
COMBINED = {
    "claims": [{"claim": claim, "evidence": claim, "reason": ""} | in_both_forms(True) for claim in CLAIMS["claims"]]
}
REFUSAL = "I could not find any information about that in the documents."


def measured(name: str, answer: str, *replies: Any, **parameters: Any) -> tuple[dict[str, tuple[Any, ...]], list[str]]:
    """(value, status, reason) by score, and the steps that were asked."""
    judge = ScriptedJudge(replies)
    found = score_of(shipped_metric(name, **parameters), make_case(answer=answer, chunks=[]), judge)
    return {key: (score.value, score.status, score.reason) for key, score in found.items()}, judge.steps


def test_faithfulness_lists_the_claims_and_supports_none() -> None:
    for steps, reply, asked in (("separate", CLAIMS, ["extract"]), ("combined", COMBINED, ["combined"])):
        found, steps_asked = measured("faithfulness", INVENTED, reply, steps=steps)
        assert found == {"faithfulness": (0.0, "ok", "0 of 2 claims are supported")}
        assert steps_asked == asked
    score = score_of(shipped_metric("faithfulness"), make_case(answer=INVENTED, chunks=[]), ScriptedJudge([CLAIMS]))
    details = score["faithfulness"].details
    assert details["unsupported_claims"] == CLAIMS["claims"]
    assert (details["total"], details["supported"], details["flags"]) == (2, 0, ["no_context_retrieved"])
    assert {row["reason"] for row in details["claims"]} == {"nothing was retrieved"}


@pytest.mark.parametrize(("without_claims", "value", "status"), [("one", 1.0, "ok"), ("zero", 0.0, "ok"), ("skip", None, "skipped")])  # fmt: skip
def test_faithfulness_of_a_refusal_and_of_an_answer_without_claims(
    without_claims: str, value: float | None, status: str
) -> None:
    expected = {"faithfulness": (value, status, "no_factual_claims")}
    assert measured("faithfulness", REFUSAL, without_claims=without_claims) == (expected, [])
    assert measured("faithfulness", "What a day!", {"claims": []}, without_claims=without_claims) == (
        expected,
        ["extract"],
    )


@pytest.mark.parametrize("name", ["groundedness", "chunk_faithfulness", "chunk_relevancy"])
def test_zero_without_a_call(name: str) -> None:
    assert measured(name, INVENTED) == ({name: (0.0, "ok", "no_context_retrieved")}, [])
    assert measured(name, REFUSAL) == ({name: (None, "skipped", "no_claims")}, [])
    assert measured(name, "") == ({name: (None, "skipped", "no_answer")}, [])


def test_answer_synthesis_grades_the_truth_alone() -> None:
    true, complete, overall = "answer_faithfulness", "answer_completeness", "synthesis_overall"
    lacking = (None, "skipped", "no_context_retrieved")
    assert measured("answer_synthesis", INVENTED) == (
        {true: (1.0, "ok", "no_context_retrieved"), complete: lacking, overall: lacking}, [],
    )  # fmt: skip
    for answer, why in ((REFUSAL, "no_claims"), ("", "no_answer"), ("...", "degenerate_answer")):
        assert measured("answer_synthesis", answer) == (
            dict.fromkeys((true, complete, overall), (None, "skipped", why)),
            [],
        )


@pytest.mark.parametrize(
    "name", ["faithfulness", "groundedness", "chunk_faithfulness", "chunk_relevancy", "answer_synthesis"]
)
def test_they_can_be_left_out(name: str) -> None:
    found, asked = measured(name, INVENTED, without_contexts="skip")
    assert set(found.values()) == {(None, "skipped", "no_context_retrieved")}
    assert asked == []
    judged = score_of(shipped_metric(name, without_contexts="skip"), make_case(), ScriptedJudge(lambda _: "nonsense"))
    assert {score.status for score in judged.values()} == {"error"}  # with contexts it is asked all the same


def test_a_refusal_that_goes_on_to_answer_is_none() -> None:
    found, asked = measured(
        "faithfulness", f"{REFUSAL} But Ada Lovelace wrote it in 1843.", {"claims": CLAIMS["claims"][:1]}
    )
    assert (found["faithfulness"][0], asked) == (0.0, ["extract"])


def test_patterns_of_ones_own() -> None:
    own = {"declines": ["weiß ich nicht"]}
    assert measured("groundedness", "Das weiß ich nicht.", patterns=own)[0]["groundedness"][2] == "no_claims"
    assert (
        measured("groundedness", "Das ist mir schnuppe, glaub mir das.", patterns=own)[0]["groundedness"][2]
        == "language_not_covered"
    )


@pytest.mark.parametrize(("answer", "steps"), [(INVENTED, ["extract"]), (REFUSAL, [])])
def test_the_plan_counts_the_listing_alone(answer: str, steps: list[str]) -> None:
    case = make_case(answer=answer, chunks=[])
    assert [ask.prompt.step for ask in shipped_metric("faithfulness").planned_calls(case)] == steps
    for name in ("groundedness", "chunk_faithfulness", "chunk_relevancy", "answer_synthesis"):
        assert list(shipped_metric(name).planned_calls(case)) == []


@pytest.mark.parametrize("steps", ["separate", "combined"])
def test_the_embedded_judge_lists_them(steps: str) -> None:
    metric, judge = shipped_metric("faithfulness", steps=steps), HeuristicJudge(HeuristicSettings(kind="evidence"))
    assert isinstance(metric, ClaimMetric)
    case = make_case(answer=INVENTED, chunks=[])

    async def ask(prompt: Any, answer: Any, /, **values: Any) -> Any:
        return judge.answer(prompt, answer, values)

    score: Any = asyncio.run(metric.measure(case, ask))  # type: ignore[arg-type]
    assert (score.value, score.details["unsupported_claims"]) == (0.0, CLAIMS["claims"])
