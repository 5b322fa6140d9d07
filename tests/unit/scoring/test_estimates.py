"""Which interval a mean gets is decided by what is declared of its score, as the table of docs/statistics.md says."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ragpipe.scoring.normalisation import estimate_of
from tests.support.pages import DOCS

TABLE = re.findall(r"^\| (.+?) \| .+? \| `(\w+)` \|$", (DOCS / "statistics.md").read_text(encoding="utf-8"), re.M)
BINARY = {"low": 0.0, "high": 1.0, "binary": True}
SHARE = {"low": 0.0, "high": 1.0, "binary": False}
COUNT = {"low": None, "high": None, "binary": False}
RATE = "a rate with one row per question: a pass rate, another share of cases, the mean of a score declared as `binary`"
ROUGH_RATE = "a rate with several rows of a question, or with values between 0 and 1"
OTHER = "the mean of any other score on a scale, even if all its values are 0 and 1"
FREE = "the mean of a score without a scale (a count)"
REPEATED = "the same with several rows of a question"


@pytest.mark.parametrize(
    ("row", "values", "samples", "scale"),
    [
        (RATE, [0, 1, 1, 1, 0, 1], [0, 1, 2, 3, 4, 5], BINARY),
        (ROUGH_RATE, [0, 1, 1, 1, 0, 1], [0, 0, 1, 2, 3, 4], BINARY),
        (ROUGH_RATE, [0, 1, 0.5, 1, 0, 1], [0, 1, 2, 3, 4, 5], BINARY),
        (OTHER, [0, 1, 1, 1, 0, 1], [0, 1, 2, 3, 4, 5], SHARE),
        (FREE, [0, 1, 1, 1, 0, 1], [0, 1, 2, 3, 4, 5], COUNT),
        (REPEATED, [0, 1, 1, 1, 0, 1], [0, 0, 1, 2, 3, 4], COUNT),
    ],
)
def test_the_method_is_that_of_the_page(
    row: str, values: list[float], samples: list[int], scale: dict[str, float | bool | None]
) -> None:
    found = estimate_of(np.array(values, dtype=np.float64), np.array(samples), scale, 0.95).interval
    assert found is not None
    assert (row, found.method) in TABLE
