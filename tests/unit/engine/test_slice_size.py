"""How many cases a slice has where the configuration does not say."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ragpipe.engine.runners.chosen_runner import default_slice
from ragpipe.testing.scripted import shipped_metric

RETRIEVAL, FAITHFULNESS = shipped_metric("retrieval"), shipped_metric("faithfulness")


@pytest.mark.parametrize(
    ("metrics", "cases", "workers", "largest"),
    [
        ([RETRIEVAL], 50_000, 2, 1000),
        ([RETRIEVAL], 10_000, 2, 1000),
        ([RETRIEVAL], 9_999, 2, 250),
        ([RETRIEVAL], 10_000, 8, 250),
        ([RETRIEVAL, FAITHFULNESS], 50_000, 2, 250),
        ([FAITHFULNESS], 50_000, 2, 250),
    ],
)
def test_slices_are_blocks_where_there_are_many_computed_cases(
    metrics: list[object], cases: int, workers: int, largest: int
) -> None:
    config = SimpleNamespace(metrics={metric.name: metric for metric in metrics})
    assert default_slice(config, cases, workers) == largest
