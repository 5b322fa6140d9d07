"""Weighted means of parts: the weights as a parameter, and the mean as a line of text. Weights are divided by their sum."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, TypeVar

from pydantic import AfterValidator

Part = TypeVar("Part", bound=str)


def check_weights(weights: dict[Part, float]) -> dict[Part, float]:
    """The weights unchanged. Raises ValueError when one is negative or not finite, or when all are 0."""
    if not all(0 <= weight < math.inf for weight in weights.values()) or not sum(weights.values()) > 0:
        raise ValueError(f"weights are finite, not negative and not all 0, found {weights}")
    return weights


Weights = Annotated[dict[Part, float], AfterValidator(check_weights)]
"""A parameter: the weight of each part."""


def explain_weighted_mean(terms: Iterable[tuple[float, str, str]]) -> str:
    """A weighted mean of (weight, value, name) written out: `0.3 x 1.0 (valid) + 0.7 x 0.5 (accuracy)`, divided by the
    sum of the weights where that is not 1."""
    rows = list(terms)
    text = " + ".join(f"{weight:g} x {value} ({name})" for weight, value, name in rows)
    total = math.fsum(weight for weight, _, _ in rows)
    return text if abs(total - 1) < 1e-9 else f"({text}) / {total:g}"
