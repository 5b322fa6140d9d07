"""What a check for drift says on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragpipe.core.safe_text import shorten
from ragpipe.reports.console import Console
from ragpipe.reports.number_format import plural
from ragpipe.reports.sections.drift_section import served_words

_FEW = 60
"""Stable verdicts below which a change of 5 % is missed in more than one check of ten."""
_SHOWN = 20
_HEADS = ("verdict", "before", "now", "5 more", "drifted")


def say_drift(
    kind: str, document: Mapping[str, Any], baseline: Mapping[str, Any], label: str, console: Console
) -> None:
    """Print what a start found; a drifted judge is a warning.

    Args:
        kind: `baseline` or `check`.
        document: the new baseline, or the check.
        baseline: the baseline that holds.
        label: the judge's printable name.
        console: where it is printed.
    """
    for line in _baseline_lines(document) if kind == "baseline" else _check_lines(document, baseline):
        console.say(line)
    if kind == "baseline":
        return
    if rows := _changed_rows(document):
        console.table(_HEADS, rows, title="changed verdicts", left=(0,))
    sentence = _conclusion(document, label)
    if document["alarm"]:
        console.warn(sentence)
    else:
        console.say(sentence)


def _baseline_lines(baseline: Mapping[str, Any]) -> list[str]:
    """Lines about a new baseline."""
    kept, random = len(baseline["verdicts"]), len(baseline["random"])
    lines = [
        f"baseline: {kept:,} of {kept + random:,} verdicts were the same {baseline['repeats']} times and are kept",
        f"answered by: {served_words(baseline['served'])}",
    ]
    if baseline["random"]:
        names = ", ".join(baseline["random"][:5]) + (" ..." if random > 5 else "")
        lines.append(f"left out as random: {names}")
    if few := _few_line(kept):
        lines.append(few)
    return lines


def _check_lines(check: Mapping[str, Any], baseline: Mapping[str, Any]) -> list[str]:
    """Lines about a check, without its table of changed verdicts and its _conclusion."""
    since, flips, p = baseline["started_at"][:16].replace("T", " "), check["flips"], check["mcnemar_p"]
    lines = [
        f"as in the baseline of {since} UTC: {_share(check['matched'], check['verdicts'])} verdicts",
        f"right by the grades of the canary set: {_share(check['right'], check['graded'])}",
        f"flips: {flips['to_wrong']:,} from right to wrong, {flips['to_right']:,} from wrong to right, {flips['other']:,} other"
        + (f"; McNemar p {p:.3f} (decides nothing)" if p is not None else ""),
        f"answered by: {served_words(check['served'])}",
    ]
    if few := _few_line(check["verdicts"]):
        lines.append(few)
    return lines


def _changed_rows(check: Mapping[str, Any]) -> list[list[str]]:
    """The changed verdicts, those that drifted first."""
    changed = sorted(check["changed"], key=lambda row: not row["drifted"])[:_SHOWN]
    return [
        [
            row["verdict"],
            shorten(str(row["before"]), 24),
            shorten(str(row["first"]), 24),
            f"{sum(value != row['before'] for value in row['again'])} differ",
            "yes" if row["drifted"] else "no",
        ]
        for row in changed
    ]


def _conclusion(check: Mapping[str, Any], label: str) -> str:
    """The last line: whether the judge has drifted, and what follows."""
    if not check["alarm"]:
        return f"no drift of {label}"
    verdicts = plural(check["drifted"], "verdict")
    return (
        f"{label} HAS DRIFTED: {verdicts} differ from the baseline in all six replies. Comparisons of runs that it judged before "
        "with runs since are refused. judge.season=NAME asks every question again; the next check makes a new baseline"
    )


def _few_line(kept: int) -> str | None:
    """A line where few verdicts are stable."""
    if kept >= _FEW:
        return None
    return f"only {kept:,} verdicts are stable: a change of 5 % of them is often missed (docs/drift.md)"


def _share(count: int, total: int) -> str:
    return f"{count:,} of {total:,} ({count / total:.1%})" if total else "0 of 0"
