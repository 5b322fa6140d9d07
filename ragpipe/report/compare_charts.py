"""The charts of a comparison, from `comparison.json`: differences by score, slices x scores, flipped verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from ragpipe.comparison.headline import signed_text
from ragpipe.report.charts import ForestRow, HeatCell, forest, heat_map
from ragpipe.report.comparison_summary import UNDECIDED
from ragpipe.report.page_file import page_address
from ragpipe.report.styled_text import figure_text

Figures = Mapping[str, Any]
Link = Callable[[str], str]
FLIPS = {
    "to_passed": "miss → pass", "to_failed": "pass → miss", "both_passed": "both pass", "both_failed": "both miss",
}  # fmt: skip
_SLICES_MAX = 60  # rows of one heat map
_SLICES_OPEN = 8  # rows of the first one, which stands open
_FEW = 5  # questions, below which no interval is shown


class FlipButton(NamedTuple):
    """How many cases changed or kept their verdict, and the link to them."""

    kind: str
    words: str
    cases: int
    link: str


def score_forest(scores: Mapping[str, Figures], heads: tuple[str, str], link: Link, remark: str = "") -> Markup:
    """Scores with a scale: bars as shares of it, so that all fit on one axis. `link` makes the address of a score; `remark` is
    appended to the note below."""
    rows = [_forest_row(name, score, link, _span(score)) for name, score in scores.items()]
    note = f"Bar: the {_level(scores)} interval as a share of the scale, right is better; grey band: counts as no difference."
    return forest(rows, heads, f"{note} {remark}".rstrip())


def unscaled_forest(scores: Mapping[str, Figures], heads: tuple[str, str], link: Link) -> Markup:
    """Latency, cost and scores without a scale: differences as shares of the base's mean."""
    rows = [
        _forest_row(name, score, link, abs(score["base_mean"] or 0) or abs(score["candidate_mean"] or 0) or 1.0)
        for name, score in scores.items()
    ]
    return forest(rows, heads, "Means, with their difference as a share of the base's mean; right is better.")


def has_scale(score: Figures) -> bool:
    """Whether both ends of a score's range are known."""
    return score["low"] is not None and score["high"] is not None


def _span(score: Figures) -> float:
    return float(score["high"] - score["low"]) or 1.0


def _level(scores: Mapping[str, Figures]) -> str:
    levels = {score["interval"]["level"] for score in scores.values() if score["interval"]}
    return f"{100 * max(levels, default=0.95):g} %"


def score_link(candidate: str) -> Link:
    """Addresses of compare.html: a score of this candidate."""
    return lambda name: page_address(**{"with": candidate, "score": name})


def _forest_row(name: str, score: Figures, link: Link, span: float) -> ForestRow:
    sign = 1 if score["higher_is_better"] else -1
    interval = score["interval"]
    few = _too_few(score)
    ends = sorted(sign * interval[key] / span for key in ("low", "high")) if interval and not few else [None, None]
    smallest = score["smallest_effect"]
    return ForestRow(
        name=name,
        link=link(name),
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
    """The state, the medians of latency and cost, and of an inconclusive score how many cases would decide."""
    words = [score["state"]]
    typical = score.get("typical")
    if typical and typical["base_median"] is not None:
        medians = (plain_number(typical[f"{side}_median"]) for side in ("base", "candidate"))
        words.append(f"median {' → '.join(medians)}")
    if typical and typical["median_ratio"] is not None:
        words.append(f"x{typical['median_ratio']:.2f} in the middle case")
    if score["state"] == "inconclusive" and score["reason"] in UNDECIDED and score["reason"] != "too_wide":
        words.append(UNDECIDED[score["reason"]])
    elif score["state"] == "inconclusive" and score["n_needed"] and not _too_few(score):
        words.append(f"~{score['n_needed']:,} cases would show {figure_text(score['smallest_effect'])}")
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

    First come the fields with most intervals, and within a field the values with any. The first field has two maps where it has
    more than `_SLICES_OPEN` values: one of so many, and one of the others.
    """
    shown = Counter({row["field"]: 0 for row in comparison["slices"]})
    shown.update(row["field"] for row in comparison["slices"] if not _too_few(row))
    for place, (field, _) in enumerate(shown.most_common()):
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
        n_open = _SLICES_OPEN if place == 0 else _SLICES_MAX
        for rows_of_map in filter(None, (table[:n_open], table[n_open:])):
            left_out = len(values) - len(table) if rows_of_map[-1] is table[-1] else 0
            yield field, left_out, heat_map(field, names, rows_of_map)


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
    mark = {2: "▲", 1: "△", 0: "", -1: "▽", -2: "▼"}[shade]
    text = signed_text(row["difference"]) if not few else f"n = {row['n']}"
    return HeatCell(f"{mark} {text}".strip(), f"{words[shade]}; {figures}", link, shade, few)


def flip_rows(scores: Mapping[str, Figures], candidate: str) -> list[tuple[str, list[FlipButton]]]:
    """For every score with verdicts on both sides the counts of its changed and kept verdicts, as links."""
    rows = []
    for name, score in scores.items():
        if verdicts := score["verdicts"]:
            links = {kind: page_address(**{"with": candidate, "score": name, "flip": kind}) for kind in FLIPS}
            rows.append((name, [FlipButton(kind, words, verdicts[kind], links[kind]) for kind, words in FLIPS.items()]))
    return rows
