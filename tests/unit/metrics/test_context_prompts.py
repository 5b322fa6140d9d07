"""The questions about contexts and sources: version 1 asks what it always asked, version 2 shows true context numbers."""

import asyncio

import pytest

from ragpipe.core.digest import canonical_json, sha256
from ragpipe.core.fences import OnOneLine, fence
from ragpipe.judge.answer_type import answer_schema
from ragpipe.judge.rules.rules_judge import RulesJudge
from ragpipe.judge.rules.settings import RulesSettings
from ragpipe.metrics.recording_judge import questions_of
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
    ("context_recall", {}), ("context_recall", COMBINED), ("context_precision", {}), ("context_relevance", {}),
    ("context_utilization", {}), ("context_sufficiency", {}), ("chunk_faithfulness", {}), ("chunk_relevancy", {}),
    ("noise_sensitivity", {}), ("relevance_grade", {}), ("source_policy", {}), ("citation", {}),
]  # fmt: skip


def planned(name, case=CASE, version=None, **parameters):
    """The first question of each step; those of a version of all templates of the metric, or of the shipped ones."""
    if version:
        parameters["prompts"] = dict.fromkeys(shipped_metric(name, **parameters).step_names(), version)
    return {call.prompt.step: call for call in reversed(questions_of(shipped_metric(name, **parameters), case))}


def shown(call):
    """What the judge is shown after the preamble."""
    return call.prompt.render(**call.values)[1]["content"]


FROZEN = {
    "context_recall/extract": "7e81ac2690cbe56f", "context_recall/verify": "90ea2eaf136a178d",
    "context_recall/combined": "cb15e50e52ce6ae1", "context_precision/grade": "9897b6f5146a47f3",
    "context_relevance/grade": "32c7209a63afa570", "context_utilization/use": "8a90ec20e318e6be",
    "context_sufficiency/judge": "0775683872867a84", "chunk_faithfulness/first": "6455445b0499ea4e",
    "chunk_faithfulness/refine": "98769d92b0356574", "chunk_relevancy/first": "ef91c5393366db4d",
    "chunk_relevancy/refine": "f372cde025ad7810", "faithfulness/extract": "56eb0b9b20e25cd2", "noise_sensitivity/check": "674c87935ad440d1",
    "noise_sensitivity/trace": "32c5f539d57a885b", "relevance_grade/grade": "53bff421b39c0df4", "source_policy/use": "cc6b7141b90f0fe5",
    "citation/coverage": "dbab2a249ee87256", "citation/support": "81992ac8f6622277",
}  # fmt: skip


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
    citations = "".join(f"{i}. cites [{number}]: {fence(OnOneLine(said))}\n" for i, (number, _) in enumerate(expected, 1))
    head = f"Contexts:\n{contexts}\nCitations, each a text of an answer and the one context that it cites:\n{citations}\n"
    assert shown(planned("citation", case)["support"]).startswith(head + "Task:")


@pytest.mark.parametrize("name", ["chunk_faithfulness", "chunk_relevancy"])
def test_chunks_that_are_shown_one_at_a_time_keep_their_numbers(name):
    judge = ScriptedJudge(["NO", "NO", "NO"])
    asyncio.run(shipped_metric(name).measure(make_case("Snow [3].", chunks=FACTS), judge))
    heads = [f"Context:\n[{number}]\n{fence(text)}\n" for number, text in enumerate(FACTS, 1)]
    assert [asked.user.startswith(head) for asked, head in zip(judge.asked, heads, strict=True)] == [True] * 3


def use(**found):
    """Findings under given numbers: i2="not_used"."""
    return {"verdicts": [{"index": int(name[1:]), "use": one} for name, one in found.items()]}


POLICED = make_case(
    "Snow fell on the pass [3].",
    chunks=[
        {"text": "Frost came early.", "policy": "summarize"},
        {"text": "The ferry ran late.", "policy": "quote_only"},
        {"text": "Snow lies on the pass.", "policy": "no_use"},
    ],
)


def test_restricted_and_other_sources_keep_their_numbers():
    judge = ScriptedJudge([use(i2="not_used", i3="paraphrase")])
    score = asyncio.run(shipped_metric("source_policy").measure(POLICED, judge))
    first, second, third = (fence(chunk.text) for chunk in POLICED.contexts)
    head = f"Sources:\n[2]\n{second}\n[3]\n{third}\n\nOther sources:\n[1]\n{first}\n\nAnswer:\n"
    assert judge.asked[0].user.startswith(head)
    assert [(row["rank"], row["use"]) for row in score.details["sources"]] == [(2, "not_used"), (3, "paraphrase")]


COPIED = make_case(
    "The ferry ran late because of thick fog on the river.",
    chunks=[
        {"text": "The harbour is old.", "policy": "summarize"},
        {"text": "Frost came early.", "policy": "quote_only"},
        {"text": "Thick fog on the river: because of it, the ferry ran late.", "policy": "quote_only"},
    ],
)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_embedded_judge_finds_the_use_of_a_source_in_both_versions(version):
    """Its findings name sources by the numbers that the question shows."""
    heuristic = RulesJudge(RulesSettings())

    async def ask(prompt, answer, /, **values):
        return heuristic.answer(prompt, answer, values)

    score = asyncio.run(shipped_metric("source_policy", prompts={"use": version}).measure(COPIED, ask))
    assert [(row["rank"], row["use"]) for row in score.details["sources"]] == [(2, "not_used"), (3, "paraphrase")]


FEE = {"question": "When is the fee due?", "references": ["That is not in the documents."]}
UNSAID = {"claims": ["The documents do not say when the fee is due."]}


@pytest.mark.parametrize(
    ("chunk", "verdict", "evidence", "value", "reason"),
    [
        ("The fee is 5 euros.", "supported", [], 100, "1 of 1 statements are in the contexts"),
        ("The fee is due in May.", "contradicted", ["due in May"], 0, "0 of 1 statements are in the contexts, 1 contradicted"),
    ],
)
def test_a_reference_that_declines_is_right_where_the_contexts_do_not_say_it(chunk, verdict, evidence, value, reason):
    found = {"verdicts": [{"index": 1, "evidence": evidence, "verdict": verdict}]}
    judge = ScriptedJudge([UNSAID, found])
    score = asyncio.run(shipped_metric("context_recall").measure(make_case("", chunks=[chunk], **FEE), judge))
    assert (score.value, score.reason) == (value, reason)
    assert score.details["flags"] == ([] if evidence else ["evidence_not_found"])
    for asked, rule in zip(
        judge.asked, ("A reference answer that only declines makes one claim", '"contradicted" where they do'), strict=True
    ):
        assert rule in asked.user


def test_of_several_references_one_that_declines_counts_as_any_other():
    case = make_case("", chunks=["The fee is 5 euros."], question=FEE["question"], references=["In May.", *FEE["references"]])

    def reply(question):
        if question.step == "extract":
            return UNSAID if "not" in question.values["reference"] else {"claims": ["The fee is due in May."]}
        verdict = "supported" if "do not say" in question.values["claims"][0] else "not_supported"
        return {"verdicts": [{"index": 1, "verdict": verdict}]}

    (score,) = asyncio.run(shipped_metric("context_recall").measure(case, ScriptedJudge(reply)))
    assert (score.value, score.details["reference"]) == (100, "2 of 2")
