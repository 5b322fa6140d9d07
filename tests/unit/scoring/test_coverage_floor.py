"""A score is warned of below the floor of its coverage, and not at it."""

from __future__ import annotations

import pytest

from ragpipe.scoring.coverage import coverage_warnings


@pytest.mark.parametrize(("n_ok", "warned"), [(19, True), (20, False), (21, False)])
def test_the_floor_itself_is_enough(n_ok: int, warned: bool) -> None:
    """20 of 25 are exactly 80 %."""
    score = {"coverage": n_ok / 25, "n_ok": n_ok, "n_error": 25 - n_ok, "errors": {"timeout": 25 - n_ok}}
    warnings = coverage_warnings({"faithfulness": score}, floor=0.8)
    assert [line.partition(":")[0] for line in warnings] == (["faithfulness"] if warned else [])


def test_no_coverage_is_no_warning() -> None:
    assert coverage_warnings({"faithfulness": {"coverage": None}}, floor=0.8) == []
