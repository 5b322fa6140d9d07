"""Gates as an assertion."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ragpipe.core.errors import DataError
from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.settings import ScoringSettings
from ragpipe.testing import assert_gates
from tests.support.compared_runs import scored_run
from tests.support.run_tables import Row

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

GRADE = ScoreSpec(name="grade", low=0, high=1)
LOW = {"score": "grade", "min": 0.9}  # .2 to .65 of a mean of .4: failed
FINE = {"score": "grade", "min": 0.1}
UNSURE = {"score": "grade", "min": 0.4}
ABSENT = {"score": "faithfulness", "min": 0.5}


def run_of(tmp_path: Path, **gates: Mapping[str, Any]) -> Path:
    rows = [Row(f"q{number:02}", "bot", {"grade": float(number >= 12)}) for number in range(20)]
    settings = ScoringSettings.model_validate(
        {
            "gates": gates,
            "thresholds": {},
            "weights": {"grade": 1.0},
            "accept_uncalibrated": True,
            "fill_defaults": False,
        }
    )
    return scored_run(tmp_path / "run", rows, specs=[GRADE], scoring=settings).root


def test_gates_that_passed_say_nothing(tmp_path: Path) -> None:
    diagnostic = {**LOW, "tier": "diagnostic"}
    off = {**ABSENT, "without_cases": "not_applicable"}
    assert_gates(run_of(tmp_path, fine=FINE, shown=diagnostic, off=off))


def test_a_gate_that_did_not_pass_is_a_row_with_its_worst_cases(tmp_path: Path) -> None:
    """8 of 20 are 1: the mean is .4, its Wilson interval .22 to .61."""
    run = run_of(tmp_path, fine=FINE, low=LOW)
    with pytest.raises(AssertionError) as raised:
        assert_gates(run)
    lines = str(raised.value).splitlines()
    assert lines[0] == "1 of 2 gates of run run did not pass"
    assert lines[2].split() == ["gate", "tier", "value", "limit", "interval", "verdict"]
    assert lines[3].startswith("low   critical  0.4    at least 0.9  0.2")
    assert lines[3].endswith("failed")
    assert lines[4] == "    worst: q00/bot/1 (0), q01/bot/1 (0), q02/bot/1 (0)"
    assert lines[-1] == f"report: {run}"
    assert "fine" not in str(raised.value)


def test_what_is_allowed_is_let_through(tmp_path: Path) -> None:
    run = run_of(tmp_path, low=LOW, unsure=UNSURE, absent={**ABSENT, "tier": "quality"})
    with pytest.raises(AssertionError, match=r"3 of 3 gates.*inconclusive.*no evidence: this run does not give faith"):
        _flat(run)
    with pytest.raises(AssertionError, match="1 of 3 gates"):
        assert_gates(run, allow=["inconclusive", "no_evidence"])
    assert_gates(str(run), allow=["inconclusive", "no_evidence", "low"])
    with pytest.raises(ValueError, match="failed: neither a verdict nor a gate; one of absent, inconclusive, low"):
        assert_gates(run, allow=["failed"])


def _flat(run: Path) -> None:
    """The same error on one line."""
    try:
        assert_gates(run)
    except AssertionError as error:
        raise AssertionError(" ".join(str(error).split())) from error


def test_a_run_without_gates_or_no_run_at_all(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="no gates, so nothing was asserted"):
        assert_gates(run_of(tmp_path))
    with pytest.raises(DataError):
        assert_gates(tmp_path / "nothing")
