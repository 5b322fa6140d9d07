"""The weights of a mixture, by part. They are divided by their sum."""

from __future__ import annotations

import math
from typing import Annotated, TypeVar

from pydantic import AfterValidator

Part = TypeVar("Part", bound=str)


def checked(weights: dict[Part, float]) -> dict[Part, float]:
    """The weights as they are. Raises ValueError where one is negative or not finite, and where all are 0."""
    if not all(0 <= weight < math.inf for weight in weights.values()) or not sum(weights.values()) > 0:
        raise ValueError(f"weights are finite, not negative and not all 0, found {weights}")
    return weights


Weights = Annotated[dict[Part, float], AfterValidator(checked)]
