"""The verdict: whether the gates let the run pass, what the methods are worth, and what to know before trusting it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ragpipe.reports.metrics_view import headline_names, score_cell
from ragpipe.reports.model import Piece, RichText, RunVerdict, Verbatim, pieces_of
from ragpipe.reports.number_format import bracketed, decimal, is_free, plural, price, whole
from ragpipe.reports.report_data import ReportData
from ragpipe.schema.usage import Usage
from ragpipe.scoring.gates.gate_sentences import limit, value_text

_STATES = {"better": "better", "worse": "worse", "same": "as good", "inconclusive": "inconclusive"}
_FEW = 5  # questions, below which no interval is shown


def verdict_of(data: ReportData) -> RunVerdict:
    """The first thing that a page says. Red where gates block or nothing was judged, green where all gates passed."""
    kind, lead, sentence = _gates(data.gates["gates"])
    sentences = [sentence] if sentence else []
    if nothing := _no_evidence(data):
        return RunVerdict("bad", "no evidence", (*sentences, nothing), tuple(_remarks(data)))
    if result := (_difference(data) or _level(data)):
        sentences.append(result)
    return RunVerdict(kind, lead, tuple(sentences), tuple(_remarks(data)))


def _gates(gates: Sequence[Mapping[str, Any]]) -> tuple[Any, str, RichText]:
    """(kind, lead, sentence): `BLOCKED`, `1 of 4 gates: reject 0.62 [0.53, 0.70], at least 0.7.`"""
    if not gates:
        return "plain", "no gates", ""
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
    few = score["questions"] < _FEW or (score["interval"] or {}).get("too_few")
    base = Verbatim(data.methods["base"])
    bounds = "" if few or not score["interval"] else f" {_gain(score, factor, places)}"
    measure: tuple[Piece, ...] = (" in ", Verbatim(name))
    pairs = f" over {plural(score['n'], 'pair')}."
    subject = Verbatim(method)
    if few:
        return (subject, " against ", base, *measure, f": n = {whole(score['n'])}, too few to tell.")
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
    """How the other methods stand to the first one: by name for one, counted for several."""
    states = {name: score["state"] for name, score in measured.items() if name != method}
    if len(states) == 1:
        ((name, state),) = states.items()
        yield from (" ", Verbatim(name), f": {_STATES[state]}.")
    elif states:
        counts = Counter(states.values())
        yield f" The other {len(states)}: {', '.join(f'{n} {_STATES[state]}' for state, n in counts.most_common())}."


def best_method(data: ReportData) -> str:
    """The method with the largest gain over the first one in the first headline score; the first that has none."""
    candidates = (data.methods or {})["candidates"]

    def gain(method: str) -> float:
        score = next(iter(candidates[method].values()), None)
        if score is None or score["difference"] is None:
            return float("-inf")
        return float(score["difference"] if score["higher_is_better"] else -score["difference"])

    return str(max(candidates, key=gain))


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
    return (Verbatim(name), f"{scale} {cell.estimate}, n = {whole(score['n_ok'])}.")


def _remarks(data: ReportData) -> Iterator[RichText]:
    """What to know before trusting it, each in a few words."""
    metrics, used = data.metrics, data.cost["used"]
    if used["uses"] and metrics["judge"]["calibrated"] is not True:
        yield "the judge is not calibrated against human labels"
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
