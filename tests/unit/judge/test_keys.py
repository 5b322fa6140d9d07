"""The key of a question: what is in it, what is not, and golden values that must never change by accident."""

import asyncio
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from ragpipe.core.call import Payload
from ragpipe.core.sample import AnyReference, Case, Chunk
from ragpipe.core.score import Score
from ragpipe.judge.answer_type import Answer, Integer, answer_schema
from ragpipe.judge.answers import ANSWER_TYPES, ClaimOrigins, Claims, QuotedVerdicts, TwoAxes, Verdicts, YesNo
from ragpipe.judge.case_judge import CaseJudge, ShownOrder, shown_order
from ragpipe.judge.question import Question, judge_parts, key_parts, question_key
from ragpipe.judge.session import JudgeSession
from ragpipe.judge.settings import JudgeSettings
from ragpipe.metrics.base import Metric
from ragpipe.store.call_store import CallStore
from ragpipe.testing.scripted import make_case, shipped_metric
from tests.unit.judge.test_reply_corpus import Scripted

GOLDEN_PAYLOADS: dict[type[Answer], str] = {
    Claims: "cdcc930ac6bb9536", Verdicts: "7e4ceb5db88b7e69", TwoAxes: "77e6eb368938634b", YesNo: "10129dd667adc042",
}  # fmt: skip
MESSAGES = ({"role": "system", "content": "Judge."}, {"role": "user", "content": "Is it?\nZürich"})


def key(answer: type[Answer] = Claims, iteration: int = 1, repeat: int = 1, messages: Any = MESSAGES, **judge: Any) -> str:
    settings = JudgeSettings(**{"model": "openai/gpt-4o-mini-2024-07-18", **judge})
    return question_key(key_parts(Payload(messages, answer_schema(answer)), judge_parts(settings.identity_of_judge()), iteration, repeat))


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


@pytest.mark.parametrize("edit", [
    {"iteration": 2}, {"repeat": 2}, {"answer": YesNo}, {"season": "s2"}, {"temperature": 0.5}, {"seed": 1},
    {"model": "openai/gpt-4o-2024-08-06"}, {"temperature": None}, {"api_base": "http://127.0.0.1:1/v1"},
    {"endpoint": "mine", "api_base": "http://127.0.0.1:1/v1"},
    {"messages": (MESSAGES[0], {"role": "user", "content": "Is it? Zürich"})},
])  # fmt: skip
def test_another_question(edit: dict[str, Any]) -> None:
    assert key(**edit) != key()


def test_golden_keys() -> None:
    """Frozen when the first version was published: a change here bills every user again. Payload ids of fixed messages."""
    assert {kind: Payload(MESSAGES, answer_schema(kind)).id[:16] for kind in GOLDEN_PAYLOADS} == GOLDEN_PAYLOADS


SEEDS = range(12)
GOOD = "granted"
"""What a text must hold for the judge below to be for it, whatever its place."""
_NUMBERED = re.compile(r"^(?:\[(\d+)\]|(\d+)\.) ?(?:cites \[\d+\]: )?\n?<[0-9a-f]{12}>[\n ](.*?)[\n ]</", re.M | re.S)


def _verdict(kind: str, number: int, text: str) -> dict[str, Any]:
    """A verdict on an item by its text alone, in the form that the step reads."""
    good = GOOD in text
    forms: dict[str, dict[str, Any]] = {
        "verify": {"evidence": [], "reason": text, "verdict": "supported" if good else "not_supported"},
        "grade": {"reason": text, "relevance": 90 if good else 5, "relevant": good, "grade": 3 if good else 0},
        "use": {"evidence": "", "reason": text, "use": "paraphrase" if good else "not_used"},
        "check": {"reason": text, "correct": good},
        "assign": {"reason": text, "support": "support" if good else "not_support"},
        "support": {"evidence": "", "reason": text, "accurate": good},
        "examine": {"evidence": "", "reason": text, "severity": "none" if good else "high", "violated": not good},
    }
    return {"index": number, **forms[kind]}


def _reply(step: str, user: str) -> Any:
    """By what the items of a question say, never by their place or number."""
    if step == "extract":
        return {"claims": [f"Claim {n} is {GOOD if n % 3 else 'refused'}." for n in range(1, 6)]}
    if step == "nuggetize":
        words = [f"Nugget {n} is {GOOD if n % 2 else 'refused'}." for n in range(1, 5)]
        return {"nuggets": [{"nugget": text, "importance": "vital"} for text in words]}
    if step == "coverage":
        return {"claims": [{"claim": "One.", "marker": "[1]", "cited": True}]}
    if step == "trace":
        contexts, claims = user.split("Claims:")
        placed = [int(n) for n, _, text in _NUMBERED.findall(contexts) if "chunk 2" in text]
        listed = [int(n) for _, n, _ in _NUMBERED.findall(claims)]
        return {"verdicts": [{"index": n, "reason": "", "contexts": placed} for n in listed]}
    heads = {"verify": "Claims:", "check": "Claims:", "assign": "Nuggets:", "support": "Citations,", "examine": "Rules "}
    listed = user[user.index(heads.get(step, "")) :]  # the step wants verdicts on what is after the heading of its own list
    verdicts = [_verdict(step, int(a or b), text) for a, b, text in _NUMBERED.findall(listed)]
    return {"verdicts": verdicts, "reason": "", "score": 0.5}


def judge_of_texts(question: Question) -> str:
    return json.dumps(_reply(question.step.rpartition(" / ")[2], question.payload.messages[-1]["content"]))


def _case() -> Case:
    texts = [f"This is chunk {n}, {GOOD if n in (2, 5) else 'refused'}." for n in range(1, 6)]
    answer = "The permit was granted [2]. It was refused before [1]. It runs for two years [5]."
    return make_case(answer, texts, references=["The permit was granted."])


def _measured(metric: Metric, seed: int | None, tmp_path: Any) -> tuple[Any, list[str]]:
    """What the metric says of the case under this seed, and the last messages of its questions."""
    store = CallStore(tmp_path / f"{metric.name}-{seed}.sqlite", run_id="r")
    transport = Scripted(judge_of_texts)
    session = JudgeSession(identity={"model": "m"}, label="m", transport=transport, store=store, shuffle_seed=seed)
    case = _case()
    try:
        scores = asyncio.run(metric.measure(case, CaseJudge(session, case.key, metric.name)))
    finally:
        asyncio.run(session.close())
        store.close()
    scores = [scores] if isinstance(scores, Score) else list(scores)
    shown = [question.payload.messages[-1]["content"] for question in transport.asked]
    return [(s.name, s.value, s.status, s.details) for s in scores], shown


METRICS: Mapping[str, dict[str, Any]] = {
    "faithfulness": {"batch": 3}, "context_recall": {}, "context_precision": {}, "context_relevance": {}, "relevance_grade": {},
    "context_utilization": {}, "noise_sensitivity": {}, "nuggets": {}, "citation": {"markers": True},
    "policy_compliance": {"patterns": [], "policies": {f"p{n}": f"Rule {n}: {GOOD if n % 2 else 'not'}." for n in range(1, 6)}},
}  # fmt: skip


@pytest.mark.thorough(tried=3)
@pytest.mark.slow
@pytest.mark.parametrize("name", METRICS)
def test_a_judge_of_texts_gives_equal_scores_and_details_for_every_seed(name: str, tmp_path: Any) -> None:
    metric = shipped_metric(name, **METRICS[name])
    plain, asked = _measured(metric, None, tmp_path)
    results = [_measured(metric, seed, tmp_path) for seed in SEEDS]
    assert [scores for scores, _ in results] == [plain] * len(SEEDS)
    assert any(messages != asked for _, messages in results), "no seed changed what was shown"
    again = tmp_path / "again"
    again.mkdir()
    assert _measured(metric, 3, again)[1] == results[3][1]


def test_contexts_stay_in_order_where_a_text_names_one_by_its_number() -> None:
    metric = shipped_metric("answer_synthesis")
    prompt, answer = metric.prompts()["grade"], ANSWER_TYPES["TwoAxes"]
    chunks = _case().contexts

    def order_of(text: str, seed: int) -> list[str]:
        values = {"contexts": chunks, "question": "Why?", "answer": text}
        return [chunk.id for chunk in shown_order(prompt, values, answer, seed, "q1").values["contexts"]]

    plain = [chunk.id for chunk in chunks]
    for text in ("So it is [2].", "So it is [1, 3].", "See source 2.", "So it is (2).", "So 【2】."):
        assert all(order_of(text, seed) == plain for seed in SEEDS), text
    assert any(order_of("It was so in 1843, and [sic] (2019).", seed) != plain for seed in SEEDS)


def test_newer_and_older_sources_are_shuffled_apart_with_their_numbers() -> None:
    prompt = shipped_metric("recency_conflict").prompts()["acknowledge"]
    newer = [Chunk(id=f"n{n}", rank=n, text=f"New {n}.") for n in (1, 4, 6)]
    older = [Chunk(id=f"o{n}", rank=n, text=f"Old {n}.") for n in (2, 3, 5)]
    values = {"newer": newer, "older": older, "numbers": [1, 4, 6, 2, 3, 5], "question": "?", "answer": "A [4]."}
    for seed in SEEDS:
        shown = shown_order(prompt, values, ANSWER_TYPES["Acknowledgement"], seed, "q1").values
        assert [chunk.rank for chunk in (*shown["newer"], *shown["older"])] == shown["numbers"]
        assert {chunk.id for chunk in shown["newer"]} == {"n1", "n4", "n6"}


def test_references_that_count_alike_are_shuffled_and_earlier_turns_and_examples_are_not() -> None:
    prompt = shipped_metric("correctness").prompts()["grade"]
    texts, turns = [f"Reference {n}." for n in range(5)], ["first", "second", "third"]
    values = {"question": "?", "answer": "A.", "reference": AnyReference(texts), "history": turns, "examples": turns}
    orders = [shown_order(prompt, values, ANSWER_TYPES["Grade15"], seed, "q1").values for seed in SEEDS]
    assert all(isinstance(order["reference"], AnyReference) for order in orders)
    assert len({order["reference"].texts for order in orders}) > 4
    assert all(sorted(order["reference"].texts) == texts for order in orders)
    assert all((order["history"], order["examples"]) == (turns, turns) for order in orders)


def test_a_number_without_an_item_stays_wrong_and_nested_numbers_come_back() -> None:
    order = ShownOrder({}, {"claims": [3, 1, 2], "sources": [2, 3, 1]})
    reply = {"verdicts": [{"index": n, "contexts": [1, 3, 7]} for n in (1, 2, 4, 0)]}
    verdicts = order.restored(ClaimOrigins.model_validate(reply)).verdicts
    assert [(verdict.index, verdict.contexts) for verdict in verdicts] == [(n, [2, 1, 7]) for n in (3, 1, 4, 0)]


class OwnVerdict(Answer):
    """A verdict of somebody's own, with an index that is not declared."""

    index: Integer


class OwnVerdicts(Answer):
    verdicts: list[OwnVerdict]


def test_items_with_undeclared_numbers_are_not_shuffled() -> None:
    prompt = shipped_metric("faithfulness").prompts()["verify"]
    values = {"contexts": _case().contexts, "claims": [f"Claim {n}." for n in range(6)]}
    assert all(shown_order(prompt, values, OwnVerdicts, seed, "q1").values == values for seed in SEEDS)
    assert any(shown_order(prompt, values, QuotedVerdicts, seed, "q1").values != values for seed in SEEDS)


def test_every_shipped_index_is_declared() -> None:
    undeclared = [n for n, a in ANSWER_TYPES.items() if "index" in a.model_fields and "index" not in a.numbered_items]
    assert undeclared == []


def test_the_order_depends_on_seed_sample_and_step_alone() -> None:
    prompt = shipped_metric("context_precision").prompts()["grade"]
    values = {"contexts": _case().contexts, "question": "?"}

    def order(seed: int, sample: str, step: Any = prompt) -> list[str]:
        return [c.id for c in shown_order(step, values, ANSWER_TYPES["ChunkGrades"], seed, sample).values["contexts"]]

    assert order(1, "q1") == order(1, "q1")
    assert len({tuple(order(1, f"q{n}")) for n in range(20)}) > 10
    assert len({tuple(order(n, "q1")) for n in range(20)}) > 10
    other = shipped_metric("relevance_grade").prompts()["grade"]
    assert any(order(n, "q1") != order(n, "q1", other) for n in range(5))
