"""P-values of several tests, adjusted so that a family of tests keeps its error rate.

Twelve tests at .05 of scores that did not change find a difference in 46 % of comparisons.
"""

from __future__ import annotations

from collections.abc import Sequence


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Each p-value as it counts among all of them: rejecting where it is at most a keeps any false rejection at a.

    Of m p-values in rising order the i-th is multiplied by m - i + 1, is at least its predecessor's and at most 1 (Holm 1979).
    It holds however the tests depend on each other. None (no test) stays None and does not count in m. A value outside 0..1 is a
    ValueError. In the order of the input.
    """
    ordered = _rising(p_values)
    adjusted: list[float | None] = [None] * len(p_values)
    least = 0.0
    for rank, (p, place) in enumerate(ordered):
        least = max(least, min(1.0, (len(ordered) - rank) * p))
        adjusted[place] = least
    return adjusted


def benjamini_hochberg(p_values: Sequence[float | None]) -> list[float | None]:
    """Each p-value as a q-value: among all that are at most q, a share of q at most is expected to be false.

    Of m p-values in rising order the i-th is multiplied by m / i and is at most its successor's (Benjamini and Hochberg 1995).
    It holds for tests that are independent or positively dependent, as slices of one comparison are. None (no test) stays None
    and does not count in m. A value outside 0..1 is a ValueError. In the order of the input.
    """
    ordered = _rising(p_values)
    adjusted: list[float | None] = [None] * len(p_values)
    most = 1.0
    for rank, (p, place) in reversed(list(enumerate(ordered, 1))):
        most = min(most, p * len(ordered) / rank)
        adjusted[place] = most
    return adjusted


def _rising(p_values: Sequence[float | None]) -> list[tuple[float, int]]:
    """The p-values that exist, rising, with their places."""
    for p in p_values:
        if p is not None and not 0 <= p <= 1:
            raise ValueError(f"a p-value lies between 0 and 1, found {p!r}")
    return sorted((p, place) for place, p in enumerate(p_values) if p is not None)
