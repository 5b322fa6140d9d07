"""The tables of the page, as plain rows of text: what metrics.json, cost.json and gates.json say, in people's words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragpipe.reports.missing_replies import advice_for
from ragpipe.reports.number_format import (
    SHARED_NOTE,
    cell,
    columns,
    each_iteration,
    heading,
    items_of,
    judged_times,
    method_names,
    mode_shares,
    money,
    parts_note,
    price,
    reasons_of,
    shared_lines,
    shared_title,
    whole,
)
from ragpipe.reports.sections.distribution_tables import distribution_tables
from ragpipe.reports.sections.usage import TITLE, USAGE, usage_lines, usage_notes
from ragpipe.reports.text_escape import case_name
from ragpipe.schema.sample import CaseKey
from ragpipe.schema.usage import Usage
from ragpipe.scoring.gates.gate_rules import limit, number

GROUPS_SHOWN = 40  # groups of one breakdown; the rest stands in metrics.json


@dataclass(frozen=True)
class Table:
    """Rows of text under heads. Columns in `left` are texts, the others numbers; `more` rows are left out.

    A cell may be a list of cases: what each is called, and its row where it stands on the page.
    """

    title: str
    heads: Sequence[str]
    lines: Sequence[Sequence[str | list[tuple[str, int | None]]]]
    left: Collection[int] = (0,)
    notes: Sequence[str] = ()
    count: int = 0
    more: int = 0


@dataclass(frozen=True)
class Plot:
    """A mean, its interval and the threshold as places on an axis of 0 to 100; None where there is none."""

    mean: float
    low: float | None
    high: float | None
    threshold: float | None


@dataclass(frozen=True)
class ScoreLine:
    """A score's row: how it is called and read, and a cell for each group."""

    head: str
    note: str
    cells: list[dict[str, Any]] = field(default_factory=list)


def score_lines(metrics: Mapping[str, Any], percent: Collection[str]) -> list[ScoreLine]:
    """Scores down, methods across."""
    groups, declared = columns(metrics), metrics["declared"]
    found = []
    for name in method_names(metrics):
        threshold = declared[name]["threshold"]
        note = "" if threshold is None else f"passes {_bound(declared[name])} {_scaled(threshold, name in percent)}"
        mark, measured = parts_note(name, metrics)
        notes = [note, f"{mark}: {measured}"] if mark else [note]
        line = ScoreLine(heading(name, metrics, percent), "; ".join(filter(None, notes)))
        for group in groups.values():
            score = group["scores"].get(name)
            text, plot = cell(score, percent=name in percent), _plot(score, declared[name])
            line.cells.append({"text": text, "plot": plot})
        found.append(line)
    return found


def shared_table(metrics: Mapping[str, Any], percent: Collection[str]) -> Table | None:
    """The methods on the questions that they share; None where these are all of them."""
    heads, lines = shared_lines(metrics, percent)
    if not lines:
        return None
    texts = [[name, questions, *("\n".join(one.lines) for one in cells)] for name, questions, cells in lines]
    return Table(shared_title(metrics), heads, texts, notes=[SHARED_NOTE])


def _bound(scale: Mapping[str, Any]) -> str:
    return "from" if scale["higher_is_better"] else "up to"


def _scaled(value: float, percent: bool) -> str:
    return f"{value * 100:g}" if percent else f"{value:g}"


def _plot(score: Mapping[str, Any] | None, scale: Mapping[str, Any]) -> Plot | None:
    low, high = scale["low"], scale["high"]
    if score is None or score["mean"] is None or low is None or high is None or high == low:
        return None
    mean, bounds = score["mean"], score["interval"]

    def place(value: float) -> float:
        return round(min(1.0, max(0.0, float(value - low) / float(high - low))) * 100, 2)

    threshold = None if scale["threshold"] is None else place(scale["threshold"])
    return Plot(
        place(mean), place(bounds["low"]) if bounds else None, place(bounds["high"]) if bounds else None, threshold
    )


def gates_table(gates: Mapping[str, Any]) -> Table:
    """Every gate of gates.json with what it asks for, what was found, and the sentence that says why."""
    lines = [
        [
            gate["name"],
            gate["tier"],
            gate["verdict"],
            gate["outcome"],
            _value(gate),
            limit(gate),
            whole(gate["n_ok"]),
            "-" if gate["coverage"] is None else f"{gate['coverage']:.1%}",
            gate["sentence"],
        ]
        for gate in gates["gates"]
    ]
    heads = ["gate", "tier", "verdict", "outcome", "value", "limit", "cases", "coverage", "in words"]
    return Table("Gates", heads, lines, left=(0, 1, 2, 3, 5, 8))


def _value(gate: Mapping[str, Any]) -> str:
    return "-" if gate["value"] is None else number(gate["value"], gate)


def problem_tables(metrics: Mapping[str, Any], on_page: Mapping[CaseKey, int]) -> Iterator[Table]:
    """The diagnoses with their advice, and the failure modes by method; nothing where there are none.

    `on_page` are the rows of the cases that the page holds.
    """
    if made := metrics.get("diagnosis"):
        lines = []
        for one in made:
            examples = [(case_name(case), on_page.get(CaseKey.of(case))) for case in one["examples"]]
            figures = [whole(one["n"]), f"{one['n'] / (metrics['n_cases'] * judged_times(metrics)):.1%}"]
            lines.append([one["name"], *figures, one["says"], "\n".join(advice_for(one, metrics)), examples])
        heads = ["diagnosis", "cases", "share", "what is wrong", "what to try", "for example"]
        yield Table("Diagnosis", heads, lines, left=(0, 3, 4, 5))
    overall, groups = metrics["overall"].get("failure_modes") or {}, columns(metrics)
    there = {name: mode for name, mode in overall.items() if mode["n"] or mode.get("n_items")}
    if there:
        lines = [
            [name, whole(mode["n"]), *mode_shares(mode["n"], metrics)]
            + [items_of(name, mode, metrics)]
            + [whole(group["failure_modes"].get(name, {}).get("n", 0)) for group in groups.values()]
            for name, mode in sorted(there.items(), key=lambda pair: -pair[1]["n"])
        ]
        heads = ["failure mode", "cases", "of all cases", "of cases with one", "of all modes", "items", *groups]
        notes = [
            "A case can have several failure modes. Items are those of all cases, also of those that passed.",
            *each_iteration(metrics),
        ]
        if unknown := metrics.get("not_applicable", {}).get("failure_modes"):
            notes.append(f"Not told, because their scores are not in this run: {', '.join(unknown)}.")
        yield Table("Failure modes", heads, lines, notes=notes)


def slice_tables(metrics: Mapping[str, Any], percent: Collection[str]) -> Iterator[Table]:
    """A table for every breakdown but that by method, which stands above."""
    names = method_names(metrics)
    for by, groups in metrics["by"].items():
        if by == "method" or not groups:
            continue
        shown = list(groups)[:GROUPS_SHOWN]
        lines = [
            [group, whole(groups[group]["n_cases"])]
            + ["\n".join(cell(groups[group]["scores"].get(n), percent=n in percent).lines) for n in names]
            for group in shown
        ]
        heads = [by, "cases", *(heading(name, metrics, percent) for name in names)]
        yield Table(by, heads, lines, count=len(groups), more=len(groups) - len(shown))


def spread_tables(metrics: Mapping[str, Any], percent: Collection[str]) -> Iterator[Table]:
    """Grades and classes with counts beside shares, then best and worst per method."""
    for one in distribution_tables(metrics, percent):
        yield Table(one.title, one.heads, one.lines, left=range(one.names), notes=one.notes)


def coverage_table(metrics: Mapping[str, Any]) -> Table:
    """How many judgements of each score came out, and why not."""
    lines = []
    for name, score in metrics["overall"]["scores"].items():
        share = "-" if score["coverage"] is None else f"{score['coverage']:.1%}"
        reasons = ", ".join(f"{text} {whole(n)}" for text, n in reasons_of(score))
        counts = [whole(score.get(key, 0)) for key in ("n_ok", "n_skipped", "n_error", "n_missing")]
        lines.append([name, *counts, share, reasons])
    heads = ["score", "ok", "skipped", "error", "not measured", "coverage", "reasons"]
    return Table("Coverage and failures", heads, lines, left=(0, 6))


def operations_table(metrics: Mapping[str, Any]) -> Table:
    """How the systems ran, whatever was measured."""
    lines = operation_lines(columns(metrics))
    notes = (
        ["By type of document, category and other fields in metrics.json, under `by`."]
        if len(metrics["by"]) > 1
        else []
    )
    return Table("Operations", OPERATIONS, lines, left=(0, 6), notes=notes)


def usage_table(metrics: Mapping[str, Any]) -> Table:
    """What the systems used for their answers; only where `has_usage`."""
    return Table(TITLE, USAGE, usage_lines(columns(metrics)), notes=usage_notes(metrics))


OPERATIONS = ("method", "cases", "errors", "timeouts", "empty answers", "abstained", "latency p50 / p95 (ms)")


def operation_lines(groups: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """A row for each group: counts with their share of the cases, and the latency of each stage of the system."""
    lines = []
    for name, group in groups.items():
        found, n = group["operations"], group["n_cases"]
        latency = ", ".join(f"{s} {t['p50']:,.0f} / {t['p95']:,.0f}" for s, t in found["latency_ms"].items())
        counts = [_counted(found[f"n_{kind}"], n) for kind in ("error", "timeout", "empty", "abstained")]
        lines.append([name, whole(n), *counts, latency or "-"])
    return lines


def _counted(count: int, n: int) -> str:
    return f"{whole(count)} ({count / n:.1%})" if count else "0"


_BILL = ("calls", "calls_failed", "tokens_in", "tokens_out", "tokens_cached")


def cost_table(cost: Mapping[str, Any]) -> Table:
    """What the results rest on (`used`); what this folder's own processes paid is volatile and stands in cost.json."""
    used = cost["used"]
    bills = [*used["by_metric"].items(), ("all", used)]
    lines = [[name, *(whole(bill[key]) for key in _BILL), price(Usage.from_json(bill))] for name, bill in bills]
    notes = ["A reply that several metrics share stands with the first of them."]
    if used["unpriced_reasons"]:
        notes.append(
            "Without a known price: " + ", ".join(f"{why} {whole(n)}" for why, n in used["unpriced_reasons"].items())
        )
    notes += [asked_line(used), case_line(used)]
    notes += [prices_line(cost)] if cost["prices"] else []
    heads = ["metric", "calls", "failed", "tokens in", "tokens out", "cached", "price"]
    return Table("Cost of the judge", heads, lines, notes=notes)


def prices_line(cost: Mapping[str, Any], shown: Callable[[str], str] = str) -> str:
    """`Prices: openai/gpt-4o-mini by litellm 1.99.0.` The figures themselves stand in cost.json."""
    told = (f"{shown(name)} by {shown(one['source'])}" for name, one in cost["prices"].items())
    return f"Prices: {', '.join(told)}."


def spent_lines(cost: Mapping[str, Any]) -> list[str]:
    """What this folder's own processes paid, by the ledger; what of it was for nothing, and what others paid."""
    spent, saved, wasted = cost["spent"], cost["saved"], cost["wasted"]
    own = f"{whole(spent['calls'])} calls, {price(Usage.from_json(spent))}"
    found = [f"Paid by this folder's own processes: {own}."]
    if wasted["replies"]:
        found.append(
            f"Of it {whole(wasted['replies'])} answers were of no use (tried again, failed): {money(wasted['usd'])}."
        )
    if saved["calls"]:
        found.append(f"Paid by others before: {whole(saved['calls'])} calls, {money(saved['usd'])}.")
    if more := cost["repriced"]["usd"]:
        found.append(
            f"Prices have changed since: what it paid for costs {money(abs(more))} {'more' if more > 0 else 'less'} now."
        )
    return [" ".join(found)]


def case_line(used: Mapping[str, Any]) -> str:
    """`A case on average: 3.2 calls, 1,234.0 tokens in, 56.0 out, 820 ms, $0.0012.`, over all iterations together."""
    each, times = used["per_case"], used["case_latency_ms"]
    parts = [f"{each['calls']:,.1f} calls"] if each["calls"] is not None else []
    parts += [f"{each['tokens_in']:,.1f} tokens in, {each['tokens_out']:,.1f} out"] if each["tokens_in"] else []
    parts += [f"{times['sum'] / times['n']:,.0f} ms (of the cases with a measured time)"] if times else []
    return f"A case on average: {', '.join([*parts, money(each['usd'])])}."


def asked_line(used: Mapping[str, Any], shown: Callable[[str], str] = str) -> str:
    """How the judge ran: latency, failures by kind (made harmless by `shown`), retries."""
    times, cases = used["latency_ms"], used["case_latency_ms"]
    parts = [f"a call p50 / p95 {times['p50']:,.0f} / {times['p95']:,.0f} ms"] if times and "p50" in times else []
    parts += [f"a case {cases['p50']:,.0f} / {cases['p95']:,.0f} ms"] if cases and "p50" in cases else []
    if used["error_rate"] is not None:
        rates = ((name, used[f"{name}_rate"]) for name in ("error", "timeout", "empty"))
        parts.append(", ".join(f"{name} rate {rate:.1%}" for name, rate in rates))
    parts += [f"{shown(kind)} {whole(n)}" for kind, n in used["failures"].items()]
    parts.append(f"{whole(used['retries'])} retries")
    return f"The judge: {'; '.join(parts)}."
