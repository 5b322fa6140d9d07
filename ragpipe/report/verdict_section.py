"""The verdict: whether the gates let the run pass, what the methods are worth, and what to know before trusting it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ragpipe.comparison.headline import OTHER_SHARE, change_text, fallen_text, verdict_document, with_reservations
from ragpipe.core.score import judge_name
from ragpipe.core.text import on_one_line
from ragpipe.core.usage import Usage
from ragpipe.core.version import FORMAT
from ragpipe.report.charts import LimitRow, Marks, axis_limit, limit_table
from ragpipe.report.model import (
    EVERYWHERE,
    HTML,
    MARKDOWN,
    PAGES,
    TERMINAL,
    Chart,
    Note,
    Piece,
    Prose,
    RichText,
    RunVerdict,
    Section,
    Strong,
    Table,
    TableColumn,
    TableRow,
    Verbatim,
    pieces_of,
)
from ragpipe.report.page_file import page_address
from ragpipe.report.report_data import (
    ReportData,
    headline_names,
    iteration_count,
    iterations_text,
    score_cell,
    times_100,
    times_of,
    weights_of,
)
from ragpipe.report.styled_text import bracketed, difference_text, is_free, percentage, plural, price, whole
from ragpipe.score.aggregate import due
from ragpipe.score.gate_results import NO_CALIBRATION, power_words, precision_of, trust_words, undecided_words
from ragpipe.score.gate_rules import allowed_change, limit, value_text, where_text

_KINDS: Mapping[str, Any] = {"blocked": "bad", "no_evidence": "bad", "warned": "warn", "passed": "good"}


def verdict_of(data: ReportData) -> RunVerdict:
    """The first thing that a page says: `run_verdict`, red where gates block or nothing was judged, green where all gates passed."""
    verdict = run_verdict(data)
    lead, _, rest = verdict["sentence"].partition(": ") if verdict["state"] in _KINDS else ("", "", verdict["sentence"])
    remarks = (*(reason["text"] for reason in verdict["trust"]), *_remarks(data))
    return RunVerdict(_KINDS.get(verdict["state"], "plain"), lead, Prose(rest), remarks)


def _remarks(data: ReportData) -> Iterator[RichText]:
    """What judging cost, in a few words."""
    used = data.cost["used"]
    sent = used["calls"] - used["calls_computed"]
    if sent and is_free(used):
        yield f"{plural(sent, 'reply', 'replies')} of the judge, no cost"
    elif sent:
        yield f"{plural(sent, 'judge call')}, {price(Usage.from_json(used))}"
    elif used["uses"]:
        yield (*(Verbatim(f"{name}: ") for name in weights_of(used)[:1]), "no judge call, no cost")


_RANKS = {"blocked": 0, "warned": 1, "passed": 2, "reported": 3}
_ROWS = 6  # gates in the table of the terminal
_COLUMNS = (
    TableColumn("gate", is_text=True),
    TableColumn("tier", is_text=True, drop=3),
    TableColumn("value", drop=2),
    TableColumn("limit", is_text=True, drop=1),
    TableColumn("cases", drop=4),
    TableColumn("coverage", shown_in=PAGES),
    TableColumn("verdict", is_text=True),
    TableColumn("outcome", is_text=True, shown_in=PAGES),
    TableColumn("in words", is_text=True, shown_in=PAGES),
)


def gates_section(data: ReportData) -> Section | None:
    """A row per gate in the order of the configuration; a terminal has six, those that did not pass first, and says what a
    baseline run is worth and why a gate could not decide."""
    gates = data.gates["gates"]
    if not gates:
        return None
    ranked = sorted(gates, key=lambda gate: _RANKS.get(gate["outcome"], len(_RANKS)))
    chart = Chart("", limit_table([_limit_row(gate, data) for gate in ranked], "gates"))
    first = sorted(gates, key=lambda gate: gate["verdict"] == "passed")[:_ROWS]
    rows = []
    for gate in gates:
        figures = (value_text(gate), limit(gate), whole(gate["n_ok"]), percentage(gate["coverage"]))
        words = (gate["verdict"].replace("_", " "), gate["outcome"], Verbatim(gate["sentence"]))
        cells = (Verbatim(gate["name"]), gate["tier"], *figures, *words)
        rows.append(TableRow(cells, EVERYWHERE if gate in first else PAGES))
    table = Table(_COLUMNS, tuple(rows), shown_in=EVERYWHERE - HTML)
    return Section("gates", "Gates", (chart, table, *_against_baseline(gates), *_powers(data)), folded=True)


def _against_baseline(gates: Sequence[Mapping[str, Any]]) -> Iterator[Note]:
    """What gates against a baseline run say of a score over all cases, where they did not fail: the verdict has those."""
    for gate in gates:
        if "against" in gate and not gate["where"] and gate["value"] is not None and gate["outcome"] == "passed":
            interval = {"too_few": False, **gate["interval"]} if gate["interval"] else None
            difference = difference_text({"difference": gate["value"], "interval": interval, "n": gate["n_ok"]})
            only_base = gate["paired"]["only_base"]
            left_out = f", {whole(only_base)} more there only" if only_base else ""
            text = (f": {difference} over {plural(gate['n_ok'], 'case')} against ", Verbatim(gate["against"]), left_out)
            yield Note((Verbatim(gate.get("score") or gate["failure_mode"]), *text), shown_in=TERMINAL)


def _limit_row(gate: Mapping[str, Any], data: ReportData) -> LimitRow:
    verdict, outcome = gate["verdict"].replace("_", " "), gate["outcome"]
    kind = _KINDS.get(outcome, "")
    state = verdict if outcome == "passed" else f"{verdict}, {outcome}"
    remark = where_text(gate["where"], "where ") if gate["where"] else ""
    subject = gate.get("score") or gate.get("failure_mode") or ""
    tier = "" if gate["tier"] == "critical" else gate["tier"]
    signed = limit(gate).replace("at least ", "≥ ").replace("at most ", "≤ ")
    methods = len(data.metrics["by"].get("method") or ())
    pooled = f"mean of {methods} methods" if methods > 1 and "method" not in gate["where"] and "against" not in gate else ""
    words = ", ".join(part for part in (subject if subject != gate["name"] else "", remark, pooled, tier) if part)
    address = _failing(gate, data)
    return LimitRow(gate["name"], address, words, value_text(gate), signed, _gate_marks(gate), kind, state, gate["sentence"])


def _failing(gate: Mapping[str, Any], data: ReportData) -> str:
    """The address of the cases that fail the gate's score, or that have its failure mode, as far as a filter can say `where`."""
    where = {field: labels[0] for field, labels in gate["where"].items() if len(labels) == 1}
    method = where.pop("method", None)
    slices = [f"{field}:{label}" for field, label in where.items() if field in data.metrics["by"]]
    chosen = slices[0] if slices else None
    if "failure_mode" in gate:
        return page_address(method=method, slice=chosen, mode=gate["failure_mode"])
    if "unit" in gate or "preference_against" in gate:  # no case passes or fails by these
        return page_address(method=method, slice=chosen)
    return page_address(method=method, score=gate["score"], verdict="miss", slice=chosen)


def _gate_marks(gate: Mapping[str, Any]) -> Marks | None:
    """The value, its interval and the limits from 0 to 1, or where one of them lies outside, as far as they reach."""
    if gate["value"] is None:
        return None
    bounds = gate.get("interval") or {}
    few = bool(bounds.get("too_few"))
    ends = [None, None] if few else [bounds.get("low"), bounds.get("high")]
    limits = [end for end in (gate.get("min"), gate.get("max")) if end is not None]
    if "against" in gate:
        limits.append(allowed_change(gate) if "failure_mode" in gate else -allowed_change(gate))
    values = [value for value in (gate["value"], *ends, *limits) if value is not None]
    low, high = min(0.0, *values), max(*values, 0.0 if "against" in gate else 1.0 if max(values) <= 1 else max(values))
    if low < 0:
        reach = axis_limit(values)
        low, high = -reach, reach

    def place(value: float | None) -> float | None:
        return None if value is None else 100 * (value - low) / ((high - low) or 1.0)

    lines = tuple(100 * (end - low) / ((high - low) or 1.0) for end in limits)
    return Marks(place(gate["value"]), place(ends[0]), place(ends[1]), lines, few)


def _powers(data: ReportData) -> Iterator[Note]:
    """What each gate can tell with these cases; the terminal says it of those that could not decide, and why others could not."""
    level = data.metrics["scoring"]["level"]
    for gate in data.gates["gates"]:
        precision = precision_of(gate, level)
        undecided = undecided_words(gate, precision, level) if precision else ""
        if undecided:
            yield Note(("gate ", Verbatim(gate["name"]), f": {undecided}."))
        elif gate["outcome"] in ("blocked", "warned") and gate["verdict"] not in ("failed", "uncalibrated"):
            # the verdict has those that failed, and the start says what an uncalibrated judge needs
            _, _, reason = gate["sentence"].partition(f"{gate['verdict'].replace('_', ' ')}, ")
            text = Verbatim(f"gate {gate['name']}: {reason or gate['sentence']}")
            yield Note(text, "warning", TERMINAL, about=gate["verdict"])
        words = power_words(gate, precision, level) if precision else ""
        if words and words != undecided:
            yield Note(("gate ", Verbatim(gate["name"]), f": {words}."), shown_in=PAGES)


def summary_line(metrics: Mapping[str, Any]) -> str:
    """`101 cases on 40 questions, 3 methods, iteration 1`."""
    methods = metrics["by"].get("method") or {}
    several = f", {len(methods)} methods" if len(methods) > 1 else ""
    cases, questions = whole(metrics["n_cases"]), whole(metrics["n_samples"])
    return f"{cases} cases on {questions} questions{several}, {iterations_text(metrics)}"


def run_line(data: ReportData) -> RichText:
    """`run b692f569a644 of quickstart, 2026-11-29 18:27 UTC, took 8.2 s`; empty without a manifest."""
    if not data.run:
        return ""
    words = times_of(data)
    return ("run ", Verbatim(data.run["run_id"]), " of ", Verbatim(data.name), f", {words}" if words else "")


def notices(data: ReportData) -> Iterator[Note]:
    """What to know of the judge and of the figures, and the warnings of the run. A terminal has what the run is first, a page whether
    they can be trusted."""
    yield Note((f"{summary_line(data.metrics)}; ", *_judge(data)), shown_in=TERMINAL)
    yield from _trusted(data)
    if note := data.metrics["judge"].get("note"):
        yield Note(("The judge: ", Prose(note)), shown_in=EVERYWHERE - HTML)
    if data.cost["used"]["uses"]:
        yield from _calibration(data.metrics)
    for warning in data.metrics["warnings"]:
        yield Note(Verbatim(warning["text"]), "warning", about=warning["kind"])


def _trusted(data: ReportData) -> Iterator[Note]:
    """On the page: who judged and how far people agree, how much of what was due has a value, what failed, what it cost."""
    metrics, used = data.metrics, data.cost["used"]
    if used["uses"]:
        said = f", {note}" if (note := metrics["judge"].get("note")) else ""
        name = judge_name(metrics["judge"]["label"])
        yield Note((Strong("Judge "), Verbatim(name), Prose(said), *_pay(data)), shown_in=HTML)
        if any(code == "uncalibrated" for code, _ in _trust(data)):
            text = (Strong("Not calibrated"), ": how often people would agree is not known")
            yield Note(text, "warning", HTML)
    scores = metrics["overall"]["scores"].values()
    valued, wanted = sum(score["n_ok"] for score in scores), sum(due(score) for score in scores)
    if wanted:
        lost = {code: text for code, text in _trust(data) if code in ("judgements_failed", "system_errors")}
        failed = lost.get("judgements_failed") or ("" if lost else "no error")  # a warning says which systems failed
        share = "all" if valued == wanted else f"{min(valued / wanted, 0.999):.1%}"
        words = f"{share} of {whole(wanted)} due scores have a value{'; ' if failed else ''}{failed}"
        yield Note((Strong("Coverage "), words), "warning" if lost else "plain", HTML)


def _pay(data: ReportData) -> Iterator[Piece]:
    """`; 583 replies of the judge, no cost`."""
    for text in _remarks(data):
        yield from ("; ", *pieces_of(text))


def _judge(data: ReportData) -> tuple[Piece, ...]:
    """`judge rules-v1, no model (never calibrated)`."""
    if not data.cost["used"]["uses"]:
        return ("no judge",)
    trust = trust_words(data.metrics)
    name = Verbatim(judge_name(data.metrics["judge"]["label"]))
    return ("judge ", name, " (", Strong(trust) if trust.startswith("FAILED") else trust, ")")


def _calibration(metrics: Mapping[str, Any]) -> Iterator[Note]:
    """Which scores of the judge are calibrated against human labels, with the reason where a calibration was named."""
    states = metrics.get("calibration", {})
    if not any(state["calibrated"] is not None or state["why"] != NO_CALIBRATION for state in states.values()):
        return
    words = {True: "passed its calibration", False: "FAILED its calibration", None: "not calibrated"}
    kinds: Mapping[bool | None, Any] = {True: "good", False: "bad", None: "plain"}
    by_state = dict[tuple[bool | None, str], list[str]]()
    for name, state in states.items():
        by_state.setdefault((state["calibrated"], state["why"]), []).append(name)
    for (calibrated, why), names in by_state.items():
        text = (Strong("Against human labels:"), " ", Verbatim(", ".join(names)), f" {words[calibrated]}: ", Prose(why))
        yield Note(text, kinds[calibrated], PAGES)


_FIGURES = {
    "too few": "fewer than five questions; read such a figure with care.",
    "78% of 412": "the share of 412 cases that reached the threshold of the score (scoring.thresholds).",
    "coverage": "the share of the due judgements that have a value; shown where it is not 100 %.",
    "skipped": "does not apply to the case, or the system or the data left nothing to judge. It is no 0.",
    "error": "could not be judged. It is no 0.",
    "overall_score": "the weighted mean of the scores that a case has, each brought to 0..1. Filters and order of the cases use the "
    "same scale.",
}


def reading_section(data: ReportData) -> Section:
    """A note per kind of figure."""
    level = data.metrics["scoring"]["level"]
    interval = (
        f"the mean and its {level:.0%} interval; {level:.0%} of such intervals hold the true mean. Cases that share a "
        "question are counted as one cluster."
    )
    percent = {"x100": "a score of 0 to 1, printed times 100."} if data.settings.percent else {}
    figures = {"0.85 [0.82, 0.88]": interval, **percent, **_FIGURES}.items()
    notes = tuple(Note((Verbatim(figure), f": {words}")) for figure, words in figures)
    return Section("reading", "How to read it", notes, shown_in=MARKDOWN)


_NAMED = 5  # other methods that the sentence names
_GATES = 3  # gates that it names
_NAME = 40  # characters of a name
_FEW = 5  # questions, below which no interval is shown
_RANKED = ("worse", "inconclusive", "same", "better")
_STATES = {"better": "better", "worse": "worse", "same": "as good", "inconclusive": "inconclusive"}
_VERBS = {"better": "is better than", "worse": "is worse than", "same": "is as good as"}


def run_verdict(data: ReportData) -> dict[str, Any]:
    """`verdict.json`: `state`, `sentence`, `reasons` and `trust`, each reason a code and its words.

    The state is `blocked`, `warned` or `passed` of a run with gates, `no_evidence` where no score has a value, else that of the best
    method against the first one (`better`, `worse`, `same`, `inconclusive`), and `measured` for one method.
    """
    gates = list(_gates(data.gates["gates"]))
    if nothing := _no_evidence(data):
        state, lots = "no_evidence", [[("no_evidence", nothing)], gates]
    else:
        state, result = _methods(data) or _level(data)
        jury = [("jury", warning["text"]) for warning in data.metrics["warnings"] if warning["kind"] == "jury"]
        state, lots = gates[0][0] if gates else state, [gates, [*jury, *result]]
    parts = [verdict_document(state, reasons) for reasons in lots if reasons]
    return {
        "format": FORMAT,
        "state": state,
        "sentence": " ".join(f"{part['sentence']}." for part in parts),
        "reasons": [reason for part in parts for reason in part["reasons"]],
        "trust": [{"code": code, "text": text} for code, text in _trust(data)],
    }


def _gates(gates: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """`BLOCKED: 1 of 4 gates failed: reject 0.62 [0.53, 0.70], at least 0.7`; nothing without gates."""
    order = ("blocked", "warned", "reported")
    absent = sum(gate["verdict"] == "not_applicable" for gate in gates)
    others = [gate for gate in gates if gate["verdict"] not in ("passed", "not_applicable") and gate["outcome"] in order]
    others.sort(key=lambda gate: order.index(gate["outcome"]))
    blocking = [gate for gate in others if gate["outcome"] == "blocked"]
    named = [_gate(gate) for gate in others[:_GATES]]
    named += [f"{len(others) - _GATES} more"] if len(others) > _GATES else []
    named += [f"{absent} {'does' if absent == 1 else 'do'} not apply"] if absent else []
    of_all, passed = f"of {plural(len(gates), 'gate')}", len(gates) - len(others) - absent
    if blocking:
        verb = "failed" if all(gate["verdict"] == "failed" for gate in blocking) else "did not pass"
        yield "blocked", f"BLOCKED: {len(blocking)} {of_all} {verb}: {'; '.join(named)}"
    elif any(gate["outcome"] == "warned" for gate in others):
        yield "warned", f"not blocked, with warnings: {'; '.join([f'{passed} {of_all} passed', *named])}"
    elif gates:
        yield "passed", f"passed: {'; '.join([f'{passed} {of_all}', *named])}"


def _gate(gate: Mapping[str, Any]) -> str:
    """`reject 0.62 [0.53, 0.70], at least 0.7`; a verdict other than `failed`, and a tier that does not block, stand behind it."""
    figures = [] if gate["value"] is None else [value_text(gate), bracketed(gate["interval"])]
    run = f" against {on_one_line(gate['against'], _NAME)}" if "against" in gate else ""
    text = f"{' '.join(filter(None, [on_one_line(gate['name'], _NAME), *figures]))}, {limit(gate)}{run}"
    moved = gate.get("paired", {}).get("reason") == "judge_moved"
    notes = [] if gate["verdict"] == "failed" else [gate["verdict"].replace("_", " ") + ": the judge moved" * moved]
    notes += [] if gate["outcome"] == "blocked" else [gate["tier"]]
    return f"{text} ({', '.join(notes)})" if notes else text


def _no_evidence(data: ReportData) -> str:
    """`no evidence: 0 of 40 cases have a value of any score; first error: ...`; empty where any score has one."""
    cases = data.metrics["n_cases"]
    if not cases or any(score["n_ok"] for score in data.metrics["overall"]["scores"].values()):
        return ""
    first = f"; first error: {on_one_line(data.first_error, 300)}" if data.first_error else ""
    return f"no evidence: 0 of {plural(cases, 'case')} have a value of any score{first}"


def _methods(data: ReportData) -> tuple[str, list[tuple[str, str]]] | None:
    """`rerank is better than baseline: overall_score +0.192 [+0.076, +0.308] over 39 cases; pilot: too few`; None for one method."""
    method = best_method(data)
    if data.methods is None:
        return None
    if method is None:
        return "inconclusive", [
            ("no_pairs", "the methods share no question with a value on both sides: nothing tells which is better")
        ]
    candidates = data.methods["candidates"]
    name, score = next(iter(candidates[method].items()))
    base = on_one_line(data.methods["base"], _NAME)
    subject = on_one_line(method, _NAME)
    if is_few(score):
        few = change_text({**score, "interval": None})
        told = "too_few", f"{subject} against {base}: {name} {few}, n = {whole(score['n'])}: too few to tell"
    else:
        verb = _VERBS.get(score["state"], "is not shown to differ from")
        figures = change_text(times_100(score) if name in data.settings.percent else score)
        scale = " x100" if name in data.settings.percent else ""
        words = f"{subject} {verb} {base}: {name}{scale} {figures} over {plural(score['n'], 'case')}"
        told = score["state"], words
    reasons = with_reservations(told, score, OTHER_SHARE, (base, subject))
    reasons += [("other_methods", text) for text in _others(candidates, name, method)]
    for other, slices in data.methods["slices"].items():  # of each that is not worse as a whole the slice that fell most
        fallen = [row for row in slices if row["state"] == "worse"]
        if fallen and candidates[other][fallen[0]["score"]]["state"] != "worse":
            reasons.append(("slice_fell", f"{on_one_line(other, _NAME)} is {fallen_text(fallen)}"))
    return score["state"], reasons


def _others(candidates: Mapping[str, Mapping[str, Any]], name: str, method: str) -> Iterator[str]:
    """How the other methods stand to the first one, by name, and counted for many."""
    others = {other: scores[name] for other, scores in candidates.items() if other != method and name in scores}
    states = {
        other: "too few" if score["difference"] is None or is_few(score) else _STATES[score["state"]]
        for other, score in others.items()
    }
    if len(states) > _NAMED:
        counts = Counter(states.values()).most_common()
        yield f"the other {len(states)}: {', '.join(f'{n} {state}' for state, n in counts)}"
    else:
        yield from (f"{on_one_line(other, _NAME)}: {state}" for other, state in states.items())


def best_method(data: ReportData) -> str | None:
    """The method with the best verdict against the first one in the first headline score, and of these the one with the largest
    gain; those with too few questions come last. None where no method has a difference."""
    candidates = (data.methods or {"candidates": {}})["candidates"]
    firsts = {method: next(iter(scores.values()), None) for method, scores in candidates.items()}
    measured = {method: score for method, score in firsts.items() if score and score["difference"] is not None}

    def rank(method: str) -> tuple[int, float]:
        score = measured[method]
        gain = float(score["difference"] if score["higher_is_better"] else -score["difference"])
        return -1 if is_few(score) else _RANKED.index(score["state"]), gain

    return max(measured, key=rank, default=None)


def is_few(score: Mapping[str, Any]) -> bool:
    """Whether a difference is of too few questions to tell anything."""
    return bool(score["questions"] < _FEW or (score["interval"] or {}).get("too_few"))


def _level(data: ReportData) -> tuple[str, list[tuple[str, str]]]:
    """`overall_score 0.77 [0.70, 0.82], n = 100`: the first headline score over all cases, before it how many have none where that is
    under the coverage floor, and behind it the most frequent diagnosis."""
    name = next(iter(headline_names(data.metrics)), None)
    if name is None:
        return "measured", []
    score, reasons = data.metrics["overall"]["scores"][name], []
    cell = score_cell(score, percent=name in data.settings.percent)
    several = iteration_count(data.metrics)
    counted = f", {several} iterations" if several > 1 else ""
    if score["coverage"] is not None and score["coverage"] < data.metrics["scoring"]["coverage_floor"]:
        lost, all_due = (round(n / several) for n in (due(score) - score["n_ok"], due(score)))
        verb = "has" if lost == 1 else "have"
        reasons.append(("coverage", f"{whole(lost)} of {plural(all_due, 'case')} {verb} no value of {name}"))
    scale = " x100" if name in data.settings.percent else ""
    few = ": too few to tell" if cell.few else ""
    figures = cell.mean if cell.few else cell.estimate
    if (corrected := data.metrics.get("corrected", {}).get(name)) and corrected.get("mean") is not None:
        own = score_cell({**score, "mean": corrected["mean"], "interval": corrected["interval"]}, percent=bool(scale))
        figures = f"{own.estimate} corrected by {plural(corrected['labels'], 'label')}, {cell.mean} by the judge"
    reasons.append(("level", f"{name}{scale} {figures}, n = {whole(round(score['n_ok'] / several))}{counted}{few}"))
    if problem := max(data.metrics.get("diagnosis") or (), key=lambda problem: problem["n"], default=None):
        share = problem["n"] / (data.metrics["n_cases"] * several)
        reasons.append(("problem", f"{problem['name']} in {share:.1%} of the cases"))
    return "measured", reasons


def _trust(data: ReportData) -> Iterator[tuple[str, str]]:
    """Which scores passed or failed their calibration, one line where none was calibrated, and what failed."""
    metrics = data.metrics
    if data.cost["used"]["uses"]:
        states = metrics.get("calibration", {})
        failed = [name for name, state in states.items() if state["calibrated"] is False]
        passed = [name for name, state in states.items() if state["calibrated"]]
        for names, code, verdict in ((failed, "calibration_failed", "FAILED"), (passed, "calibrated", "passed")):
            if names:
                its = "its" if len(names) == 1 else "their"
                yield code, f"{', '.join(names)} {verdict} {its} calibration against human labels"
        if not (failed or passed or metrics["judge"]["calibrated"]):
            text = "the judge is not calibrated against human labels: how often its verdicts are right is not known"
            yield "uncalibrated", text
    if failed_judgements := metrics["n_failed_judgements"]:
        yield "judgements_failed", f"{plural(failed_judgements, 'judgement')} with an error"
    if errors := metrics["overall"]["operations"]["n_error"]:
        yield "system_errors", plural(errors, "system error")
