"""Each option of a judge that names a run shows in what is asked: in a request body, or in the key of a question."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ragpipe.core.resources import prompts_dir
from ragpipe.core.sample import CaseKey, Chunk
from ragpipe.judge.answer_type import Answer
from ragpipe.judge.answers import Grade05, QuotedVerdicts
from ragpipe.judge.case_judge import CaseJudge
from ragpipe.judge.prompt_library import PromptLibrary
from ragpipe.judge.provider_state import OutputModeFallback
from ragpipe.judge.session import JudgeSession
from ragpipe.judge.settings import JudgeSettings
from ragpipe.store.call_store import CallStore
from tests.unit.judge.test_reply_corpus import Scripted

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

MODEL = "openai/gpt-4o-mini-2024-07-18"
EFFECTS: dict[str, tuple[dict[str, Any], Any]] = {
    "revision": ({"model": "hosted_vllm/m", "revision": "1a2b3c4"}, "5d6e7f8"),
    "model": ({}, "openai/gpt-4o-2024-08-06"),
    "endpoint": ({}, "lab"),
    "season": ({}, "again"),
    "temperature": ({}, 0.5),
    "seed": ({}, 7),
    "max_tokens": ({}, 99),
    "reasoning_effort": ({"capabilities": {"reasoning_effort": True}}, "low"),
    "shuffle_seed": ({}, 7),
}
"""The options, each with what else is set on both sides, and another value."""
REPLIES: dict[type[Answer], str] = {
    QuotedVerdicts: '{"verdicts": [{"index": 1, "evidence": [], "reason": "", "verdict": "supported"}]}',
    Grade05: '{"reason": "", "score": 4}',
}


def asked(path: Path, **options: Any) -> list[tuple[str, Any]]:
    """Key and request body of each question that this judge is asked: whether long contexts support a claim, and for a grade."""
    judge = JudgeSettings(**{"model": MODEL, "api_base": "http://127.0.0.1:1/v1", **options})
    store, transport = CallStore(path, run_id="r"), Scripted(lambda question: REPLIES[question.answer])
    session = JudgeSession(
        identity=judge.identity_of_judge(), label=judge.label, transport=transport, store=store, shuffle_seed=judge.shuffle_seed,
    )  # fmt: skip
    case, prompts = CaseJudge(session, CaseKey("q1", "default", 1), "m"), PromptLibrary([prompts_dir()])
    contexts = [Chunk(id=f"c{n}", rank=n, text=f"chunk {n}: " + "word " * 300) for n in range(1, 9)]

    async def ask() -> None:
        await case(prompts.load("faithfulness", "verify", "v2"), QuotedVerdicts, contexts=contexts, claims=["A claim."])
        grade = {"question": "?", "answer": "!", "contexts": [], "criteria": "Be strict.", "anchors": [], "examples": []}
        await case(prompts.load("rubric", "grade", "v1"), Grade05, **grade)

    try:
        asyncio.run(ask())
    finally:
        store.close()
    forms = OutputModeFallback(judge)
    return [(question.key, forms.body(question, forms.form(question))) for question in transport.asked]


def test_each_option_of_the_identity_is_tried() -> None:
    """A new option needs a row above, or `NotInIdentity`."""
    # what a model takes decides which questions are too long for it, not how one is asked
    assert {*EFFECTS, "capabilities"} == set(JudgeSettings(model=MODEL).identity())


@pytest.mark.parametrize("name", EFFECTS)
def test_an_option_of_the_identity_shows_in_what_is_asked(tmp_path: Path, name: str) -> None:
    more, value = EFFECTS[name]
    before, again, after = (
        asked(tmp_path / f"{number}.sqlite", **{**more, **options}) for number, options in enumerate(({}, {}, {name: value}))
    )
    assert before == again != after
