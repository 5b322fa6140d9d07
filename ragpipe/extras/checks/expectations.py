"""What each score must make of each mutation, as the configuration says it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Literal

from pydantic import Field

from ragpipe.schema.settings import Settings

Direction = Literal["worse", "better", "same"]


class Expectation(Settings):
    """What scores must do when a case is changed in one way. Each entry is a name of a score, or a pattern such as `recall@*`.

    Worse and better are meant by the direction of the score: a lower one is better where the score says so.
    """

    worse: list[str] = Field(default_factory=list, description="Scores that must become worse. Default: none.")
    worse_in_reference: list[str] = Field(
        default_factory=list,
        description="Scores that must become worse where what was changed stands in a reference answer. Default: none.",
    )
    better: list[str] = Field(default_factory=list, description="Scores that must become better. Default: none.")
    same: list[str] = Field(default_factory=list, description="Scores that must not change. Default: none.")


def expected_direction(score: str, expectation: Expectation | None, *, in_reference: bool) -> Direction | None:
    """What a score must do about a mutant; None where nothing is expected. `in_reference`: see `Edit`."""
    if expectation is None:
        return None
    worse = [*expectation.worse, *(expectation.worse_in_reference if in_reference else ())]
    directions: Mapping[Direction, Iterable[str]] = {
        "worse": worse,
        "better": expectation.better,
        "same": expectation.same,
    }
    matches = (way for way, names in directions.items() if any(fnmatchcase(score, name) for name in names))
    return next(matches, None)
