"""Agreement on recorded human labels: the figures of EXPECTED.json, which other libraries computed, to 6 places."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragpipe.stats.agreement_coefficients import cohen_kappa
from ragpipe.stats.detection import (
    balanced_accuracy,
)
from ragpipe.stats.jackknife import difference_of_versions

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

COVERAGE = {"not_covered": 0.0, "partially_covered": 0.5, "fully_covered": 1.0}
PREDICTED = {"NO_COVERAGE": 0.0, "PARTIAL_COVERAGE": 0.5, "FULL_COVERAGE": 1.0}


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text(encoding="utf-8"))


def expected(folder: Path, block: str) -> Any:
    return read(folder, "EXPECTED.json")[block]


def coverage(folder: Path, judge: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Summary of a Haystack: people's and the judge's grades of insights, 0, 1/2 or 1, and the summary of each."""
    rows = []
    for number, sample in enumerate(read(folder, "summhay_eval/eval_benchmark_data.json")):
        grades = {row["insight_id"]: PREDICTED[row["coverage"]] for row in sample[judge]}
        rows += [(COVERAGE[row["coverage"]], grades[row["insight_id"]], number) for row in sample["annotation"]]
    labels, verdicts, numbers = zip(*rows, strict=True)
    return np.array(labels), np.array(verdicts), np.array(numbers)


def test_difference_of_two_judges(real_data: Path) -> None:
    """Two judges of the same insights; the difference is that of their recorded kappas, and surely above 0 (.49 against .29)."""
    labels, better, summaries = coverage(real_data, "predictions_prompted_gpt-4o")
    _, worse, _ = coverage(real_data, "predictions_prompted_gpt3.5")
    blocks = expected(real_data, "summhay")
    kappas = [blocks[f"predictions_prompted_{name}"]["ordinal"]["cohen_kappa"] for name in ("gpt3.5", "gpt-4o")]
    result = difference_of_versions(cohen_kappa, labels, worse, better, summaries)
    assert (result.base, result.candidate) == pytest.approx(kappas, abs=1e-6)
    assert result.difference == pytest.approx(kappas[1] - kappas[0], abs=2e-6)
    assert result.interval is not None
    assert result.interval.low > 0.1
    whole = difference_of_versions(
        balanced_accuracy, *((grades == 1).astype(float) for grades in (labels, worse, better)), summaries
    )
    assert whole.interval is not None
