"""What is wrong and what to try: the diagnoses and failure modes of `metrics.json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ragpipe.pages.charts_rows import ShareRow, share_table
from ragpipe.pages.page_address import page_address
from ragpipe.reports.metrics_view import counted_per_iteration, iteration_count, method_groups, share_of_cases
from ragpipe.reports.missing_replies import advice_for
from ragpipe.reports.model import (
    EVERYWHERE,
    HTML,
    PAGES,
    TERMINAL,
    CaseName,
    Cell,
    Chart,
    ItemList,
    Note,
    Prose,
    Section,
    Table,
    TableColumn,
    TableRow,
    Verbatim,
    joined,
    pieces_of,
)
from ragpipe.reports.number_format import whole
from ragpipe.reports.report_data import ReportData

_TERMINAL_ROWS = 5  # diagnoses on the terminal
_BARS, _BARS_ALONE = 4, 6  # failure modes that stand open on the page: with gates below them, and without
_TERMINAL_CASES = 3  # examples of each


def diagnosis_section(data: ReportData) -> Section | None:
    """The diagnoses with advice and examples, and the failure modes by method; None when nothing is wrong."""
    metrics = data.metrics
    tables = [*_diagnoses(metrics), *_failure_modes(metrics)]
    if not tables:
        return None
    n_open = _BARS if data.gates["gates"] else _BARS_ALONE
    per_iteration = (Note(text, shown_in=PAGES) for text in counted_per_iteration(metrics))
    return Section("problems", "What is wrong", (*_bars(metrics, n_open), *tables, *per_iteration), folded=True)


def _bars(metrics: Mapping[str, Any], n_open: int) -> Iterator[Chart]:
    """The `n_open` most frequent diagnoses as bars with what to try, as the terminal names them, and the others folded; the failure modes
    where there is no diagnosis."""
    rows = [
        _bar(diagnosis["name"], diagnosis["n"], diagnosis, metrics)
        for diagnosis in sorted(metrics.get("diagnosis") or (), key=lambda diagnosis: -int(diagnosis["n"]))
    ] or _mode_bars(metrics)
    label = "what is wrong, by share of the cases"
    yield Chart("cases, share of all", share_table(rows[:n_open], label), shown_in=HTML)
    if len(rows) > n_open:
        yield Chart(f"{len(rows) - n_open} more", share_table(rows[n_open:], f"{label}: the rarer ones"), folded=True)


def _mode_bars(metrics: Mapping[str, Any]) -> list[ShareRow]:
    """A row per failure mode that occurred, the most frequent first."""
    modes = metrics["overall"].get("failure_modes") or {}
    by_share = sorted(modes.items(), key=lambda item: -int(item[1]["n"]))
    return [_bar(name, mode["n"], None, metrics) for name, mode in by_share if mode["n"]]


def _bar(name: str, n: int, diagnosis: Mapping[str, Any] | None, metrics: Mapping[str, Any]) -> ShareRow:
    """A row whose link shows the cases with this diagnosis or failure mode."""
    share = n / max(metrics["n_cases"] * iteration_count(metrics), 1)
    message, advice = "", ""
    if diagnosis is not None:
        message, advice = diagnosis["message"], next(iter(advice_for(diagnosis, metrics)), "")
    return ShareRow(
        name,
        page_address(mode=name),
        whole(n),
        f"{share:.1%}",
        share,
        message,
        advice,
    )


def _diagnoses(metrics: Mapping[str, Any]) -> Iterator[Table | Note]:
    """The most frequent diagnosis first, ties in their order of priority."""
    diagnoses = sorted(metrics.get("diagnosis") or (), key=lambda diagnosis: -int(diagnosis["n"]))
    if not diagnoses:
        return
    columns = (
        TableColumn("diagnosis", is_text=True),
        TableColumn("cases"),
        TableColumn("what is wrong", is_text=True),
        TableColumn("try", is_text=True),
        TableColumn("for example", is_text=True),
    )
    rows = (
        TableRow(_diagnosis_cells(diagnosis, metrics), EVERYWHERE if place < _TERMINAL_ROWS else PAGES)
        for place, diagnosis in enumerate(diagnoses)
    )
    yield Table(columns, tuple(rows), "Diagnosis", layout="entries")
    if (more := len(diagnoses) - _TERMINAL_ROWS) > 0:
        yield Note(f"and {more} more under `What is wrong` in the report", shown_in=TERMINAL)


def _diagnosis_cells(diagnosis: Mapping[str, Any], metrics: Mapping[str, Any]) -> tuple[Cell, ...]:
    advice = tuple(map(Prose, advice_for(diagnosis, metrics)))
    examples = tuple(CaseName.of(case) for case in diagnosis["examples"])
    return (
        Verbatim(diagnosis["name"]),
        share_of_cases(diagnosis["n"], metrics),
        Prose(diagnosis["message"]),
        ItemList(advice, terminal_items=1),
        ItemList(examples, separator=", ", terminal_items=_TERMINAL_CASES),
    )


def _failure_modes(metrics: Mapping[str, Any]) -> Iterator[Table | Note]:
    """The most frequent mode first. The terminal shows the counted items alone."""
    overall, groups = metrics["overall"], method_groups(metrics)
    modes = {
        name: mode for name, mode in (overall.get("failure_modes") or {}).items() if mode["n"] or mode.get("n_items")
    }
    if not modes:
        return
    rows = (
        TableRow(_mode_cells(name, mode, metrics))
        for name, mode in sorted(modes.items(), key=lambda item: -item[1]["n"])
    )
    figures = ("cases", "of all cases", "of cases with one", "of all modes", "cases where it can be decided", "items")
    by_method = (TableColumn(Verbatim(method)) for method in groups)
    columns = (TableColumn("failure mode", is_text=True), *map(TableColumn, figures), *by_method)
    yield Table(columns, tuple(rows), "Failure modes", shown_in=PAGES)
    yield Note(
        f"{whole(overall['n_with_failure_mode'])} cases have a failure mode, some have several; "
        f"{whole(overall['n_failed_without_mode'])} cases failed a score but match no failure mode. Items are counted in all "
        "cases, also in those that passed.",
        shown_in=PAGES,
    )
    if undecided := metrics.get("not_applicable", {}).get("failure_modes"):
        names = pieces_of(joined(tuple(map(Verbatim, undecided)), ", "))
        yield Note(("Not applicable, because this run lacks their scores: ", *names, "."), shown_in=PAGES)
    if items := [_items(name, mode, metrics) for name, mode in modes.items() if "n_items" in mode]:
        counts = pieces_of(joined(items, ", "))
        yield Note(("items: ", *counts, " (in all cases, also in those that passed)"), shown_in=TERMINAL)


def _mode_cells(name: str, mode: Mapping[str, Any], metrics: Mapping[str, Any]) -> tuple[Cell, ...]:
    by_method = (group["failure_modes"].get(name, {}).get("n", 0) for group in method_groups(metrics).values())
    return (
        Verbatim(name),
        whole(mode["n"]),
        *mode_shares(mode["n"], metrics),
        whole(mode["n_judged"]),
        _items(name, mode, metrics),
        *map(whole, by_method),
    )


def mode_shares(n: int, metrics: Mapping[str, Any]) -> tuple[str, str, str]:
    """`n` cases with a failure mode as a share of all cases, of those with any mode, and of all modes together."""
    overall = metrics["overall"]
    cases = metrics["n_cases"] * iteration_count(metrics)
    of_cases, of_with_mode, of_modes = (
        f"{n / total:.1%}" if total else "-"
        for total in (cases, overall["n_with_failure_mode"], overall["n_failure_modes"])
    )
    return of_cases, of_with_mode, of_modes


def _items(name: str, mode: Mapping[str, Any], metrics: Mapping[str, Any]) -> Prose:
    """`23 unsupported claims`: what is counted beside the cases of a failure mode; empty where nothing is."""
    return Prose(f"{whole(mode['n_items'])} {metrics['failure_items'][name]}" if "n_items" in mode else "")
