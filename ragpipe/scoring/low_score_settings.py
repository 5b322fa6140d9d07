"""The `scoring.low_scores` section: which values of a score are low, how low, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from ragpipe.schema.score import ScoreSpec
from ragpipe.schema.settings import Settings
from ragpipe.scoring.dimensions import field_fault
from ragpipe.scoring.normalisation import TOLERANCE, Column

DEFAULT = "default"
NOT_LOW = -1

Bands = NDArray[np.int8]


class LowScoreBand(Settings):
    """Values up to `up_to`, in the native scale, that are in no band before it (from `up_to`, where lower is better).

    Without `up_to`: all others that did not pass. `advice` is what to try. `low: false` makes it a reading of values that
    are no fault: such bands come last, are counted, and none of their cases is a low one.
    """

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$", description="Name of the band: lower-case letters, digits and '_'.")
    up_to: Annotated[float, Field(allow_inf_nan=False)] | None = Field(
        default=None,
        description=(
            "Last value of the band, in the score's own scale (first value, where lower is better). null: all "
            "further values that did not pass."
        ),
    )
    advice: list[str] = Field(default_factory=list, description="What to try, one sentence each. Default: none.")
    low: bool = Field(
        default=True,
        description="Whether the band's cases are low ones. false: the band only names values that are no fault.",
    )


class LowScoreSettings(Settings):
    """How `low_scores.json` is made.

    `bands` maps a score to its bands, the worst first; null leaves the score out. `default` is for every other score
    that is judged passed or failed, and goes by `score` (0 worst, 1 best) among the cases that did not pass. `by` are
    the fields in which low cases may cluster.
    """

    bands: dict[str, list[LowScoreBand] | None] = Field(
        default_factory=dict,
        description=(
            "Bands of each score, the worst first; null leaves the score out. `default` is for all other scores "
            "that can pass or fail."
        ),
    )
    by: list[str] = Field(default_factory=list, description="Fields of a case in which low cases may cluster.")

    @field_validator("bands")
    @classmethod
    def _ordered(cls, bands: dict[str, list[LowScoreBand] | None]) -> dict[str, list[LowScoreBand] | None]:
        for score, score_bands in bands.items():
            if problem := _band_problem(score, score_bands or []):
                raise ValueError(problem)
        return bands

    @field_validator("by")
    @classmethod
    def _known_fields(cls, by: list[str]) -> list[str]:
        for field in by:
            if problem := field_fault(field):
                raise ValueError(problem)
        return by

    def of(self, spec: ScoreSpec, *, judged: bool) -> list[LowScoreBand] | None:
        """The bands of a score; None when it is left out. `judged` says whether it ever passes or fails."""
        if spec.name in self.bands:
            return self.bands[spec.name]
        return self.bands.get(DEFAULT) if judged and spec.low is not None else None

    def band_of(self, spec: ScoreSpec, column: Column) -> Bands:
        """For each case the number of its band, or NOT_LOW. Not for scores that are left out."""
        score_bands = self.bands.get(spec.name)
        bands = score_bands if score_bands is not None else self.bands.get(DEFAULT) or []
        values = column.scores if score_bands is None else column.values
        upwards = score_bands is None or spec.higher_is_better
        band_numbers = np.full(len(values), NOT_LOW, dtype=np.int8)
        failed = column.passed == 0
        for place, band in reversed(list(enumerate(bands))):
            if band.up_to is None:
                inside = failed
            else:
                with np.errstate(invalid="ignore"):
                    inside = values <= band.up_to + TOLERANCE if upwards else values >= band.up_to - TOLERANCE
                inside &= failed if score_bands is None else ~np.isnan(values)
            band_numbers[inside] = place
        return band_numbers


def _band_problem(score: str, bands: Sequence[LowScoreBand]) -> str | None:
    """What is wrong with the names and the order of a score's bands; None when nothing is."""
    names = [band.name for band in bands]
    if len(set(names)) < len(names):
        return f"every band of {score} under a name of its own, found {', '.join(names)}"
    if any(later.low and not band.low for band, later in pairwise(bands)):
        return f"the bands of {score} with `low: false` after all others: they are the best values"
    ends = [band.up_to for band in bands]
    if None in ends[:-1]:
        return f"the band of {score} without `up_to` as the last one: it takes all that is left"
    if not _is_monotonic([end for end in ends if end is not None]):
        return f"the bands of {score} from the worst on: `up_to` rising (falling, where lower is better)"
    return None


def _is_monotonic(values: Sequence[float]) -> bool:
    """Whether the values only rise, or only fall."""
    steps = [after - before for before, after in pairwise(values)]
    return all(step > 0 for step in steps) or all(step < 0 for step in steps)
