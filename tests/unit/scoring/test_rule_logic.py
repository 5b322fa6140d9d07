"""The logic of rules against a second, plain implementation of it: one case at a time, None for not applicable."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from ragpipe.scoring.case_blocks import CaseBlock
from ragpipe.scoring.normalisation import OK, SKIPPED, Column
from ragpipe.scoring.rules.conditions import Condition, Facts

READ: TypeAdapter[Any] = TypeAdapter(Condition)
VALUES = (None, 0.0, 0.5, 1.0)
CASES = [{"a": a, "b": b} for a in VALUES for b in VALUES]  # `c` is a score that the run does not have
LEAVES = st.fixed_dictionaries({"score": st.sampled_from([["a"], ["b"], ["c"], ["c", "b"]])}).flatmap(
    lambda given: st.sampled_from(
        [{**given, "below": 0.5}, {**given, "at_least": 0.5}, {**given, "measured": False}, {**given, "above": 0.2, "at_most": 0.5}]
    )
)  # fmt: skip
RULES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        *(st.fixed_dictionaries({kind: st.lists(inner, min_size=1, max_size=3)}) for kind in ("all", "any", "none"))
    ),
    max_leaves=8,
)


def plain(rule: dict[str, Any], case: dict[str, float | None]) -> str | None:
    """`yes`, `no` or `unknown`; None for what the run cannot say."""
    if "score" in rule:
        return leaf(rule, case)
    (kind,) = rule
    parts = [plain(part, case) for part in rule[kind]]
    if kind == "any":
        there = [part for part in parts if part is not None]
        return None if not there else "yes" if "yes" in there else "no" if "no" in there else "unknown"
    if None in parts:
        return None
    if kind == "none":
        parts = [{"yes": "no", "no": "yes"}.get(str(part), "unknown") for part in parts]
    return "no" if "no" in parts else "unknown" if "unknown" in parts else "yes"


def leaf(rule: dict[str, Any], case: dict[str, float | None]) -> str | None:
    name = next((name for name in rule["score"] if name in case), None)
    if "measured" in rule:
        return "yes" if name is None or case[name] is None else "no"
    if name is None:
        return None
    value = case[name]
    if value is None:
        return "unknown"
    holds = (
        value < rule.get("below", 9)
        and value >= rule.get("at_least", -9)
        and value > rule.get("above", -9)
        and value <= rule.get("at_most", 9)
    )
    return "yes" if holds else "no"


def facts() -> Facts:
    columns = {}
    for name in ("a", "b"):
        values = np.array([np.nan if case[name] is None else case[name] for case in CASES])
        status = np.where(np.isnan(values), SKIPPED, OK).astype(np.int8)
        unjudged = np.full(len(CASES), -1, dtype=np.int8)
        columns[name] = Column(values, values, unjudged, status, pa.nulls(len(CASES), pa.string()))
    empty = pa.table({"sample_id": [str(n) for n in range(len(CASES))]})
    return Facts(CaseBlock(empty, empty, empty, np.empty(0, dtype=np.int64)), columns, {}, ["a", "b"])


FACTS = facts()


@pytest.mark.slow
@given(RULES)
def test_rules_say_what_plain_logic_says(rule: dict[str, Any]) -> None:
    found = READ.validate_python(rule).holds(FACTS)
    said = [plain(rule, case) for case in CASES]
    if found is None:
        assert set(said) == {None}
    else:
        assert [{1: "yes", 0: "no", -1: "unknown"}[truth] for truth in found.tolist()] == said
