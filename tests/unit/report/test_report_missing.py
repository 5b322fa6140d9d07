"""Advice where replies are missing; the signature and alerts of a report."""

from typing import Any

import pytest

from ragpipe.core.score import judge_name
from ragpipe.judge.rules.settings import RulesSettings
from ragpipe.report.diagnosis_section import MISSING_REPLY_FIX, advice_for, diagnosis_section, transient_errors
from ragpipe.report.report_data import ReportData
from ragpipe.report.settings import run_signature
from ragpipe.runs.alert_file import alerted_gates
from ragpipe.score import settings
from tests.support.reports import html_of, markdown_of, report_of


def metrics(*errors: dict[str, int]) -> dict[str, Any]:
    """What metrics.json says of scores that failed for these reasons, with the shipped words of the diagnosis."""
    shipped = settings.shipped()["diagnosis"]
    one = {"name": "not_judged", "n": 4, "share_of_cases": 1.0, "message": shipped["not_judged"]["message"],
           "advice": shipped["not_judged"]["advice"], "examples": [{"sample_id": "q", "method": "m", "repeat": 1}]}  # fmt: skip
    scores = {f"s{place}": {"errors": kinds} for place, kinds in enumerate(errors)}
    return {"n_cases": 4, "overall": {"n_cases": 4, "scores": scores, "failure_modes": {}}, "diagnosis": [one], "by": {}}


def test_what_is_missing_is_said_with_what_may_fix_it() -> None:
    def advice(*errors: dict[str, int]) -> list[str]:
        found = metrics(*errors)
        return advice_for(found["diagnosis"][0], found)

    found = advice({"missing_reply": 4}, {"part_error": 4})
    assert MISSING_REPLY_FIX in found[0]
    assert not any("retry_errors" in text for text in found)
    assert "Look at the kinds of errors under coverage." in found, "the other advice stays"
    found = advice({"missing_reply": 3}, {"refused": 1})
    assert [MISSING_REPLY_FIX in found[0], "retry_errors=true" in found[1]] == [True, True]
    report = report_of(diagnosis_section(ReportData(metrics({"missing_reply": 4}), {})))
    for page in (markdown_of(report), html_of(report)):
        assert "retry_errors" not in page.replace("\\", "")
        assert "action=import" in " ".join(page.split()).replace("\\", "")
    found = metrics({"missing_reply": 1, "refused": 2}, {"part_error": 3, "rate_limit": 1})
    assert transient_errors(found) == {"missing_reply", "rate_limit"}


LINE = dict(
    version="0.1.0", dataset="demo", dataset_digest="1a2b3c4d5e6f", judge="evidence 1", calibration="uncalibrated",
    metrics={"faithfulness": "v1 extract:v1@aaaa", "mrr": ""}, scoring={"level": 0.95}, n=412, iteration=2,
)  # fmt: skip


def test_the_parts_of_the_judges_name() -> None:
    # sha256 of {"level":0.95} starts with the eight digits below (sha256sum of the canonical text)
    assert run_signature(**LINE) == (  # type: ignore[arg-type]
        "ragpipe 0.1.0 | data demo@1a2b3c4d | judge evidence 1 (uncalibrated) | faithfulness(v1 extract:v1@aaaa) mrr | "
        "scoring 7ec0d3b7 | n=412 | iteration 2"
    )
    label = RulesSettings().label
    line = run_signature(**{**LINE, "judge": label})  # type: ignore[arg-type]
    assert f"| judge {label}, no model (uncalibrated) |" in line
    assert judge_name("openai/m-2026-01-01") == "openai/m-2026-01-01"
    line = run_signature(**{**LINE, "dataset": "x | judge gpt\n\x1b[2J"})  # type: ignore[arg-type]
    assert line.count(" | ") == 6
    assert "\n" not in line
    assert "\x1b" not in line


DEFAULT = ("failed", "unmeasured", "drop")


@pytest.mark.parametrize(
    ("gate", "kinds", "is_alert"),
    [
        ({"min": 0.85}, DEFAULT, True),
        ({"min": 0.85, "too_few": True}, DEFAULT, False),
        ({"min": 0.85, "too_few": True}, ("inconclusive",), True),
        ({"min": 1, "too_few": True}, DEFAULT, True),
        ({"max": 0, "too_few": True}, DEFAULT, True),
        ({"max": 0.2, "too_few": True}, DEFAULT, False),
        ({"min": 0.85, "verdict": "inconclusive"}, DEFAULT, False),
        ({"min": 0.85, "verdict": "not_enough_evidence", "too_few": True}, DEFAULT, True),
        ({"min": 0.85, "outcome": "passed", "verdict": "passed"}, DEFAULT, False),
    ],
)
def test_a_mean_of_fewer_than_five_questions_is_no_alert(gate: dict[str, Any], kinds: tuple[str, ...], is_alert: bool) -> None:
    """A limit that allows no case at all counts cases: one is enough."""
    few = {"too_few": True} if gate.pop("too_few", False) else {}
    whole = {"verdict": "failed", "outcome": "warned", "interval": {"low": 0.0, "high": 0.7, **few}, **gate}
    assert bool(alerted_gates([whole], kinds)) is is_alert
