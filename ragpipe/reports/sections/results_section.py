"""The scores of each method, over all of its questions and over those that the methods share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from ragpipe.calibrating.corrected_scores import correction_words
from ragpipe.reports.comparison_summary import HEADS, difference_rows
from ragpipe.reports.metrics_view import (
    by_importance,
    counted_per_iteration,
    heading,
    main_scores,
    measured_parts,
    method_groups,
    missing_overall_score,
    score_cell,
    table_scores,
)
from ragpipe.reports.model import (
    EVERYWHERE,
    MARKDOWN,
    PAGES,
    TERMINAL,
    Cell,
    ItemList,
    Note,
    RichText,
    RowHead,
    Section,
    Table,
    TableColumn,
    TableRow,
    Verbatim,
)
from ragpipe.reports.number_format import bracketed, decimal, percentage, whole
from ragpipe.reports.report_data import ReportData
from ragpipe.reports.sections.spread_section import GROUPS_SHOWN

SHARED_NOTE = (
    "Each score over the questions for which every method has a value, of those for which any has one (questions with a value): compare "
    "methods on these alone. A question that was asked may have no value of a score."
)


def results_section(data: ReportData) -> Section:
    """Scores down, methods across."""
    metrics, percent = data.metrics, data.settings.percent
    groups = method_groups(metrics)
    rows = []
    for name in by_importance(table_scores(metrics), metrics):
        declared = metrics["declared"][name]
        cells = [
            score_cell(group["scores"].get(name), percent=name in percent, declared=declared)
            for group in groups.values()
        ]
        rows.append(TableRow((_row_head(name, metrics, percent), *cells)))
    columns = (TableColumn("score", is_text=True), *(TableColumn(Verbatim(method)) for method in groups))
    return Section("scores", "Results", (Table(columns, tuple(rows), turnable=True), *_notes(metrics)), folded=True)


def shared_section(data: ReportData) -> Section | None:
    """The methods on the questions that they share; None where these are all of them. The terminal shows main scores."""
    metrics, percent = data.metrics, data.settings.percent
    shared = metrics.get("shared")
    if shared is None:
        return None
    scores = shared["scores"]
    names = [
        name
        for name in by_importance(table_scores(metrics), metrics)
        if name in scores and scores[name]["n_questions"] < scores[name]["of"]
    ]
    if not names:
        return None
    methods, main = list(method_groups(metrics)), main_scores(names, metrics)
    rows = []
    for name in names:
        by_method = scores[name]["methods"]
        questions = f"{whole(scores[name]['n_questions'])} of {whole(scores[name]['of'])}"
        cells = (score_cell(by_method.get(method), percent=name in percent) for method in methods)
        shown_in = EVERYWHERE if name in main else PAGES
        rows.append(TableRow((Verbatim(heading(name, metrics, percent)), questions, *cells), shown_in))
    columns = (
        TableColumn("score", is_text=True),
        TableColumn("questions with a value"),
        *(TableColumn(Verbatim(method)) for method in methods),
    )
    title = f"On shared questions ({whole(shared['n_questions'])} of {whole(shared['of'])} were asked of all methods)"
    table = Table(columns, tuple(rows), key_columns=2, compact=True)
    return Section("shared", title, (table, Note(SHARED_NOTE)), folded=True)


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
    if any(score["interval"] for score in metrics["overall"]["scores"].values()):
        level = metrics["scoring"]["level"]
        yield Note(f"mean [{level:.0%} interval]; below: pass rate and number of judged cases", shown_in=TERMINAL)
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
_TEXTS = {"score", "verdict"}
_ON_PAGES = {"base", "new", "w/t/l", "could show"}
_BOUNDS = ("low", "high")


def methods_section(data: ReportData) -> Section | None:
    """A row per method and headline score; None for a run of one method. The terminal shows differences and verdicts."""
    if data.methods is None:
        return None
    rows = tuple(
        row for method, scores in data.methods["candidates"].items() for row in _method_rows(method, scores, data)
    )
    if not rows:
        return None
    columns = [
        TableColumn(head, is_text=head in _TEXTS, shown_in=PAGES if head in _ON_PAGES else EVERYWHERE) for head in HEADS
    ]
    columns.insert(1, TableColumn("method", is_text=True))
    base = Verbatim(data.methods["base"])
    command = Verbatim(f"task=compare compare=methods run={data.methods['run_id']}")
    parts = (
        Table(tuple(columns), rows, title=("Each method (new) against ", base, " (base)"), key_columns=2),
        Note(_METHODS_NOTE, shown_in=PAGES),
        Note(("slices, flips, all scores: ", command)),
    )
    return Section("methods", "Paired differences between methods", parts, folded=True)


def _method_rows(method: str, scores: Mapping[str, Any], data: ReportData) -> Iterator[TableRow]:
    """The headline scores that this method and the first one have values for."""
    percent = data.settings.percent
    shown = {
        heading(name, data.metrics, percent): times_100(score) if name in percent else score
        for name, score in scores.items()
        if score["n"]
    }
    for name, *figures in difference_rows(shown):
        yield TableRow((Verbatim(name), Verbatim(method), *figures))


def times_100(score: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a score that is shown in percent."""
    names = ("base_mean", "candidate_mean", "difference", "detectable", "smallest_effect", "low", "high")
    scaled = {name: None if score[name] is None else score[name] * 100 for name in names}
    interval = score["interval"]
    if interval is not None:
        interval = {**interval, **{end: interval[end] * 100 for end in _BOUNDS}}
    return {**score, **scaled, "interval": interval}


_CORRECTED_NOTE = (
    "corrected: the mean that people's labels of all cases would have, from the judge's scores of all and labels of drawn ones; its "
    "interval holds the judge's error too."
)


def corrected_section(data: ReportData) -> Section | None:
    """A row per score with labels of people, and one for its pass rate; None for a run without labels."""
    corrected = data.metrics.get("corrected")
    if not corrected:
        return None
    heads = ("score", "labels", "judge alone", "corrected")
    columns = tuple(TableColumn(head, is_text=head == "score") for head in heads)
    rows = tuple(row for name, figures in corrected.items() for row in _corrected_rows(name, figures, data))
    return Section("corrected", "Corrected by human labels", (Table(columns, rows), Note(_CORRECTED_NOTE)), folded=True)


def _corrected_rows(name: str, figures: Mapping[str, Any], data: ReportData) -> Iterator[TableRow]:
    percent = name in data.settings.percent
    scaled = (100.0, 1) if percent else (1.0, 2)
    head = heading(name, data.metrics, data.settings.percent)
    yield TableRow((Verbatim(head), whole(figures["labels"]), *_estimates(figures, *scaled)))
    if rates := figures.get("pass_rates"):
        yield TableRow((Verbatim(f"{name} passed"), whole(figures["labels"]), *_estimates(rates, 100.0, 1)))


def _estimates(figures: Mapping[str, Any], factor: float, places: int) -> tuple[Cell, Cell]:
    """The judge's mean and the corrected one, each with its interval, or why there is none."""
    raw = figures.get("raw")
    alone = (
        "-" if raw is None else f"{decimal(raw * factor, places)} {bracketed(figures['raw_interval'], factor, places)}"
    )
    if figures["mean"] is None:
        return alone, correction_words(figures.get("reason"))
    return alone, f"{decimal(figures['mean'] * factor, places)} {bracketed(figures['interval'], factor, places)}"


_JURY_NOTE = (
    "unanimous: share of the cases in which all members gave the same value. Agreement among members proves little: judges of one kind "
    "share their errors. What counts is agreement with people (task=calibrate)."
)
_ALPHA = "alpha: Krippendorff's, by squared differences; kappa: Fleiss', for scores of 0 and 1."


def jury_section(data: ReportData) -> Section | None:
    """A row per score with each member's mean and their agreement; None for a run by one judge."""
    jury = data.metrics.get("jury")
    if not jury:
        return None
    members = list(jury["members"])
    heads = ("score", "rule", *members, "unanimous", "agreement", "no majority")
    columns = tuple(TableColumn(head, is_text=place < 2) for place, head in enumerate(heads))
    rows = tuple(_jury_row(name, figures, members) for name, figures in jury["scores"].items())
    notes = [Note((Verbatim(f"{name}: {label}"),)) for name, label in jury["members"].items()]
    notes += [Note(line) for line in _lines(jury["scores"])]
    return Section("jury", "Jury", (Table(columns, rows), *notes, Note(_JURY_NOTE), Note(_ALPHA)), folded=True)


def _jury_row(name: str, figures: Mapping[str, Any], members: list[str]) -> TableRow:
    means: list[Cell] = [_figure(figures["means"].get(member)) for member in members]
    agreement = _figure(figures.get("alpha"), "alpha ")
    if figures.get("fleiss_kappa") is not None:
        agreement = _figure(figures["fleiss_kappa"], "kappa ")
    unanimous = _figure(figures.get("unanimous"))
    return TableRow((Verbatim(name), figures["rule"], *means, unanimous, agreement, whole(figures["no_majority"])))


def _figure(value: float | None, kind: str = "") -> str:
    return "-" if value is None else f"{kind}{decimal(value, 2)}"


def _lines(scores: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for name, figures in scores.items():
        if consistency := figures.get("self_consistency"):
            shares = ", ".join(f"{member} {decimal(share, 2)}" for member, share in consistency.items())
            yield f"{name}: agreement of each member with itself over its repeats: {shares}"
        if cascade := figures.get("cascade"):
            yield f"{name}: {cascade_words(cascade)}"


def cascade_words(cascade: Mapping[str, Any]) -> str:
    """What a cascade did to the mean of a score."""
    share = f"the second member decided {decimal(cascade['decided_by_second'], 2)} of the cases"
    if cascade.get("bias_interval") is None:
        return (
            f"{share}; too few cases were judged by both ({cascade['drawn']:,} drawn) to say what that does to the mean"
        )
    low, high = cascade["bias_interval"]
    return (
        f"{share}; against the second member alone the mean moves by {cascade['bias']:+.2f} [{low:+.2f}, {high:+.2f}]"
    )


_COUNTS = {"n_ok": "ok", "n_skipped": "skipped", "n_error": "error", "n_missing": "not measured"}


def coverage_section(data: ReportData) -> Section | None:
    """A row per score; None for a run without any score."""
    rows = tuple(_coverage_row(name, score) for name, score in data.metrics["overall"]["scores"].items())
    columns = (
        TableColumn("score", is_text=True),
        *map(TableColumn, _COUNTS.values()),
        TableColumn("coverage"),
        TableColumn("reasons", is_text=True),
    )
    return (
        Section("coverage", "Coverage and failures", (Table(columns, rows),), folded=True, shown_in=PAGES)
        if rows
        else None
    )


def _coverage_row(name: str, score: Mapping[str, Any]) -> TableRow:
    counts = (whole(score.get(key, 0)) for key in _COUNTS)
    reasons = (*score.get("errors", {}).items(), *score.get("skipped", {}).items())
    texts = tuple((Verbatim(reason), f" {whole(n)}") for reason, n in reasons)
    return TableRow((Verbatim(name), *counts, percentage(score["coverage"]), ItemList(texts, separator=", ")))


_EXTREME_FIGURES = ("mean", "best", "worst", "cases", "questions")


def distributions_section(data: ReportData) -> Section | None:
    """A table per graded score and group of classes, then one of all extremes; None where there is none of them."""
    metrics = data.metrics
    tables: list[Table | Note] = [_grades(name, grades) for name, grades in metrics["grades"].items()]
    extremes = tuple(_extremes(metrics, data.settings.percent))
    if extremes:
        keys = (TableColumn("score", is_text=True), TableColumn("method", is_text=True))
        columns = (*keys, *map(TableColumn, _EXTREME_FIGURES))
        tables.append(Table(columns, extremes, "Best, worst and mean case per method", key_columns=2))
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
    grade_columns = (TableColumn(Verbatim(grade)) for grade in grades["overall"])
    columns = (TableColumn("cases", is_text=True), *grade_columns, TableColumn("total"))
    return Table(columns, tuple(rows), ("Cases by ", Verbatim(name)))


def _shares(counts: Mapping[str, int]) -> list[str]:
    """`12 (50.0%)` for each grade, and the total."""
    total = sum(counts.values())
    return [*(f"{whole(n)} ({n / total:.1%})" for n in counts.values()), whole(total)]


def _extremes(metrics: Mapping[str, Any], percent: Collection[str]) -> Iterator[TableRow]:
    for name, extremes in metrics["extremes"].items():
        factor, places = (100.0, 1) if name in percent else (1.0, 2)
        label = Verbatim(name + (" x100" if name in percent else ""))
        for method, values in extremes["methods"].items():
            figures = (f"{values[key] * factor:.{places}f}" for key in ("mean", "best", "worst"))
            yield TableRow((label, Verbatim(method), *figures, whole(values["n"]), whole(extremes["n_questions"])))


_DRIFT_NOTE = (
    "as in the baseline: verdicts about the canary set (task=drift) that are what all ten replies of the baseline said. right: by the grades "
    "of the set. drifted: another verdict in all six replies of the check. McNemar's p compares flips to wrong with flips to right; it decides nothing."
)


def drift_section(data: ReportData) -> Section | None:
    """What the newest check found, with a warning where the judge has drifted; None for a run whose judge was not checked."""
    if "check" not in data.drift:
        return None
    section = check_section(data.drift["check"], data.drift["baseline"])
    if not data.drift["check"]["alarm"]:
        return section
    alarm = Note("the judge has drifted: some verdicts are no longer those of its baseline", kind="warning")
    return Section(section.name, section.title, (alarm, *section.parts))


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
    columns = tuple(TableColumn(head, is_text=place == 0) for place, head in enumerate(heads))
    models = (
        Note((f"baseline of {_day(baseline['ended_at'])}, answered by ", Verbatim(served_words(baseline["served"])))),
        Note(("the check, answered by ", Verbatim(served_words(check["served"])))),
    )
    parts = (Table(columns, (TableRow(cells),)), *models, Note(_DRIFT_NOTE))
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
