from typing import Any

import pytest

from ragpipe.stages.calibration_states import calibration_words, judge_calibrated


def states(**values: bool | None) -> dict[str, dict[str, Any]]:
    return {name: {"calibrated": value, "why": "because"} for name, value in values.items()}


@pytest.mark.parametrize(
    ("values", "calibrated", "words"),
    [
        ({}, None, "uncalibrated"),
        ({"a": None, "b": None}, None, "uncalibrated"),
        ({"a": True, "b": True}, True, ""),
        ({"a": True, "b": None}, None, "calibrated a; uncalibrated b"),
        ({"a": True, "b": False, "c": None}, False, "calibrated a; failed calibration b; uncalibrated c"),
        ({"a": False}, False, "failed calibration a"),
    ],
)
def test_a_judge_is_calibrated_where_all_its_scores_are(
    values: dict[str, bool | None], calibrated: bool | None, words: str
) -> None:
    assert judge_calibrated(states(**values)) is calibrated
    assert calibration_words(states(**values)) == words
