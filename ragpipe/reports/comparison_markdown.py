"""`comparison.md`: a comparison for a pull request. Text of data and systems is never markup."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ragpipe.comparing.settings import SMALLEST_SHARE
from ragpipe.core.safe_text import code_span, escape_markdown, markdown_table
from ragpipe.reports.comparison_summary import (
    HEADS,
    absent_score_lines,
    bridge_lines,
    difference_rows,
    differs_lines,
    headline_rows,
    needed_lines,
    side_label,
    slice_text,
    why_lines,
)
from ragpipe.reports.difference_figures import case_text, difference_text, figure_text
from ragpipe.reports.number_format import whole
from ragpipe.reports.operation_lines import operation_lines

_LISTED = 20  # flipped cases and slices of a comparison
_TEXTS = tuple(place for place, head in enumerate(HEADS) if head in ("score", "verdict"))


def summary_markdown(document: Mapping[str, Any]) -> str:
    """The page: for each candidate the verdict, the headline scores, flips, slices, all scores, and what differs."""
    lines = [f"# Compared with {escape_markdown(side_label(document['base']))}"]
    for comparison in document["comparisons"]:
        lines += ["", *_candidate(document, comparison)]
    settings = document["settings"]
    lines += [
        "",
        f"Intervals are {settings['level']:.0%}, by question; *w/t/l* counts cases in which the new one is better, equal, worse. "
        "*could show* is the true difference that these cases find in 8 of 10 samples. "
        f"*same*: within {SMALLEST_SHARE:g} of a score's scale, or the smallest effect that was set.",
    ]
    return "\n".join(lines) + "\n"


def _candidate(document: Mapping[str, Any], comparison: Mapping[str, Any]) -> Iterator[str]:
    cases = comparison["cases"]
    yield f"## {escape_markdown(side_label(document['candidates'][comparison['candidate']]))}"
    yield from ("", f"**{escape_markdown(comparison['verdict']['sentence'], 2000)}**", "")
    yield (
        f"{whole(cases['both'])} shared cases of {whole(cases['questions'])} questions; only in the base "
        f"{whole(cases['only_base'])}, only in the new one {whole(cases['only_candidate'])}."
    )
    yield ""
    yield from markdown_table(HEADS, [[code_span(row[0]), *row[1:]] for row in headline_rows(comparison)], left=_TEXTS)
    side = document["candidates"][comparison["candidate"]]
    notes = [
        *operation_lines(comparison["operations"], bool(side["method"])),
        *bridge_lines(comparison["scores"]),
        *why_lines(comparison["why"]),
        *needed_lines({**comparison["scores"], **comparison["operations"]}),
        *differs_lines(comparison["differs"]),
        *absent_score_lines(comparison),
    ]
    if notes:
        yield from ("", *(f"- {escape_markdown(line, 2000)}" for line in notes))
    yield from _flips(comparison, side)
    yield from _slices(comparison)
    rest = {name: score for name, score in comparison["scores"].items() if not score["headline"]}
    if rest:
        yield from ("", "<details><summary>other scores</summary>", "")
        yield from markdown_table(HEADS, [[code_span(row[0]), *row[1:]] for row in difference_rows(rest)], left=_TEXTS)
        yield from ("", "Each on its own: no correction for their number.", "", "</details>")


def _flips(comparison: Mapping[str, Any], side: Mapping[str, Any]) -> Iterator[str]:
    flips = {name: keys for name, keys in comparison["flips"].items() if comparison["scores"][name]["headline"]}
    if not flips:
        return
    yield from ("", "### Flips", "")
    for name, directions in flips.items():
        for direction, text in (("to_failed", "now fail"), ("to_passed", "now pass")):
            if keys := directions[direction]:
                more = f" and {whole(len(keys) - _LISTED)} more" if len(keys) > _LISTED else ""
                cases = ", ".join(code_span(case_text(key, bool(side["method"]))) for key in keys[:_LISTED])
                yield f"- {code_span(name)}: {whole(len(keys))} {text}: {cases}{more}"


def _slices(comparison: Mapping[str, Any]) -> Iterator[str]:
    decided = [row for row in comparison["slices"] if row["state"] in ("better", "worse")]
    decided.sort(key=lambda row: (row["state"] != "worse", -abs(row["difference"])))
    if not decided:
        return
    yield from ("", "### Slices that differ", "")
    rows = [
        [
            code_span(slice_text(row)),
            code_span(row["score"]),
            whole(row["n"]),
            difference_text(row),
            figure_text(row["q_value"]),
            row["state"],
        ]
        for row in decided[:_LISTED]
    ]
    yield from markdown_table(["slice", "score", "n", "difference", "q", "verdict"], rows, left=(0, 1, 5))
    if len(decided) > _LISTED:
        yield from ("", f"and {whole(len(decided) - _LISTED)} more")
