"""What a screen says of a judge by labels of people: from the run's own figures, and from a calibration that was made since."""

from typing import Any

import pytest

from ragpipe.score.gate_results import NO_CALIBRATION, trust_words

NEVER, UNSURE = (None, NO_CALIBRATION), (None, "not enough labels to say that it is above 0.8")
PASSED, FAILED = (True, "above 0.8"), (False, "below 0.8")


@pytest.mark.parametrize(
    ("states", "beside", "words"),
    [
        ({}, None, "never calibrated"),
        ({"a": NEVER, "b": NEVER}, None, "never calibrated"),
        ({"a": PASSED, "b": PASSED}, None, "passed its calibration"),
        ({"a": PASSED, "b": NEVER}, None, "partly calibrated"),
        ({"a": PASSED, "b": FAILED}, None, "FAILED its calibration"),
        ({"a": UNSURE, "b": NEVER}, None, "not calibrated"),
        ({"a": NEVER}, {"a": "passed", "other": "failed"}, "passed its calibration"),
        ({"a": NEVER}, {"a": "failed"}, "FAILED its calibration"),
        ({"a": NEVER}, {"a": "not_enough_labels"}, "not calibrated"),
    ],
)
def test_what_is_known_of_a_judge(states: dict[str, tuple[bool | None, str]], beside: dict[str, str] | None, words: str) -> None:
    metrics: dict[str, Any] = {
        "judge": {"calibrated": None},
        "calibration": {name: {"calibrated": verdict, "why": why} for name, (verdict, why) in states.items()},
    }
    document = None if beside is None else {"scores": {name: {"state": state} for name, state in beside.items()}}
    assert trust_words(metrics, document) == words
