"""From several members' scores to one: literal cases by hand, and who is asked in a cascade."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.judging.jury.aggregation import agreement_of, combine, is_drawn, is_unsure, one_value
from ragpipe.judging.jury.settings import CascadeSettings
from ragpipe.schema.sample import CaseKey
from ragpipe.schema.score import Score, ScoreSpec

GRADE = ScoreSpec("grade", 1, 5)
VERDICT = ScoreSpec("verdict", binary=True)
LOWER = ScoreSpec("leak", higher_is_better=False)
COUNT = ScoreSpec("count", None, None)


@pytest.mark.parametrize(
    ("values", "rule", "higher_is_better", "expected"),
    [
        ([1, 1, 0], "majority", True, 1),
        ([1, 0], "majority", True, None),
        ([4, 4, 2, 2, 5], "majority", True, None),
        ([4, 4, 2, 5], "majority", True, 4),
        ([3], "majority", True, 3),
        ([1, 2, 4.5], "mean", True, 2.5),
        ([1, 2, 5], "median", True, 2),
        ([1, 2, 4, 5], "median", True, 3),
        ([0.2, 0.9], "min", True, 0.2),
        ([0.2, 0.9], "min", False, 0.9),
    ],
)
def test_values_become_one(values: list[float], rule: Any, higher_is_better: bool, expected: float | None) -> None:
    assert one_value(values, rule, higher_is_better=higher_is_better) == expected


@pytest.mark.parametrize(
    ("values", "spec", "expected"),
    [
        ([1], GRADE, None),
        ([1, 5], GRADE, 0),
        ([4, 4, 4], GRADE, 1),
        ([4, 2, 5], GRADE, 1 - (2 + 1 + 3) / 3 / 4),
        ([1, 1, 0], VERDICT, 1 / 3),  # of three pairs one is equal
        ([7, 7, 8], COUNT, 1 / 3),
    ],
)
def test_agreement_is_the_share_of_equal_pairs_or_their_nearness(
    values: list[float], spec: ScoreSpec, expected: float | None
) -> None:
    assert agreement_of(values, spec) == (None if expected is None else pytest.approx(expected))


def ok(value: float, **details: Any) -> list[Score]:
    return [Score(value, details=details)]


FAILED = [Score(None, status="error", reason="unparsable: nothing to read", details={"kind": "unparsable"})]
SKIPPED = [Score(None, status="skipped", reason="no_answer")]


def combined(spec: ScoreSpec, opinions: dict[str, list[Score]], **options: Any) -> Score:
    return combine(spec, opinions, **{"rule": None, "min_members": 2, "threshold": 0.8, **options})


@pytest.mark.parametrize(
    ("spec", "opinions", "options", "status", "value"),
    [
        (GRADE, {"a": ok(4), "b": ok(2), "c": ok(5)}, {}, "ok", 11 / 3),
        (GRADE, {"a": ok(4), "b": ok(2), "c": ok(5)}, {"rule": "median"}, "ok", 4),
        (GRADE, {"a": ok(4), "b": ok(2), "c": ok(5)}, {"rule": "min"}, "ok", 2),
        (LOWER, {"a": ok(0), "b": ok(0.5)}, {"rule": "min"}, "ok", 0.5),
        (VERDICT, {"a": ok(1), "b": ok(0), "c": ok(1)}, {}, "ok", 1),
        (VERDICT, {"a": ok(1), "b": ok(0)}, {}, "error", None),
        (VERDICT, {"a": ok(1), "b": FAILED, "c": ok(1)}, {}, "ok", 1),
        (VERDICT, {"a": ok(1), "b": FAILED, "c": FAILED}, {}, "error", None),
        (VERDICT, {"a": ok(1), "b": FAILED, "c": FAILED}, {"min_members": 1}, "ok", 1),
        (VERDICT, {"a": SKIPPED, "b": SKIPPED}, {}, "skipped", None),
        (VERDICT, {"a": SKIPPED, "b": FAILED}, {}, "error", None),
        (VERDICT, {"a": ok(1)}, {}, "ok", 1),  # a metric that one member alone judges
        (VERDICT, {"a": ok(1) + ok(0) + ok(1)}, {}, "ok", 1),
        (VERDICT, {"a": ok(1) + ok(0)}, {}, "error", None),
        (GRADE, {"a": ok(4) + ok(5), "b": ok(2) + FAILED}, {}, "ok", 3.25),
    ],
)
def test_members_become_one_score(
    spec: ScoreSpec, opinions: dict[str, list[Score]], options: dict[str, Any], status: str, value: float | None
) -> None:
    score = combined(spec, opinions, **options)
    assert score.status == status
    assert score.value == (None if value is None else pytest.approx(value))
    assert list(score.details["jury"]["members"]) == list(opinions)
    if status == "error" and len(opinions) > 1:
        assert score.details["kind"] == "no_majority"


def test_the_details_are_those_of_a_member_with_the_same_value() -> None:
    score = combined(VERDICT, {"a": ok(0, claims=["a"]), "b": ok(1, claims=["b"]), "c": ok(1, claims=["c"])})
    assert score.details["claims"] == ["b"]
    assert score.reason == "majority of a 0, b 1, c 1"
    assert "claims" not in combined(GRADE, {"a": ok(1, claims=["a"]), "b": ok(4, claims=["b"])}).details


def test_a_member_that_contradicts_itself_is_flagged() -> None:
    wavering = combined(VERDICT, {"a": ok(1) + ok(0) + ok(1), "b": ok(1) * 3})
    assert wavering.details["jury"]["self_consistency"] == {"a": 0.333333, "b": 1.0}
    assert wavering.details["jury"]["flags"] == ["self_inconsistent"]
    assert "flags" not in combined(GRADE, {"a": ok(4) + ok(4.5), "b": ok(4) * 2}).details["jury"]


@pytest.mark.slow
@given(st.lists(st.integers(1, 5), min_size=1, max_size=7), st.sampled_from(["mean", "median", "min", "majority"]))
def test_no_rule_leaves_what_was_said_and_order_does_not_count(values: list[int], rule: Any) -> None:
    found = one_value(values, rule)
    assert one_value(values[::-1], rule) == (None if found is None else pytest.approx(found))
    if found is not None:
        assert min(values) <= found <= max(values)
    elif rule == "majority":
        counts = sorted(values.count(value) for value in set(values))
        assert counts[-1] == counts[-2]
    else:
        raise AssertionError("only a majority can be tied")


CASCADE = CascadeSettings(first="a", then="b", near=0.5, within=0.25, random_share=0.3)


@pytest.mark.parametrize(
    ("spec", "score", "unsure"),
    [
        (GRADE, Score(3), True),
        (GRADE, Score(4), True),  # .75 of the range: at the edge
        (GRADE, Score(5), False),
        (GRADE, Score(1), False),
        (VERDICT, Score(1), False),
        (COUNT, Score(3), False),
        (GRADE, FAILED[0], True),
        (GRADE, SKIPPED[0], False),
    ],
)
def test_the_first_member_is_unsure_near_the_middle_and_where_it_failed(
    spec: ScoreSpec, score: Score, unsure: bool
) -> None:
    assert is_unsure(CASCADE, spec, score) is unsure


def test_the_draw_is_the_same_in_every_start_and_as_large_as_was_asked_for() -> None:
    keys = [CaseKey(f"q{number}", "m", 1, 1) for number in range(4000)]
    drawn = [is_drawn(CASCADE, key, "grade") for key in keys]
    assert drawn == [is_drawn(CASCADE, key, "grade") for key in keys]
    assert sum(drawn) / len(drawn) == pytest.approx(0.3, abs=0.03)  # four standard errors
    assert drawn != [is_drawn(CASCADE, key, "other") for key in keys]
