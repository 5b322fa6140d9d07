"""`report.html`: a run as one file to look at. It needs nothing beside it and asks nobody.

Every value passes through autoescape; a Content-Security-Policy lets only the page's own style and script act, named by
their hashes, and no address be loaded at all. Nothing in it tells the time or what this machine paid: equal runs are equal
bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragpipe.core.safe_text import printable
from ragpipe.reports.case_views import ShownCase
from ragpipe.reports.number_format import (
    cell,
    columns,
    hidden_overall,
    iterations_text,
    judged_times,
    method_names,
    price,
    whole,
)
from ragpipe.reports.sections.index import index_table
from ragpipe.reports.sections.iterations import final_lines, final_notes, final_title
from ragpipe.reports.sections.tables import (
    Table,
    cost_table,
    coverage_table,
    gates_table,
    operations_table,
    problem_tables,
    score_lines,
    shared_table,
    slice_tables,
    spread_tables,
    usage_table,
)
from ragpipe.reports.sections.usage import has_usage
from ragpipe.reports.settings import ReportSettings
from ragpipe.schema.index_coverage import IndexCoverage
from ragpipe.schema.sample import CaseKey
from ragpipe.schema.usage import Usage

if TYPE_CHECKING:
    from jinja2 import Template

_TEMPLATES = Path(__file__).resolve().parent / "templates"


def html(
    metrics: Mapping[str, Any],
    cost: Mapping[str, Any],
    cases: Sequence[ShownCase],
    settings: ReportSettings,
    *,
    name: str,
    gates: Mapping[str, Any] | None = None,
    index: IndexCoverage | None = None,
) -> str:
    """The page of one iteration. `gates` is gates.json, `final` is final/metrics.json where there are several iterations."""
    style, script = _file("report.css"), _file("report.js")
    overall = metrics["overall"]
    return (
        _template().render(
            style=style,
            script=script,
            style_hash=_source(style),
            script_hash=_source(script),
            name=name,
            counts=_counts(metrics),
            signature=metrics["signature"].split(" | "),
            uncalibrated=cost["used"]["uses"] > 0 and not metrics["judge"]["calibrated"],
            warnings=metrics["warnings"],
            tiles=_tiles(metrics, cost, settings),
            methods=list(columns(metrics)),
            scores=score_lines(metrics, settings.percent),
            final=_final(metrics, settings) if judged_times(metrics) > 1 else None,
            shared=shared_table(metrics, settings.percent),
            gates=gates_table(gates) if gates and gates["gates"] else None,
            verdict=_verdict_line(gates),
            problems=list(
                problem_tables(metrics, {CaseKey(case.sample_id, case.method, case.repeat): case.row for case in cases})
            ),
            slices=list(slice_tables(metrics, settings.percent)),
            facts=[
                *spread_tables(metrics, settings.percent),
                coverage_table(metrics),
                operations_table(metrics),
                *([usage_table(metrics)] if has_usage(metrics) else []),
                *([index_table(index)] if index else []),
                *([cost_table(cost)] if cost["used"]["uses"] else []),
            ],
            total=metrics["n_cases"],
            cases=cases,
            shown_note=_shown_note(metrics["n_cases"], cases),
            all_methods=list(dict.fromkeys(case.method for case in cases)),
            modes=list(dict.fromkeys(mode for case in cases for mode in case.modes)),
            score_names=sorted(overall["scores"], key=lambda one: one != "overall_score"),
            case_scores=_case_scores,
            reading=[*filter(None, [hidden_overall(metrics)]), *_reading(metrics)],
        )
        + "\n"
    )


def _counts(metrics: Mapping[str, Any]) -> str:
    methods = metrics["by"].get("method") or {}
    several = f", {len(methods)} methods" if len(methods) > 1 else ""
    return f"{whole(metrics['n_cases'])} cases on {whole(metrics['n_samples'])} questions{several}, {iterations_text(metrics)}"


def _tiles(metrics: Mapping[str, Any], cost: Mapping[str, Any], settings: ReportSettings) -> list[dict[str, str]]:
    """The few numbers to see first: the overall score of each method, errors, and what the judge cost."""
    found = []
    if "overall_score" in method_names(metrics):
        for method, group in list(columns(metrics).items())[:6]:
            text = cell(group["scores"].get("overall_score"))
            note = ", ".join(part for part in (text.interval, text.passed, "too few" if text.few else "") if part)
            found.append({"head": f"overall_score, {method}", "value": text.mean, "note": note})
    errors = metrics["n_failed_judgements"]
    system = metrics["overall"]["operations"]["n_error"]
    found.append(
        {"head": "judgements failed", "value": whole(errors), "note": f"errors of the system: {whole(system)}"}
    )
    used = cost["used"]
    asked = used["calls"] - used["calls_computed"]
    judge_cost = price(Usage.from_json(used)) if asked else "no call"
    found.append(
        {
            "head": "judge",
            "value": judge_cost,
            "note": f"{whole(used['calls'])} questions, {whole(asked)} to a provider",
        }
    )
    return found


def _verdict_line(gates: Mapping[str, Any] | None) -> dict[str, str] | None:
    """What the gates come to, in a line."""
    if not gates or not gates["gates"]:
        return None
    outcomes = [gate["outcome"] for gate in gates["gates"]]
    blocked, warned, n = outcomes.count("blocked"), outcomes.count("warned"), len(outcomes)
    names = ", ".join(gate["name"] for gate in gates["gates"] if gate["outcome"] == "blocked")
    if blocked:
        return {"kind": "bad", "text": f"Blocked: {blocked} of {n} gates ({names})"}
    also = f"; {warned} warned" if warned else ""
    return {"kind": "warn" if warned else "good", "text": f"Not blocked: {n} gate{'s' if n > 1 else ''}{also}"}


def _final(final: Mapping[str, Any], settings: ReportSettings) -> Table:
    heads, lines = final_lines(final, settings.percent)
    left = (0, 1) if heads[1] == "method" else (0,)
    return Table(final_title(final), heads, lines, left=left, notes=final_notes(final))


def _shown_note(total: int, cases: Sequence[ShownCase]) -> str:
    """Which cases stand on the page, and where the others are."""
    drawn = sum(case.drawn for case in cases)
    worst = len(cases) - drawn
    if len(cases) == total:
        return f"All {whole(total)} cases, the worst first."
    if not cases:
        return f"None of {whole(total)} cases stands here (report.html_cases=0): see records.parquet."
    return (
        f"{whole(len(cases))} of {whole(total)} cases: the {whole(worst)} worst first, then {whole(drawn)} drawn from the "
        "others. All stand in records.parquet; report.html_cases shows more."
    )


def _case_scores(case: ShownCase) -> str:
    """What filters and order need of a case: its scores as 0..1 and their verdicts."""
    found = [["overall_score", {"score": case.overall, "verdict": _verdict("ok", case.passed)}]]
    found += [[one.name, {"score": one.score, "verdict": _verdict(one.status, one.passed)}] for one in case.scores]
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _verdict(status: str | None, passed: bool | None) -> str:
    if status in ("error", "skipped"):
        return status
    return "none" if passed is None else "pass" if passed else "fail"


def _reading(metrics: Mapping[str, Any]) -> list[str]:
    level = metrics["scoring"]["level"]
    return [
        f"0.85 [0.82, 0.88]: the mean and its {level:.0%} interval: so often such an interval holds the true mean. Cases that "
        "share a question are counted as one cluster. Too few: fewer than five questions, shown grey. In the drawing the bar is this interval, the dot the mean, the upright line the threshold.",
        "x100: a score of 0 to 1, printed times 100. Below it the share of the cases that reached the threshold.",
        "skipped: does not apply to the case, or the system or the data gave nothing to judge. error: could not be judged. Neither is a 0.",
        "coverage: of the judgements that were due, those that came out.",
        "Marks in the contexts are the quotes that verdicts rest on: green supports a claim, red stands beside one that is "
        "not supported. Marks in the answer are claims that nothing supports.",
        "overall_score: the weighted mean of what a case has, each score brought to 0..1. Filters and order use this scale.",
    ]


def _source(text: str) -> str:
    """The name by which a Content-Security-Policy knows an inline style or script (https://www.w3.org/TR/CSP3/#framework-directive-source-list)."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()


def _file(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


@cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_plain,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["json"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment.get_template("report.html.jinja")


def _plain(value: Any) -> Any:
    """Texts with control characters shown; what is markup already (macros, style, script) stays as it is."""
    return printable(value) if type(value) is str else value
