"""What several iterations say together: how far they lie apart, and how many verdicts flip. For terminal and page alike."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ragpipe.reports.figures import columns, heading, paid, rows, whole
from ragpipe.reports.frames import read_json

HEADS = ("mean", "least - most", "sd", "noise", "passed", "flips")


def final_of(run: Path, iteration: int) -> dict[str, Any] | None:
    """`final/metrics.json` of a run when it ends with this iteration and puts several together, else None.

    `cost` in it is the total of `final/cost.json`.
    """
    folder = run / "final"
    found = read_json(folder / "metrics.json") if (folder / "metrics.json").is_file() else {}
    numbers = found.get("iterations", [])
    if len(numbers) < 2 or numbers[-1] != iteration:
        return None
    return {**found, "cost": read_json(folder / "cost.json")["total"]}


def final_title(final: Mapping[str, Any]) -> str:
    """`Over 3 iterations`."""
    return f"Over {len(final['iterations'])} iterations"


def final_lines(final: Mapping[str, Any], percent: Collection[str]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of the table: a row a score, and one for each method where there are several."""
    groups = columns(final)
    several = len(groups) > 1
    heads = ["score", *(["method"] if several else []), *HEADS]
    lines = []
    for name in rows(final):
        for method, group in groups.items():
            head = heading(name, final, percent)
            figures = _figures(group["scores"].get(name), final["declared"][name], percent=name in percent)
            lines.append([head, *([method] if several else []), *figures])
    return heads, lines


def final_notes(final: Mapping[str, Any], *, here: bool = True) -> list[str]:
    """What the columns mean, where the flipping cases stand, and what all iterations cost; with `here` also what this
    folder's own processes asked, which differs from machine to machine."""
    notes = [
        "mean: of the iterations' means; sd: their standard deviation; noise: standard deviation of a case's value between "
        "iterations; flips: cases whose verdict is not the same in all iterations."
    ]
    if count := final["flips"]["count"]:
        notes.append(f"{whole(count)} flipping verdicts: the cases are listed in final/metrics.json, under flips.")
    used, spent = final["cost"]["used"], final["cost"]["spent"]
    if used["calls"] > used["calls_computed"]:
        text = f"All iterations: {whole(used['calls'])} calls, {paid(used['usd_known'], sum(used['usd_unknown'].values()))}"
        text += f"; asked here: {whole(spent.get('calls') or 0)} calls" if here else ""
        notes.append(f"{text}. Each one's: final/cost.json.")
    return notes


def _figures(score: Mapping[str, Any] | None, scale: Mapping[str, Any], *, percent: bool) -> Sequence[str]:
    if score is None:
        return ["-"] * len(HEADS)
    spread, flips, rate = score.get("spread"), score.get("flips"), score.get("pass_rate")
    factor = 100.0 if percent else 1.0
    wide = scale["low"] is not None and (scale["high"] - scale["low"]) * factor >= 50

    def number(value: float | None) -> str:
        """One digit more than a mean is shown with elsewhere: iterations differ little."""
        return "-" if value is None else f"{value * factor:.{2 if wide else 3}f}"

    return (
        number(score["mean"]),
        f"{number(spread['min'])} - {number(spread['max'])}" if spread else "-",
        number(spread["sd"] if spread else None),
        number(score.get("within_sd")),
        "-" if rate is None else f"{rate:.1%}",
        f"{flips['share']:.1%} ({whole(flips['n_flipping'])} of {whole(flips['n_cases'])})" if flips else "-",
    )
