"""Latency and cost of two sides in words. They are skewed: medians and ratios come first, and then what decides the mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ragpipe.reports.difference_figures import case_text, difference_text, figure_text, wins_text
from ragpipe.reports.number_format import plural, whole


def operation_rows(operations: Mapping[str, Mapping[str, Any]]) -> Iterator[list[str]]:
    """For each quantity a row of the medians, with the ratio of the middle case, and one of the means; the columns are those of
    `comparison_summary.HEADS`."""
    for name, score in operations.items():
        typical = score["typical"]
        ratio = "" if typical["median_ratio"] is None else f"x{typical['median_ratio']:.2f}"
        medians = [figure_text(typical["base_median"]), figure_text(typical["candidate_median"])]
        yield [f"{name} median", *medians, ratio, wins_text(score), "", ""]
        means = [figure_text(score["base_mean"]), figure_text(score["candidate_mean"]), difference_text(score)]
        yield [f"{name} mean", *means, "", score["state"], figure_text(score["detectable"])]


def operation_lines(operations: Mapping[str, Mapping[str, Any]], has_one_method: bool) -> Iterator[str]:
    """`latency_ms: more in 38 of 40 cases, 1.35 times the base in the middle case; the mean fell through one case, dao-07: 30,246
    -> 691`, for each quantity that changed. `has_one_method` says that a case is named by its sample alone."""
    for name, score in operations.items():
        if not score["changed"]:
            continue
        ratio = score["typical"]["median_ratio"]
        parts = [
            f"more in {whole(score['losses'])} and less in {whole(score['wins'])} of {plural(score['n'], 'case')}",
            *([f"{ratio:.2f} times the base in the middle case"] if ratio is not None else []),
        ]
        line = f"{name}: {', '.join(parts)}"
        if dominant := score["typical"]["dominant"]:
            line += f"; {_dominant_words(dominant, score, has_one_method)}"
        yield line


def _dominant_words(dominant: Mapping[str, Any], score: Mapping[str, Any], has_one_method: bool) -> str:
    ends = f"{case_text(dominant['case'], has_one_method)}: {figure_text(dominant['base'])} -> "
    ends += figure_text(dominant["candidate"])
    difference, without = score["difference"], dominant["without"]
    if difference * without < 0:
        verb = "lower" if difference < 0 else "higher"
        return f"the mean is {verb} because of one case, {ends}; without it {figure_text(without, sign=True)}"
    return f"more than half of all change is one case, {ends}; without it the mean differs by {figure_text(without, sign=True)}"
