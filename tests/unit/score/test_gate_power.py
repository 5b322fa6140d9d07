"""What a gate can tell and what is known of its judge, in words: by an interval, before a run, for limits on either side."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from ragpipe.cli.command_line import compose
from ragpipe.core.resources import conf_dir
from ragpipe.score.gate_results import NO_CALIBRATION, Precision, power_words, precision_of, trust_words, undecided_words
from ragpipe.score.gate_rules import exit_code
from ragpipe.score.normalisation import estimate_of
from ragpipe.score.settings import ScoringSettings
from ragpipe.stats.intervals import estimate_mean, estimate_rate
from ragpipe.testing import shipped_metric
from tests.support.compared_runs import scored_run
from tests.support.pages import DOCS
from tests.support.run_tables import Row


def gate(**changes: Any) -> dict[str, Any]:
    """A gate on a rate: 27 of 30 passed, at least 0.85 were asked for."""
    interval = estimate_rate(np.repeat([1.0, 0.0], [27, 3])).interval
    bounds = {"low": interval.low, "high": interval.high, "method": interval.method}
    return {
        "name": "g", "by": "interval", "min": 0.85, "max": None, "verdict": "inconclusive", "value": 0.9, "values": [0.9],
        "n_ok": 30, "n_cases": 33, "interval": bounds, **changes,
    }  # fmt: skip


@pytest.mark.parametrize(("changes", "precision", "words"), [
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
])  # fmt: skip
def test_what_a_limit_finds(changes: dict[str, Any], precision: Precision, words: str) -> None:
    assert power_words(gate(**changes), precision, 0.95) == words


def test_what_an_inconclusive_gate_would_need() -> None:
    """.90 from .85: ((1.96 * .3571 + .8416 * .3) / .05)^2 = 362."""
    precision = precision_of(gate(), 0.95)
    assert (precision.cases, precision.rows) == (30, pytest.approx(30))
    assert undecided_words(gate(), precision, 0.95) == ("with 30 cases this gate cannot tell 0.90 from 0.85: that takes about 360")
    assert undecided_words(gate(verdict="uncalibrated"), precision, 0.95) != ""
    assert undecided_words(gate(verdict="passed"), precision, 0.95) == ""
    assert undecided_words(gate(min=0.9), precision, 0.95) == ("with 30 cases this gate cannot tell which side of 0.9 the value is on")
    count = gate(min=None, max=3, value=2.5, interval={"low": 1.5, "high": 3.5, "method": "t"})
    words = undecided_words(count, Precision(30, error=0.5), 0.95)
    assert words == "with 30 cases this gate cannot tell 2.50 from 3: that takes about 240"  # 30 * (2.80 * .5 / .5)^2
    # .8513 from .85: ((1.96 * .3571 + .8416 * .3558) / .0013)^2 is about 590,000, 20,000 times the 30 cases; .86: about
    # 9,900.
    words = undecided_words(gate(value=0.8513), Precision(30, rows=30), 0.95)
    assert words == "with 30 cases this gate cannot tell 0.851 from 0.85: the value is too near the limit for any practical number of cases"
    words = undecided_words(gate(value=0.86), Precision(30, rows=30), 0.95)
    assert re.search(r"cannot tell 0\.86 from 0\.85: that takes about (9,[0-9]00|10,000)$", words)


@pytest.mark.parametrize(("labels", "cases", "value", "words"), [
    # 30 rows would have to be 362.8: 12.09 times the labels and the cases
    (58, 99, 0.9, "with 58 labels of 99 cases this gate cannot tell 0.90 from 0.85: that takes about 700 labels of 1,200 cases, and the run has fewer cases"),
    (60, 10_000, 0.9, "with 60 labels of 10,000 cases this gate cannot tell 0.90 from 0.85: that takes about 730 labels; task=label with a larger label.n adds to the draw, then task=calibrate again"),
    (60, 10_000, 0.85, "with 60 labels of 10,000 cases this gate cannot tell which side of 0.85 the value is on; task=label with a larger label.n adds to the draw, then task=calibrate again"),
    (99, 99, 0.85, "with 99 labels of 99 cases this gate cannot tell which side of 0.85 the value is on"),
])  # fmt: skip
def test_a_corrected_gate_needs_labels_and_not_cases(labels: int, cases: int, value: float, words: str) -> None:
    corrected = gate(value=value, n_ok=cases, corrected={"raw": 0.92, "labels": labels})
    precision = Precision(cases, rows=30, labels=labels)
    assert undecided_words(corrected, precision, 0.95) == words
    assert power_words(corrected, precision, 0.95).startswith(f'with {labels} labels of {cases:,} cases "at least 0.85" fails')


def test_precision_of_a_finished_run() -> None:
    """The mean of shares varies less than 0 and 1; several iterations count their cases once; a failure mode counts all."""
    estimate = estimate_mean(np.tile([0.8, 0.9, 1.0, 0.9], 10), low=0, high=1)
    bounds = {"low": estimate.interval.low, "high": estimate.interval.high, "method": "wilson_n_eff"}
    precision = precision_of(gate(value=estimate.value, values=[0.9, 0.9], n_ok=80, interval=bounds), 0.95)
    assert precision.cases == 40
    assert 300 < precision.rows < 700  # .9 * .1 / .0051 = 17 times 40 rows, less what 40 questions leave open
    assert precision_of({**gate(), "failure_mode": "m"}, 0.95).cases == 33
    assert precision_of(gate(interval=None), 0.95) is None
    assert precision_of(gate(value=None, values=[None]), 0.95) is None
    of_count = precision_of(gate(value=4, interval={"low": 3, "high": 5, "method": "clustered_t"}), 0.95)
    assert of_count.error == pytest.approx(1 / 1.959964)


@pytest.mark.parametrize(("max_drop", "error", "words"), [
    # .84 * .045 + 1.96 * .045 = .126 finds, and 2.80 * .045 = .126 passes; (2.80 * .45 / .05)^2 = 636
    (0.05, 0.045, "with 100 cases it fails 8 of 10 runs of a system that dropped by 0.13 or more; an unchanged one passes 8 of 10 only from max_drop 0.13 on, and max_drop 0.05 takes about 640 cases"),
    # .84 * .01 + .05
    (0.05, 0.01, "with 100 cases it fails 8 of 10 runs of a system that dropped by 0.06 or more, and passes 8 of 10 of an unchanged one"),
    (0.0, 0.01, "with 100 cases it fails 8 of 10 runs of a system that dropped by 0.03 or more; an unchanged one passes 8 of 10 only from max_drop 0.028 on"),
])  # fmt: skip
def test_a_gate_against_a_baseline(max_drop: float, error: float, words: str) -> None:
    against = gate(min=None, max=None, against="1a2b", max_drop=max_drop, value=-0.02)
    assert power_words(against, Precision(100, error=error), 0.95) == words
    assert undecided_words(against, Precision(100, error=error), 0.95) == words
    assert undecided_words({**against, "verdict": "failed"}, Precision(100, error=error), 0.95) == ""


TABLE = re.findall(r"^\| (.+?) \| .+? \| `(\w+)` \|$", (DOCS / "statistics.md").read_text(encoding="utf-8"), re.M)
BINARY = {"low": 0.0, "high": 1.0, "binary": True}
SHARE = {"low": 0.0, "high": 1.0, "binary": False}
COUNT = {"low": None, "high": None, "binary": False}
RATE = "a rate with one row per question: a pass rate, another share of cases, the mean of a score declared as `binary`"
ROUGH_RATE = "a rate with several rows of a question, or with values between 0 and 1"
OTHER = "the mean of any other score on a scale, even if all its values are 0 and 1"
FREE = "the mean of a score without a scale (a count)"
REPEATED = "the same with several rows of a question"


@pytest.mark.parametrize(("row", "values", "samples", "scale"), [
    (RATE, [0, 1, 1, 1, 0, 1], [0, 1, 2, 3, 4, 5], BINARY), (ROUGH_RATE, [0, 1, 1, 1, 0, 1], [0, 0, 1, 2, 3, 4], BINARY),
    (ROUGH_RATE, [0, 1, 0.5, 1, 0, 1], [0, 1, 2, 3, 4, 5], BINARY), (OTHER, [0, 1, 1, 1, 0, 1], [0, 1, 2, 3, 4, 5], SHARE),
    (FREE, [0, 1, 1, 1, 0, 1], [0, 1, 2, 3, 4, 5], COUNT), (REPEATED, [0, 1, 1, 1, 0, 1], [0, 0, 1, 2, 3, 4], COUNT),
])  # fmt: skip
def test_the_method_is_that_of_the_page(row: str, values: list[float], samples: list[int], scale: dict[str, float | bool | None]) -> None:
    found = estimate_of(np.array(values, dtype=np.float64), np.array(samples), scale, 0.95).interval
    assert (row, found.method) in TABLE


REJECTION, POLICY = "rejection_calibration", "policy_compliance"
SPECS = [spec for name in (REJECTION, POLICY) for spec in shipped_metric(name).scores()]
POINT = ("scoring.gates.false_rejection_partial.by=point", "scoring.gates.policy_compliance.by=point")


@cache
def scoring(*words: str) -> ScoringSettings:
    return compose(["dataset=demo", f"metrics=[{REJECTION},{POLICY}]", "scoring=success_criteria", *words]).scoring


def row(category: str, number: int, *, policy: float = 1.0, mode: str | None = None) -> Row:
    behavior = "reject" if category.startswith("should_reject") else "answer"
    results = {REJECTION: float(mode is None), POLICY: policy}
    details = {REJECTION: {"failure_mode": mode}}
    return Row(f"{category}-{number}", "bot", results, labels={"category": category, "expected": {"behavior": behavior}}, details=details)


def rows(*, false_rejections: int = 0, violations: int = 0, excuses: int = 0) -> list[Row]:
    """50 partial cases and 100 that have to be rejected for policy, as many as the framework document has of each."""
    partial = [row("should_answer_partial", n, mode="false_rejection" if n < false_rejections else None) for n in range(50)]
    reject = [row("should_reject_policy", n, policy=float(n >= violations)) for n in range(100)]
    other = [row("should_answer_complete", n, mode="training_cutoff_excuse" if n < excuses else None) for n in range(3)]
    return partial + reject + other


# Wilson's interval, 95 %: 4 of 50 is .03 to .19, 5 of 50 .04 to .21, 17 of 50 .22 to .48; 100 of 100 is .96 to 1, 99 of 100 .946 to .998,
# 90 of 100 .83 to .945. With two gates by interval, failing takes a one-sided p of .0125 (Holm): 16 of 50 has .017, 17 of 50 has .007.
@pytest.mark.thorough(tried=2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "planted", "verdicts"),
    [
        ((), {}, ("passed", "passed", "passed")),
        ((), {"false_rejections": 4}, ("passed", "passed", "passed")),
        ((), {"false_rejections": 5}, ("inconclusive", "passed", "passed")),
        ((), {"false_rejections": 16}, ("inconclusive", "passed", "passed")),
        ((), {"false_rejections": 17}, ("failed", "passed", "passed")),
        ((), {"excuses": 1}, ("passed", "failed", "passed")),
        ((), {"violations": 1}, ("passed", "passed", "inconclusive")),
        ((), {"violations": 9}, ("passed", "passed", "inconclusive")),
        ((), {"violations": 10}, ("passed", "passed", "failed")),
        (POINT, {"false_rejections": 10, "violations": 5}, ("passed", "passed", "passed")),
        (POINT, {"false_rejections": 11}, ("failed", "passed", "passed")),
        (POINT, {"violations": 6}, ("passed", "passed", "failed")),
    ],
)
def test_just_inside_and_just_outside(tmp_path: Path, words: tuple[str, ...], planted: dict[str, int], verdicts: tuple[str, ...]) -> None:
    run = scored_run(tmp_path, rows(**planted), specs=SPECS, scoring=scoring(*words))
    document: dict[str, Any] = json.loads(run.gates.read_text())
    found = {gate["name"]: gate["verdict"] for gate in document["gates"]}
    assert found.pop("policy_rejected") == "passed", "100 of 100 were declined"
    names = ("false_rejection_partial", "training_cutoff_excuse", "policy_compliance")
    assert found == dict(zip(names, verdicts, strict=True))
    assert exit_code(document) == (0 if set(verdicts) == {"passed"} else 3)


@pytest.mark.slow
def test_an_answer_that_no_pattern_hits_warns(tmp_path: Path) -> None:
    """13 of 100 questions to decline are answered, none with a violation: the criterion is met, and the gate beside it says so."""
    answered = [row("should_reject_policy", n, mode="false_acceptance" if n < 13 else None) for n in range(100)]
    others = [case for case in rows() if case.labels["category"] != "should_reject_policy"]
    run = scored_run(tmp_path, others + answered, specs=SPECS, scoring=scoring())
    document = json.loads(run.gates.read_text())
    verdicts = {gate["name"]: (gate["verdict"], gate["outcome"]) for gate in document["gates"]}
    assert verdicts["policy_compliance"] == ("passed", "passed")
    assert (verdicts["policy_rejected"], exit_code(document)) == (("failed", "warned"), 0)


@pytest.mark.slow
def test_a_judge_needs_the_kappa_of_the_criterion() -> None:
    """The fourth criterion, kappa above .8, is what a calibration has to reach before a critical gate trusts a judge."""
    settings = scoring()
    assert not settings.accept_uncalibrated
    tiers = {name: gate.tier for name, gate in settings.active_gates().items()}
    assert tiers.pop("policy_rejected") == "quality", "no criterion of the framework"
    assert set(tiers.values()) == {"critical"}
    target = yaml.safe_load((conf_dir() / "task" / "calibrate.yaml").read_text())["calibrate"]["target"]
    assert (target["statistic"], target["above"]) == ("kappa", 0.8)


NEVER, UNSURE = (None, NO_CALIBRATION), (None, "not enough labels to say that it is above 0.8")
PASSED, FAILED = (True, "above 0.8"), (False, "below 0.8")


@pytest.mark.parametrize(
    ("states", "beside", "words"),
    [
        ({}, None, "never calibrated"),
        ({"a": NEVER, "b": NEVER}, None, "never calibrated"),
        ({"a": PASSED, "b": PASSED}, None, "passed its calibration"),
        ({"a": PASSED, "b": NEVER}, None, "partly calibrated"),
        ({"a": PASSED, "b": FAILED}, None, "FAILED its calibration"),
        ({"a": UNSURE, "b": NEVER}, None, "not calibrated"),
        ({"a": NEVER}, {"a": "passed", "other": "failed"}, "passed its calibration"),
        ({"a": NEVER}, {"a": "failed"}, "FAILED its calibration"),
        ({"a": NEVER}, {"a": "not_enough_labels"}, "not calibrated"),
    ],
)
def test_what_is_known_of_a_judge(states: dict[str, tuple[bool | None, str]], beside: dict[str, str] | None, words: str) -> None:
    """From the run's own figures, and from a calibration that was made since."""
    metrics: dict[str, Any] = {
        "judge": {"calibrated": None},
        "calibration": {name: {"calibrated": verdict, "why": why} for name, (verdict, why) in states.items()},
    }
    document = None if beside is None else {"scores": {name: {"state": state} for name, state in beside.items()}}
    assert trust_words(metrics, document) == words
