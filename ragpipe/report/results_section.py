"""The scores of each method, over all of its questions and over those that the methods share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ragpipe.calibration.corrected_scores import correction_words
from ragpipe.comparison.headline import change_text
from ragpipe.report.charts import Difference, LaneRow, Marks, MethodRow, axis_number, method_forest, score_lanes
from ragpipe.report.comparison_summary import HEADS, UNDECIDED, difference_rows
from ragpipe.report.model import (
    MARKDOWN,
    PAGES,
    TERMINAL,
    Cell,
    Chart,
    Note,
    RichText,
    RowHead,
    ScoreCell,
    Section,
    SectionPart,
    Table,
    TableColumn,
    TableRow,
    Verbatim,
    pieces_of,
)
from ragpipe.report.page_file import page_address
from ragpipe.report.report_data import (
    HEADLINES,
    ReportData,
    by_importance,
    chart_names,
    counted_per_iteration,
    heading,
    headline_names,
    iteration_count,
    main_scores,
    measured_parts,
    method_groups,
    missing_overall_score,
    scale_text,
    score_cell,
    table_scores,
    times_100,
    valued_scores,
)
from ragpipe.report.spread_section import GROUPS_SHOWN
from ragpipe.report.styled_text import bracketed, decimal, difference_text, figure_text, plural, whole
from ragpipe.report.verdict_section import best_method, is_few

SHARED_NOTE = (
    "Each score over the questions for which every method has a value, of those for which any has one (questions with a value): compare "
    "methods on these alone. A question that was asked may have no value of a score."
)


def results_section(data: ReportData) -> Section:
    """Scores down by stage, methods across; a terminal has those that matter."""
    metrics, percent = data.metrics, data.settings.percent
    groups = method_groups(metrics)
    by_stage: dict[str, list[TableRow]] = {stage: [] for stage in STAGES}
    for name in by_importance(table_scores(metrics), metrics):
        declared = metrics["declared"][name]
        cells = [score_cell(group["scores"].get(name), percent=name in percent, declared=declared) for group in groups.values()]
        by_stage[declared["stage"]].append(TableRow((_row_head(name, metrics, percent), *cells)))
    columns = (TableColumn("score", is_text=True), *(TableColumn(Verbatim(method)) for method in groups))
    tables = (
        Table(columns, tuple(rows), STAGES[stage], turnable=True, shown_in=PAGES) for stage, rows in by_stage.items() if rows
    )
    return Section("scores", "Results", (*tables, *_on_terminal(data), *_notes(metrics)), folded=True)


STAGES = {"end_to_end": "End to end", "retrieval": "Retrieval", "generation": "Generation"}


SCORES = 8
"""Scores in a table of the terminal, apart from the first one."""
_FILLED = 3  # rows that scores without weight, gate and threshold fill up, beside those of several methods
_METHODS = 6  # methods on a terminal; of more the first one, the best and the worst


def _on_terminal(data: ReportData) -> Iterator[Table]:
    """A row per score that has a value; the first score of several methods stands in `better_section`."""
    metrics, percent = data.metrics, data.settings.percent
    names, groups = valued_scores(metrics), method_groups(metrics)
    if len(groups) == 1:
        yield _of_one_method(names[: SCORES + 1], len(names), data)
        return
    main = {*headline_names(metrics), *main_scores(names, metrics)}
    count = max(min(sum(name in main for name in names[1:]), SCORES), _FILLED)
    shown = names[1:] if len(names) <= SCORES + 1 else names[1 : count + 1]
    methods, rows = shown_methods(names[0], metrics) if names else [], list[tuple[Cell, ...]]()
    for name in shown:
        scores = [groups[method]["scores"].get(name) for method in methods]
        counts = [score["n_ok"] for score in scores if score]
        n = "-".join(map(whole, dict.fromkeys((min(counts, default=0), max(counts, default=0)))))
        figures = (score_cell(score, percent=name in percent) for score in scores)
        rows.append((_terminal_head(name, data), _stage(name, data), n, *figures))
    head = "score" if len(shown) + 1 >= len(names) else f"{len(shown)} of {len(names) - 1} other scores"
    if rows:
        yield Table.of((head, _STAGE, "n", *map(Verbatim, methods)), rows, turnable=True, shown_in=TERMINAL)


def _of_one_method(names: Sequence[str], of: int, data: ReportData) -> Table:
    """A row per score: mean, interval, count, share that passed, spread of the iterations; `of` is how many scores there are."""
    (group,) = method_groups(data.metrics).values()
    several = iteration_count(data.metrics) > 1
    columns = (
        TableColumn(f"{len(names)} of {of} scores" if len(names) < of else "score", is_text=True),
        _STAGE,
        TableColumn(f"mean [{data.metrics['scoring']['level']:.0%}]", is_text=True),
        TableColumn("values" if several else "n", drop=1),
        TableColumn("passed", drop=2),
        *([TableColumn("iterations", drop=3)] if several else []),
    )
    rows = []
    for name in names:
        score, percent = group["scores"][name], name in data.settings.percent
        rate = score.get("pass_rate")
        cells = (score_cell(score, percent=percent), whole(score["n_ok"]), "" if rate is None else f"{rate:.0%}")
        spread = [_spread(score, percent=percent) or "-"] if several else []
        rows.append(TableRow((_terminal_head(name, data), _stage(name, data), *cells, *spread)))
    return Table(columns, tuple(rows), shown_in=TERMINAL)


_STAGE = TableColumn("stage", is_text=True, drop=4)


def _stage(name: str, data: ReportData) -> str:
    return STAGES[data.metrics["declared"][name]["stage"]].lower()


def _terminal_head(name: str, data: ReportData) -> RowHead:
    """The name, and behind it the scale and an arrow where lower is better."""
    arrow = "" if data.metrics["declared"][name]["higher_is_better"] else " ↓"
    return RowHead(Verbatim(name), scale_text(name, data.metrics, data.settings.percent) + arrow)


def _spread(score: Mapping[str, Any], *, percent: bool) -> str:
    """`0.71-0.74`: the least and the most of the iterations' means; empty for one iteration."""
    factor, places = (100.0, 1) if percent else (1.0, 2)
    spread = score.get("spread")
    return f"{decimal(spread['min'] * factor, places)}-{decimal(spread['max'] * factor, places)}" if spread else ""


def shown_methods(name: str, metrics: Mapping[str, Any]) -> list[str]:
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


def shared_section(data: ReportData) -> Section | None:
    """The methods on the questions that they share; None where these are all of them."""
    metrics, percent = data.metrics, data.settings.percent
    shared = metrics.get("shared")
    if shared is None:
        return None
    scores = shared["scores"]
    methods, rows = list(method_groups(metrics)), list[tuple[Cell, ...]]()
    for name in by_importance(table_scores(metrics), metrics):
        if name in scores and scores[name]["n_questions"] < scores[name]["of"]:
            by_method = scores[name]["methods"]
            questions = f"{whole(scores[name]['n_questions'])} of {whole(scores[name]['of'])}"
            cells = (score_cell(by_method.get(method), percent=name in percent) for method in methods)
            rows.append((Verbatim(heading(name, metrics, percent)), questions, *cells))
    if not rows:
        return None
    table = Table.of(("score", "questions with a value", *map(Verbatim, methods)), rows)
    title = f"On shared questions ({whole(shared['n_questions'])} of {whole(shared['of'])} were asked of all methods)"
    return Section("shared", title, (table, Note(SHARED_NOTE)), folded=True, shown_in=PAGES)


def _row_head(name: str, metrics: Mapping[str, Any], percent: Collection[str]) -> RowHead:
    mark, measured = measured_parts(name, metrics)
    remarks: list[RichText] = []
    declared = metrics["declared"][name]
    if (threshold := declared["threshold"]) is not None:
        scaled = threshold * 100 if name in percent else threshold
        remarks.append(f"passes {'from' if declared['higher_is_better'] else 'up to'} {scaled:g}")
    if mark:
        remarks.append((f"{mark}: ", Verbatim(measured)))
    return RowHead(Verbatim(heading(name, metrics, percent)), mark, tuple(remarks))


def _notes(metrics: Mapping[str, Any]) -> Iterator[Note]:
    for name in table_scores(metrics):
        mark, measured = measured_parts(name, metrics)
        if mark:
            yield Note((Verbatim(name), f": {mark}: ", Verbatim(measured)), shown_in=TERMINAL)
    if reason := missing_overall_score(metrics):
        yield Note(Verbatim(reason))


_METHODS_NOTE = (
    "Each score over the cases that both methods have a value for; the interval of the difference is by question. "
    "w/t/l: cases in which the method is better, equal, worse. could show: the true difference that these cases find in 8 of 10 samples."
)


def methods_section(data: ReportData) -> Section | None:
    """A row per method and headline score that it and the first one have values for; None for a run of one method."""
    if data.methods is None:
        return None
    rows, percent = list[TableRow](), data.settings.percent
    for method, scores in data.methods["candidates"].items():
        shown = {
            heading(name, data.metrics, percent): times_100(score) if name in percent else score
            for name, score in scores.items()
            if score["n"]
        }
        rows += (TableRow((Verbatim(name), Verbatim(method), *figures)) for name, *figures in difference_rows(shown))
    if not rows:
        return None
    columns = [TableColumn(head, is_text=head in ("score", "verdict")) for head in HEADS]
    columns.insert(1, TableColumn("method", is_text=True))
    base = Verbatim(data.methods["base"])
    command = Verbatim(f"task=compare compare=methods run={data.methods['run_id']}")
    parts = (
        Table(tuple(columns), tuple(rows), title=("Each method (new) against ", base, " (base)")),
        Note(_METHODS_NOTE),
        Note(("slices, flips, all scores: ", command)),
    )
    return Section("methods", "Paired differences between methods", parts, folded=True, shown_in=PAGES)


_CORRECTED_NOTE = (
    "corrected: the mean that people's labels of all cases would have, from the judge's scores of all and labels of drawn ones; its "
    "interval holds the judge's error too."
)


def corrected_section(data: ReportData) -> Section | None:
    """A row per score with labels of people, and one for its pass rate; None for a run without labels."""
    corrected = data.metrics.get("corrected")
    if not corrected:
        return None
    rows = []
    for name, figures in corrected.items():
        scaled = (100.0, 1) if name in data.settings.percent else (1.0, 2)
        head, labels = Verbatim(heading(name, data.metrics, data.settings.percent)), whole(figures["labels"])
        rows.append((head, labels, *_estimates(figures, *scaled)))
        if rates := figures.get("pass_rates"):
            rows.append((Verbatim(f"{name} passed"), labels, *_estimates(rates, 100.0, 1)))
    parts = (Table.of(("score", "labels", "judge alone", "corrected"), rows), Note(_CORRECTED_NOTE))
    return Section("corrected", "Corrected by human labels", parts, folded=True, shown_in=PAGES)


def _estimates(figures: Mapping[str, Any], factor: float, places: int) -> tuple[Cell, Cell]:
    """The judge's mean and the corrected one, each with its interval, or why there is none."""
    raw = figures.get("raw")
    alone = "-" if raw is None else f"{decimal(raw * factor, places)} {bracketed(figures['raw_interval'], factor, places)}"
    if figures["mean"] is None:
        return alone, correction_words(figures.get("reason"))
    return alone, f"{decimal(figures['mean'] * factor, places)} {bracketed(figures['interval'], factor, places)}"


_JURY_NOTE = (
    "unanimous: share of the cases in which all members gave the same value. Agreement among members proves little: judges of one kind "
    "share their errors. What counts is agreement with people (task=calibrate). alpha: Krippendorff's, by squared differences; kappa: "
    "Fleiss', for scores of 0 and 1."
)


def jury_section(data: ReportData) -> Section | None:
    """A row per score with each member's mean and their agreement; None for a run by one judge."""
    jury = data.metrics.get("jury")
    if not jury:
        return None
    members = list(jury["members"])
    heads = ("score", "rule", *members, "unanimous", "agreement", "no majority")
    rows, notes = [], [Note((Verbatim(f"{name}: {label}"),)) for name, label in jury["members"].items()]
    for name, figures in jury["scores"].items():
        kind, key = ("alpha ", "alpha") if figures.get("fleiss_kappa") is None else ("kappa ", "fleiss_kappa")
        if consistency := figures.get("self_consistency"):
            shares = ", ".join(f"{member} {decimal(share, 2)}" for member, share in consistency.items())
            notes.append(Note(f"{name}: agreement of each member with itself over its repeats: {shares}"))
        if cascade := figures.get("cascade"):
            notes.append(Note(f"{name}: {cascade_words(cascade)}"))
        means = (_figure(figures["means"].get(member)) for member in members)
        agreement = (_figure(figures.get("unanimous")), _figure(figures.get(key), kind), whole(figures["no_majority"]))
        rows.append((Verbatim(name), figures["rule"], *means, *agreement))
    parts: tuple[SectionPart, ...] = (Table.of(heads, rows, texts=2), *notes, Note(_JURY_NOTE))
    return Section("jury", "Jury", parts, folded=True, shown_in=PAGES)


def _figure(value: float | None, kind: str = "") -> str:
    return "-" if value is None else f"{kind}{decimal(value, 2)}"


def cascade_words(cascade: Mapping[str, Any]) -> str:
    """What a cascade did to the mean of a score."""
    share = f"the second member decided {decimal(cascade['decided_by_second'], 2)} of the cases"
    if cascade.get("bias_interval") is None:
        return f"{share}; too few cases were judged by both ({cascade['drawn']:,} drawn) to say what that does to the mean"
    low, high = cascade["bias_interval"]
    return f"{share}; against the second member alone the mean moves by {cascade['bias']:+.2f} [{low:+.2f}, {high:+.2f}]"


def distributions_section(data: ReportData) -> Section | None:
    """A table per graded score and group of classes, then one of all extremes; None where there is none of them."""
    metrics = data.metrics
    tables: list[Table | Note] = [_grades(name, grades) for name, grades in metrics["grades"].items()]
    if extremes := list(_extremes(metrics, data.settings.percent)):
        heads = ("score", "method", "mean", "best", "worst", "cases", "questions")
        tables.append(Table.of(heads, extremes, texts=2, title="Best, worst and mean case per method"))
        tables.append(Note("Values of cases, on the questions for which every listed method has the score."))
    if not tables:
        return None
    notes = map(Note, counted_per_iteration(metrics))
    return Section("distributions", "Grades, best and worst", (*tables, *notes), folded=True, shown_in=PAGES)


def _grades(name: str, grades: Mapping[str, Any]) -> Table:
    rows = [TableRow((Verbatim("all"), *_shares(grades["overall"])))]
    for field, groups in grades["by"].items():
        for group, counts in list(groups.items())[:GROUPS_SHOWN]:
            rows.append(TableRow((Verbatim(f"{field}: {group}"), *_shares(counts)), MARKDOWN))
    return Table.of(("cases", *map(Verbatim, grades["overall"]), "total"), rows, title=("Cases by ", Verbatim(name)))


def _shares(counts: Mapping[str, int]) -> list[str]:
    """`12 (50.0%)` for each grade, and the total."""
    total = sum(counts.values())
    return [*(f"{whole(n)} ({n / total:.1%})" for n in counts.values()), whole(total)]


def _extremes(metrics: Mapping[str, Any], percent: Collection[str]) -> Iterator[tuple[Cell, ...]]:
    for name, extremes in metrics["extremes"].items():
        factor, places = (100.0, 1) if name in percent else (1.0, 2)
        label = Verbatim(name + (" x100" if name in percent else ""))
        for method, values in extremes["methods"].items():
            figures = (f"{values[key] * factor:.{places}f}" for key in ("mean", "best", "worst"))
            yield (label, Verbatim(method), *figures, whole(values["n"]), whole(extremes["n_questions"]))


_DRIFT_NOTE = (
    "as in the baseline: verdicts about the canary set (task=drift) that are what all ten replies of the baseline said. right: by the grades "
    "of the set. drifted: another verdict in all six replies of the check. McNemar's p compares flips to wrong with flips to right; it decides nothing."
)


def drift_section(data: ReportData) -> Section | None:
    """What the newest check found, with a warning where the judge has drifted; None for a run whose judge was not checked."""
    if "check" not in data.drift:
        return None
    section = check_section(data.drift["check"], data.drift["baseline"])
    parts = [replace(part, shown_in=PAGES) for part in section.parts]
    alarm = Note("the judge has drifted: some verdicts are no longer those of its baseline", kind="warning")
    return replace(section, parts=(*([alarm] if data.drift["check"]["alarm"] else []), *parts))


def check_section(check: Mapping[str, Any], baseline: Mapping[str, Any]) -> Section:
    """One row with what a check found, and which models answered then and now."""
    heads = ("checked", "as in the baseline", "right", "drifted", "to wrong", "to right", "other", "McNemar p")
    cells = (
        _day(check["ended_at"]),
        _share(check["matched"], check["verdicts"]),
        _share(check["right"], check["graded"]),
        *map(whole, (check["drifted"], *check["flips"].values())),
        "-" if check["mcnemar_p"] is None else decimal(check["mcnemar_p"], 3),
    )
    models = (
        Note((f"baseline of {_day(baseline['ended_at'])}, answered by ", Verbatim(served_words(baseline["served"])))),
        Note(("the check, answered by ", Verbatim(served_words(check["served"])))),
    )
    parts = (Table.of(heads, [cells]), *models, Note(_DRIFT_NOTE))
    return Section("drift", "Drift of the judge", parts, folded=not check["alarm"])


def _share(count: int, total: int) -> str:
    return f"{count:,} of {total:,} ({count / total:.1%})" if total else "0 of 0"


def _day(time: str) -> str:
    return time[:16].replace("T", " ") + " UTC"


def served_words(served: Iterable[Mapping[str, Any]]) -> str:
    """Which models and fingerprints answered, and how often."""
    return ", ".join(
        f"{row['model'] or 'a model without a name'}"
        + (f" ({row['fingerprint']})" if row["fingerprint"] else "")
        + f" {row['calls']:,}"
        for row in served
    )


def better_section(data: ReportData) -> Section | None:
    """All methods on one axis, then by score; on a terminal a row per method; None where nothing has a value."""
    title = "Methods" if len(method_groups(data.metrics)) > 1 else "How good?"
    charts = tuple(_by_method(data))
    return Section("better", title, (*charts, *_first_score(data))) if charts else None


def _first_score(data: ReportData) -> Iterator[Table | Note]:
    """The first score of each of several methods, with its difference from the first one."""
    metrics, groups = data.metrics, method_groups(data.metrics)
    names = valued_scores(metrics)
    if not names or len(groups) == 1:
        return
    several = iteration_count(metrics) > 1
    methods = shown_methods(names[0], metrics)
    head = _terminal_head(names[0], data)
    columns = (
        TableColumn((*pieces_of(head.name), head.mark), is_text=True),
        TableColumn(f"mean [{metrics['scoring']['level']:.0%}]", is_text=True),
        TableColumn("values" if several else "n", drop=1),
        *([TableColumn("iterations", drop=4)] if several else []),
        *([] if data.methods is None else [TableColumn(Verbatim(f"against {data.methods['base']}"), is_text=True)]),
        *([] if data.methods is None else [TableColumn("cases in both", drop=3), TableColumn("verdict", is_text=True)]),
    )
    rows = (TableRow((Verbatim(method), *_method_cells(names[0], method, data))) for method in methods)
    yield Table(columns, tuple(rows), shown_in=TERMINAL)
    if left_out := len(groups) - len(methods):
        yield Note(f"and {plural(left_out, 'method')} between them in the report", shown_in=TERMINAL)


def _method_cells(name: str, method: str, data: ReportData) -> Iterator[Cell]:
    """The figures of a method; words in place of a difference that there is not."""
    score, percent = method_groups(data.metrics)[method]["scores"].get(name), name in data.settings.percent
    yield score_cell(score, percent=percent)
    yield whole(score["n_ok"]) if score else ""
    if iteration_count(data.metrics) > 1:
        yield _spread(score or {}, percent=percent)
    if data.methods is None:
        return
    paired = data.methods["candidates"].get(method, {}).get(name)
    if paired is None or not paired["n"]:
        yield from ("", "", "") if method == data.methods["base"] else ("-", "0", "")
        return
    difference, _, bounds = difference_text(times_100(paired) if percent else paired).partition(" ")
    yield from (ScoreCell(difference, bounds), whole(paired["n"]), paired["state"].replace("_", " "))


def _by_method(data: ReportData) -> Iterator[Chart]:
    """All methods on the axis of the first headline score, then every headline score with a mark per method; the difference of the best
    method from the first one stands beside them until another is chosen."""
    metrics, groups, percent = data.metrics, method_groups(data.metrics), data.settings.percent
    names = list(dict.fromkeys([*headline_names(metrics), *chart_names(metrics)]))[:HEADLINES]
    if not names:
        return
    base, numbers = (data.methods or {}).get("base", ""), {method: number for number, method in enumerate(groups)}
    level, several = f"{metrics['scoring']['level']:.0%}", len(groups) > 1
    if several:
        threshold = metrics["declared"][names[0]]["threshold"]
        scaled = None if threshold is None else threshold * (100 if names[0] in percent else 1)
        limit = f", line: cases pass from {scaled:g}" if scaled is not None else ""
        against = f" Against {base}: over the cases of both; better or worse only where the interval says so." if base else ""
        note = f"Mean with its {level} interval{limit}.{against} {_parts_note(names[:1], data)}".rstrip()
        rows = [_method_row(names[0], method, number, data) for method, number in numbers.items()]
        yield Chart("", method_forest(rows, _ticks(names[0], data), heading(names[0], metrics, percent), base, note))
    if shown := names[several:]:
        words = f"Mean with its {level} interval, each score on its own scale; upright line: its threshold. {_parts_note(shown, data)}"
        lanes = [_lane(name, numbers, data) for name in shown]
        methods = [(number, name) for name, number in numbers.items()]
        yield Chart("By score" if several else "", score_lanes(lanes, methods, base, words.rstrip()))


def _parts_note(names: Sequence[str], data: ReportData) -> str:
    """`overall_score: 5 of 8 parts (retrieval_score, citation).`, of those scores that lack parts."""
    parts = ((name, *measured_parts(name, data.metrics)) for name in names)
    return " ".join(f"{name}: {count} ({measured})." for name, count, measured in parts if count)


def _ticks(name: str, data: ReportData) -> list[tuple[float, str]]:
    """Five ticks of the scale of a score; none without one."""
    low, high = data.metrics["declared"][name]["low"], data.metrics["declared"][name]["high"]
    factor = 100 if name in data.settings.percent else 1
    return [] if low is None else [(25.0 * n, axis_number((low + (high - low) * n / 4) * factor)) for n in range(5)]


def _method_row(name: str, method: str, number: int, data: ReportData) -> MethodRow:
    score = method_groups(data.metrics)[method]["scores"].get(name)
    cell = score_cell(score, percent=name in data.settings.percent, declared=data.metrics["declared"][name])
    bounds = f"n = {whole(score['n_ok'])}: too few" if score and cell.few else cell.interval
    address = page_address(method=method, score=name)
    return MethodRow(
        number, method, address, cell.mean, bounds, cell.passed, _marks(cell), _difference(name, method, number, data), cell.few
    )


def _marks(cell: ScoreCell, *, turned: bool = False) -> Marks | None:
    """The places of a cell on the axis; `turned` where lower is better and the axis goes from worst to best."""
    if cell.plot is None:
        return None
    plot = cell.plot
    low, high = (None, None) if cell.few else (plot.low, plot.high)
    places = [None if place is None else 100 - place if turned else place for place in (plot.mean, low, high, plot.threshold)]
    value, low, high, limit = places
    if turned:
        low, high = high, low
    return Marks(value, low, high, () if limit is None else (limit,), cell.few)


def _difference(name: str, method: str, number: int, data: ReportData) -> Difference | None:
    """None for the first method, and for one without a case of both."""
    score = (data.methods or {"candidates": {}})["candidates"].get(method, {}).get(name)
    if score is None or score["difference"] is None:
        return None
    text, _, bounds = change_text(times_100(score) if name in data.settings.percent else score).partition(" ")
    if is_few(score):
        return Difference(number, text, f"n = {whole(score['n'])}", "too few", "", "", method == best_method(data))
    remark = f"{score['wins']} better, {score['losses']} worse of {whole(score['n'])}"
    state = {"same": "equal"}.get(score["state"], score["state"])
    needed = ""
    if state == "inconclusive" and score["reason"] in UNDECIDED and score["reason"] != "too_wide":
        remark += f"; {UNDECIDED[score['reason']]}"
    elif state == "inconclusive" and score["n_needed"]:
        needed = f"~{whole(score['n_needed'])} cases would show {figure_text(score['smallest_effect'])}"
    return Difference(number, text, bounds, state, remark, needed, method == best_method(data))


def _lane(name: str, numbers: Mapping[str, int], data: ReportData) -> LaneRow:
    groups, declared = method_groups(data.metrics), data.metrics["declared"][name]
    methods = []
    for method, number in numbers.items():
        score = groups[method]["scores"].get(name)
        cell = score_cell(score, percent=name in data.settings.percent, declared=declared)
        text = cell.mean
        if len(numbers) == 1:  # there is room for its figures
            few = f"n = {whole(score['n_ok'])}: too few" if score and cell.few else cell.interval
            text = ", ".join(filter(None, (f"{cell.mean} {few}".strip(), cell.passed)))
        methods.append((number, method, text, _marks(cell, turned=not declared["higher_is_better"])))
    differences = (_difference(name, method, number, data) for method, number in numbers.items())
    head = heading(name, data.metrics, data.settings.percent)
    address = page_address(score=name, only="1") if len(numbers) > 1 else page_address(score=name, verdict="miss")
    return LaneRow(head, address, methods, [each for each in differences if each])
