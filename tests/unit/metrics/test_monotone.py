"""No value falls when the judge thinks better of something.

Replies are built from the schema that a question asks for. One grade is raised, or one verdict turned from bad to good, with
everything else as it was; no score may get worse. Every shipped metric that asks a judge is held to it.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ragpipe.schema.score import Score
from ragpipe.testing.scripted import JudgeQuestion, ScriptedJudge, make_case, score_of, shipped_metric, shipped_names

# From the worst to the best. A flag or word that says nothing good or bad of the answer or its contexts is in NEUTRAL.
FLAGS: dict[str, list[Any]] = {
    **{name: [False, True] for name in ("supported", "relevant", "addresses_question", "on_topic", "accurate", "cited",
                                        "correct", "kept", "major_claims_cited", "acknowledged", "declines")},
    "violated": [True, False],
}  # fmt: skip
WORDS: list[list[str]] = [
    ["NO", "YES"],
    ["contradicted", "not_supported", "supported"],
    ["WRONG", "CORRECT"],
    ["insufficient", "partial", "sufficient"],
    ["not_support", "partial_support", "support"],
    ["paraphrase", "direct_quote", "not_used"],
]
USED = {
    "context_utilization": ["not_used", "direct_quote"]
}  # of contexts that may be used, which is then the good thing
NEUTRAL = {"training_cutoff", "importance", "severity"}
# What cannot be monotone, because the verdict is no praise of what the score measures: (metric, score, leaf).
BY_DEFINITION = {
    ("context_utilization", "context_utilization", "relevant"): "one more useful chunk that the answer might have used",
    ("noise_sensitivity", "noise_sensitivity_relevant", "relevant"): "the chunk's grade says to which of the two a claim counts",
    ("context_precision", "context_precision", "relevant"): "with method: ranked, a useful chunk at the end is ranked badly",
    ("context_precision", "context_precision_ranked", "relevant"): "a useful chunk at the end is one that is ranked badly",
}  # fmt: skip
ITEMS = (
    "claims",
    "nuggets",
    "citations",
    "rules",
    "sources",
    "contexts",
)  # what numbered verdicts are about, first wins
PARAMETERS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in shipped_names() if shipped_metric(name).step_names()),
    ("faithfulness", {"steps": "combined"}),
    ("context_recall", {"steps": "combined"}),
    ("chunk_faithfulness", {"exhaustive": True}),
    ("chunk_relevancy", {"exhaustive": True}),
    ("context_precision", {"method": "ranked"}),
    ("groundedness", {"cap_without_citations": 1}),
    ("rubric", {"scale": [-1.5, 2.0], "whole": False, "shows": ["answer", "reference"]}),
]
ASKING = {"rejection_calibration": {"detector": "judge"}, "format": {"wanted_tone": "polite"}}

Address = tuple[str, str, str]


class Replies:
    """Replies to whatever is asked: each leaf is drawn once and kept by step, item and name, so that a verdict on an item
    stays its verdict whatever number the item has in the next question."""

    def __init__(self, draw: Callable[..., Any], orders: dict[str, list[Any]]):
        self.draw = draw
        self.orders = orders
        self.leaves: dict[Address, Any] = {}
        self.worst_to_best: dict[Address, list[Any]] = {}

    def __call__(self, question: JudgeQuestion) -> Any:
        schema = question.payload.schema
        if schema.get("form") == "text":
            about = json.dumps({k: str(v) for k, v in question.values.items() if k != "existing"}, sort_keys=True)
            return self._leaf((question.step, about, "verdict"), {"enum": ["YES", "NO"]})
        return self._object(schema, question, "", "")

    def _object(self, schema: dict[str, Any], question: JudgeQuestion, item: str, path: str) -> dict[str, Any]:
        return {name: self._value(part, question, item, f"{path}{name}")
                for name, part in schema["properties"].items() if name != "index"}  # fmt: skip

    def _value(self, schema: dict[str, Any], question: JudgeQuestion, item: str, path: str) -> Any:
        schema = next((one for one in schema.get("anyOf", ()) if one.get("type") != "null"), schema)
        if schema.get("type") == "object":
            return self._object(schema, question, item, f"{path}.")
        if schema.get("type") == "array":
            return self._list(schema["items"], question, item, path)
        if schema.get("type") == "string" and "enum" not in schema:
            return item if path in ("claim", "nugget") else ""
        return self._leaf((question.step, item, path), schema)

    def _list(self, schema: dict[str, Any], question: JudgeQuestion, item: str, path: str) -> list[Any]:
        if schema.get("type") == "integer":  # the numbers of contexts that hold an item
            return [i for i in (1, 2) if self._drawn((question.step, item, f"{path}{i}"), st.booleans())]
        if schema.get("type") == "string":
            return ["fact 1", "fact 2", "fact 3"] if path == "claims" else []
        if "index" not in schema["properties"]:
            return [self._object(schema, question, f"fact {i}", "") for i in (1, 2, 3)]
        asked = next(question.values[name] for name in ITEMS if question.values.get(name))
        return [{"index": i, **self._object(schema, question, str(one), "")} for i, one in enumerate(asked, 1)]

    def _leaf(self, address: Address, schema: dict[str, Any]) -> Any:
        name = address[2].split(".")[-1]
        order = self.orders.get(name) or _order(name, schema)
        assert order or name in NEUTRAL, f"say in this file which {name} is the better one, or that neither is"
        if name not in NEUTRAL:
            self.worst_to_best[address] = order
        return self._drawn(address, st.sampled_from(schema.get("enum") or order or [False, True]))

    def _drawn(self, address: Address, values: st.SearchStrategy[Any]) -> Any:
        if address not in self.leaves:
            self.leaves[address] = self.draw(values)
        return self.leaves[address]

    def better(self) -> dict[Address, list[Any]]:
        """What each verdict and grade given so far could be raised to."""
        ranked = {a: (order, self.leaves[a]) for a, order in self.worst_to_best.items()}
        found = {a: order[order.index(value) + 1 :] for a, (order, value) in ranked.items() if value in order}
        return {address: values for address, values in found.items() if values}


def _order(name: str, schema: dict[str, Any]) -> list[Any] | None:
    """All values from the worst to the best; nine steps of a grade that need not be whole. None: nobody says."""
    if "minimum" in schema:
        low, high = schema["minimum"], schema["maximum"]
        return (
            list(range(low, high + 1))
            if schema["type"] == "integer"
            else [low + (high - low) * i / 8 for i in range(9)]
        )
    words = schema.get("enum")
    return FLAGS.get(name) if words is None else next((some for some in WORDS if set(some) == set(words)), None)


def scores(name: str, parameters: dict[str, Any], case: Any, replies: Replies) -> dict[str, Score]:
    metric = shipped_metric(name, **ASKING.get(name, {}), **parameters)
    return score_of(metric, case, ScriptedJudge(replies))


@st.composite
def cases(draw: Any) -> Any:
    """A case with every label, so that every metric asks; its answer cites, by marks or beside it, or does not."""
    chunks = [
        {"id": f"c{i}", "text": f"passage {i}", "rel_path": f"{i}.md", "policy": "quote_only"}
        for i in range(1, draw(st.integers(2, 4)) + 1)
    ]
    expected = {"behavior": "reject", "requires_citations": draw(st.sampled_from([None, False, True]))}
    return make_case(
        draw(st.sampled_from(["Alpha is one thing. Beta is another.", "Alpha is one thing [1]. Beta is another."])),
        chunks=chunks, references=["Alpha and beta."], answerable=False, recency_conflict_rule="acknowledge_both",
        anchors=[{"rel_path": "1.md", "role": "newer"}, {"rel_path": "2.md", "role": "older"}],
        citations=draw(st.sampled_from([["c1", "c2"], ["c1", "c2", "lost"]])), expected=expected,
    )  # fmt: skip


@pytest.mark.thorough(tried=8)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "parameters"), PARAMETERS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(case=cases(), data=st.data())
def test_no_score_gets_worse_when_one_verdict_gets_better(name, parameters, case, data):
    replies = Replies(data.draw, {"use": USED[name]} if name in USED else {})
    before = scores(name, parameters, case, replies)
    assert replies.worst_to_best or before[name].reason == "citations_not_required", (
        "it asks, and no reply holds a verdict"
    )
    better = replies.better()
    assume(better)
    address = data.draw(st.sampled_from(sorted(better)))
    replies.leaves[address] = data.draw(st.sampled_from(better[address]))
    after = scores(name, parameters, case, replies)
    specs = {spec.name: spec for spec in shipped_metric(name, **ASKING.get(name, {}), **parameters).scores()}
    for score_name, spec in specs.items():
        old, new = before[score_name].value, after[score_name].value
        if old is None or new is None or (name, score_name, address[2].split(".")[-1]) in BY_DEFINITION:
            continue
        gain = new - old if spec.higher_is_better else old - new
        assert gain >= -1e-9, f"{score_name} {old} -> {new} when {address} rose to {replies.leaves[address]!r}"
