"""scoring=success_criteria: what is just inside each criterion of the framework document, and what is just outside."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from ragpipe.cli import compose
from ragpipe.core.resources import conf_dir
from ragpipe.scoring.gates.gate_rules import exit_code
from ragpipe.scoring.settings import ScoringSettings
from ragpipe.testing import shipped_metric
from tests.support.compared_runs import scored_run
from tests.support.run_tables import Row

REJECTION, POLICY = "rejection_calibration", "policy_compliance"
SPECS = [spec for name in (REJECTION, POLICY) for spec in shipped_metric(name).scores()]
POINT = ("scoring.gates.false_rejection_partial.by=point", "scoring.gates.policy_compliance.by=point")


@cache
def scoring(*words: str) -> ScoringSettings:
    config = compose(["dataset=demo", f"metrics=[{REJECTION},{POLICY}]", "scoring=success_criteria", *words])
    settings: ScoringSettings = config.scoring
    return settings


def row(category: str, number: int, *, policy: float = 1.0, mode: str | None = None) -> Row:
    behavior = "reject" if category.startswith("should_reject") else "answer"
    results = {REJECTION: float(mode is None), POLICY: policy}
    details = {REJECTION: {"failure_mode": mode}}
    return Row(
        f"{category}-{number}",
        "bot",
        results,
        labels={"category": category, "expected": {"behavior": behavior}},
        details=details,
    )


def rows(*, false_rejections: int = 0, violations: int = 0, excuses: int = 0) -> list[Row]:
    """50 partial cases and 100 that have to be rejected for policy, as many as the framework document has of each."""
    partial = [
        row("should_answer_partial", n, mode="false_rejection" if n < false_rejections else None) for n in range(50)
    ]
    reject = [row("should_reject_policy", n, policy=float(n >= violations)) for n in range(100)]
    other = [row("should_answer_complete", n, mode="training_cutoff_excuse" if n < excuses else None) for n in range(3)]
    return partial + reject + other


def slow(*values: Any) -> Any:
    """A row that stands with the slow tests."""
    return pytest.param(*values, marks=pytest.mark.slow)


# Wilson's interval, 95 %: 4 of 50 is .03 to .19, 5 of 50 .04 to .21, 17 of 50 .22 to .48; 100 of 100 is .96 to 1, 99 of 100 .946 to .998,
# 90 of 100 .83 to .945. With two gates by interval, failing takes a one-sided p of .0125 (Holm): 16 of 50 has .017, 17 of 50 has .007.
@pytest.mark.thorough(tried=2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "planted", "verdicts"),
    [
        slow((), {}, ("passed", "passed", "passed")),
        ((), {"false_rejections": 4}, ("passed", "passed", "passed")),
        slow((), {"false_rejections": 5}, ("inconclusive", "passed", "passed")),
        slow((), {"false_rejections": 16}, ("inconclusive", "passed", "passed")),
        slow((), {"false_rejections": 17}, ("failed", "passed", "passed")),
        ((), {"excuses": 1}, ("passed", "failed", "passed")),
        slow((), {"violations": 1}, ("passed", "passed", "inconclusive")),
        slow((), {"violations": 9}, ("passed", "passed", "inconclusive")),
        slow((), {"violations": 10}, ("passed", "passed", "failed")),
        slow(POINT, {"false_rejections": 10, "violations": 5}, ("passed", "passed", "passed")),
        slow(POINT, {"false_rejections": 11}, ("failed", "passed", "passed")),
        slow(POINT, {"violations": 6}, ("passed", "passed", "failed")),
    ],
)
def test_just_inside_and_just_outside(
    tmp_path: Path, words: tuple[str, ...], planted: dict[str, int], verdicts: tuple[str, ...]
) -> None:
    found, code = decided(tmp_path, planted, *words)
    assert found.pop("policy_rejected") == "passed", "100 of 100 were declined"
    assert (found, code) == (
        dict(zip(("false_rejection_partial", "training_cutoff_excuse", "policy_compliance"), verdicts, strict=True)),
        0 if set(verdicts) == {"passed"} else 3,
    )


def decided(tmp_path: Path, planted: dict[str, int], *words: str) -> tuple[dict[str, str], int]:
    """The verdicts of the gates, and the exit code."""
    run = scored_run(tmp_path, rows(**planted), specs=SPECS, scoring=scoring(*words))
    document: dict[str, Any] = json.loads(run.gates.read_text())
    return {gate["name"]: gate["verdict"] for gate in document["gates"]}, exit_code(document)


@pytest.mark.slow
def test_an_answer_that_no_pattern_hits_warns(tmp_path: Path) -> None:
    """13 of 100 questions to decline are answered, none with a violation: the criterion is met, and the gate beside it says so."""
    answered = [row("should_reject_policy", n, mode="false_acceptance" if n < 13 else None) for n in range(100)]
    others = [case for case in rows() if case.labels["category"] != "should_reject_policy"]
    run = scored_run(tmp_path, others + answered, specs=SPECS, scoring=scoring())
    document = json.loads(run.gates.read_text())
    verdicts = {gate["name"]: (gate["verdict"], gate["outcome"]) for gate in document["gates"]}
    assert verdicts["policy_compliance"] == ("passed", "passed")
    assert verdicts["policy_rejected"] == ("failed", "warned")
    assert exit_code(document) == 0


@pytest.mark.slow
def test_rejections_elsewhere_are_no_matter_of_the_first_criterion(tmp_path: Path) -> None:
    mixed = [row("should_answer_complete", n, mode="false_rejection") for n in range(30)] + rows()
    run = scored_run(tmp_path, mixed, specs=SPECS, scoring=scoring())
    gate = next(g for g in json.loads(run.gates.read_text())["gates"] if g["name"] == "false_rejection_partial")
    assert (gate["value"], gate["n_cases"], gate["verdict"]) == (0, 50, "passed")


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
