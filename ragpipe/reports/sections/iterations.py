"""What several iterations say together: how far they lie apart, and how many verdicts flip. For terminal and page alike."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ragpipe.reports.number_format import columns, heading, judged_times, method_names, whole
from ragpipe.store.run.run_tables import read_json

HEADS = ("mean", "least - most", "sd", "noise", "passed", "flips")


def results_of(run: Path, iteration: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The metrics and the bill that the reports of a run are made of: those of all its iterations (`final/`), where there
    are several and `iteration` is the last one's folder; else that iteration's own. Raises DataError."""
    metrics, folder = read_json(iteration / "metrics.json"), run / "final"
    found = read_json(folder / "metrics.json") if (folder / "metrics.json").is_file() else {}
    if judged_times(found) > 1 and found["iterations"][-1] == metrics["iteration"]:
        bill = read_json(folder / "cost.json")
        return found, {**bill["total"], "prices": bill["prices"]}
    return metrics, read_json(iteration / "cost.json")


def final_title(final: Mapping[str, Any]) -> str:
    """`Over 3 iterations`."""
    return f"Over {judged_times(final)} iterations"


def final_lines(final: Mapping[str, Any], percent: Collection[str]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of the table: a row a score, and one for each method where there are several."""
    groups = columns(final)
    several = len(groups) > 1
    heads = ["score", *(["method"] if several else []), *HEADS]
    lines = []
    for name in method_names(final):
        for method, group in groups.items():
            head = heading(name, final, percent)
            figures = _figures(group["scores"].get(name), final["declared"][name], percent=name in percent)
            lines.append([head, *([method] if several else []), *figures])
    return heads, lines


def final_notes(final: Mapping[str, Any]) -> list[str]:
    """What the columns mean, and where the flipping cases and each iteration's bill stand."""
    notes = [
        "mean: of the iterations' means; sd: their standard deviation; noise: standard deviation of a case's value between "
        "iterations; flips: cases whose verdict is not the same in all iterations."
    ]
    if count := final["flips"]["count"]:
        notes.append(f"{whole(count)} flipping verdicts: the cases are listed in final/metrics.json, under flips.")
    return [
        *notes,
        "The figures, diagnoses and cost on this page are those of all iterations; each one's own stand in its folder.",
    ]


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
