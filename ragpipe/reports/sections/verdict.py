"""The verdict: whether the gates let the run pass, what the methods are worth, and what to know before trusting it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ragpipe.pages.charts import axis_limit
from ragpipe.pages.charts_rows import LimitRow, Marks, limit_table
from ragpipe.pages.page_address import page_address
from ragpipe.reports.console import duration
from ragpipe.reports.metrics_view import fallen_slices, headline_names, iteration_count, iterations_text, score_cell
from ragpipe.reports.model import (
    EVERYWHERE,
    HTML,
    PAGES,
    TERMINAL,
    Chart,
    Media,
    Note,
    Piece,
    Prose,
    RichText,
    RunVerdict,
    Section,
    SectionPart,
    Strong,
    Table,
    TableColumn,
    TableRow,
    Verbatim,
    pieces_of,
)
from ragpipe.reports.number_format import bracketed, decimal, is_free, percentage, plural, price, whole
from ragpipe.reports.report_data import ReportData
from ragpipe.schema.run_warning import warning_texts
from ragpipe.schema.usage import Usage
from ragpipe.scoring.gates.gate_power import power_words, precision_of, undecided_words
from ragpipe.scoring.gates.gate_results import NO_CALIBRATION
from ragpipe.scoring.gates.gate_rules import limit, value_text, where_text

_STATES = {"better": "better", "worse": "worse", "same": "as good", "inconclusive": "inconclusive"}
_NAMED = 5  # other methods that the verdict names
_FEW = 5  # questions, below which no interval is shown


def verdict_of(data: ReportData) -> RunVerdict:
    """The first thing that a page says. Red where gates block or nothing was judged, green where all gates passed."""
    kind, lead, sentence = _gates(data.gates["gates"])
    sentences = [sentence] if sentence else []
    if nothing := _no_evidence(data):
        return RunVerdict("bad", "no evidence", (*sentences, nothing), tuple(_remarks(data)))
    if result := (_difference(data) or _level(data)):
        sentences.append(result)
    sentences += [(Verbatim(method), " is ", Verbatim(text), ".") for method, text in fallen_slices(data.methods)]
    return RunVerdict(kind, lead, tuple(sentences), tuple(_remarks(data)))


def _gates(gates: Sequence[Mapping[str, Any]]) -> tuple[Any, str, RichText]:
    """(kind, lead, sentence): `BLOCKED`, `1 of 4 gates: reject 0.62 [0.53, 0.70], at least 0.7.`"""
    if not gates:
        return "plain", "", ""
    blocked = [gate for gate in gates if gate["outcome"] == "blocked"]
    warned = [gate for gate in gates if gate["outcome"] == "warned"]
    if blocked:
        return (
            "bad",
            "blocked",
            (f"{len(blocked)} of {plural(len(gates), 'gate')}: ", *pieces_of(_gate(blocked[0])), "."),
        )
    passed = sum(gate["verdict"] == "passed" for gate in gates)
    counts = f"{passed} of {plural(len(gates), 'gate')}"
    if warned:
        return "warn", "not blocked", (f"{counts} passed, {len(warned)} warned: ", *pieces_of(_gate(warned[0])), ".")
    return "good", "passed", f"{counts}." if passed == len(gates) else f"{counts}, the others are only shown."


def _gate(gate: Mapping[str, Any]) -> RichText:
    """`reject 0.62 [0.53, 0.70], at least 0.7`; a verdict other than failed in words."""
    value = "" if gate["value"] is None else f" {value_text(gate)}"
    bounds = gate.get("interval")
    interval = f" {bracketed(bounds)}" if bounds and not bounds.get("too_few") else ""
    words = "" if gate["verdict"] == "failed" else f", {gate['verdict'].replace('_', ' ')}"
    return (Verbatim(gate["name"]), f"{value}{interval}, {limit(gate)}{words}")


def _no_evidence(data: ReportData) -> RichText:
    """`0 of 40 cases have a score; first error: ...`; empty where any score has a value."""
    scores, cases = data.metrics["overall"]["scores"], data.metrics["n_cases"]
    if not cases or any(score["n_ok"] for score in scores.values()):
        return ""
    text = f"0 of {plural(cases, 'case')} have a value of any score."
    for name, score in scores.items():
        for kind, reasons in (("error", score.get("errors")), ("skipped", score.get("skipped"))):
            for reason, n in (reasons or {}).items():
                return (f"{text} First {kind}: ", Verbatim(name), " ", Verbatim(reason), f" ({whole(n)}).")
    return text


def _difference(data: ReportData) -> RichText:
    """`rerank beats baseline by 0.192 [0.076, 0.308] in overall_score over 39 pairs.`; empty for one method."""
    if data.methods is None:
        return ""
    name = next(iter(next(iter(data.methods["candidates"].values()), {})), "")
    scores = {method: scores[name] for method, scores in data.methods["candidates"].items() if name in scores}
    measured = {method: score for method, score in scores.items() if score["difference"] is not None}
    if not measured:
        return ""
    method = best_method(data)
    score, factor = measured[method], 100.0 if name in data.settings.percent else 1.0
    places = 1 if factor > 1 else 3
    amount = decimal(abs(score["difference"]) * factor, places)
    few = _is_few(score)
    base = Verbatim(data.methods["base"])
    bounds = "" if few or not score["interval"] else f" {_gain(score, factor, places)}"
    measure: tuple[Piece, ...] = (" in ", Verbatim(name))
    pairs = f" over {plural(score['n'], 'pair')}."
    subject = Verbatim(method)
    if few:
        told = f": n = {whole(score['n'])}, too few to tell."
        return (subject, " against ", base, *measure, told, *_others(measured, method))
    if score["state"] in ("better", "worse"):
        verb = " beats " if score["state"] == "better" else " is behind "
        return (subject, verb, base, f" by {amount}{bounds}", *measure, pairs, *_others(measured, method))
    words = " is as good as " if score["state"] == "same" else " is not shown to differ from "
    signed = f": {'+' if score['difference'] >= 0 else '-'}{amount}{bounds}{pairs}"
    return (subject, words, base, *measure, signed, *_others(measured, method))


def _gain(score: Mapping[str, Any], factor: float, places: int) -> str:
    """The interval of a difference; that of a loss is turned, as the amount is."""
    interval = score["interval"]
    ends = [interval["low"] * factor, interval["high"] * factor]
    if score["state"] in ("better", "worse") and score["difference"] < 0:
        ends = [-ends[1], -ends[0]]
    return f"[{decimal(ends[0], places)}, {decimal(ends[1], places)}]"


def _others(measured: Mapping[str, Mapping[str, Any]], method: str) -> Iterator[Piece]:
    """How the other methods stand to the first one, by name, and counted for many."""
    others = {name: "too few" if _is_few(score) else _STATES[score["state"]] for name, score in measured.items()}
    del others[method]
    if len(others) > _NAMED:
        counts = Counter(others.values())
        yield f" The other {len(others)}: {', '.join(f'{n} {state}' for state, n in counts.most_common())}."
        return
    for place, (name, state) in enumerate(others.items()):
        yield from ("; " if place else " ", Verbatim(name), f": {state}")
    yield "." if others else ""


def best_method(data: ReportData) -> str:
    """The method with the best verdict against the first one in the first headline score, and of these the one with the largest
    gain; those with too few questions come last, and the first where none has a difference."""
    candidates = (data.methods or {})["candidates"]

    def rank(method: str) -> tuple[int, float]:
        score = next(iter(candidates[method].values()), None)
        if score is None or score["difference"] is None:
            return -2, 0.0
        gain = float(score["difference"] if score["higher_is_better"] else -score["difference"])
        return -1 if _is_few(score) else _RANKED.index(score["state"]), gain

    return str(max(candidates, key=rank))


_RANKED = ("worse", "inconclusive", "same", "better")


def _is_few(score: Mapping[str, Any]) -> bool:
    return bool(score["questions"] < _FEW or (score["interval"] or {}).get("too_few"))


def _level(data: ReportData) -> RichText:
    """`overall_score 0.77 [0.70, 0.82], n = 100.`: the first headline score of a run of one method."""
    name = next(iter(headline_names(data.metrics)), None)
    if name is None:
        return ""
    score = data.metrics["overall"]["scores"][name]
    cell = score_cell(score, percent=name in data.settings.percent)
    scale = " x100" if name in data.settings.percent else ""
    if cell.few:
        return (Verbatim(name), f"{scale} {cell.mean}, n = {whole(score['n_ok'])}: too few to tell.")
    several = iteration_count(data.metrics)
    counted = f", {several} iterations" if several > 1 else ""
    return (Verbatim(name), f"{scale} {cell.estimate}, n = {whole(round(score['n_ok'] / several))}{counted}.")


def _remarks(data: ReportData) -> Iterator[RichText]:
    """What to know before trusting it, each in a few words."""
    metrics, used = data.metrics, data.cost["used"]
    if used["uses"]:
        yield from _trust(metrics)
    if failed := metrics["n_failed_judgements"]:
        yield f"{plural(failed, 'judgement')} failed"
    if errors := metrics["overall"]["operations"]["n_error"]:
        yield plural(errors, "system error")
    sent = used["calls"] - used["calls_computed"]
    if sent and is_free(used):
        yield f"{plural(sent, 'reply', 'replies')} of the judge, no cost"
    elif sent:
        yield f"{plural(sent, 'judge call')}, {price(Usage.from_json(used))}"
    elif used["uses"]:
        models = [name for name in used.get("by_judge", ()) if "@" in name]  # a detector's weights are in its name
        yield (*((Verbatim(models[0]),) if models else ("the embedded judge",)), ": no call, no cost")


def _trust(metrics: Mapping[str, Any]) -> Iterator[RichText]:
    """Which scores passed or failed their calibration; one line where none was calibrated."""
    states = metrics.get("calibration", {})
    failed = [name for name, state in states.items() if state["calibrated"] is False]
    passed = [name for name, state in states.items() if state["calibrated"]]
    for names, verdict in ((failed, "FAILED"), (passed, "passed")):
        if names:
            listed = ", ".join(names)
            yield (
                Verbatim(listed),
                f" {verdict} {'its' if len(names) == 1 else 'their'} calibration against human labels",
            )
    if not (failed or passed or metrics["judge"]["calibrated"]):
        yield "the judge is not calibrated against human labels"


_OUTCOMES = ("blocked", "warned")
_RANKS = {"blocked": 0, "warned": 1, "passed": 2, "reported": 3}
_COLUMNS: tuple[tuple[str, bool, Media], ...] = (
    ("gate", True, EVERYWHERE),
    ("tier", True, EVERYWHERE),
    ("value", False, EVERYWHERE),
    ("limit", True, EVERYWHERE),
    ("cases", False, EVERYWHERE),
    ("coverage", False, PAGES),
    ("verdict", True, EVERYWHERE),
    ("outcome", True, PAGES),
    ("in words", True, PAGES),
)


def gates_section(data: ReportData) -> Section | None:
    """A row per gate in the order of the configuration; the terminal warns of those that did not pass."""
    gates = data.gates["gates"]
    if not gates:
        return None
    columns = tuple(TableColumn(head, is_text, shown_in) for head, is_text, shown_in in _COLUMNS)
    failed = sorted(
        (gate for gate in gates if gate["outcome"] in _OUTCOMES), key=lambda gate: _OUTCOMES.index(gate["outcome"])
    )
    warnings = (Note(_warning(gate), "warning", TERMINAL) for gate in failed)
    chart = Chart("", limit_table([_limit_row(gate, data) for gate in sorted(gates, key=_rank)], "gates"))
    parts: tuple[SectionPart, ...] = (chart, Table(columns, tuple(map(_row, gates))), *warnings, *_powers(data))
    return Section("gates", "Gates", parts, folded=True)


def _limit_sign(gate: Mapping[str, Any]) -> str:
    """The limit in short: `≥ 0.7`; a drop in words."""
    return limit(gate).replace("at least ", "≥ ").replace("at most ", "≤ ")


def _rank(gate: Mapping[str, Any]) -> int:
    """What blocks stands first, then what warns, what passed, and what is only shown."""
    return _RANKS.get(gate["outcome"], len(_RANKS))


def _limit_row(gate: Mapping[str, Any], data: ReportData) -> LimitRow:
    verdict, outcome = gate["verdict"].replace("_", " "), gate["outcome"]
    kind = {"blocked": "bad", "warned": "warn", "passed": "good"}.get(outcome, "")
    state = verdict if outcome == "passed" else f"{verdict}, {outcome}"
    value = value_text(gate)
    remark = where_text(gate["where"], "where ") if gate["where"] else ""
    subject = gate.get("score") or gate.get("failure_mode") or ""
    tier = "" if gate["tier"] == "critical" else gate["tier"]
    words = ", ".join(part for part in (subject if subject != gate["name"] else "", remark, tier) if part)
    return LimitRow(gate["name"], _failing(gate, data), words, value, _limit_sign(gate), _gate_marks(gate), kind, state)


def _failing(gate: Mapping[str, Any], data: ReportData) -> str:
    """The address of the cases that fail the gate's score, or that have its failure mode, as far as a filter can say `where`."""
    where = {field: labels[0] for field, labels in gate["where"].items() if len(labels) == 1}
    method = where.pop("method", None)
    slices = [f"{field}:{label}" for field, label in where.items() if field in data.metrics["by"]]
    chosen = slices[0] if slices else None
    if "failure_mode" in gate:
        return page_address(method=method, slice=chosen, mode=gate["failure_mode"])
    return page_address(method=method, score=gate["score"], verdict="fail", slice=chosen)


def _gate_marks(gate: Mapping[str, Any]) -> Marks | None:
    """The value, its interval and the limits from 0 to 1, or where one of them lies outside, as far as they reach."""
    if gate["value"] is None:
        return None
    bounds = gate.get("interval") or {}
    few = bool(bounds.get("too_few"))
    ends = [None, None] if few else [bounds.get("low"), bounds.get("high")]
    limits = [end for end in (gate.get("min"), gate.get("max")) if end is not None]
    limits += [-gate["max_drop"]] if "against" in gate else []
    values = [value for value in (gate["value"], *ends, *limits) if value is not None]
    low, high = min(0.0, *values), max(*values, 0.0 if "against" in gate else 1.0 if max(values) <= 1 else max(values))
    if low < 0:
        reach = axis_limit(values)
        low, high = -reach, reach

    def place(value: float | None) -> float | None:
        return None if value is None else 100 * (value - low) / ((high - low) or 1.0)

    return Marks(
        place(gate["value"]),
        place(ends[0]),
        place(ends[1]),
        tuple(100 * (end - low) / ((high - low) or 1.0) for end in limits),
        few,
    )


def _powers(data: ReportData) -> Iterator[Note]:
    """What each gate can tell with these cases; the terminal says it of those that could not decide."""
    level = data.metrics["scoring"]["level"]
    for gate in data.gates["gates"]:
        precision = precision_of(gate, level)
        if precision is None:
            continue
        if undecided := undecided_words(gate, precision, level):
            yield Note(("gate ", Verbatim(gate["name"]), f": {undecided}."))
        words = power_words(gate, precision, level)
        if words and words != undecided:
            yield Note(("gate ", Verbatim(gate["name"]), f": {words}."), shown_in=PAGES)


def _row(gate: Mapping[str, Any]) -> TableRow:
    return TableRow(
        (
            Verbatim(gate["name"]),
            gate["tier"],
            value_text(gate),
            limit(gate),
            whole(gate["n_ok"]),
            percentage(gate["coverage"]),
            gate["verdict"].replace("_", " "),
            gate["outcome"],
            Verbatim(gate["sentence"]),
        )
    )


def _warning(gate: Mapping[str, Any]) -> Verbatim:
    return Verbatim(f"gate {gate['name']} ({gate['tier']}, {gate['outcome']}): {gate['sentence']}")


def summary_line(metrics: Mapping[str, Any]) -> str:
    """`101 cases on 40 questions, 3 methods, iteration 1`."""
    methods = metrics["by"].get("method") or {}
    several = f", {len(methods)} methods" if len(methods) > 1 else ""
    cases, questions = whole(metrics["n_cases"]), whole(metrics["n_samples"])
    return f"{cases} cases on {questions} questions{several}, {iterations_text(metrics)}"


def notices(data: ReportData) -> Iterator[Note]:
    """What to know of the judge, and the warnings of the run."""
    if note := data.metrics["judge"].get("note"):
        yield Note(("The judge: ", Prose(note)))
    if data.cost["used"]["uses"]:
        yield from _calibration(data.metrics)
    for text in warning_texts(data.metrics):
        yield Note(Verbatim(text), "warning")


def _calibration(metrics: Mapping[str, Any]) -> Iterator[Note]:
    """Which scores of the judge are calibrated against human labels, with the reason where a calibration was named."""
    states = metrics.get("calibration", {})
    if metrics["judge"]["calibrated"] and not states:
        return
    if not any(state["calibrated"] is not None or state["why"] != NO_CALIBRATION for state in states.values()):
        lead = Strong("The judge is not calibrated against human labels:")
        yield Note((lead, " how often its verdicts are right is not known."), shown_in=PAGES)
        return
    words = {True: "calibrated", False: "failed its calibration", None: "not calibrated"}
    for name, state in states.items():
        verdict = f" {words[state['calibrated']]}: "
        text = (Strong("Against human labels:"), " ", Verbatim(name), verdict, Prose(state["why"]))
        yield Note(text, "good" if state["calibrated"] else "plain")


def closing_lines(data: ReportData) -> Iterator[Note]:
    """What the terminal says last: time, signature, folder and the next useful command."""
    if data.judging_seconds:
        yield Note(judging_time(data.judging_seconds), shown_in=TERMINAL)
    yield Note(Verbatim(data.metrics["signature"]), shown_in=TERMINAL)
    if data.folder:
        yield Note(f"results: {data.folder}", shown_in=TERMINAL)
    if data.next_command:
        yield Note(f"next:    {data.next_command}", shown_in=TERMINAL)


def judging_time(seconds: Mapping[int, float]) -> str:
    """`time: 12:34 of judging`; with several iterations also each one's: `time: 12:34 of judging (6:10, 6:24)`."""
    each = f" ({', '.join(map(duration, seconds.values()))})" if len(seconds) > 1 else ""
    return f"time: {duration(sum(seconds.values()))} of judging{each}"


_FIGURES: tuple[Note, ...] = (
    Note((Verbatim("too few"), ": fewer than five questions; read such a figure with care.")),
    Note(
        (
            Verbatim("78% of 412"),
            ": the share of 412 cases that reached the threshold of the score (scoring.thresholds).",
        )
    ),
    Note((Verbatim("coverage"), ": the share of the due judgements that have a value; shown where it is not 100 %.")),
    Note(
        (
            Verbatim("skipped"),
            ": does not apply to the case, or the system or the data left nothing to judge; ",
            Verbatim("error"),
            ": could not be judged. Neither is a 0.",
        )
    ),
    Note(
        (
            Verbatim("overall_score"),
            ": the weighted mean of the scores that a case has, each brought to 0..1. Filters and order of the cases use the "
            "same scale.",
        )
    ),
    Note("Plots: the bar is the interval, the dot the mean, the upright line the threshold.", shown_in=HTML),
    Note(
        "Marks in the contexts are the quotes behind the verdicts: green supports a claim, red goes with a claim that is not "
        "supported. Marks in the answer are claims that nothing supports.",
        shown_in=HTML,
    ),
)


def reading_section(data: ReportData) -> Section:
    """A note per kind of figure."""
    level = data.metrics["scoring"]["level"]
    interval = (
        Verbatim("0.85 [0.82, 0.88]"),
        f": the mean and its {level:.0%} interval; {level:.0%} of such intervals hold the true mean. Cases that share a "
        "question are counted as one cluster.",
    )
    percent = [Note((Verbatim("x100"), ": a score of 0 to 1, printed times 100."))] if data.settings.percent else []
    return Section("reading", "How to read it", (Note(interval), *percent, *_FIGURES), shown_in=PAGES)
