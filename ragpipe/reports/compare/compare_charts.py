"""The charts of a comparison, from `comparison.json`: differences by score, slices x scores, flipped verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from ragpipe.comparing.headline import signed_text
from ragpipe.pages.charts import ForestRow, HeatCell, forest, heat_map
from ragpipe.pages.page_address import page_address

Figures = Mapping[str, Any]
FLIPS = {
    "to_passed": "fail → pass", "to_failed": "pass → fail", "both_passed": "both pass", "both_failed": "both fail",
}  # fmt: skip
_SLICES_MAX = 60  # rows of one heat map
_FEW = 5  # questions, below which no interval is shown


class FlipButton(NamedTuple):
    """How many cases changed or kept their verdict, and the link to them."""

    kind: str
    words: str
    cases: int
    link: str


def score_forest(scores: Mapping[str, Figures], heads: tuple[str, str], candidate: str) -> Markup:
    """Scores with a scale: differences as shares of it, so that all fit on one axis."""
    rows = [_forest_row(name, score, candidate, _span(score)) for name, score in scores.items()]
    note = (
        f"Each difference as a share of its score's scale; right is better. The bar is the {_level(scores)} interval, the grey "
        "band what counts as no difference."
    )
    return forest(rows, heads, note)


def unscaled_forest(scores: Mapping[str, Figures], heads: tuple[str, str], candidate: str) -> Markup:
    """Latency, cost and scores without a scale: differences as shares of the base's mean."""
    rows = [
        _forest_row(name, score, candidate, abs(score["base_mean"] or 0) or abs(score["candidate_mean"] or 0) or 1.0)
        for name, score in scores.items()
    ]
    return forest(rows, heads, "Each difference as a share of the base's mean; right is better.")


def has_scale(score: Figures) -> bool:
    """Whether both ends of a score's range are known."""
    return score["low"] is not None and score["high"] is not None


def _span(score: Figures) -> float:
    return float(score["high"] - score["low"]) or 1.0


def _level(scores: Mapping[str, Figures]) -> str:
    levels = {score["interval"]["level"] for score in scores.values() if score["interval"]}
    return f"{100 * max(levels, default=0.95):g} %"


def _forest_row(name: str, score: Figures, candidate: str, span: float) -> ForestRow:
    sign = 1 if score["higher_is_better"] else -1
    interval = score["interval"]
    few = _too_few(score)
    ends = sorted(sign * interval[key] / span for key in ("low", "high")) if interval and not few else [None, None]
    smallest = score["smallest_effect"]
    return ForestRow(
        name=name,
        link=page_address(**{"with": candidate, "score": name}),
        base=plain_number(score["base_mean"]),
        candidate=plain_number(score["candidate_mean"]),
        difference="-" if score["difference"] is None else signed_text(score["difference"]),
        bounds=interval_text(score),
        share=None if score["difference"] is None else sign * score["difference"] / span,
        low=ends[0],
        high=ends[1],
        same_within=None if smallest is None else min(smallest / span, 1.0),
        state=score["state"],
        remark=_remark(score),
        wins=score["wins"],
        ties=score["ties"],
        losses=score["losses"],
        few=few,
    )


def _remark(score: Figures) -> str:
    """The state, and for an undecided one how many cases would decide."""
    words = [score["state"]]
    if score["state"] == "inconclusive" and score["n_needed"]:
        words.append(f"needs about {score['n_needed']:,} cases")
    if not score["higher_is_better"]:
        words.append("less is better")
    return ", ".join(words)


def interval_text(score: Figures) -> str:
    """`[+0.07, +0.31]`; where there are too few questions for one, `n = 3: too few`."""
    interval = score["interval"]
    if not score["n"]:
        return "no pairs"
    if score["questions"] < _FEW or (interval and interval["too_few"]):
        return f"n = {score['n']}: too few"
    return f"[{signed_text(interval['low'])}, {signed_text(interval['high'])}]" if interval else "no interval"


def plain_number(value: float | None) -> str:
    """A mean: `0.852`, `1,204`; `-` for none."""
    return "-" if value is None else signed_text(value).removeprefix("+")


def slice_maps(comparison: Figures, headline: Sequence[str], candidate: str) -> Iterator[tuple[str, int, Markup]]:
    """(field, slices left out, heat map) for every field of the slices, scores across.

    First come the fields with most intervals, and within a field the values with any.
    """
    shown = Counter({row["field"]: 0 for row in comparison["slices"]})
    shown.update(row["field"] for row in comparison["slices"] if not _too_few(row))
    for field, _ in shown.most_common():
        rows = [row for row in comparison["slices"] if row["field"] == field]
        cells = {(row["value"], row["score"]): row for row in rows}
        with_interval = [row["value"] for row in rows if not _too_few(row)]
        values = list(dict.fromkeys([*with_interval, *(row["value"] for row in rows)]))
        names = [name for name in headline if any(row["score"] == name for row in rows)]
        table = []
        for value in values[:_SLICES_MAX]:
            of_value = [cells.get((value, name)) for name in names]
            n = max(row["n"] for row in of_value if row)
            scores = comparison["scores"]
            row_cells = [row and _heat_cell(row, scores[row["score"]], candidate) for row in of_value]
            table.append((value, f"n = {n:,}", row_cells))
        yield field, len(values) - len(table), heat_map(field, names, table)


def _too_few(row: Figures) -> bool:
    return row["questions"] < _FEW or (row["interval"] is not None and bool(row["interval"]["too_few"]))


def _heat_cell(row: Figures, score: Figures, candidate: str) -> HeatCell:
    interval, few = row["interval"], _too_few(row)
    shade = 0
    if interval and not few and (interval["low"] > 0 or interval["high"] < 0):
        is_better = (row["difference"] > 0) == score["higher_is_better"]
        strength = 2 if row["state"] in ("better", "worse") else 1
        shade = strength if is_better else -strength
    figures = f"{row['questions']:,} questions, {interval_text(row)}"
    if row["q_value"] is not None:
        figures += f", q = {row['q_value']:.3g}"
    words = {2: "better", 1: "better, if this slice alone is looked at", 0: "no difference shown"}
    words |= {-1: "worse, if this slice alone is looked at", -2: "worse"}
    link = page_address(**{"with": candidate, "score": row["score"], "slice": f"{row['field']}:{row['value']}"})
    mark = {2: "▲", 1: "", 0: "", -1: "", -2: "▼"}[shade]
    text = signed_text(row["difference"]) if not few else f"n = {row['n']}"
    return HeatCell(f"{mark} {text}".strip(), f"{words[shade]}; {figures}", link, shade, few)


def flip_rows(scores: Mapping[str, Figures], candidate: str) -> list[tuple[str, list[FlipButton]]]:
    """For every score with verdicts on both sides the counts of its changed and kept verdicts, as links."""
    return [
        (
            name,
            [
                FlipButton(
                    kind,
                    words,
                    score["verdicts"][kind],
                    page_address(**{"with": candidate, "score": name, "flip": kind}),
                )
                for kind, words in FLIPS.items()
            ],
        )
        for name, score in scores.items()
        if score["verdicts"]
    ]
