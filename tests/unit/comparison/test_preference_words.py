"""What a verdict says of a preference beside the scores."""

from typing import Any

import pytest

from ragpipe.comparison.headline import preference_reason
from ragpipe.comparison.preference import preference_lines, strength_lines


def found(state: str, value: float, low: float, high: float, **more: Any) -> dict[str, Any]:
    rate = {"n": 78, "value": value, "interval": {"low": low, "high": high}}
    beside = {"judge": "m-1", "calibrated": None, "run_id": "a" * 12, "pairs": 80, "identical": 4, "left_out": {"system_error": 2}}
    return {"state": state, "wins": 44, "ties": 9, "losses": 25, "win_rate": rate, "corrected": None, **beside, **more}


BETTER, WORSE = found("better", 0.62, 0.54, 0.7), found("worse", 0.3, 0.2, 0.4)
BESIDE = [
    ("better", BETTER, "preference", "preferred: wins 62 % [54 %, 70 %] of 78 pairs (44/9/25)"),
    ("worse", BETTER, "preference_contradicts", "but a judge asked to choose says the opposite, preferred: wins 62 %"),
    ("better", WORSE, "preference_contradicts", "says the opposite, the base is preferred: wins 30 %"),
    ("inconclusive", WORSE, "preference", "the base is preferred: wins 30 %"),
    ("better", found("inconclusive", 0.5, 0.4, 0.6), "preference", "preference undecided: wins 50 %"),
    ("same", found("same", 0.5, 0.48, 0.52), "preference", "neither is preferred: wins 50 %"),
]


@pytest.mark.parametrize(("scores", "preference", "code", "text"), BESIDE)
def test_a_preference_stands_beside_the_scores_and_says_where_they_contradict(scores, preference, code, text) -> None:
    given = preference_reason(preference, scores)
    assert (given[0], text in given[1]) == (code, True), given


def test_what_is_said_of_a_preference() -> None:
    corrected = {"value": 0.9, "interval": {"low": 0.82, "high": 0.94}, "labels": 48}
    said = preference_reason(found("better", 0.62, 0.54, 0.7, corrected=corrected), "inconclusive")[1]
    assert said == "preferred: wins 90 % [82 %, 94 %] of 78 pairs (44/9/25), corrected by 48 labels"
    none, half = {"value": None, "interval": None}, {"value": 0.5, "interval": None}
    said = preference_lines(found("same", 0.5, 0.4, 0.6, first=half, inconsistent=half, longer=half, equal_length=none))
    assert "preference by m-1 (not calibrated)" in said[0]
    assert "4 of 80 pairs have the same answer" in said[0]
    assert "left out: system_error 2" in said[0]
    assert said[1].startswith("position: of a pair's choices 50 %")
    assert said[2] == "length: the longer answer wins 50 %"
    rows = [{"run_id": "r", "method": name, "strength": value, "interval": None} for name, value in (("a", 0.0), ("b", -0.5), ("c", 1.25))]
    assert strength_lines(rows) == ["strength against a (log odds, 0 is as strong): c +1.25, b -0.50"]
    assert strength_lines([]) == []
