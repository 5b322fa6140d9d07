"""The questions about contexts and sources: version 1 asks what it always asked, version 2 shows true context numbers."""

from __future__ import annotations

import asyncio

import pytest

from ragpipe.core.digest import canonical_json, sha256
from ragpipe.prompting.fences import OnOneLine, fence
from ragpipe.schema.judge_answers.answer_schema import answer_schema
from ragpipe.testing.scripted import ScriptedJudge, make_case, shipped_metric

CASE = make_case(
    "Paris is the capital [1]. It lies on the Seine.",
    chunks=[
        {"text": "Paris is the capital of France.", "policy": "quote_only"},
        {"text": "The Seine flows through Paris.", "policy": "quote_only"},
        {"text": "Lyon is a city.", "policy": "summarize"},
    ],
    citations=["c1", "c3"],
    references=["Paris"],
    history=[("user", "I plan a trip to France."), ("assistant", "Where do you want to go?")],
)
COMBINED = {"steps": "combined"}
METRICS = [
    ("context_recall", {}),
    ("context_recall", COMBINED),
    ("context_precision", {}),
    ("context_relevance", {}),
    ("context_utilization", {}),
    ("context_sufficiency", {}),
    ("chunk_faithfulness", {}),
    ("chunk_relevancy", {}),
    ("noise_sensitivity", {}),
    ("relevance_grade", {}),
    ("source_policy", {}),
    ("citation", {}),
]


def planned(name, case=CASE, version=None, **parameters):
    """The planned questions by step; those of a version of all templates of the metric, or of the shipped ones."""
    if version:
        parameters["prompts"] = dict.fromkeys(shipped_metric(name, **parameters).step_names(), version)
    return {call.prompt.step: call for call in shipped_metric(name, **parameters).planned_calls(case)}


def shown(call):
    """What the judge is shown after the preamble."""
    return call.prompt.render(**call.values)[1]["content"]


FROZEN = {
    "context_recall/extract": "7e81ac2690cbe56f",
    "context_recall/verify": "37a74ece7bfcb054",
    "context_recall/combined": "cb15e50e52ce6ae1",
    "context_precision/grade": "9897b6f5146a47f3",
    "context_relevance/grade": "32c7209a63afa570",
    "context_utilization/use": "8a90ec20e318e6be",
    "context_sufficiency/judge": "0775683872867a84",
    "chunk_faithfulness/first": "6455445b0499ea4e",
    "chunk_faithfulness/refine": "98769d92b0356574",
    "chunk_relevancy/first": "ef91c5393366db4d",
    "chunk_relevancy/refine": "f372cde025ad7810",
    "faithfulness/extract": "56eb0b9b20e25cd2",
    "noise_sensitivity/check": "4f912dc1b7d65b51",
    "noise_sensitivity/trace": "71df4655970defa1",
    "relevance_grade/grade": "53bff421b39c0df4",
    "source_policy/use": "cc6b7141b90f0fe5",
    "citation/coverage": "dbab2a249ee87256",
    "citation/support": "81992ac8f6622277",
}


@pytest.mark.parametrize(("name", "parameters"), METRICS)
def test_version_1_asks_what_it_always_asked(name, parameters):
    """Messages and answer schema are the question's key: another hash would ask every stored question again."""
    for step, call in planned(name, version="v1", **parameters).items():
        asked = [call.prompt.render(**call.values), answer_schema(call.answer)]
        assert sha256(canonical_json(asked))[:16] == FROZEN[call.prompt.name], step


FACTS = ["Frost came early.", "The ferry ran late.", "The mill burned down."]


def ranked(*ranks):
    return [{"text": text, "rank": rank} for text, rank in zip(FACTS, ranks, strict=True)]


@pytest.mark.parametrize(
    ("ranks", "cited", "expected"),
    [
        ((1, 2, 3), ["[3]"], [(3, 2)]),
        ((1, 2, 3), ["[3]", "[1]"], [(3, 2), (1, 0)]),
        ((2, 4, 9), ["[9]", "[2]"], [(9, 2), (2, 0)]),  # a mark [9] names the context of rank 9
        ((1, 1, 1), ["[1]"], [(1, 0)]),
    ],
)
def test_cited_contexts_keep_their_numbers(ranks, cited, expected):
    said = "The winter was hard."
    case = make_case(said, chunks=ranked(*ranks), citations=[{"marker": mark, "text": said} for mark in cited])
    contexts = "".join(f"[{number}]\n{fence(FACTS[place])}\n" for number, place in expected)
    citations = "".join(
        f"{i}. cites [{number}]: {fence(OnOneLine(said))}\n" for i, (number, _) in enumerate(expected, 1)
    )
    head = (
        f"Contexts:\n{contexts}\nCitations, each a text of an answer and the one context that it cites:\n{citations}\n"
    )
    assert shown(planned("citation", case)["support"]).startswith(head + "Task:")


def test_a_verdict_on_a_citation_is_found_by_the_citations_number():
    """Context 3 is shown as [3]; the citation of it is still citation 1."""
    case = make_case("Frost came early.", chunks=FACTS, citations=["c3", "c1"])
    told = {"support": [(1, False), (2, True)]}

    def reply(question):
        if question.step == "coverage":
            return {"claims": [{"claim": "Frost came early.", "cited": True}]}
        return {"verdicts": [{"index": i, "accurate": accurate} for i, accurate in told["support"]]}

    score, *_ = asyncio.run(shipped_metric("citation").measure(case, ScriptedJudge(reply)))
    assert [(row["chunk"], row["accurate"]) for row in score.details["citations"]] == [("c3", False), ("c1", True)]
