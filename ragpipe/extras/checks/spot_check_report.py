"""A spot check in words: how often two judges disagree, and on which cases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ragpipe.core.safe_text import on_one_line
from ragpipe.reports.number_format import bracketed, decimal, plural, whole

SPOT_CHECK_HEADS = ("score", "cases", "disagree", "kappa", "second less first")
LISTED = 10
"""Disagreeing cases that are printed; all of them stand in the file."""
_ID = 60  # characters of a case's id


def spot_check_rows(reliability: Mapping[str, Any]) -> list[list[str]]:
    """A row per score that both judges gave."""
    return [
        [
            name,
            whole(score["n"]),
            f"{decimal(score['disagreement_rate'], 2)} {bracketed(score['interval'], 1.0, 2)}"
            if score["interval"]
            else decimal(score["disagreement_rate"], 2),
            "-" if score["kappa"] is None else decimal(score["kappa"], 2),
            f"{score['difference']:+.2f}",
        ]
        for name, score in reliability["scores"].items()
    ]


def disagreeing_lines(reliability: Mapping[str, Any]) -> Iterator[str]:
    """The first cases on which the judges disagree."""
    cases = reliability["cases"]
    for case in cases[:LISTED]:
        name = on_one_line(f"{case['sample_id']}/{case['method']}", _ID)
        yield f"  {name} {case['score']}: {case['first']:g}, then {case['second']:g}"
    if len(cases) > LISTED:
        yield f"  and {len(cases) - LISTED:,} more"
    for name, score in reliability["scores"].items():
        if score["one_sided"]:
            yield f"{name}: {plural(score['one_sided'], 'case')} with a value from one judge alone"


def spot_check_words(reliability: Mapping[str, Any], limit: float) -> str:
    """The result in one sentence."""
    rate, cases = reliability["disagreement_rate"], plural(reliability["spot_check_n"], "case")
    if rate is None:
        return f"spot check: no score has a value from both judges in {cases}"
    said = f"spot check: the judges disagree in {decimal(rate, 2)} of the judgements of {cases}"
    if rate <= limit:
        return f"{said}, not more than spot_check.warn_above={limit:g}"
    return (
        f"{said}, more than spot_check.warn_above={limit:g}: at least one of them is not to be trusted here; label these cases "
        "(task=label) and calibrate"
    )
