"""A score is warned of below the floor of its coverage, and not at it."""

from __future__ import annotations

import pytest

from ragpipe.scoring.aggregate import coverage_warnings


@pytest.mark.parametrize(("n_ok", "warned"), [(19, True), (20, False), (21, False)])
def test_the_floor_itself_is_enough(n_ok: int, warned: bool) -> None:
    """20 of 25 are exactly 80 %."""
    score = {"coverage": n_ok / 25, "n_ok": n_ok, "n_error": 25 - n_ok, "errors": {"timeout": 25 - n_ok}}
    warnings = coverage_warnings({"faithfulness": score}, floor=0.8)
    assert [line.rpartition(": ")[2] for line in warnings] == (["faithfulness"] if warned else [])


def test_no_coverage_is_no_warning() -> None:
    assert coverage_warnings({"faithfulness": {"coverage": None}}, floor=0.8) == []


def test_scores_that_lost_the_same_share_a_line() -> None:
    lost = {"coverage": 0.9, "n_ok": 9, "n_system_error": 1}
    unread = {"coverage": 0.5, "n_ok": 5, "n_error": 5, "errors": {"refused": 2, "timeout": 3}}
    scores = {"a": lost, "b": unread, "c": lost} | {name: lost for name in "defgh"}
    assert coverage_warnings(scores, floor=0.95) == [
        "only 9 of 10 judgements came out (90.0%, floor 95%; system errors 1): a, c, d, e, f, g, ... (7 scores)",
        "only 5 of 10 judgements came out (50.0%, floor 95%; refused 2, timeout 3): b",
    ]
