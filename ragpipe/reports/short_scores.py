"""The tables of the short result: the first score of each method with its difference from the first method, and the scores that
matter most, each as one table that fits the screen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ragpipe.reports.metrics_view import (
    fallen_slices,
    heading,
    iteration_count,
    main_scores,
    measured_parts,
    method_groups,
    missing_overall_score,
    score_cell,
)
from ragpipe.reports.number_format import bracketed, decimal, difference_text, plural, whole
from ragpipe.reports.report_data import ReportData
from ragpipe.reports.styled_text import (
    Bad,
    Caution,
    Good,
    Grey,
    Head,
    Line,
    Screen,
    cut_apart,
    joined_line,
    narrowed,
    table_columns,
    table_lines,
    wrapped,
)
from ragpipe.scoring.composites import OVERALL
from ragpipe.scoring.gates.gate_rules import limit, value_text

SCORES = 8
"""Scores in the table, apart from the first one."""
_FILLED = 4  # rows that scores without weight, gate and threshold fill up, beside the rows of several methods
_METHODS = 6  # methods that are shown; of more the first one, the best and the worst
_NAME_WIDTHS = (32, 20, 12)  # columns of a name, tried in turn
_DROPPED = (
    ((), _NAME_WIDTHS[:1]),
    (("spread",), _NAME_WIDTHS[:1]),
    (("spread", "pairs"), _NAME_WIDTHS[:2]),
    (("spread", "pairs", "interval"), _NAME_WIDTHS[:2]),
    (("spread", "pairs", "bounds"), _NAME_WIDTHS[:2]),
    (("spread", "pairs", "bounds", "interval"), _NAME_WIDTHS),
    (("spread", "pairs", "bounds", "interval", "n"), _NAME_WIDTHS[-1:]),
)  # columns of a method that are left out, with the widths of its name, tried in turn; `n` goes last, and "too few" never
_COUNTED = 3  # the name of a score, its mean, and of how many cases that is
_Rows = list[list[str]]


def scores_by_importance(metrics: Mapping[str, Any]) -> list[str]:
    """The scores with a value: the overall score, the first one of each metric, the others; each of these with a weight (the
    heaviest first), with a gate, with a threshold, then the rest, diagnostic ones last, each in table order."""
    scoring, scores = metrics["scoring"], metrics["overall"]["scores"]
    names = [name for name in scores if scores[name]["n_ok"]]
    weights = scoring.get("weights_used", {})
    gated = {gate.get("score") for gate in scoring.get("gates", {}).values() if gate}
    main = set(main_scores(names, metrics))

    def rank(name: str) -> tuple[int, float]:
        weight = weights.get(name, 0)
        is_minor = metrics["declared"][name]["diagnostic"]
        groups = (name == OVERALL.name, weight > 0, name in gated, name in main, not is_minor, True)
        return groups.index(True), -weight

    ranked = sorted(names, key=rank)
    first = _first_of_each(ranked, metrics)
    return [*first, *(name for name in ranked if name not in first)]


def _first_of_each(names: Sequence[str], metrics: Mapping[str, Any]) -> list[str]:
    """The first score of each metric, and those that are made of others."""
    by_metric = {metrics["declared"][name]["metric"] or name: name for name in reversed(names)}
    return [name for name in names if name in by_metric.values()]


def score_lines(data: ReportData, screen: Screen) -> Iterator[Line]:
    """The first score by method, then the others that matter; one table for a run of one method. Nothing without a value."""
    names = scores_by_importance(data.metrics)
    if not names:
        return
    if note := missing_overall_score(data.metrics):
        yield from wrapped((Grey(note),), screen.columns)
    methods = _shown_methods(names[0], data.metrics)
    if len(method_groups(data.metrics)) == 1:
        yield from _one_method(names, data, screen)
        return
    yield from _first_score(names[0], methods, data, screen)
    if rest := _shown_scores(names, data.metrics):
        yield ()
        yield from _other_scores(rest, methods, data, screen)


def _shown_scores(names: Sequence[str], metrics: Mapping[str, Any]) -> list[str]:
    """Those of the second table: all where they are few, else those with a weight, a gate or a threshold."""
    rest = list(names[1:])
    if len(rest) <= SCORES or len(method_groups(metrics)) == 1:
        return rest[:SCORES]
    gated = {gate.get("score") for gate in metrics["scoring"].get("gates", {}).values() if gate}
    main = [name for name in rest if name in gated or name in main_scores(names, metrics)]
    return rest[: max(min(len(main), SCORES), _FILLED)]


def _shown_methods(name: str, metrics: Mapping[str, Any]) -> list[str]:
    """All methods; of more than six the first one, the three best and the two worst in this score, in the order of the data."""
    groups = method_groups(metrics)
    if len(groups) <= _METHODS:
        return list(groups)
    first, *others = groups
    sign = -1 if metrics["declared"][name]["higher_is_better"] else 1

    def rank(method: str) -> float:
        mean = (groups[method]["scores"].get(name) or {}).get("mean")
        return float("inf") if mean is None else sign * float(mean)

    ranked = sorted(others, key=rank)
    chosen = {first, *ranked[: (_METHODS + 1) // 2], *ranked[-(_METHODS // 2 - 1) :]}
    return [method for method in groups if method in chosen]


def _first_score(name: str, methods: Sequence[str], data: ReportData, screen: Screen) -> Iterator[Line]:
    """A row per method: mean, interval, number of cases, difference from the first method over how many pairs of cases, and what
    it comes to. Where the rows have no room for the pairs, and these are not all of a method's cases, they stand below."""
    rows = [_method_row(name, method, data) for method in methods]
    lines, kept = _fitting(rows, [screen.text(method) for method in methods], screen.columns)
    title = _columns_title(kept, data, screen)
    yield from wrapped((Head(_titled(name, data, screen)), f": {title}"), screen.columns)
    yield from lines
    for method, text in fallen_slices(data.methods):
        yield from wrapped((f"{screen.text(method, _NAME)}: {screen.text(text)}",), screen.columns)
    if (left_out := len(method_groups(data.metrics)) - len(methods)) > 0:
        yield (Grey(f"and {plural(left_out, 'method')} between them in the report"),)
    counted = [(method, row) for method, row in zip(methods, rows, strict=True) if row.get("pairs")]
    if "pairs" not in kept and any(row["pairs"] != row["n"] for _, row in counted):
        names = cut_apart([screen.text(method) for method, _ in counted], _NAME_WIDTHS[1])
        pairs = ", ".join(f"{name} {row['pairs']}" for name, (_, row) in zip(names, counted, strict=True))
        yield from wrapped((Grey(f"pairs of cases: {pairs}"),), screen.columns)


def _columns_title(kept: Sequence[str], data: ReportData, screen: Screen) -> str:
    """`mean [95% interval], n, difference from baseline, pairs of cases`: the columns that are shown."""
    level = f" [{data.metrics['scoring']['level']:.0%} interval]"
    groups = list(method_groups(data.metrics))
    names = dict(zip(groups, cut_apart([screen.text(name) for name in groups], _NAME_WIDTHS[1]), strict=True))
    base = "" if data.methods is None else names[data.methods["base"]]
    titles = {
        "mean": f"mean{level if 'interval' in kept else ''}",
        "n": "n (all iterations)" if iteration_count(data.metrics) > 1 else "n",
        "spread": "means of the iterations",
        "difference": f"difference from {base}",
        "pairs": "pairs of cases",
    }
    return ", ".join(title for column, title in titles.items() if column in kept)


def _titled(name: str, data: ReportData, screen: Screen) -> str:
    mark, _ = measured_parts(name, data.metrics)
    return screen.text(heading(name, data.metrics, data.settings.percent), 60) + (f" ({mark})" if mark else "")


def _method_row(name: str, method: str, data: ReportData) -> dict[str, str]:
    """The columns of a method by their names; a mean of too few questions has words in place of its interval."""
    score = method_groups(data.metrics)[method]["scores"].get(name)
    percent = name in data.settings.percent
    cell = score_cell(score, percent=percent)
    n = "" if score is None else whole(score["n_ok"])
    row = {"mean": _few(cell.mean) if cell.few else cell.mean, "interval": "" if cell.few else cell.interval, "n": n}
    if spread := (score or {}).get("spread"):
        row["spread"] = _spread(spread, percent=percent)
    if data.methods is None:
        return row
    if method == data.methods["base"]:
        return {**row, "difference": "", "bounds": "", "pairs": "", "verdict": ""}
    paired = data.methods["candidates"].get(method, {}).get(name)
    if paired is None or not paired["n"]:
        return {**row, "difference": "-", "bounds": "", "pairs": "0", "verdict": ""}
    difference, _, bounds = difference_text(_scaled(paired, 100.0 if percent else 1.0)).partition(" ")
    pairs = {"pairs": whole(paired["n"]), "verdict": verdict_word(paired["state"])}
    return {**row, "difference": difference, "bounds": bounds, **pairs}


def _spread(spread: Mapping[str, Any], *, percent: bool) -> str:
    """`0.71-0.74`: the least and the most of the iterations' means."""
    factor, places = (100.0, 1) if percent else (1.0, 2)
    return f"{decimal(spread['min'] * factor, places)}-{decimal(spread['max'] * factor, places)}"


def _scaled(paired: Mapping[str, Any], factor: float) -> dict[str, Any]:
    interval = paired["interval"]
    if interval is not None:
        interval = {**interval, "low": interval["low"] * factor, "high": interval["high"] * factor}
    return {**paired, "difference": paired["difference"] * factor, "interval": interval}


def _fitting(rows: Sequence[Mapping[str, str]], names: Sequence[str], columns: int) -> tuple[list[Line], Sequence[str]]:
    """The rows as lines, without head, and which columns they have: all that fit beside names not cut short, else the fewest."""
    grid: _Rows = []
    for dropped, widths in _DROPPED:
        kept = [column for column in dict.fromkeys(key for row in rows for key in row) if column not in dropped]
        for width in widths:
            shortened = cut_apart(names, width)
            grid = [[name, *_cells(row, kept)] for name, row in zip(shortened, rows, strict=True)]
            if table_columns(grid) <= columns:
                return _aligned(grid, kept), kept
    return _aligned(grid, kept), kept


def _aligned(grid: _Rows, kept: Sequence[str]) -> list[Line]:
    columns = ["name", *(column for column in kept if column not in ("interval", "bounds"))]
    return table_lines(grid, left=[place for place, column in enumerate(columns) if column not in ("n", "pairs")])


def _cells(row: Mapping[str, str], kept: Sequence[str]) -> list[str]:
    """The columns of a row: mean and interval, and difference and its bounds, each as one."""
    cells = [row.get(column, "") for column in kept if column not in ("interval", "bounds")]
    names = [column for column in kept if column not in ("interval", "bounds")]
    for figure, bounds in (("mean", "interval"), ("difference", "bounds")):
        if bounds in kept and row.get(bounds):
            place = names.index(figure)
            cells[place] = f"{row[figure]} {row[bounds]}"
    return cells


def _other_scores(names: Sequence[str], methods: Sequence[str], data: ReportData, screen: Screen) -> list[Line]:
    """Scores down and methods across, and of how many cases the means are; without intervals, then turned, then with fewer methods
    where the screen is narrow."""
    scores = sum(1 for score in data.metrics["overall"]["scores"].values() if score["n_ok"])
    corner = "score" if len(names) + 1 == scores else f"{len(names)} of {scores - 1} other scores"
    for width in _NAME_WIDTHS:
        for chosen in _fewer(methods):
            for interval in (True, False):
                grid = _score_grid(corner, names, chosen, data, screen, width=width, interval=interval)
                for rows in (grid, *(() if interval else (_turned(grid),))):
                    if table_columns(rows) <= screen.columns and (chosen == methods or width == _NAME_WIDTHS[-1]):
                        return [*_headed(rows), *_no_room(len(methods) - len(chosen), screen)]
    grid = _score_grid(corner, names, methods[:1], data, screen, width=_NAME_WIDTHS[-1], interval=False)
    return [*_headed(grid), *_no_room(len(methods) - 1, screen)]


def _no_room(methods: int, screen: Screen) -> list[Line]:
    """How many methods the table has no room for; nothing for none."""
    words = f"no room here for {plural(methods, 'more method')}: see the report, or a wider terminal"
    return wrapped((Grey(words),), screen.columns) if methods > 0 else []


def _fewer(methods: Sequence[str]) -> Iterator[Sequence[str]]:
    """All of the methods, then fewer and fewer of them, the first one always."""
    for count in range(len(methods), 0, -1):
        yield methods[:count]


def _score_grid(
    corner: str,
    names: Sequence[str],
    methods: Sequence[str],
    data: ReportData,
    screen: Screen,
    *,
    width: int,
    interval: bool,
) -> _Rows:
    """The cells of the second table, heads first; each score with the number of cases that its means are of."""
    groups, percent = method_groups(data.metrics), data.settings.percent
    rows = [[corner, "n", *cut_apart([screen.text(method) for method in methods], width)]]
    titles = cut_apart([_titled(name, data, screen) for name in names], max(width, 20))
    for name, title in zip(names, titles, strict=True):
        scores = [groups[method]["scores"].get(name) for method in methods]
        cells = [score_cell(score, percent=name in percent) for score in scores]
        rows.append(
            [
                title,
                _counts([score["n_ok"] for score in scores if score]),
                *(_cell(cell.mean, cell.interval if interval else "", few=cell.few) for cell in cells),
            ]
        )
    return rows


def _counts(counts: Sequence[int]) -> str:
    """`15`, `4-15`: how many cases the means of a row are of, the least and the most of its methods."""
    return "-".join(map(whole, dict.fromkeys((min(counts, default=0), max(counts, default=0)))))


def _cell(mean: str, interval: str, *, few: bool) -> str:
    return _few(mean) if few else f"{mean} {interval}".rstrip()


def _few(mean: str) -> str:
    return Grey(f"{mean} too few")


def _turned(grid: _Rows) -> _Rows:
    (_, *methods), *rows = grid
    return [
        ["", *(row[0] for row in rows)],
        *([method, *(row[i] for row in rows)] for i, method in enumerate(methods, 1)),
    ]


def _headed(grid: _Rows) -> list[Line]:
    heads, *rows = grid
    return table_lines([[Head(head) for head in heads], *rows])


def _one_method(names: Sequence[str], data: ReportData, screen: Screen) -> list[Line]:
    """A row per score: mean and interval, number of cases, share that passed; for several iterations the spread of their means."""
    chosen = [names[0], *_shown_scores(names, data.metrics)]
    (group,) = method_groups(data.metrics).values()
    left_out = len(names) - len(chosen)
    heads = [f"{len(chosen)} of {len(names)} scores" if left_out else "score"]
    heads += [f"mean [{data.metrics['scoring']['level']:.0%} interval]", "n", "passed"]
    several = iteration_count(data.metrics) > 1
    rows = [[*heads, *(["iterations"] if several else [])]]
    for name in chosen:
        score, percent = group["scores"][name], name in data.settings.percent
        cell, rate = score_cell(score, percent=percent), score.get("pass_rate")
        row = [_titled(name, data, screen), _cell(cell.mean, cell.interval, few=cell.few), whole(score["n_ok"])]
        row.append("" if rate is None else f"{rate:.0%}")
        spread = score.get("spread")
        rows.append([*row, *([_spread(spread, percent=percent) if spread else "-"] if several else [])])
    for count in range(len(rows[0]), 1, -1):
        for width in (60, _NAME_WIDTHS[0]) if count > _COUNTED else _NAME_WIDTHS:
            grid = [
                [name, *row[1:count]]
                for name, row in zip(cut_apart([row[0] for row in rows], width), rows, strict=True)
            ]
            if table_columns(grid) <= screen.columns:
                return _headed(grid)
    return _headed(grid)


_GATES = 3  # gates that are named in the verdict line
_GATE_ROWS = 6  # gates in the table
_WIDE = 80  # columns from which names are not cut short
_NAME = 40  # columns of the name of a gate or a score
_JUDGE = 60  # columns of the name of a judge
_KINDS: dict[type[str], tuple[str, ...]] = {
    Good: ("better", "passed", "best"),
    Bad: ("worse", "failed", "behind"),
    Caution: ("inconclusive", "uncalibrated", "no_evidence", "not_enough_evidence"),
}
VERDICT_STYLES = {word: style for style, words in _KINDS.items() for word in words}
"""The styles of verdicts on gates and differences; others have none."""


def verdict_lines(data: ReportData, screen: Screen) -> list[Line]:
    """Whether the gates block the run and which of them did not pass, then the size of the run and its judge."""
    gates, lines = data.gates["gates"], list[Line]()
    if gates:
        lines = [*wrapped(_gates_line(gates, screen), screen.columns), *_gate_table(gates, screen)]
    lines += wrapped(_summary(data, screen), screen.columns)
    if note := data.metrics["judge"].get("note"):
        lines += wrapped((f"judge: {screen.text(note)}",), screen.columns)
    return lines


def baseline_lines(data: ReportData, screen: Screen) -> Iterator[Line]:
    """What gates against a baseline run say of a score over all cases, where they did not fail: the verdict line has those."""
    for gate in data.gates["gates"]:
        if "against" in gate and not gate["where"] and gate["value"] is not None and gate["outcome"] == "passed":
            paired = {"difference": gate["value"], "interval": _bounds(gate), "n": gate["n_ok"]}
            name, run = screen.text(gate["score"], _NAME), screen.text(gate["against"], _NAME)
            only_base = gate["paired"]["only_base"]
            left_out = f", {whole(only_base)} more there only" if only_base else ""
            cases = plural(paired["n"], "case")
            yield from wrapped(
                (f"{name}: {difference_text(paired)} over {cases} against {run}{left_out}",), screen.columns
            )


def verdict_word(verdict: str) -> str:
    """A verdict in words, with its style."""
    return VERDICT_STYLES.get(verdict, str)(verdict.replace("_", " "))


def _gates_line(gates: Sequence[Mapping[str, Any]], screen: Screen) -> Line:
    """`BLOCKED: 1 of 4 gates failed: reject 0.62 [0.53, 0.70], at least 0.7`."""
    order = ("blocked", "warned", "reported")
    open_gates = [gate for gate in gates if gate["outcome"] in order and gate["verdict"] != "passed"]
    open_gates.sort(key=lambda gate: order.index(gate["outcome"]))
    blocking = sum(gate["outcome"] == "blocked" for gate in open_gates)
    passed = len(gates) - len(open_gates)
    phrases = [_gate_phrase(gate, screen) for gate in open_gates[:_GATES]]
    if (more := len(open_gates) - _GATES) > 0:
        phrases.append((f"and {more} more in the report",))
    if blocking:
        failed = all(gate["verdict"] == "failed" for gate in open_gates[:blocking])
        verb = "failed" if failed else "did not pass"
        lead: Line = (Bad("BLOCKED:"), f" {blocking} of {plural(len(gates), 'gate')} {verb}: ")
    elif any(gate["outcome"] == "warned" for gate in open_gates):
        lead = (Caution("not blocked, with warnings:"), f" {passed} of {plural(len(gates), 'gate')} passed; ")
    else:
        lead = (Good("passed:"), f" {passed} of {plural(len(gates), 'gate')}{'; ' if open_gates else ''}")
    return (*lead, *joined_line(phrases, "; "))


def _gate_table(gates: Sequence[Mapping[str, Any]], screen: Screen) -> list[Line]:
    """A row per gate, at most six, those that did not pass first where there are more; a narrow screen has fewer columns."""
    chosen = list(gates)
    if len(gates) > _GATE_ROWS:
        chosen = sorted(gates, key=lambda gate: gate["verdict"] == "passed")[:_GATE_ROWS]
    heads = ["gate", "tier", "value", "limit", "cases", "verdict"]
    width = _NAME // 2 if screen.columns < _WIDE else _NAME
    names = cut_apart([screen.text(gate["name"]) for gate in chosen], width)
    rows = [
        [name, gate["tier"], value_text(gate), limit(gate), whole(gate["n_ok"]), verdict_word(gate["verdict"])]
        for name, gate in zip(names, chosen, strict=True)
    ]
    heads, *rows = narrowed([heads, *rows], ("cases", "tier", "value", "limit"), screen.columns)
    return table_lines([[Head(head) for head in heads], *rows], left=[0, *_left(heads)])


def _left(heads: Sequence[str]) -> list[int]:
    return [place for place, head in enumerate(heads) if head in ("tier", "limit", "verdict")]


def _gate_phrase(gate: Mapping[str, Any], screen: Screen) -> Line:
    """`reject 0.62 [0.53, 0.70], at least 0.7`; a verdict other than `failed` stands behind it."""
    parts = [screen.text(gate["name"], _NAME)]
    if gate["value"] is not None:
        parts += [value_text(gate), bracketed(gate["interval"])]
    run = f" against {screen.text(gate['against'], _NAME)}" if "against" in gate else ""
    text = f"{' '.join(filter(None, parts))}, {limit(gate)}{run}"
    note = "" if gate["outcome"] == "blocked" else f", {gate['tier']}"
    if gate["verdict"] == "failed":
        return (f"{text} ({gate['tier']})" if note else text,)
    return (f"{text} (", verdict_word(gate["verdict"]), f"{note})")


def _bounds(gate: Mapping[str, Any]) -> dict[str, Any] | None:
    return {"too_few": False, **gate["interval"]} if gate["interval"] else None


def _summary(data: ReportData, screen: Screen) -> Line:
    """`3 methods, 101 cases, 40 questions; judge evidence-v1 (uncalibrated)`."""
    metrics = data.metrics
    methods, iterations = len(metrics["by"].get("method") or {}), iteration_count(metrics)
    parts = [f"{methods} methods"] if methods > 1 else []
    parts += [plural(metrics["n_cases"], "case"), plural(metrics["n_samples"], "question")]
    parts += [f"{whole(iterations)} iterations"] if iterations > 1 else []
    if not data.cost["used"]["uses"]:
        return (f"{', '.join(parts)}; no judge",)
    judge = screen.text(metrics["judge"]["label"], _JUDGE)
    return (f"{', '.join(parts)}; judge {judge}", *_calibration(metrics))


def _calibration(metrics: Mapping[str, Any]) -> Line:
    """What is known of the judge by human labels."""
    states = [state["calibrated"] for state in metrics.get("calibration", {}).values()]
    if metrics["judge"]["calibrated"]:
        return ()
    if False in states:
        return (" (", Bad("failed its calibration"), ")")
    return (" (partly calibrated)",) if True in states else (" (uncalibrated)",)
