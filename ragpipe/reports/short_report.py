"""The short result of a run on a terminal (`report.detail=short`): verdict, scores by method, problems, warnings, cost, page."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ragpipe.reports.console import Console
from ragpipe.reports.metrics_view import iteration_count, table_scores
from ragpipe.reports.model import CaseName
from ragpipe.reports.number_format import is_recorded, money, plural, price, whole
from ragpipe.reports.report_data import ReportData
from ragpipe.reports.sections.diagnosis_section import index_warnings
from ragpipe.reports.short_scores import baseline_lines, score_lines, verdict_lines
from ragpipe.reports.styled_text import (
    GAP,
    Caution,
    Grey,
    Head,
    Line,
    Screen,
    cut,
    cut_in_the_middle,
    table_columns,
    table_lines,
    wrapped,
)
from ragpipe.schema.run_warning import warning_texts
from ragpipe.schema.usage import Usage
from ragpipe.scoring.aggregate import due
from ragpipe.scoring.gates.gate_power import precision_of, undecided_words


def print_short_report(data: ReportData, page: str, console: Console) -> None:
    """Print the short result; warnings go to standard error. `page` is the path of the report, the last line."""
    screen = console.screen
    console.lines(result_lines(data, screen))
    unseen = [(kind, text) for kind, text in warnings_of(data) if not console.has_warned(text)]
    console.warn_lines(warning_lines(each_kind_once(unseen), Path(page).name, screen))
    for text in warning_texts(data.metrics):
        console.note_warned(text)
    console.lines(cost_lines(data, screen))
    console.lines([(f"report: {screen.text(page)}",)])


def result_lines(data: ReportData, screen: Screen) -> Iterator[Line]:
    """The lines before the warnings: verdict, scores, what has no value, problems."""
    yield from verdict_lines(data, screen)
    yield from baseline_lines(data, screen)
    if scores := list(score_lines(data, screen)):
        yield ()
        yield from scores
    yield from problem_lines(data, screen)
    yield from missing_lines(data, screen)


_NAMED = 3  # scores that are named of those that share a reason
_NAME = 40  # columns of a name
_WIDE = 80  # columns from which four lines of warnings are enough
_REASONS = 2  # lines about scores without a value


def missing_lines(data: ReportData, screen: Screen) -> Iterator[Line]:
    """The scores without a value and why, at most two lines; where none has one, that first, with the first error there is."""
    scores = data.metrics["overall"]["scores"]
    if not any(score["n_ok"] for score in scores.values()):
        yield (Caution("no evidence:"), f" 0 of {plural(data.metrics['n_cases'], 'case')} have a score")
        if data.first_error:
            yield from wrapped((f"first error: {screen.text(data.first_error, 3 * screen.columns)}",), screen.columns)
    by_reason: dict[str, list[str]] = defaultdict(list)
    for name in scores if "overall_score" not in scores else [*table_scores(data.metrics)]:
        if not scores[name]["n_ok"]:
            reasons = [*scores[name].get("errors", {}).items(), *scores[name].get("skipped", {}).items()]
            words = ", ".join(f"{screen.text(reason, _NAME)} {whole(count)}" for reason, count in reasons)
            by_reason[words or "no case"].append(name)
    texts = [f"{_names(names, screen)} ({reason})" for reason, names in by_reason.items()]
    if texts:
        lines = wrapped((f"no value: {'; '.join(texts)}",), screen.columns)
        if len(lines) > _REASONS:
            lines[_REASONS - 1] = (cut("".join(lines[_REASONS - 1]), screen.columns - 12), " (in report)")
        yield from lines[:_REASONS]


def _names(names: Sequence[str], screen: Screen) -> str:
    named = ", ".join(screen.text(name, _NAME) for name in names[:_NAMED])
    return named if len(names) <= _NAMED else f"{named} and {len(names) - _NAMED} more"


def warnings_of(data: ReportData) -> list[tuple[str, str]]:
    """The warnings of a run in short, each with its kind: one for all scores under the coverage floor, one per gate that did not
    pass for want of evidence, what the index lacks, and those of `metrics.json`."""
    metrics = data.metrics
    floor, scores = metrics["scoring"]["coverage_floor"], metrics["overall"]["scores"]
    gates = [gate for gate in data.gates["gates"] if _needs_words(gate)]
    others = [(warning["kind"], warning["text"]) for warning in metrics["warnings"] if warning["kind"] != "coverage"]
    return [
        *([("coverage", _under_floor(scores, floor))] if len(others) < len(metrics["warnings"]) else []),
        *((f"gate {gate['verdict']}", _gate_warning(gate, metrics["scoring"]["level"])) for gate in gates),
        *(("index", text) for text in (index_warnings(data.index) if data.index else ())),
        *others,
    ]


def each_kind_once(warnings: Iterable[tuple[str, str]]) -> list[str]:
    """The first warning of each kind, and how many others of its kind there are; equal ones count once.

    `warnings` are kinds and texts.
    """
    by_kind: dict[str, list[str]] = defaultdict(list)
    for kind, text in dict.fromkeys(warnings):
        by_kind[kind].append(text)
    return [
        first + (f" (and {plural(len(more), 'more such warning')})" if more else "")
        for first, *more in by_kind.values()
    ]


def _under_floor(scores: Mapping[str, Mapping[str, Any]], floor: float) -> str:
    """`coverage under 95% of cases: recall_all@5 14 of 15, scope_miss 7 of 8`."""
    low = [name for name, score in scores.items() if score["coverage"] is not None and score["coverage"] < floor]
    named = ", ".join(f"{name} {whole(scores[name]['n_ok'])} of {whole(due(scores[name]))}" for name in low[:_NAMED])
    more = f" and {len(low) - _NAMED} more scores" if len(low) > _NAMED else ""
    return f"coverage under {floor:.0%} of cases: {named}{more}"


def _needs_words(gate: Mapping[str, Any]) -> bool:
    """Whether there is more to say of a gate than the verdict line does. The start says what an uncalibrated judge needs."""
    return gate["outcome"] in ("blocked", "warned") and gate["verdict"] not in ("failed", "uncalibrated")


def _gate_warning(gate: Mapping[str, Any], level: float) -> str:
    """How many cases would decide an undecided gate; of others the sentence, without the figures before the verdict."""
    precision = precision_of(gate, level)
    words = undecided_words(gate, precision, level) if precision else ""
    _, _, reason = gate["sentence"].partition(f"{gate['verdict'].replace('_', ' ')}, ")
    return f"gate {gate['name']}: {words or reason or gate['sentence']}"


def warning_lines(texts: Sequence[str], page: str, screen: Screen) -> list[Line]:
    """The warnings that fit three lines (six on a narrow screen), the first one always, and how many more there are in the report."""
    limit = 3 if screen.columns >= _WIDE else 6
    blocks = [wrapped((Caution("warning:"), f" {screen.text(text)}"), screen.columns) for text in texts]
    if sum(map(len, blocks)) <= limit:
        return [line for block in blocks for line in block]
    lines, left_out = blocks[0][:limit], 0
    for block in blocks[1:]:
        if len(lines) + len(block) < limit:
            lines += block
        else:
            left_out += 1
    return [*lines, (Caution("warning:"), f" and {left_out} more in {page}")] if left_out else lines


def cost_lines(data: ReportData, screen: Screen) -> list[Line]:
    """`cost: judge 1,200 calls, $0.45; system 48,223 tokens, price unknown`, never cut: the reason for an unknown price is a remedy."""
    parts = [_judge_cost(data.cost)]
    if system := data.metrics["overall"]["operations"]["usage"]:
        tokens = [f"{whole(system['tokens_total']['sum'])} tokens"] if system.get("tokens_total") else []
        usd = money(system["cost_usd"]["sum"]) if system["cost_usd"] else "price unknown"
        parts.append(f"system {', '.join([*tokens, usd])}")
    lines = wrapped((f"cost: {'; '.join(parts)}",), screen.columns)
    reasons = list(data.cost["used"]["unpriced_reasons"])
    return [*lines, *(line for reason in reasons[:1] for line in _unpriced(reason, len(reasons) - 1, screen))]


def _unpriced(reason: str, others: int, screen: Screen) -> list[Line]:
    more = f" ({plural(others, 'other reason')} in the report)" if others else ""
    return wrapped((f"price unknown: {screen.text(reason)}{more}",), screen.columns)


def _judge_cost(cost: Mapping[str, Any]) -> str:
    """The calls that the results use and their price, and what this start paid of it where that is not all."""
    used, spent, wasted = cost["used"], cost["spent"], cost["wasted"]
    if not used["uses"]:
        return "no judge was asked"
    if used["calls_computed"] == used["calls"]:
        if missing := sum(used["failures"].get(kind, 0) for kind in ("missing_reply", "budget")):
            return f"no call; {plural(missing, 'question')} without a stored reply"
        has_weights = any(
            "@" in name for name in used.get("by_judge", ())
        )  # those of a detector or an encoder are in its name
        return f"{'judge' if has_weights else 'embedded judge'} {plural(used['calls'], 'question')}, no call"
    if is_recorded(used, spent):
        return f"judge {plural(used['calls'], 'recorded reply', 'recorded replies')}, no call"
    held_back = used["failures"].get("budget", 0)
    failures = used["calls_failed"] - held_back
    failed = f" ({whole(failures)} failed)" if failures else ""
    text = f"judge {plural(used['calls'], 'call')}{failed}, {price(Usage.from_json(used))}"
    text += f", {whole(held_back)} held back by the budget" if held_back else ""
    if spent["calls"] not in (used["calls"], used["calls"] - used["calls_failed"]):
        text += f", paid by this run {plural(spent['calls'], 'call')}, {price(Usage.from_json(spent))}"
    if wasted["replies"]:
        text += f", wasted {money(wasted['usd'])}"
    return text


PROBLEMS = 3
"""Diagnoses that are named."""
_CASE = 28  # columns of the name of a case
_SHARES = 4  # methods whose shares stand beside each other
_TEXT = 24  # columns that a question or a message needs to say anything
_QUESTION = 48  # columns of a question, at most
_CONTENT_HASH = re.compile(r"h?[0-9a-f]{12,64}")  # an id that was made from the content, which nobody knows by heart


def most_frequent(metrics: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The diagnoses of `metrics.json`, the most frequent first."""
    return sorted(metrics.get("diagnosis") or (), key=lambda diagnosis: -int(diagnosis["n"]))


def problem_lines(data: ReportData, screen: Screen) -> list[Line]:
    """The most frequent diagnoses, a line each: share of the cases, name, one case, and as far as they fit the first words of its
    question and what is wrong; in the title how many more there are. Of an id that says nothing the question comes first."""
    diagnoses = most_frequent(data.metrics)
    if not diagnoses:
        return []
    shown = diagnoses[:PROBLEMS]
    rows = [_row(diagnosis, data, screen) for diagnosis in shown]
    left = screen.columns - table_columns(rows) - GAP
    questions = [_question(diagnosis, data, screen) for diagnosis in shown]
    messages = [screen.text(diagnosis["message"]) for diagnosis in shown]
    for texts, width in _fitting(questions, messages, _is_unnamed(shown), left):
        rows = [[*row, Grey(cut(text, width))] for row, text in zip(rows, texts, strict=True)]
    more = len(diagnoses) - PROBLEMS
    further = f" ({plural(more, 'more problem')})" if more > 0 else ""
    methods = _compared_methods(data.metrics, screen)
    whose = f" in {', '.join(screen.text(method, _NAME) for method in methods)}" if methods else ", share of cases"
    title = wrapped((Head(f"wrong most often{whose}{further}:"),), screen.columns)
    return [*title, *table_lines(rows, left=range(len(methods) or 1, len(rows[0])))]


def _fitting(
    questions: Sequence[str], messages: Sequence[str], is_unnamed: bool, left: int
) -> list[tuple[Sequence[str], int]]:
    """The columns that the room which is `left` is for, with their widths."""
    if not any(questions):
        return [(messages, left)] if left >= _TEXT else []
    if left >= 2 * _TEXT + GAP:
        width = min(_QUESTION, left - GAP - _TEXT, max(_TEXT, (left - GAP) // 2))
        return [(questions, width), (messages, left - GAP - width)]
    return [(questions if is_unnamed else messages, left)] if left >= _TEXT else []


def _compared_methods(metrics: Mapping[str, Any], screen: Screen) -> list[str]:
    """The methods whose shares stand beside each other; none for one method, for too many, and on a narrow screen."""
    methods = list(metrics["by"].get("method") or ())
    return methods if 1 < len(methods) <= _SHARES and screen.columns >= _WIDE else []


def _row(diagnosis: Mapping[str, Any], data: ReportData, screen: Screen) -> list[str]:
    groups, examples = data.metrics["by"].get("method") or {}, diagnosis["examples"]
    chosen = [groups[method] for method in _compared_methods(data.metrics, screen)]
    counts = [(group["diagnosis"].get(diagnosis["name"], {}).get("n", 0), group["n_cases"]) for group in chosen]
    counts = counts or [(diagnosis["n"], data.metrics["n_cases"])]
    return [
        *(f"{n / (cases * iteration_count(data.metrics)):.1%}" for n, cases in counts),
        screen.text(diagnosis["name"], _NAME),
        cut_in_the_middle(_case(examples[0], data.metrics, screen), _CASE) if examples else "",
    ]


def _case(example: Mapping[str, Any], metrics: Mapping[str, Any], screen: Screen) -> str:
    case = CaseName.of(example)
    method = f"/{screen.text(case.method)}" if len(metrics["by"].get("method") or ()) > 1 else ""
    return f"{screen.text(case.sample_id)}{method}{case.suffix}"


def _question(diagnosis: Mapping[str, Any], data: ReportData, screen: Screen) -> str:
    """The question of the first example; empty where it is not known."""
    return screen.text(next((data.questions.get(case["sample_id"], "") for case in diagnosis["examples"]), ""))


def _is_unnamed(diagnoses: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the id of an example says nothing: the hash of its content."""
    ids = [case["sample_id"] for diagnosis in diagnoses for case in diagnosis["examples"][:1]]
    return any(_CONTENT_HASH.fullmatch(name) for name in ids)
