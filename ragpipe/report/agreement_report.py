"""Agreement of two runs over the same cases, for the terminal and as the page `agreement.md`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ragpipe.core.text import code_span, markdown_table, on_one_line
from ragpipe.report.model import Table, TableColumn, TableRow, Verbatim
from ragpipe.report.results_section import SCORES
from ragpipe.report.styled_text import money, whole

AGREEMENT_HEADS = ("score", "cases", "old", "new", "difference", "equal", "verdicts equal", "kappa", "flips", "coverage")
AGREEMENT_NOTE = (
    "old and new: means of the cases with a value in both runs; difference: new less old, with its 95% interval, clustered "
    "by question; equal: share of equal values; kappa: agreement of the verdicts beyond chance; flips: cases that pass "
    "now (+) and no longer do (-)."
)
_ID = 60  # characters of a case's id


def agreement_rows(agreement: Mapping[str, Any]) -> list[list[str]]:
    """A row per score with a value in either run."""
    return [_row(name, score) for name, score in agreement["scores"].items() if score["old"]["n_ok"] or score["new"]["n_ok"]]


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
            rows.append(
                [
                    name,
                    _step(old["mean"], new["mean"], _number),
                    _step(old["threshold"], new["threshold"], _threshold),
                    _step(old["pass_rate"], new["pass_rate"], _share),
                    _flips(score),
                ]
            )
    return rows, len(agreement["scores"]) - len(rows)


def agreement_markdown(agreement: Mapping[str, Any]) -> str:
    """The page: both runs, a table of all scores, and for each with flips the cases that moved most."""
    heads = ["run", "judge", "cases", "replies' cost"]
    runs = [
        [f"{side}: {code_span(run['run_id'])}", code_span(run["judge"]), whole(run["n_cases"]), _cost(agreement["cost"][side])]
        for side, run in (("old", agreement["old"]), ("new", agreement["new"]))
    ]
    scores = [[code_span(row[0]), *row[1:]] for row in agreement_rows(agreement)]
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
    lines += [f"- {line}" for line in [*question_lines(agreement), *absent_lines(agreement)]]
    lines += [
        "",
        "## More coefficients",
        "",
        *markdown_table(["score", "quadratic kappa", "Pearson", "Spearman"], _more(agreement)),
    ]
    return "\n".join([*lines, *_flipped(agreement), *_signatures(agreement)]) + "\n"


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


def _more(agreement: Mapping[str, Any]) -> list[list[str]]:
    return [
        [code_span(name), *(_coefficient(score[key]) for key in ("quadratic_kappa", "pearson", "spearman"))]
        for name, score in agreement["scores"].items()
        if score["n_both"]
    ]


def _flipped(agreement: Mapping[str, Any]) -> Iterator[str]:
    """A table per score with flips: the cases that moved most."""
    heads = ["case", "method", "repeat", "iteration", "old", "new", "now"]
    for name, score in agreement["scores"].items():
        rows = [
            _flipped_row(case, verdict)
            for direction, verdict in (("to_passed", "passed"), ("to_failed", "failed"))
            for case in score["flips"][direction]["examples"]
        ]
        if rows:
            title = f"{_flips(score)}, of which those that moved most:"
            yield from ("", f"## Flips of {code_span(name)}", "", title, "")
            yield from markdown_table(heads, rows)


def _flipped_row(case: Mapping[str, Any], verdict: str) -> list[str]:
    return [
        code_span(case["sample_id"], _ID),
        code_span(case["method"], _ID),
        str(case["repeat"]),
        str(case["iteration"]),
        _number(case["old"]),
        _number(case["new"]),
        verdict,
    ]


def _signatures(agreement: Mapping[str, Any]) -> list[str]:
    return ["", "## Signatures", "", *(f"- {side}: {code_span(agreement[side]['signature'], 2000)}" for side in ("old", "new"))]


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
    first, second = text(old), text(new)
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


_DROPS = {"coverage": 6, "equal": 5, "cases": 4, "kappa": 3, "verdicts equal": 2, "flips": 1}


def agreement_table(agreement: Mapping[str, Any], title: str) -> Table:
    """A row per score, at most eight; on a narrow screen with fewer columns. `title` names both judges."""
    rows = [TableRow((Verbatim(name), *figures)) for name, *figures in agreement_rows(agreement)]
    columns = (TableColumn(head, is_text=head == "score", drop=_DROPS.get(head, 0)) for head in AGREEMENT_HEADS)
    more = f"; {len(rows) - SCORES} more scores in agreement.md" if len(rows) > SCORES else ""
    return Table(tuple(columns), tuple(rows[:SCORES]), Verbatim(title + more))
