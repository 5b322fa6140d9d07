"""The `weights` section of `task=weights`: which weight sets are compared, and what they may be fitted to."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from ragpipe.schema.settings import Settings
from ragpipe.scoring.composites import Weight

IN_USE = "in_use"
"""The name of the weights that the run was scored with."""

WeightSet = Annotated[dict[str, Weight], Field(min_length=1)]


class WeighingSettings(Settings):
    """Named weight sets beside the run's own, the draws of weights, and ratings by people.

    `ratings` is the name of a score of the run that people gave (a recorded one), or a CSV or JSONL file with the columns
    `sample_id`, `method` (where the run has several), `repeat` (default 1) and `rating`, higher is better.
    """

    sets: dict[str, WeightSet] = Field(
        default_factory=dict,
        description="Weights by score name, by a name of your own. They are divided by their sum.",
    )
    ratings: str | None = Field(
        default=None,
        min_length=1,
        description="Ratings by people: a score of the run, or a CSV or JSONL file. null: no weights are fitted.",
    )
    draws: int = Field(
        default=10_000, ge=100, le=1_000_000, description="Weight sets drawn for the stability of the ranking."
    )
    seed: int = Field(default=0, ge=0, description="Seed of the draws and of the folds.")

    @field_validator("sets")
    @classmethod
    def _some_weight(cls, sets: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
        for name, weights in sets.items():
            if name == IN_USE:
                raise ValueError(f"a name of its own: {IN_USE} are the weights of the run")
            if not sum(weights.values()) > 0:
                raise ValueError(f"at least one score with a weight over 0 in {name!r}")
        return sets
