"""The `label` part of a metric's section: what a person is asked who labels its scores, and the grades."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import AfterValidator, Field

from ragpipe.schema.settings import Settings

MOST_GRADES = 9
"""Each has a key of its own: 1 to 9."""


def _checked(grades: dict[str, float]) -> dict[str, float]:
    if not 2 <= len(grades) <= MOST_GRADES:
        raise ValueError(f"2 to {MOST_GRADES} grades, found {len(grades)}")
    if not all(name.strip() == name and 0 < len(name) <= 40 for name in grades):
        raise ValueError("names of 1 to 40 characters without blanks around them")
    if not all(map(math.isfinite, grades.values())) or len(set(grades.values())) < len(grades):
        raise ValueError("different finite values")
    return grades


Grades = Annotated[dict[str, float], AfterValidator(_checked)]
"""Grades by name, the best first as a rule, each with its value in the native scale of the score."""


class LabelQuestion(Settings):
    """What a person is asked about a case, and the answers to choose from. No number of a run depends on it."""

    question: str = Field(min_length=1, max_length=500, description="What a person is asked who labels a case.")
    grades: Grades | None = Field(
        default=None, description="Grades by name, with their values. null: by the scale of the score."
    )
