"""`report.md`: the run on one page. Every text of data, answers and judges stands in code, where nothing is markup."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ragpipe.reports.number_format import (
    SHARED_NOTE,
    cell,
    columns,
    heading,
    hidden_overall,
    iterations_text,
    judged_times,
    method_names,
    parts_note,
    price,
    reasons_of,
    shared_lines,
    shared_title,
    whole,
)
from ragpipe.reports.sections.diagnosis import wrong_section
from ragpipe.reports.sections.distribution_tables import distribution_tables
from ragpipe.reports.sections.gates import gates_section
from ragpipe.reports.sections.index import index_section
from ragpipe.reports.sections.iterations import HEADS, final_lines, final_notes, final_title
from ragpipe.reports.sections.tables import OPERATIONS, asked_line, case_line, operation_lines, prices_line, spent_lines
from ragpipe.reports.sections.usage import TITLE, USAGE, has_usage, usage_lines, usage_notes
from ragpipe.reports.settings import ReportSettings
from ragpipe.reports.text_escape import case_name, code, code_block
from ragpipe.reports.text_escape import table as _table
from ragpipe.schema.index_coverage import IndexCoverage
from ragpipe.schema.usage import Usage

_SLICES_SHOWN = 20  # groups of one field; the rest stands in metrics.json


def markdown(
    metrics: Mapping[str, Any],
    cost: Mapping[str, Any],
    worst: Sequence[Mapping[str, Any]],
    settings: ReportSettings,
    gates: Mapping[str, Any] | None = None,
    index: IndexCoverage | None = None,
) -> str:
    """The page. `metrics` and `cost` are what `results_of` gives, `worst` are rows of the last iteration's
    `records.parquet`, `gates` is gates.json."""
    sections = (
        _head(metrics, judged=cost["used"]["uses"] > 0),
        _results(metrics, settings.percent),
        _final(metrics, settings.percent) if judged_times(metrics) > 1 else [],
        _shared(metrics, settings.percent),
        gates_section(gates) if gates else [],
        wrong_section(metrics),
        _slices(metrics, settings.percent),
        _distributions(metrics, settings.percent),
        _coverage(metrics),
        _operations(metrics),
        index_section(index) if index else [],
        _cost(cost),
        _worst(worst, list(metrics["overall"]["scores"]), settings, several=judged_times(metrics) > 1),
        _reading(metrics),
    )
    return "\n".join("\n".join(section) + "\n" for section in sections if section)


def _head(metrics: Mapping[str, Any], *, judged: bool) -> list[str]:
    lines = ["# Evaluation report", "", code(metrics["signature"], 4000), ""]
    cases, samples = whole(metrics["n_cases"]), whole(metrics["n_samples"])
    lines.append(f"{cases} cases on {samples} questions, {iterations_text(metrics)}.")
    if judged and not metrics["judge"]["calibrated"]:
        lines += [
            "",
            "**The judge is not calibrated against human labels:** how often its verdicts are right is not known.",
        ]
    for warning in metrics["warnings"]:
        lines += ["", f"**Warning:** {code(warning, 600)}"]
    return lines


def _results(metrics: Mapping[str, Any], percent: Collection[str]) -> list[str]:
    groups, names = columns(metrics), method_names(metrics)
    lines = [
        [
            code(heading(name, metrics, percent)) + _parts(name, metrics),
            *(_cell(groups[g]["scores"].get(name), name in percent) for g in groups),
        ]
        for name in names
    ]
    why = hidden_overall(metrics)
    return ["## Results", "", *_table(["score", *map(code, groups)], lines), *(["", code(why)] if why else [])]


def _parts(name: str, metrics: Mapping[str, Any]) -> str:
    mark, measured = parts_note(name, metrics)
    return f"<br>{mark}: {code(measured, 600)}" if mark else ""


def _final(final: Mapping[str, Any], percent: Collection[str]) -> list[str]:
    heads, lines = final_lines(final, percent)
    texts = len(heads) - len(HEADS)  # the columns of names; the rest are figures
    table = _table(heads, [[*map(code, line[:texts]), *line[texts:]] for line in lines])
    return [f"## {final_title(final)}", "", *table, *(part for note in final_notes(final) for part in ("", note))]


def _shared(metrics: Mapping[str, Any], percent: Collection[str]) -> list[str]:
    heads, lines = shared_lines(metrics, percent)
    if not lines:
        return []
    cells = [[code(name), questions, *("<br>".join(one.lines) for one in found)] for name, questions, found in lines]
    return [f"## {shared_title(metrics)}", "", *_table([*heads[:2], *map(code, heads[2:])], cells), "", SHARED_NOTE]


def _slices(metrics: Mapping[str, Any], percent: Collection[str]) -> list[str]:
    found: list[str] = []
    names = method_names(metrics)
    for field, groups in metrics["by"].items():
        if field == "method" or not groups:
            continue
        shown = list(groups)[:_SLICES_SHOWN]
        lines = [
            [code(group), whole(groups[group]["n_cases"])]
            + [_cell(groups[group]["scores"].get(name), name in percent) for name in names]
            for group in shown
        ]
        heads = [heading(name, metrics, percent) for name in names]
        found += ["", f"### By {code(field)}", "", *_table([code(field), "cases", *map(code, heads)], lines)]
        if len(groups) > len(shown):
            found += ["", f"{len(groups) - len(shown)} more in `metrics.json`."]
    return ["## By slice", *found] if found else []


def _distributions(metrics: Mapping[str, Any], percent: Collection[str]) -> list[str]:
    found: list[str] = []
    for one in distribution_tables(metrics, percent):
        lines = [[*map(code, line[: one.names]), *line[one.names :]] for line in one.lines]
        heads = [*map(code, one.heads)] if one.names == 1 else list(one.heads)  # grades are named by the user
        found += [
            "",
            f"### {one.title}",
            "",
            *_table(heads, lines),
            *(part for note in one.notes for part in ("", note)),
        ]
    return ["## Grades, best and worst", *found] if found else []


def _coverage(metrics: Mapping[str, Any]) -> list[str]:
    lines = []
    for name, score in metrics["overall"]["scores"].items():
        if name == "overall_score":
            continue
        share = "-" if score["coverage"] is None else f"{score['coverage']:.1%}"
        reasons = [f"{code(text, 80)} {whole(n)}" for text, n in reasons_of(score)]
        counts = [whole(score.get(key, 0)) for key in ("n_ok", "n_skipped", "n_error", "n_missing")]
        lines.append([code(name), *counts, share, ", ".join(reasons)])
    heads = ["score", "ok", "skipped", "error", "not measured", "coverage", "reasons"]
    return ["## Coverage and failures", "", *_table(heads, lines)] if lines else []


def _operations(metrics: Mapping[str, Any]) -> list[str]:
    lines = [
        [code(name), *counts, code(latency, 600) if latency != "-" else latency]
        for name, *counts, latency in operation_lines(columns(metrics))
    ]
    found = ["## Operations", "", *_table(list(OPERATIONS), lines)]
    if groups := metrics["by"].get("doc_type"):
        shown = dict(list(groups.items())[:_SLICES_SHOWN])
        rest = [
            [code(name), *counts, code(latency, 600) if latency != "-" else latency]
            for name, *counts, latency in operation_lines(shown)
        ]
        found += ["", *_table(["type of the documents", *OPERATIONS[1:]], rest)]
    return [*found, *_usage(metrics)]


def _usage(metrics: Mapping[str, Any]) -> list[str]:
    if not has_usage(metrics):
        return []
    lines = [[code(name), *figures] for name, *figures in usage_lines(columns(metrics))]
    return ["", f"### {TITLE}", "", *_table(list(USAGE), lines), "", " ".join(usage_notes(metrics))]


_BILL = ("calls", "calls_failed", "tokens_in", "tokens_out", "tokens_cached")


def _cost(cost: Mapping[str, Any]) -> list[str]:
    used = cost["used"]
    if not used["uses"]:
        return ["## Cost", "", "No judge was asked."]
    bills = [*used["by_metric"].items(), ("all", used)]
    lines = [[code(name), *(whole(bill[key]) for key in _BILL), price(Usage.from_json(bill))] for name, bill in bills]
    heads = ["metric", "calls", "failed", "tokens in", "tokens out", "cached", "price"]
    found = ["## Cost", "", *_table(heads, lines), "", *spent_lines(cost)]
    found += ["", asked_line(used, code), "", case_line(used)]
    if used["unpriced_reasons"]:
        unknown = ", ".join(f"{code(reason)} {whole(n)}" for reason, n in used["unpriced_reasons"].items())
        found += ["", f"Calls without a known price: {unknown}."]
    return [*found, "", prices_line(cost, code)] if cost["prices"] else found


def _worst(
    worst: Sequence[Mapping[str, Any]], names: Sequence[str], settings: ReportSettings, *, several: bool
) -> list[str]:
    """`worst` stand in the data of the last iteration."""
    if not worst:
        return []
    heading_line = f"## Lowest cases of iteration {worst[0]['iteration']}" if several else "## Lowest cases"
    return [heading_line, *(line for row in worst for line in _case(row, names, settings))]


def _case(row: Mapping[str, Any], names: Sequence[str], settings: ReportSettings) -> Iterator[str]:
    overall = row["overall_score"]
    yield from ("", f"### {case_name(row, code)}", "")
    if overall is not None:
        yield from (f"overall_score {overall:.2f}", "")
    for name in names:
        if row.get(f"{name}.passed") is False and name in (row["failed_by"] or ()):
            reason = row.get(f"{name}.reason")
            yield f"- {code(name)} {row[name]:g}" + (f": {code(reason, 300)}" if reason else "")
        elif row.get(f"{name}.status") == "error":
            yield f"- {code(name)} error: {code(row.get(f'{name}.reason') or '', 300)}"
    yield from ("", "Question", "", code_block(row["question"] or "", settings.text_chars))
    yield from ("", "Answer", "", code_block(row["answer"] or "", settings.text_chars))


def _reading(metrics: Mapping[str, Any]) -> list[str]:
    level = metrics["scoring"]["level"]
    return [
        "## How to read it",
        "",
        f"- `0.85 [0.82, 0.88]`: the mean and its {level:.0%} interval: so often such an interval holds the true mean. Rows "
        "that share a question are counted as one cluster. `too few`: fewer than five questions, read it with care.",
        "- `coverage`: of the judgements that were due the share that came out; shown where it is not 100 %.",
        "- `x100`: a score of 0 to 1, printed times 100.",
        "- `78% of 412`: the share of 412 cases that reached the score's threshold (`scoring.thresholds`).",
        "- `skipped` does not apply to the case, or the system or the data gave nothing to judge; `error` could not be "
        "judged. Neither is a 0.",
        "- `overall_score`: the weighted mean of what a case has, each score brought to 0..1.",
        "- The cost of a reply that several metrics share stands with the first of them.",
    ]


def _cell(score: Mapping[str, Any] | None, percent: bool) -> str:
    return "<br>".join(cell(score, percent=percent).lines)
