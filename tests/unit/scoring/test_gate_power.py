"""What a gate can tell, in words: by its own interval, before a run, for limits on either side and for counts."""

import re
from typing import Any

import numpy as np
import pytest

from ragpipe.scoring.gates.gate_power import (
    Precision,
    power_words,
    precision_before,
    precision_before_comparison,
    precision_of,
    undecided_words,
)
from ragpipe.stats.intervals import estimate_mean, estimate_rate


def gate(**changes: Any) -> dict[str, Any]:
    """A gate on a rate: 27 of 30 passed, at least 0.85 were asked for."""
    interval = estimate_rate(np.repeat([1.0, 0.0], [27, 3])).interval
    assert interval is not None
    bounds = {"low": interval.low, "high": interval.high, "method": interval.method}
    return {
        "name": "g", "by": "interval", "min": 0.85, "max": None, "verdict": "inconclusive", "value": 0.9, "values": [0.9],
        "n_ok": 30, "n_cases": 33, "interval": bounds, **changes,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "precision", "words"),
    [
        ({}, Precision(30, rows=30), 'with 30 cases "at least 0.85" fails 8 of 10 runs of a system at 0.65 or below and passes 8 of 10 at 0.99 or above'),
        # three methods that answer alike: 30 cases weigh as much as 10, and 10 / 13.84 = .72
        ({}, Precision(30, rows=10), 'with 30 cases "at least 0.85" fails 8 of 10 runs of a system at 0.50 or below and passes none reliably (even without a fault the interval starts at 0.72)'),
        # 1 - .85 mirrored
        ({"min": None, "max": 0.15}, Precision(30, rows=30), 'with 30 cases "at most 0.15" fails 8 of 10 runs of a system at 0.35 or above and passes 8 of 10 at 0.01 or below'),
        # 1.96 sqrt(.05 * .95 / 10) = .135 is more than .05 below it: nothing is
        ({"min": 0.05}, Precision(10, rows=10), 'with 10 cases "at least 0.05" fails no system reliably and passes 8 of 10 at 0.31 or above'),
        # a count: 3 -+ 2.80 * .4
        ({"min": None, "max": 3}, Precision(30, error=0.4), 'with 30 cases "at most 3" fails 8 of 10 runs of a system at 4.12 or above and passes 8 of 10 at 1.88 or below'),
        # no interval stays within the end of a scale, and a value alone has no power
        ({"min": 1}, Precision(30, rows=30), ""),
        ({"by": "point"}, Precision(30, rows=30), ""),
    ],
)  # fmt: skip
def test_what_a_limit_finds(changes: dict[str, Any], precision: Precision, words: str) -> None:
    assert power_words(gate(**changes), precision, 0.95) == words


def test_two_limits_are_two_clauses() -> None:
    words = power_words(gate(min=0.2, max=0.8), Precision(100, rows=100), 0.95)
    assert words.count("fails 8 of 10") == 2
    assert '; "at most 0.8"' in words


def test_what_an_inconclusive_gate_would_need() -> None:
    """.90 from .85: ((1.96 * .3571 + .8416 * .3) / .05)^2 = 362."""
    precision = precision_of(gate(), 0.95)
    assert precision is not None
    assert (precision.cases, precision.rows) == (30, pytest.approx(30))
    assert undecided_words(gate(), precision, 0.95) == (
        "with 30 cases this gate cannot tell 0.90 from 0.85: that takes about 360"
    )
    assert undecided_words(gate(verdict="uncalibrated"), precision, 0.95) != ""
    assert undecided_words(gate(verdict="passed"), precision, 0.95) == ""
    assert undecided_words(gate(min=0.9), precision, 0.95) == (
        "with 30 cases this gate cannot tell which side of 0.9 the value is on"
    )
    count = gate(min=None, max=3, value=2.5, interval={"low": 1.5, "high": 3.5, "method": "t"})
    assert undecided_words(count, Precision(30, error=0.5), 0.95) == (
        "with 30 cases this gate cannot tell 2.50 from 3: that takes about 240"
    )  # 30 * (2.80 * .5 / .5)^2


def test_no_number_of_cases_is_named_that_nobody_has() -> None:
    """.8513 from .85: ((1.96 * .3571 + .8416 * .3558) / .0013)^2 is about 590,000, 20,000 times the 30 cases; .86: about 9,900."""
    words = undecided_words(gate(value=0.8513), Precision(30, rows=30), 0.95)
    assert (
        words
        == "with 30 cases this gate cannot tell 0.851 from 0.85: the value is too near the limit for any practical number of cases"
    )
    assert re.search(
        r"cannot tell 0\.86 from 0\.85: that takes about (9,[0-9]00|10,000)$",
        undecided_words(gate(value=0.86), Precision(30, rows=30), 0.95),
    )


@pytest.mark.parametrize(
    ("labels", "cases", "value", "words"),
    [
        # 30 rows would have to be 362.8: 12.09 times the labels and the cases
        (58, 99, 0.9, "with 58 labels of 99 cases this gate cannot tell 0.90 from 0.85: that takes about 700 labels of 1,200 cases, and the run has fewer cases"),
        (60, 10_000, 0.9, "with 60 labels of 10,000 cases this gate cannot tell 0.90 from 0.85: that takes about 730 labels; task=label label.more=20 adds to the draw, then task=calibrate again"),
        (60, 10_000, 0.85, "with 60 labels of 10,000 cases this gate cannot tell which side of 0.85 the value is on; task=label label.more=20 adds to the draw, then task=calibrate again"),
        (99, 99, 0.85, "with 99 labels of 99 cases this gate cannot tell which side of 0.85 the value is on"),
    ],
)  # fmt: skip
def test_a_corrected_gate_needs_labels_and_not_cases(labels: int, cases: int, value: float, words: str) -> None:
    corrected = gate(value=value, n_ok=cases, corrected={"raw": 0.92, "labels": labels})
    precision = Precision(cases, rows=30, labels=labels)
    assert undecided_words(corrected, precision, 0.95) == words
    assert power_words(corrected, precision, 0.95).startswith(
        f'with {labels} labels of {cases:,} cases "at least 0.85" fails'
    )


def test_the_precision_of_a_corrected_gate_is_that_of_its_labels() -> None:
    """The interval is as wide as one of 30 rows, however many cases were judged; over two iterations these count once."""
    corrected = gate(values=[0.9, 0.9], n_ok=1980, corrected={"raw": 0.92, "labels": 58})
    precision = precision_of(corrected, 0.95)
    assert precision == Precision(990, rows=pytest.approx(30), labels=58)
    assert precision.with_cases(1980).labels == 116
    assert precision_of(gate(), 0.95).labels is None


def test_precision_of_a_finished_run() -> None:
    """The mean of shares varies less than 0 and 1; several iterations count their cases once; a failure mode counts all."""
    values = np.tile([0.8, 0.9, 1.0, 0.9], 10)
    estimate = estimate_mean(values, low=0, high=1)
    bounds = {"low": estimate.interval.low, "high": estimate.interval.high, "method": "wilson_n_eff"}
    precision = precision_of(gate(value=estimate.mean, values=[0.9, 0.9], n_ok=80, interval=bounds), 0.95)
    assert precision.cases == 40
    assert 300 < precision.rows < 700  # .9 * .1 / .0051 = 17 times 40 rows, less what 40 questions leave open
    assert precision_of({**gate(), "failure_mode": "m"}, 0.95).cases == 33
    assert precision_of(gate(interval=None), 0.95) is None
    assert precision_of(gate(value=None, values=[None]), 0.95) is None
    of_count = precision_of(gate(value=4, interval={"low": 3, "high": 5, "method": "clustered_t"}), 0.95)
    assert of_count.error == pytest.approx(1 / 1.959964)


def test_precision_before_a_run() -> None:
    """Cases of a question are taken as alike: 2, 1 and 1 of them weigh as much as 16 / 6 rows."""
    precision = precision_before(np.array([4, 4, 7, 9]))
    assert precision == Precision(4, rows=pytest.approx(16 / 6))
    assert precision_before(np.array([], dtype=np.int64)) is None
    assert precision.with_cases(40).rows == pytest.approx(160 / 6)
    assert Precision(25, error=0.5).with_cases(100).error == 0.25


@pytest.mark.parametrize(
    ("max_drop", "error", "words"),
    [
        # .84 * .045 + 1.96 * .045 = .126 finds, and 2.80 * .045 = .126 passes; (2.80 * .45 / .05)^2 = 636
        (0.05, 0.045, "with 100 cases it fails 8 of 10 runs of a system that dropped by 0.13 or more; an unchanged one passes 8 of 10 only from max_drop 0.13 on, and max_drop 0.05 takes about 640 cases"),
        # .84 * .01 + .05
        (0.05, 0.01, "with 100 cases it fails 8 of 10 runs of a system that dropped by 0.06 or more, and passes 8 of 10 of an unchanged one"),
        (0.0, 0.01, "with 100 cases it fails 8 of 10 runs of a system that dropped by 0.03 or more; an unchanged one passes 8 of 10 only from max_drop 0.028 on"),
    ],
)  # fmt: skip
def test_a_gate_against_a_baseline(max_drop: float, error: float, words: str) -> None:
    against = gate(min=None, max=None, against="1a2b", max_drop=max_drop, value=-0.02)
    assert power_words(against, Precision(100, error=error), 0.95) == words
    assert undecided_words(against, Precision(100, error=error), 0.95) == words
    assert undecided_words({**against, "verdict": "failed"}, Precision(100, error=error), 0.95) == ""


def test_a_gate_that_is_looked_at_early_finds_larger_drops_only() -> None:
    against = gate(min=None, max=None, against="1a2b", max_drop=0.0, planned=400)
    # .84 + 4.333, 2.963 and 2.014 standard errors of .01
    for cases, finds in ((100, "0.05"), (200, "0.04"), (400, "0.03")):
        words = power_words(against, Precision(cases, error=0.01), 0.95)
        assert words.startswith(
            f"with {cases} cases it fails 8 of 10 runs of a system that dropped by {finds} or more"
        ), words
    early = "99 cases are less than a quarter of the 400 planned: it decides nothing yet"
    assert power_words(against, Precision(99, error=0.01), 0.95) == early


def test_precision_against_a_baseline() -> None:
    """Pairs of cases count once whatever the iterations; before a comparison 0/1 differ by .45 per case, 100 of them by .045."""
    bounds = {"low": -0.1, "high": 0.06, "method": "t"}
    measured = gate(against="1a2b", max_drop=0.05, value=-0.02, values=[None, None], n_ok=98, interval=bounds)
    assert precision_of(measured, 0.95) == Precision(98, error=pytest.approx(0.08 / 1.959964))
    assert precision_before_comparison(np.arange(100), "binary").error == pytest.approx(0.045)
    assert precision_before_comparison(np.array([], dtype=np.int64), "share") is None


def test_a_margin_makes_passing_easier_alone() -> None:
    """min .85 with a margin of .05 fails as .85 does and passes as .80 does."""
    precision = Precision(100, rows=100)
    words = power_words(gate(margin=0.05), precision, 0.95)
    assert "at 0.74 or below" in words
    easier = power_words(gate(min=0.8), precision, 0.95)
    assert words.split("passes")[1] == easier.split("passes")[1]
