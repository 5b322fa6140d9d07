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

import numpy as np
from numpy.typing import NDArray

from ragpipe.core.digest import sha256
from ragpipe.core.errors import ConfigError, Problem

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

    A larger draw by the same order contains a smaller one, where its random part grows by no more cases than it does.

    Args:
        order: the places of all cases in random order.
        strata: the stratum of each case, by place.
        size: how many cases are drawn, at most all; a few more where the random part leaves no room for AT_LEAST of a stratum.
        random_size: how many of them are the random part.

    Raises ConfigError where `size` is too small for the number of strata.
    """
    sizes = Counter(strata)
    size = min(size, len(order))
    head = order[: min(random_size, size)]
    floor = {stratum: min(AT_LEAST, cases) for stratum, cases in sizes.items()}
    if len(sizes) > 1 and sum(floor.values()) > size:
        raise _too_many_strata(len(sizes), size)
    drawn = Counter(strata[place] for place in head)
    for stratum, least in floor.items():
        if len(sizes) > 1:
            drawn[stratum] = max(drawn[stratum], least)
    while drawn.total() < size:
        drawn[min((name for name in sorted(sizes) if drawn[name] < sizes[name]), key=drawn.__getitem__)] += 1
    return DrawnCases(_first_of_each(order, strata, drawn, len(head)), len(head), dict(drawn), dict(sizes))


def _first_of_each(order: Sequence[int], strata: Sequence[str], drawn: Mapping[str, int], head: int) -> list[int]:
    """The first cases of each stratum in the order, as many as are drawn of it: the head of the order and some of the rest."""
    left = Counter(drawn)
    places = []
    for place in order:
        if left[strata[place]] > 0:
            left[strata[place]] -= 1
            places.append(place)
    assert places[:head] == list(order[:head])
    return places


def _too_many_strata(strata: int, size: int) -> ConfigError:
    expected = f"at least {AT_LEAST} cases of each of the {strata} strata"
    return ConfigError(CANNOT_DRAW, [Problem("label", "label.n", str(size), expected, f"label.n={AT_LEAST * strata}")])


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
