"""Gates on what the system under test takes, uses and fails at: rag-evaluation-framework.md, 3.4 and 7.3; core-metrics.md, operational metrics."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from ragpipe.core.score import ScoreSpec
from ragpipe.score.gate_settings import Gate
from ragpipe.score.settings import ScoringSettings
from tests.support.run_tables import Row, score, write_run

SPECS = [ScoreSpec("faithfulness")]
RECORDED = {"usage": {"total_tokens": 1000.0, "cost_usd": 0.014}}


def row(number: int, **output: Any) -> Row:
    return Row(f"q{number}", "a", {"faithfulness": ("skipped", "system_error") if "error" in output else 1.0}, {"category": "x"}, output)


def cases() -> list[Row]:
    """27 cases: 2 errors, one of them a timeout, one empty answer; 25 answers of 1.2 s on average, $0.014 each."""
    times = [1100.0, 1300.0] * 12 + [1200.0]
    rows = [row(n, timings={"total_ms": ms}, **RECORDED, **({"answer": " "} if n == 0 else {})) for n, ms in enumerate(times)]
    return [*rows, row(25, answer=None, error="HTTP 504"), row(26, answer=None, error="HTTP 500")]


def gated(root: Path, rows: list[Row], **gate: Any) -> dict[str, Any]:
    write_run(root, rows)
    (found,) = score(root, SPECS, ScoringSettings.model_validate({"gates": {"g": gate}}))["gates"]
    return dict(found)


@pytest.mark.parametrize(("gate", "value", "verdict", "sentence"), [
    ({"score": "latency_ms", "max": 2000}, 1200, "passed", "mean of latency_ms is 1,200 ms over 25 cases (at most 2,000 ms): passed"),
    ({"score": "latency_ms", "max": 1000}, 1200, "failed", "mean of latency_ms is 1,200 ms over 25 cases (at most 1,000 ms): failed"),
    ({"score": "latency_ms", "max": 1210}, 1200, "inconclusive", "contains the limit"),  # 100 ms spread: +/- 41 ms
    ({"score": "latency_ms", "of": "p95", "max": 1300}, 1300, "passed", "p95 of latency_ms is 1,300 ms over 25 cases"),
    ({"score": "latency_ms", "of": "p50", "max": 1100}, 1200, "failed", "p50 of latency_ms is 1,200 ms"),
    ({"score": "tokens_total", "max": 999}, 1000, "failed", "mean of tokens_total is 1,000 tokens over 25 cases (at most 999 tokens)"),
    ({"score": "cost_usd", "max": 0.014}, 0.014, "passed", "mean of cost_usd is 0.014 USD over 25 cases (at most 0.014 USD)"),
    ({"score": "cost_usd", "max": 0.01}, 0.014, "failed", "(at most 0.01 USD): failed"),
    ({"score": "error_rate", "max": 0.02, "by": "point"}, 2 / 27, "failed", "error_rate is 0.07407 over 27 cases (at most 0.02): failed"),
    ({"score": "error_rate", "max": 0.05}, 2 / 27, "inconclusive", "contains the limit"),  # Wilson: .021 to .234
    ({"score": "error_rate", "max": 0.3}, 2 / 27, "passed", "over 27 cases (at most 0.3): passed"),
    ({"score": "timeout_rate", "max": 0, "tier": "quality"}, 1 / 27, "failed", "timeout_rate is 0.03704 over 27 cases (at most 0)"),
    ({"score": "empty_rate", "max": 0.2}, 1 / 27, "passed", "empty_rate is 0.03704 over 27 cases"),
])  # fmt: skip
def test_a_figure_of_the_system_has_a_limit(tmp_path: Path, gate: dict[str, Any], value: float, verdict: str, sentence: str) -> None:
    found = gated(tmp_path, cases(), **gate)
    assert (found["value"], found["verdict"]) == (pytest.approx(value), verdict), found["sentence"]
    assert sentence in found["sentence"]
    assert found["n_cases"] == 27


@pytest.mark.parametrize(("rows", "gate", "verdict", "sentence"), [
    ([row(n) for n in range(9)], {"score": "latency_ms"}, "no_evidence", "no case records its timings"),
    ([row(n) for n in range(9)], {"score": "latency_ms", "without_cases": "not_applicable"}, "not_applicable", "no case records its timings"),
    ([row(n, usage={"total_tokens": 5.0}) for n in range(9)], {"score": "cost_usd"}, "no_evidence", "no case has a known price"),
    ([row(n, **(RECORDED if n < 5 else {})) for n in range(9)], {"score": "cost_usd"}, "not_enough_evidence", "only 5 of 9 cases record it"),
    (cases(), {"score": "latency_ms", "where": {"category": "y"}}, "no_evidence", "no case has it; category is x"),
])  # fmt: skip
def test_what_a_run_did_not_record_is_no_evidence(tmp_path, rows: list[Row], gate: dict[str, Any], verdict: str, sentence: str) -> None:
    found = gated(tmp_path, rows, max=1, **gate)
    assert found["verdict"] == verdict, found["sentence"]
    assert sentence in found["sentence"]


@pytest.mark.parametrize(
    ("gate", "said"),
    [
        ({"score": "latency_ms", "min": 1}, "lower is better"),
        ({"score": "error_rate", "max": 2}, "a share of the cases"),
        ({"score": "error_rate", "of": "mean", "max": 0.1}, "a share of the cases"),
        ({"score": "cost_usd", "of": "pass_rate", "max": 1}, "no answer passes or fails by it"),
        ({"score": "latency_ms", "of": "p95", "max": 1, "by": "interval"}, "a percentile has no interval"),
        ({"score": "latency_ms", "against": "latest"}, "held against no other run"),
        ({"score": "faithfulness", "of": "p95", "max": 1}, "beside latency_ms, tokens_total or cost_usd"),
    ],
)
def test_what_such_a_gate_cannot_have_is_refused(gate: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Gate(**gate)


def test_a_critical_gate_on_the_system_fails_no_case(tmp_path: Path) -> None:
    write_run(tmp_path, cases())
    settings = ScoringSettings.model_validate({"gates": {"g": {"score": "latency_ms", "max": 1}}, "weights": {"faithfulness": 1.0}})
    assert score(tmp_path, SPECS, settings)["gates"][0]["outcome"] == "blocked"
    assert settings.case_gates() == {}
