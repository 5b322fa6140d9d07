"""In words, why a statistic of agreement has no value or no interval, and why there is no verdict on it."""

from __future__ import annotations

_WORDS = {
    "no_ceiling": "no case has labels of two people, so there is no ceiling to put the target relative to",
    "ceiling_of_zero": "people do not agree with each other beyond chance: no target can be put relative to that",
    "no_scale": "the score is a count without a scale",
    "few_outside_largest_class": "fewer than 5 labels are outside the largest class, where kappa says next to nothing: label "
    "cases of the rare class too, and read agreement and AC1",
    "one_class": "all are of one class",
    "one_of_a_class": "a class has one case",
    "one_sample": "one question",
    "rests_on_one_question": "rests on one question",
    "no_pairs": "no case to compare",
    "one_pair": "one case to compare",
    "no_values": "no case",
    "one_value": "one case",
    "no_spread": "all are the same",
}


def reason_words(reason: str | None) -> str:
    """A reason of `stats` or of a calibration in words; `-` for none."""
    return "-" if reason is None else _WORDS.get(reason, reason.replace("_", " "))
