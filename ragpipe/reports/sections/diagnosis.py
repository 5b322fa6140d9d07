"""What is wrong and what to try: the diagnoses and failure modes of `metrics.json`, for the terminal and the page."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from ragpipe.core.safe_text import on_one_line
from ragpipe.reports.missing_replies import advice_for
from ragpipe.reports.number_format import each_iteration, items_of, mode_shares, share_of_cases, whole
from ragpipe.reports.text_escape import case_name, code, escaped, table

TOLD = 5  # diagnoses on the terminal


def diagnosis_section(metrics: Mapping[str, Any], width: int) -> list[str]:
    """The most frequent diagnoses, each with what is wrong, then what to try and which cases to look at; `width` columns."""
    made = _by_count(metrics)
    lines = []
    for one in made[:TOLD]:
        count = share_of_cases(one["n"], metrics)
        lines += _wrapped(f"{on_one_line(one['name'])}: {count}: {on_one_line(one['says'], 300)}", width, "")
        advice = " ".join(on_one_line(text, 300) for text in advice_for(one, metrics)[:1])
        cases = ", ".join(case_name(case, lambda text: on_one_line(text, 60), "/") for case in _some(one, 3))
        lines += _wrapped(f"try: {advice} See {cases}." if advice else f"see {cases}", width, "  ")
    if len(made) > TOLD:
        lines.append(f"and {len(made) - TOLD} more under `What is wrong` in the report")
    return lines


def items_line(metrics: Mapping[str, Any]) -> str:
    """`items: 23 unsupported claims, 14 irrelevant chunks`; empty where the run counts none."""
    modes = metrics["overall"].get("failure_modes") or {}
    there = [on_one_line(items_of(name, mode, metrics), 200) for name, mode in modes.items() if mode.get("n_items")]
    return f"items: {', '.join(there)} (in all cases, also in those that passed)" if there else ""


def wrong_section(metrics: Mapping[str, Any]) -> list[str]:
    """`## What is wrong` of the page; empty when nothing is."""
    parts = [*_diagnoses(metrics), *_modes(metrics)]
    notes = [line for note in each_iteration(metrics) for line in ("", note)]
    return ["## What is wrong", *parts, *notes] if parts else []


def _diagnoses(metrics: Mapping[str, Any]) -> Iterator[str]:
    made = _by_count(metrics)
    if made:
        yield ""
    for one in made:
        cases = ", ".join(case_name(case, code) for case in one["examples"])
        advice = " ".join(escaped(text) for text in advice_for(one, metrics))
        yield (
            f"- {code(one['name'])}: {share_of_cases(one['n'], metrics, ' cases')}. {escaped(one['says'])}"
            + (f" **Try:** {advice}" if advice else "")
            + f" For example {cases}."
        )


def _modes(metrics: Mapping[str, Any]) -> Iterator[str]:
    overall = metrics["overall"].get("failure_modes") or {}
    there = {name: mode for name, mode in overall.items() if mode["n"] or mode.get("n_items")}
    if not there:
        return
    lines = [
        [
            *(code(name), whole(mode["n"]), *mode_shares(mode["n"], metrics), whole(mode["n_judged"])),
            escaped(items_of(name, mode, metrics)),
        ]
        for name, mode in sorted(there.items(), key=lambda pair: -pair[1]["n"])
    ]
    heads = [
        "failure mode",
        "cases",
        "of all cases",
        "of cases with one",
        "of all modes",
        "of how many it can be told",
        "items",
    ]
    yield from ("", *table(heads, lines), "")
    yield (
        f"{whole(metrics['overall']['n_with_failure_mode'])} cases have a failure mode, some have several; "
        f"{whole(metrics['overall']['n_failed_without_mode'])} failed a score and have none. Items are those of all cases, "
        "also of those that passed."
    )
    if unknown := metrics.get("not_applicable", {}).get("failure_modes"):
        yield from ("", f"Not told, because their scores are not in this run: {', '.join(map(code, unknown))}.")


def _by_count(metrics: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The most frequent diagnosis first, ties in their order of priority."""
    return sorted(metrics.get("diagnosis") or (), key=lambda one: -int(one["n"]))


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(text, max(width, 40), initial_indent=indent, subsequent_indent="    ", break_on_hyphens=False)


def _some(one: Mapping[str, Any], count: int) -> list[Mapping[str, Any]]:
    return list(one["examples"][:count])
