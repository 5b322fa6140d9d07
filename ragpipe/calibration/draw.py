"""Which cases of a run are drawn for labels, and with what probability each of them came in.

All cases stand in one random order, made of the seed. The random part of the draw is its beginning. The rest of the draw is
taken stratum by stratum: the next cases of the stratum in the same order. However the counts of the strata come out, the
drawn cases of a stratum are therefore a simple random sample of it, and `drawn / cases` of the stratum is the probability of
each of its cases (Cochran 1977, Sampling Techniques, chapter 5). Their inverses add up to the number of all cases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from ragpipe.core.digest import sha256
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.score import Grades
from ragpipe.core.settings import Settings

ALL = "all"
"""The one stratum of a random draw."""
CANNOT_DRAW = "no cases can be drawn for labels; nothing was written"
AT_LEAST = 2
"""Drawn cases of every stratum, where it has so many: one alone shows no variance."""
Places = NDArray[np.int64]


@dataclass(frozen=True)
class DrawnCases:
    """The places of the drawn cases, those of the random part first; how many of them are random; drawn cases and all cases of
    each stratum."""

    places: list[int]
    random: int
    drawn: Mapping[str, int]
    cases: Mapping[str, int]

    def probability(self, stratum: str) -> float:
        """The probability, 0 to 1, with which a case of this stratum is in the draw."""
        return self.drawn[stratum] / self.cases[stratum]


def random_order(keys: Sequence[str], seed: int) -> list[int]:
    """The places of all cases in a random order that depends on the seed and on the keys alone: a case that is added or gone
    changes nothing about the order of the others."""
    return sorted(range(len(keys)), key=lambda place: sha256(f"{seed}\n{keys[place]}"))


def draw_cases(order: Sequence[int], strata: Sequence[str], size: int, *, random_size: int) -> DrawnCases:
    """Draw cases: first the random part, then the same number of each stratum, as far as it has so many.

    A larger draw by the same order contains a smaller one, where its random part grows by no more cases than it does. `order` has the
    places of all cases, `strata` the stratum of each by place. At most all are drawn, and a few more than `size` where the random
    part leaves no room for AT_LEAST of a stratum.

    Raises ConfigError where `size` is too small for the number of strata.
    """
    sizes = Counter(strata)
    size = min(size, len(order))
    head = order[: min(random_size, size)]
    floor = {stratum: min(AT_LEAST, cases) for stratum, cases in sizes.items()}
    if len(sizes) > 1 and sum(floor.values()) > size:
        expected = f"at least {AT_LEAST} cases of each of the {len(sizes)} strata"
        problem = Problem("label", "label.n", str(size), expected, f"label.n={AT_LEAST * len(sizes)}")
        raise ConfigError(CANNOT_DRAW, [problem])
    drawn = Counter(strata[place] for place in head)
    for stratum, least in floor.items():
        if len(sizes) > 1:
            drawn[stratum] = max(drawn[stratum], least)
    while drawn.total() < size:
        drawn[min((name for name in sorted(sizes) if drawn[name] < sizes[name]), key=drawn.__getitem__)] += 1
    left, places = Counter(drawn), []
    for place in order:  # its head, and of the rest the first cases of each stratum
        if left[strata[place]] > 0:
            left[strata[place]] -= 1
            places.append(place)
    return DrawnCases(places, len(head), dict(drawn), dict(sizes))


SHARED = 0.2
"""Share of the cases that all annotators are asked, so that they can be compared."""


def asked_of(drawn: int, annotators: Sequence[str]) -> list[list[str] | None]:
    """Who is asked for each drawn case, in the order of the draw: None is everyone.

    A share of SHARED of the cases is for all, evenly spread, the first among them; the others take turns. More cases at the
    end change nothing about those before. Without names, or with one, everyone is asked for everything.
    """
    if len(annotators) < 2:
        return [None] * drawn
    asked: list[list[str] | None] = []
    turns = 0
    for place in range(drawn):
        if np.ceil((place + 1) * SHARED - 1e-9) > np.ceil(place * SHARED - 1e-9):
            asked.append(None)
        else:
            asked.append([annotators[turns % len(annotators)]])
            turns += 1
    return asked


def _distinct(names: list[str]) -> list[str]:
    if len(set(names)) < len(names) or not all(name.strip() == name != "" for name in names):
        raise ValueError("different names, none of them empty and none with blanks around it")
    return names


class LabelSettings(Settings):
    """What to draw, or which files to import."""

    metric: str | None = Field(default=None, description="Name of the metric, or of one of its scores, that is labelled.")
    n: int = Field(
        default=60,
        ge=1,
        le=100_000,
        description="How many cases are drawn. A draw that has fewer grows to them; one that has more keeps them.",
    )
    draw: Literal["random", "by_method"] = Field(
        default="random",
        description=(
            "random; by_method: half of the draw at random, then the same number of each method. Agreement goes by the random half."
        ),
    )
    seed: int = Field(default=0, ge=0, le=2**32 - 1, description="Seed of the draw. Another seed is another draw.")
    annotators: Annotated[list[str], AfterValidator(_distinct)] = Field(
        default_factory=list,
        description="Names of those who label, who divide the cases among them, a fifth for all. Default: anyone, and everyone labels all.",
    )
    question: str | None = Field(default=None, min_length=1, description="What is asked. null: as the metric's `label` says.")
    grades: Grades | None = Field(
        default=None, description="Grades by name, with their values. null: as the metric's `label` says, else by its scale."
    )
    files: list[str] = Field(
        default_factory=list, alias="import", description="Files to read: labels.jsonl of the page, and sheets as .csv."
    )
