"""Two runs over the same cases on the terminal and as a page: `agreement.md`. Ids of cases are text, never markup."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ragpipe.core.safe_text import on_one_line
from ragpipe.reports.markdown_text import code_span, markdown_table
from ragpipe.reports.number_format import money, whole

AGREEMENT_HEADS = (
    "score",
    "cases",
    "old",
    "new",
    "difference",
    "equal",
    "verdicts equal",
    "kappa",
    "flips",
    "coverage",
)
AGREEMENT_NOTE = (
    "old and new: means of the cases with a value in both runs; difference: new less old, with its 95% interval, clustered "
    "by question; equal: share of equal values; kappa: agreement of the verdicts beyond chance; flips: verdicts that became "
    "passed (+) and failed (-)."
)
_ID = 60  # characters of a case's id


def agreement_rows(found: Mapping[str, Any]) -> list[list[str]]:
    """A row for each score with a value in either run."""
    return [
        _row(name, score) for name, score in found["scores"].items() if score["old"]["n_ok"] or score["new"]["n_ok"]
    ]


def question_lines(found: Mapping[str, Any]) -> list[str]:
    """What the new run asked beside the old one, and what both cost."""
    asked, old, new = found["questions"], found["cost"]["old"], found["cost"]["new"]
    new_calls = asked["calls"] - asked["same_calls"]
    return [
        f"questions: {whole(asked['new'])} ({whole(asked['old'])} in {found['old']['run_id']}), "
        f"{whole(asked['new'] - asked['new_payloads'])} the same as there, {whole(asked['new_payloads'])} new",
        f"replies: {whole(asked['calls'])}, {whole(asked['same_calls'])} taken from {found['old']['run_id']}, "
        f"{whole(new_calls)} of this judge's own; cost {_cost(new)} (was {_cost(old)})",
    ]


def changed_rows(found: Mapping[str, Any]) -> tuple[list[list[str]], int]:
    """A row for each score whose figures or verdicts changed, and the number of those that did not."""
    rows = []
    for name, score in found["scores"].items():
        old, new, flips = score["old"], score["new"], score["flips"]
        if old != new or flips["to_passed"]["n"] or flips["to_failed"]["n"]:
            rows.append(
                [
                    name,
                    _step(old["mean"], new["mean"], _number),
                    _step(old["threshold"], new["threshold"], _threshold),
                    _step(old["pass_rate"], new["pass_rate"], _share),
                    _flips(score),
                ]
            )
    return rows, len(found["scores"]) - len(rows)


def agreement_markdown(found: Mapping[str, Any]) -> str:
    """The page: both runs, a table of all scores, and for each with flips the cases that moved most."""
    heads = ["run", "judge", "cases", "replies' cost"]
    runs = [
        [
            f"{side}: {code_span(one['run_id'])}",
            code_span(one["judge"]),
            whole(one["n_cases"]),
            _cost(found["cost"][side]),
        ]
        for side, one in (("old", found["old"]), ("new", found["new"]))
    ]
    scores = [[code_span(row[0]), *row[1:]] for row in agreement_rows(found)]
    lines = [
        "# Old against new",
        "",
        *markdown_table(heads, runs),
        "",
        *markdown_table(AGREEMENT_HEADS, scores),
        "",
        AGREEMENT_NOTE,
        "",
    ]
    lines += [f"- {line}" for line in [*question_lines(found), *absent_lines(found)]]
    lines += [
        "",
        "## More coefficients",
        "",
        *markdown_table(["score", "quadratic kappa", "Pearson", "Spearman"], _more(found)),
    ]
    return "\n".join([*lines, *_flipped(found), *_signatures(found)]) + "\n"


def absent_lines(found: Mapping[str, Any]) -> list[str]:
    """What only one of the runs has."""
    cases = found["cases"]
    lines = []
    if cases["only_old"] or cases["only_new"]:
        lines.append(f"cases in one run only: {whole(cases['only_old'])} old, {whole(cases['only_new'])} new")
    for side in ("old", "new"):
        if names := found[f"only_{side}_scores"]:
            lines.append(f"scores of the {side} run only: {', '.join(on_one_line(name, _ID) for name in names)}")
    return lines


def _row(name: str, score: Mapping[str, Any]) -> list[str]:
    verdicts = score["passed"]
    kappa = _coefficient(verdicts["kappa"]) if verdicts["n"] else "-"
    coverage = _step(score["old"]["coverage"], score["new"]["coverage"], _share)
    return [
        name,
        whole(score["n_both"]),
        _number(score["mean_old"]),
        _number(score["mean_new"]),
        _difference(score),
        _share(score["equal_share"]),
        _share(verdicts["agreement"]),
        kappa,
        _flips(score),
        coverage,
    ]


def _difference(score: Mapping[str, Any]) -> str:
    """`-0.120 [-0.150, -0.090]`."""
    mean, interval = score["difference"]["mean"], score["difference"]["interval"]
    if mean is None:
        return "-"
    return f"{mean:+.3f}" + (f" [{interval['low']:+.3f}, {interval['high']:+.3f}]" if interval else "")


def _more(found: Mapping[str, Any]) -> list[list[str]]:
    return [
        [code_span(name), *(_coefficient(score[key]) for key in ("quadratic_kappa", "pearson", "spearman"))]
        for name, score in found["scores"].items()
        if score["n_both"]
    ]


def _flipped(found: Mapping[str, Any]) -> Iterator[str]:
    for name, score in found["scores"].items():
        rows = []
        for direction, said in (("to_passed", "passed"), ("to_failed", "failed")):
            rows += [
                [
                    code_span(one["sample_id"], _ID),
                    code_span(one["method"], _ID),
                    str(one["repeat"]),
                    str(one["iteration"]),
                    _number(one["old"]),
                    _number(one["new"]),
                    said,
                ]
                for one in score["flips"][direction]["examples"]
            ]
        if rows:
            yield from (
                "",
                f"## Flips of {code_span(name)}",
                "",
                _flips(score) + ", of which those that moved most:",
                "",
            )
            yield from markdown_table(["case", "method", "repeat", "iteration", "old", "new", "now"], rows)


def _signatures(found: Mapping[str, Any]) -> list[str]:
    return [
        "",
        "## Signatures",
        "",
        *(f"- {side}: {code_span(found[side]['signature'], 2000)}" for side in ("old", "new")),
    ]


def _flips(score: Mapping[str, Any]) -> str:
    flips = score["flips"]
    if score["new"]["threshold"] is None and not (flips["to_passed"]["n"] or flips["to_failed"]["n"]):
        return "-"
    return f"+{whole(flips['to_passed']['n'])} -{whole(flips['to_failed']['n'])}"


def _coefficient(found: Mapping[str, Any]) -> str:
    value: float | None = found["value"]
    return f"{value:.3f}" if value is not None else str(found["reason"])


def _step(old: float | None, new: float | None, shown: Callable[[float | None], str]) -> str:
    """`0.80 -> 0.75`, and one figure where they are the same."""
    first, second = shown(old), shown(new)
    return second if old == new else f"{first} -> {second}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _threshold(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _cost(used: Mapping[str, Any]) -> str:
    if used["calls"] == used["calls_computed"]:
        return f"{whole(used['calls'] - used['calls_failed'])} computed, no call"
    return f"{whole(used['calls'])} calls, {money(used['usd'])}"
