"""Calls and prompt tokens a case of the four triad metrics: the questions themselves, counted as gpt-4o counts them."""

import asyncio
import json

import pytest

from ragpipe.judging.token_count import count_tokens
from ragpipe.testing.scripted import ScriptedJudge, make_case, shipped_metric
from tests.support.claim_verdicts import in_both_forms

FACTS = [
    "The harbour of the third district was opened in 1803 by the town council.",
    "It lies four kilometres north of the old church.",
    "About 333 people worked there in its best year.",
    "It was rebuilt after the great flood and given a slate roof.",
]
PASSAGE = " ".join(
    ["Visitors wrote in their diaries that the road was muddy and that the inn was full."] * 10 + FACTS[:1]
)
CASE = make_case(
    " ".join(FACTS),
    chunks=[f"Passage {i}. {PASSAGE}" for i in range(5)],
    question="What is known about the harbour of the third district?",
    references=[" ".join(FACTS)],
)
COMBINED = {"steps": "combined"}


def reply(question):
    if question.step == "extract":
        return {"claims": FACTS}
    if question.step == "verify":
        return {"verdicts": [{"index": i} | in_both_forms(True) for i in range(1, 5)]}
    if question.step == "combined":
        return {"claims": [{"claim": fact} | in_both_forms(True) for fact in FACTS]}
    if question.step == "direct":
        return {"addresses_question": True, "on_topic": True, "completeness": 1, "score": 1}
    return {"verdicts": [{"index": i, "relevant": True, "relevance": 90} for i in range(1, 6)]}


# performance.md, goal 5: at most 6 calls and 6,500 prompt tokens with the documents' steps, at most 4 calls combined; 7,500
# tokens with version 2, whose rules are longer
LIMITS = [({}, None, 6, 7_500), ({}, "v1", 6, 6_500), ({}, "v2", 6, 7_500)]
LIMITS += [(COMBINED, None, 4, 6_000), (COMBINED, "v1", 4, 6_000), (COMBINED, "v2", 4, 6_000)]


@pytest.mark.parametrize(("parameters", "version", "calls", "tokens"), LIMITS)
def test_the_triad_keeps_within_its_calls_and_tokens(parameters, version, calls, tokens):
    judge = ScriptedJudge(reply)
    for name in ("faithfulness", "answer_relevance", "context_precision", "context_recall"):
        chosen = dict(parameters) if name in ("faithfulness", "context_recall") else {}
        if version:
            chosen["prompts"] = dict.fromkeys(shipped_metric(name).step_names(), version)
        asyncio.run(shipped_metric(name, **chosen).measure(CASE, judge))
    assert all(190 <= count_tokens(chunk.text, "gpt-4o") <= 230 for chunk in CASE.contexts)
    assert len(judge.asked) == len({question.payload.id for question in judge.asked}) == calls
    used = sum(count_tokens(m["content"], "gpt-4o") for q in judge.asked for m in q.payload.messages)
    assert 5_000 < used <= tokens, json.dumps([q.step for q in judge.asked])
