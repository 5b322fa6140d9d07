"""Agreement of two runs over the same cases, for the terminal and as the pages `agreement.md` and `agreement.html`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ragpipe.core.text import on_one_line
from ragpipe.report.charts import ShareRow, share_table
from ragpipe.report.model import (
    EVERYWHERE,
    PAGES,
    TERMINAL,
    CaseName,
    Chart,
    Note,
    PageLink,
    Prose,
    Report,
    RunVerdict,
    Section,
    Table,
    TableColumn,
    TableRow,
    Verbatim,
)
from ragpipe.report.results_section import SCORES
from ragpipe.report.styled_text import money, percentage, plural, whole
from ragpipe.score.normalisation import OVERALL

_DROPS = {"coverage": 6, "equal": 5, "cases": 4, "kappa": 3, "verdicts equal": 2, "flips": 1}
_HEADS = ("score", "cases", "old", "new", "difference", "equal", "verdicts equal", "kappa", "flips", "coverage")
_COEFFICIENTS = {"quadratic_kappa": "quadratic kappa", "pearson": "Pearson", "spearman": "Spearman"}
_NOTE = (
    "old and new: means of the cases with a value in both runs; difference: new less old, with its 95% interval, clustered "
    "by question; equal: share of equal values; kappa: agreement of the verdicts beyond chance; flips: cases that pass "
    "now (+) and no longer do (-)."
)
_ID = 60  # characters of a name


def agreement_report(agreement: Mapping[str, Any]) -> Report:
    """How often the verdicts of both judges differ, then `agreement_sections`."""
    verdict = RunVerdict("plain", "", Prose(_answer(agreement)), (Verbatim(f"old: run {agreement['old']['run_id']}"),))
    links = (PageLink("report", "report.html"), PageLink("old run", f"../{agreement['old']['run_id']}/report.html"))
    return Report("Old judge against new", "", "", verdict, (), tuple(agreement_sections(agreement)), pages=links)


def _answer(agreement: Mapping[str, Any]) -> str:
    """`a and b disagree on 23 of 100 verdicts by overall_score (kappa 0.477); most by groundedness: 21 of 86`."""
    judges = f"{agreement['old']['judge']} and {agreement['new']['judge']}"
    scores = {name: score["passed"] for name, score in agreement["scores"].items() if score.get("passed", {}).get("n")}
    if not scores:
        return f"{judges} have no verdict on the same case"
    apart = {name: round(passed["n"] * (1 - passed["agreement"])) for name, passed in scores.items()}
    most = max(scores, key=lambda name: apart[name] / scores[name]["n"])
    main = OVERALL.name if OVERALL.name in scores else most
    said = f"{judges} disagree on {whole(apart[main])} of {plural(scores[main]['n'], 'verdict')} by {main}"
    kappa = scores[main]["kappa"]["value"]
    said += "" if kappa is None else f" (kappa {kappa:.2f})"
    return said + (f"; most by {most}: {whole(apart[most])} of {whole(scores[most]['n'])}" if most != main else "")


def agreement_sections(agreement: Mapping[str, Any]) -> list[Section]:
    """A row per score with a value in either run, what was asked, and the cases whose verdicts changed. A terminal has eight scores."""
    scores = {name: score for name, score in agreement["scores"].items() if score["old"]["n_ok"] or score["new"]["n_ok"]}
    columns = [TableColumn(head, is_text=head == "score", drop=_DROPS.get(head, 0)) for head in _HEADS]
    columns += [TableColumn(head, shown_in=PAGES) for head in _COEFFICIENTS.values()]
    rows = [
        TableRow((Verbatim(name), *_figures(score)), EVERYWHERE if place < SCORES else PAGES)
        for place, (name, score) in enumerate(scores.items())
    ]
    title = f"old ({agreement['old']['judge']}) against new ({agreement['new']['judge']})"
    lines = [Note(Verbatim(line)) for line in [*question_lines(agreement), *absent_lines(agreement)]]
    if len(rows) > SCORES:
        lines.append(Note(f"{len(rows) - SCORES} more scores in agreement.md", shown_in=TERMINAL))
    table = Table(tuple(columns), tuple(rows), Verbatim(title))
    flips = [
        (Verbatim(name), CaseName.of(case), verdict, str(case["iteration"]), _number(case["old"]), _number(case["new"]))
        for name, score in scores.items()
        for direction, verdict in (("to_passed", "passed"), ("to_failed", "failed"))
        for case in score["flips"][direction]["examples"]
    ]
    flipped = Table.of(("score", "case", "now", "iteration", "old", "new"), flips, texts=3)
    changed = [_changed(name, score) for name, score in scores.items() if score["passed"]["n"]]
    chart = Chart(
        "Verdicts that differ", share_table(changed, "verdicts that differ, by score"), "Share of the cases with both verdicts."
    )
    return [
        Section("agreement", "Agreement", (*([chart] if changed else []), table, Note(_NOTE, shown_in=PAGES), *lines)),
        *([Section("flips", "Flips: the cases that moved most", (flipped,), shown_in=PAGES)] if flips else []),
    ]


def _changed(name: str, score: Mapping[str, Any]) -> ShareRow:
    share, n = 1 - score["passed"]["agreement"], score["passed"]["n"]
    return ShareRow(
        name, "", whole(round(share * n)), percentage(share), share, f"of {plural(n, 'verdict')}, {_flips(score)}", ""
    )


def _figures(score: Mapping[str, Any]) -> list[str]:
    verdicts, mean, interval = score["passed"], score["difference"]["mean"], score["difference"]["interval"]
    bounds = f" [{interval['low']:+.3f}, {interval['high']:+.3f}]" if interval else ""
    return [
        whole(score["n_both"]),
        _number(score["mean_old"]),
        _number(score["mean_new"]),
        "-" if mean is None else f"{mean:+.3f}{bounds}",
        percentage(score["equal_share"]),
        percentage(verdicts["agreement"]),
        _coefficient(verdicts["kappa"]) if verdicts["n"] else "-",
        _flips(score),
        _step(score["old"]["coverage"], score["new"]["coverage"], percentage),
        *(_coefficient(score[key]) if score["n_both"] else "-" for key in _COEFFICIENTS),
    ]


def question_lines(agreement: Mapping[str, Any]) -> list[str]:
    """What the new run asked compared with the old one, and what both cost."""
    asked, old, new = agreement["questions"], agreement["cost"]["old"], agreement["cost"]["new"]
    new_calls = asked["calls"] - asked["same_calls"]
    return [
        f"questions: {whole(asked['new'])} ({whole(asked['old'])} in {agreement['old']['run_id']}), "
        f"{whole(asked['new'] - asked['new_payloads'])} the same as there, {whole(asked['new_payloads'])} new",
        f"replies: {whole(asked['calls'])}, {whole(asked['same_calls'])} taken from {agreement['old']['run_id']}, "
        f"{whole(new_calls)} of this judge's own; cost {_cost(new)} (was {_cost(old)})",
    ]


def changed_rows(agreement: Mapping[str, Any]) -> tuple[list[list[str]], int]:
    """A row per score whose figures or verdicts changed, and the number of those that did not."""
    rows = []
    for name, score in agreement["scores"].items():
        old, new, flips = score["old"], score["new"], score["flips"]
        if old != new or flips["to_passed"]["n"] or flips["to_failed"]["n"]:
            means, rates = _step(old["mean"], new["mean"], _number), _step(old["pass_rate"], new["pass_rate"], percentage)
            thresholds = _step(old["threshold"], new["threshold"], lambda value: "-" if value is None else f"{value:g}")
            rows.append([name, means, thresholds, rates, _flips(score)])
    return rows, len(agreement["scores"]) - len(rows)


def absent_lines(agreement: Mapping[str, Any]) -> list[str]:
    """What only one of the runs has."""
    cases = agreement["cases"]
    lines = []
    if cases["only_old"] or cases["only_new"]:
        lines.append(f"cases in one run only: {whole(cases['only_old'])} old, {whole(cases['only_new'])} new")
    for side in ("old", "new"):
        if names := agreement[f"only_{side}_scores"]:
            lines.append(f"scores of the {side} run only: {', '.join(on_one_line(name, _ID) for name in names)}")
    return lines


def _flips(score: Mapping[str, Any]) -> str:
    flips = score["flips"]
    if score["new"]["threshold"] is None and not (flips["to_passed"]["n"] or flips["to_failed"]["n"]):
        return "-"
    return f"+{whole(flips['to_passed']['n'])} -{whole(flips['to_failed']['n'])}"


def _coefficient(coefficient: Mapping[str, Any]) -> str:
    value: float | None = coefficient["value"]
    return f"{value:.3f}" if value is not None else reason_words(coefficient["reason"])


def _step(old: float | None, new: float | None, text: Callable[[float | None], str]) -> str:
    """`0.80 -> 0.75`, and one figure where they are the same."""
    return text(new) if old == new else f"{text(old)} -> {text(new)}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _cost(used: Mapping[str, Any]) -> str:
    if used["calls"] == used["calls_computed"]:
        return f"{whole(used['calls'] - used['calls_failed'])} computed, no call"
    return f"{whole(used['calls'])} calls, {money(used['usd'])}"


_WORDS = {
    "no_scale": "the score is a count without a scale",
    "few_outside_largest_class": "fewer than 5 labels are outside the largest class, where kappa says next to nothing: label "
    "cases of the rare class too, and read agreement and AC1",
    "one_class": "all are of one class",
    "one_of_a_class": "a class has one case",
    "one_sample": "one question",
    "rests_on_one_question": "rests on one question",
    "no_pairs": "no case to compare",
    "one_pair": "one case to compare",
    "no_values": "no case",
    "one_value": "one case",
    "no_spread": "all are the same",
}


def reason_words(reason: str | None) -> str:
    """A reason of `stats` or of a calibration in words; `-` for none."""
    return "-" if reason is None else _WORDS.get(reason, reason.replace("_", " "))
