"""Advice where replies are missing: never one that cannot help without a network."""

from __future__ import annotations

from typing import Any

from ragpipe.reports.report_data import ReportData
from ragpipe.reports.sections.diagnosis_section import (
    MISSING_REPLY_FIX,
    advice_for,
    diagnosis_section,
    transient_errors,
)
from ragpipe.scoring import settings
from tests.support.reports import html_of, markdown_of, report_of, terminal_of


def metrics(*errors: dict[str, int]) -> dict[str, Any]:
    """What metrics.json says of scores that failed for these reasons, with the shipped words of the diagnosis."""
    shipped = settings.shipped()["diagnosis"]
    one = {"name": "not_judged", "n": 4, "share_of_cases": 1.0, "message": shipped["not_judged"]["message"],
           "advice": shipped["not_judged"]["advice"], "examples": [{"sample_id": "q", "method": "m", "repeat": 1}]}  # fmt: skip
    scores = {f"s{place}": {"errors": kinds} for place, kinds in enumerate(errors)}
    return {"n_cases": 4, "overall": {"scores": scores, "failure_modes": {}}, "diagnosis": [one], "by": {}}


def advice(*errors: dict[str, int]) -> list[str]:
    found = metrics(*errors)
    return advice_for(found["diagnosis"][0], found)


def test_only_what_is_missing() -> None:
    found = advice({"missing_reply": 4}, {"part_error": 4})
    assert MISSING_REPLY_FIX in found[0]
    assert not any("retry_errors" in text for text in found)
    assert "Look at the kinds of errors under coverage." in found, "the other advice stays"


def test_something_else_failed_too() -> None:
    found = advice({"missing_reply": 3}, {"refused": 1})
    assert [MISSING_REPLY_FIX in found[0], "retry_errors=true" in found[1]] == [True, True]


def test_nothing_is_missing() -> None:
    found = metrics({"refused": 4})
    assert advice_for(found["diagnosis"][0], found) == found["diagnosis"][0]["advice"]
    assert "retry_errors=true" in found["diagnosis"][0]["advice"][0]


def test_terminal_and_pages_say_the_same() -> None:
    found = metrics({"missing_reply": 4})
    report = report_of(diagnosis_section(ReportData(found, {})))
    for page in (terminal_of(report, 80), markdown_of(report), html_of(report)):
        assert "retry_errors" not in page.replace("\\", "")
        assert "action=import" in " ".join(page.split()).replace("\\", "")


def test_what_another_start_may_fix() -> None:
    found = metrics({"missing_reply": 1, "refused": 2}, {"part_error": 3, "rate_limit": 1})
    assert transient_errors(found) == {"missing_reply", "rate_limit"}
