"""The questions of prompts: earlier versions ask what they always asked; later ones have scales without gaps and true numbers."""

import asyncio

import pytest

from ragpipe.core.digest import canonical_json, sha256
from ragpipe.core.fences import OnOneLine, fence
from ragpipe.judge.answer_type import answer_schema
from ragpipe.judge.rules.rules_judge import RulesJudge
from ragpipe.judge.rules.settings import RulesSettings
from ragpipe.metrics.recording_judge import questions_of
from ragpipe.testing.scripted import ScriptedJudge, make_case, score_of, shipped_metric
from tests.unit.metrics.test_metric_prompts import ASKING, CASE

FROZEN = {
    ("answer_relevance", "questions", "v1"): "2d306969ee487c1a", ("answer_relevance", "direct", "v1"): "e142330cb653ed58",
    ("correctness", "grade", "v1"): "f8b29c778eed34ff", ("contextual_correctness", "grade", "v1"): "50c767782e0974b3",
    ("factual_accuracy", "grade", "v1"): "a496ec1d89c3faab", ("groundedness", "grade", "v1"): "e14bfa79b2a84cd5",
    ("groundedness", "grade", "v2"): "343594175530bfae", ("groundedness", "grade", "v3"): "3e3bd20ac80eaee2", ("answer_synthesis", "grade", "v1"): "fd78446c6a72d464",
    ("abstention", "detect", "v1"): "3bad95b26825b553", ("answer_class", "classify", "v1"): "d6b62c1ccd13344a",
    ("nuggets", "nuggetize", "v1"): "c5d076af7075cd67", ("nuggets", "assign", "v1"): "dd4855af661ffe36",
    ("format", "tone", "v1"): "65d2ca66731bcfb2", ("policy_compliance", "examine", "v1"): "4cd946ea58b786df",
    ("recency_conflict", "acknowledge", "v1"): "fd759742f2095025", ("rubric", "grade", "v1"): "c5e403a535c7c3ed",
    ("rejection_calibration", "detect", "v1"): "3bad95b26825b553",
    ("context_recall", "extract", "v1"): "7e81ac2690cbe56f", ("context_recall", "verify", "v1"): "90ea2eaf136a178d",
    ("context_recall", "combined", "v1"): "cb15e50e52ce6ae1", ("context_precision", "grade", "v1"): "9897b6f5146a47f3",
    ("context_relevance", "grade", "v1"): "32c7209a63afa570", ("context_utilization", "use", "v1"): "8a90ec20e318e6be",
    ("context_sufficiency", "judge", "v1"): "0775683872867a84", ("chunk_faithfulness", "first", "v1"): "6455445b0499ea4e",
    ("chunk_faithfulness", "refine", "v1"): "98769d92b0356574", ("chunk_relevancy", "first", "v1"): "ef91c5393366db4d",
    ("chunk_relevancy", "refine", "v1"): "f372cde025ad7810", ("noise_sensitivity", "extract", "v1"): "56eb0b9b20e25cd2",
    ("noise_sensitivity", "check", "v1"): "674c87935ad440d1", ("noise_sensitivity", "trace", "v1"): "32c5f539d57a885b",
    ("relevance_grade", "grade", "v1"): "53bff421b39c0df4", ("source_policy", "use", "v1"): "e13bb35b15d11b90",
    ("citation", "coverage", "v1"): "9aa33bccd299f0be", ("citation", "support", "v1"): "fd9ef5f3216ba62f",
}  # fmt: skip


def planned(name, case=CASE, **versions):
    """The questions by step: of the versions by step, and of the shipped ones of all other steps."""
    parameters = {"questions": {"method": "questions"}, "combined": {"steps": "combined"}}.get([*versions, ""][0], ASKING.get(name, {}))
    shipped = shipped_metric(name, **parameters).prompts()
    prompts = {step: prompt.version for step, prompt in shipped.items()} | versions
    calls = questions_of(shipped_metric(name, **parameters, prompts=prompts), case)
    return {call.prompt.step: call for call in reversed(calls)}  # of a chain the first


@pytest.mark.parametrize(("name", "step", "version"), FROZEN)
def test_an_earlier_version_asks_what_it_always_asked(name, step, version):
    """Messages and answer schema are the question's key: another hash would ask every stored question again."""
    call = planned(name, **{step: version})[step]
    asked = [call.prompt.render(**call.values), answer_schema(call.answer)]
    assert sha256(canonical_json(asked))[:16] == FROZEN[name, step, version]


DIRECT = {"reason": "half of it", "addresses_question": True, "on_topic": True}


@pytest.mark.parametrize(("version", "reply", "expected", "completeness"), [
    ("v1", DIRECT | {"completeness": 0.5, "score": 0.75}, 0.75, 0.5), ("v1", DIRECT | {"score": 0.75}, "error", None),
    ("v1", DIRECT | {"completeness": 1.5, "score": 0.75}, "error", None), ("v2", DIRECT | {"score": 0.75}, 0.75, None),
    ("v2", DIRECT | {"completeness": 0.5, "score": 0.75}, 0.75, None), ("v2", DIRECT, "error", None),
    ("v2", DIRECT | {"score": 1.25}, "error", None),
])  # fmt: skip
def test_answer_relevance_reads_the_form_that_its_template_asks_for(version, reply, expected, completeness):
    """The completeness that version 1 asks for doubles the score: version 2 does not ask for it."""
    metric = shipped_metric("answer_relevance", prompts={"direct": version})
    score = score_of(metric, CASE, ScriptedJudge([reply]))["answer_relevance"]
    assert (score.value if score.status == "ok" else score.status) == expected
    assert (score.details or {}).get("completeness") == completeness
    if score.status == "ok":
        assert score.details["flags"] == []


@pytest.mark.parametrize(("told", "expected"), [("support", 1.0), ("partial_support", 0.0), ("not_support", 0.0)])
def test_a_reference_that_declines_is_one_vital_nugget(told, expected):
    """A refusal that gives the reason earns all, one without it half of the lenient scores, an answer that claims to know nothing."""
    case = make_case("I cannot say.", references=["The documents do not give the fee."])
    nugget = "It cannot be answered: the documents do not give the fee"
    judge = ScriptedJudge([{"nuggets": [{"nugget": nugget, "importance": "vital"}]}, {"verdicts": [{"index": 1, "support": told}]}])
    scores = score_of(shipped_metric("nuggets"), case, judge)
    assert scores["nuggets"].value == expected
    assert scores["nuggets_vital"].value == {"support": 1.0, "partial_support": 0.5, "not_support": 0.0}[told]
    assert "there is one nugget, and it is vital" in judge.asked[0].user


def test_sources_that_disagree_keep_the_numbers_of_the_answers_marks():
    """A mark [9] names the context of rank 9."""
    chunks = [{"text": f"The fee is {n}.", "rel_path": f"{n}.md", "rank": n} for n in (4, 7, 9)]
    anchors = [{"rel_path": "9.md", "role": "newer"}, {"rel_path": "7.md", "role": "older"}]
    labels = {"anchors": anchors, "recency_conflict_rule": "acknowledge_both", "citations": ["c1", "c2", "c3"]}
    call = planned("recency_conflict", make_case("The fee was raised.", chunks=chunks, **labels))["acknowledge"]
    newer, older = fence("The fee is 9."), fence("The fee is 7.")
    shown = f"Newer sources:\n[9]\n{newer}\n\nOlder sources:\n[7]\n{older}\n\nQuestion:\n"
    assert call.prompt.render(**call.values)[1]["content"].startswith(shown)


FACTS = ["Frost came early.", "The ferry ran late.", "The mill burned down."]


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
    chunks = [{"text": text, "rank": rank} for text, rank in zip(FACTS, ranks, strict=True)]
    case = make_case(said, chunks=chunks, citations=[{"marker": mark, "text": said} for mark in cited])
    contexts = "".join(f"[{number}]\n{fence(FACTS[place])}\n" for number, place in expected)
    citations = "".join(f"{i}. cites [{number}]: {fence(OnOneLine(said))}\n" for i, (number, _) in enumerate(expected, 1))
    head = f"Contexts:\n{contexts}\nCitations, each a text of an answer and the one context that it cites:\n{citations}\n"
    call = planned("citation", case)["support"]
    assert call.prompt.render(**call.values)[1]["content"].startswith(head + "Task:")


@pytest.mark.parametrize("name", ["chunk_faithfulness", "chunk_relevancy"])
def test_chunks_that_are_shown_one_at_a_time_keep_their_numbers(name):
    judge = ScriptedJudge(["NO", "NO", "NO"])
    asyncio.run(shipped_metric(name).measure(make_case("Snow [3].", chunks=FACTS), judge))
    heads = [f"Context:\n[{number}]\n{fence(text)}\n" for number, text in enumerate(FACTS, 1)]
    assert [asked.user.startswith(head) for asked, head in zip(judge.asked, heads, strict=True)] == [True] * 3


def policed(answer, *chunks):
    """A case with chunks of (policy, text)."""
    return make_case(answer, chunks=[{"text": text, "policy": policy} for policy, text in chunks])


def test_restricted_and_other_sources_keep_their_numbers():
    chunks = ("summarize", FACTS[0]), ("quote_only", FACTS[1]), ("no_use", "Snow lies on the pass.")
    case = policed("Snow fell on the pass [3].", *chunks)
    judge = ScriptedJudge([{"verdicts": [{"index": 2, "use": "not_used"}, {"index": 3, "use": "paraphrase"}]}])
    score = asyncio.run(shipped_metric("source_policy").measure(case, judge))
    first, second, third = (fence(chunk.text) for chunk in case.contexts)
    head = f"Sources:\n[2]\n{second}\n[3]\n{third}\n\nOther sources:\n[1]\n{first}\n\nAnswer:\n"
    assert judge.asked[0].user.startswith(head)
    assert [(row["rank"], row["use"]) for row in score.details["sources"]] == [(2, "not_used"), (3, "paraphrase")]


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_embedded_judge_finds_the_use_of_a_source_in_both_versions(version):
    """Its findings name sources by the numbers that the question shows."""
    copied = "Thick fog on the river: because of it, the ferry ran late."
    chunks = ("summarize", "The harbour is old."), ("quote_only", FACTS[0]), ("quote_only", copied)
    case = policed("The ferry ran late because of thick fog on the river.", *chunks)

    async def ask(prompt, answer, /, **values):
        return RulesJudge(RulesSettings()).answer(prompt, answer, values)

    score = asyncio.run(shipped_metric("source_policy", prompts={"use": version}).measure(case, ask))
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
    extract, verify = (asked.user for asked in judge.asked)
    assert "A reference answer that only declines makes one claim" in extract
    assert '"contradicted" where they do' in verify


def test_of_several_references_one_that_declines_counts_as_any_other():
    case = make_case("", chunks=["The fee is 5 euros."], question=FEE["question"], references=["In May.", *FEE["references"]])

    def reply(question):
        if question.step == "extract":
            return UNSAID if "not" in question.values["reference"] else {"claims": ["The fee is due in May."]}
        verdict = "supported" if "do not say" in question.values["claims"][0] else "not_supported"
        return {"verdicts": [{"index": 1, "verdict": verdict}]}

    (score,) = asyncio.run(shipped_metric("context_recall").measure(case, ScriptedJudge(reply)))
    assert (score.value, score.details["reference"]) == (100, "2 of 2")
