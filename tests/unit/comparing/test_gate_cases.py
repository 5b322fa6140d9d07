"""The cases that a gate goes by."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ragpipe.comparing.drop_gates import worst_cases
from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.settings import ScoringSettings
from ragpipe.store.run.run_folder import RunFolder
from tests.support.compared_runs import scored_run
from tests.support.run_tables import Row

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

SPECS = (ScoreSpec(name="grade", low=1, high=5), ScoreSpec(name="made_up", low=0, high=1, higher_is_better=False))
ROWS = [
    Row("a", "m", {"grade": 5.0, "made_up": 0.0}, labels={"category": "x"}),
    Row("b", "m", {"grade": 2.0, "made_up": 0.6}, labels={"category": "x"}),
    Row("c", "m", {"grade": 3.0, "made_up": 0.2}, labels={"category": "y"}),
    Row("d", "m", {"grade": ("error", "error: timeout"), "made_up": 1.0}, labels={"category": "y"}),
]


def gate_of(tmp_path: Path, gate: Mapping[str, Any]) -> tuple[RunFolder, dict[str, Any]]:
    settings = ScoringSettings.model_validate(
        {"gates": {"g": gate}, "thresholds": {"grade": 2.5}, "weights": {"grade": 1.0},
         "failure_modes": {"low": [{"score": "grade", "below": 4}]}, "fill_defaults": False}
    )  # fmt: skip
    run = scored_run(tmp_path, ROWS, specs=SPECS, scoring=settings)
    return run, json.loads(run.gates.read_text())["gates"][0]


@pytest.mark.parametrize(
    ("gate", "worst"),
    [
        # grades 5, 2, 3 are 1, .25, .5 of the scale
        ({"score": "grade", "of": "mean", "min": 0.9, "coverage_floor": 0}, [("b", 0.25), ("c", 0.5), ("a", 1.0)]),
        ({"score": "grade", "of": "pass_rate", "min": 0.9, "coverage_floor": 0}, [("b", 0.0), ("a", 1.0), ("c", 1.0)]),
        ({"score": "grade", "min": 0.9, "coverage_floor": 0, "where": {"category": "y"}}, [("c", 0.5)]),
        # 0.6 made up is .4 of the scale whose best end is 0
        ({"score": "made_up", "min": 0.9}, [("d", 0.0), ("b", 0.4), ("c", 0.8), ("a", 1.0)]),
        ({"failure_mode": "low", "max_rate": 0.1, "coverage_floor": 0}, [("b", None), ("c", None)]),
        ({"score": "grade", "min": 0.9}, [("d", None)]),  # 3 of 4 came out: the one that did not
        ({"score": "faithfulness", "min": 0.9}, []),
    ],
)  # fmt: skip
def test_the_worst_come_first(tmp_path: Path, gate: Mapping[str, Any], worst: list[tuple[str, float | None]]) -> None:
    run, decided = gate_of(tmp_path, gate)
    found = worst_cases(run, decided, 10)
    assert [(case.sample_id, case.value) for case in found] == [
        (name, pytest.approx(value) if value is not None else None) for name, value in worst
    ]
    assert worst_cases(run, decided, 1) == found[:1]
