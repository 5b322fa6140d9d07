"""The first line of a comparison in situations whose truth is known: it says what is most important, and no more than is true."""

import re
from collections.abc import Sequence
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragpipe.core.score import ScoreSpec
from ragpipe.report.settings import ReportSettings
from ragpipe.report.verdict_section import run_verdict
from ragpipe.runs.run_report import build_report, read_report_data
from ragpipe.score.jury_agreement import jury_document, jury_warnings
from tests.support.compared_runs import compared, scored_run
from tests.support.reports import html_of, line_of, markdown_of, terminal_of
from tests.support.run_tables import Row, write_run

pytestmark = pytest.mark.slow
SILENT = (1.0, "no_factual_claims")
FAILED = ("skipped", "system_error")
NOT_JUDGED = ("error", "unparsable: no JSON")
NOT_RECORDED = ("skipped", "not_recorded: answer")


def rows(values: Sequence[Any], *, says: str | None = None, category: Sequence[str] = ()) -> list[Row]:
    """A case per value. The answers are `says`, or by the value; a failure of the system has none."""
    made = []
    for n, value in enumerate(values):
        output = {"answer": "", "error": "HTTP 500"} if value == FAILED else {"answer": says or f"Worth {value}."}
        labels = {"category": category[n]} if category else {}
        made.append(Row(f"q{n:03}", "default", {"grade": value}, labels, output))
    return made


RISING = [0.25, 0.5, 0.75, 0.5] * 15
LOWER = [value - 0.25 for value in RISING]
HIGHER = [value + 0.25 for value in RISING]


LOST = "of 60 cases have no value in"
# what, the grades of the base and of the new run, the state, how the sentence begins
SITUATIONS = [
    ("better", LOWER, HIGHER, "better", "better: "),
    ("worse", RISING, LOWER, "worse", "worse: "),
    ("other words, equal grades, enough cases", RISING, RISING, "same", "same: "),
    ("answering at last does not lose", [SILENT] * 36 + LOWER[36:], RISING, "better",
     "0 of 60 answers of the new run state nothing (36 of the base)"),
    ("both refuse the same", [SILENT] * 20 + LOWER[20:], [SILENT] * 20 + HIGHER[20:], "better", "better: "),
    ("a system that crashed", LOWER, [FAILED] * 24 + HIGHER[24:], "inconclusive", f"24 {LOST} the new run (system error 24)"),
    ("a base that crashed", [FAILED] * 24 + LOWER[24:], HIGHER, "inconclusive", f"24 {LOST} the base (system error 24)"),
    ("a judge that failed", LOWER, [NOT_JUDGED] * 12 + HIGHER[12:], "inconclusive", f"12 {LOST} the new run (judge error 12)"),
    ("not recorded", LOWER, [NOT_RECORDED] * 12 + HIGHER[12:], "inconclusive", f"12 {LOST} the new run (not recorded 12)"),
]  # fmt: skip


@pytest.mark.parametrize(("base", "candidate", "state", "first"), [pytest.param(*row[1:], id=row[0]) for row in SITUATIONS])
def test_it_says_what_matters_most(tmp_path: Path, base: list[Any], candidate: list[Any], state: str, first: str) -> None:
    new = rows(candidate, says="Said otherwise." if candidate == base else None)
    document = compared(scored_run(tmp_path / "a", rows(base)), scored_run(tmp_path / "b", new)).document
    assert document["verdict"]["state"] == state
    assert document["verdict"]["sentence"].startswith(first)


def test_a_slice_that_rose_beside_a_fall_of_all_is_no_consolation(tmp_path: Path) -> None:
    kinds = ["easy" if n < 12 else "hard" for n in range(60)]
    after = [value + 0.15 + 0.05 * (n % 2) if n < 12 else value - 0.25 for n, value in enumerate(RISING)]
    base, other = scored_run(tmp_path / "a", rows(RISING, category=kinds)), scored_run(tmp_path / "b", rows(after, category=kinds))
    document = compared(base, other).document
    assert document["verdict"]["sentence"].startswith("worse: ")
    states = {(row["value"], row["score"]): row["state"] for row in document["slices"]}
    assert (states["easy", "grade"], states["hard", "grade"]) == ("better", "worse")


@pytest.mark.parametrize(
    ("values", "warnings"),
    [
        pytest.param({"a": [1, 2, 3, 4], "b": [1, 2, 3, 4], "c": [1, 2, 4, 5]}, [], id="alike"),
        pytest.param({"a": [1, 3, 3, 5], "b": [1, 3, 3, 5], "c": [1] * 4}, ["c gave 1 in all 40 cases and is 2.00 below"], id="one grade"),
        pytest.param({"a": [1, 3, 3, 5], "b": [1, 3, 3, 5], "c": [None] * 4}, ["c answered in 0 of 40 cases"], id="no answer"),
        pytest.param({"a": [1, 3, 3, 5], "b": [1, None, 3, 5], "c": [1, 3, 3, 5]}, ["b answered in 30 of 40 cases"], id="some answers"),
        pytest.param({"a": [4, 4, 5, 5], "b": [4, 4, 5, 5], "c": [2, 2, 3, 3]}, ["c is 2.00 below"], id="strict"),
        pytest.param({"a": [2, 2, 2, 2], "b": [2, 2, 2, 2]}, [], id="all cases are alike"),
    ],
)
def test_an_odd_member_of_a_jury_is_named(tmp_path: Path, values: dict[str, list[float | None]], warnings: list[str]) -> None:
    cases = []
    for n in range(40):
        given = {name: of_member[n % 4] for name, of_member in values.items()}
        shown = {name: {"value": value} if value is not None else {"status": "error"} for name, value in given.items()}
        mean = float(np.mean([value for value in given.values() if value is not None]))
        cases.append(Row(f"q{n}", "m", {"grade": mean}, details={"grade": {"jury": {"rule": "mean", "members": shown}}}))
    write_run(tmp_path, cases)
    spec = ScoreSpec("grade", low=1, high=5)
    document = jury_document(tmp_path / "iteration-1" / "scores.parquet", [spec], dict.fromkeys(values, "model"))
    found = jury_warnings(document)
    assert len(found) == len(warnings)
    assert all(line.startswith(f"grade: jury member {text}") for line, text in zip(found, warnings, strict=True))


def test_a_run_of_two_methods_names_the_slice_that_fell(tmp_path: Path) -> None:
    """Legal fell by .5 in 20 cases, the 100 others rose by .1 to .2."""
    cases = []
    for n in range(120):
        category, old = ("legal", 0.75) if n % 6 == 0 else ("general", 0.5)
        new = 0.25 if n % 6 == 0 else 0.6 + 0.1 * (n % 2)
        for method, value in (("old", old), ("new", new)):
            cases.append(Row(f"q{n}", method, {"grade": value}, {"category": category}, {"answer": f"{value}"}))
    folder = scored_run(tmp_path, cases)
    verdict = run_verdict(read_report_data(folder, folder.iteration(1), ReportSettings()))
    (text,) = [reason["text"] for reason in verdict["reasons"] if reason["code"] == "slice_fell"]
    assert text.startswith("new is worse in category = legal: -0.500 [")
    assert text.endswith("n = 20")


def methods_of(**methods: list[Any]) -> list[Row]:
    return [
        Row(f"q{n:03}", method, {"grade": value}, {}, {"answer": "", "error": "HTTP 500"} if value == FAILED else {"answer": f"{value}"})
        for method, values in methods.items()
        for n, value in enumerate(values)
        if value is not None
    ]


# what, the grades of the methods a, b and c, the reasons of the verdict, how its sentence begins
STARTS = [
    ("one method", [RISING], ["level"], "grade 0.50 ["),
    ("few questions", [RISING[:3]], ["level"], "grade 0.50, n = 3: too few to tell"),
    ("half crashed", [RISING[:30] + [FAILED] * 30], ["coverage", "level"], "30 of 60 cases have no value of grade; "),
    ("all crashed", [[FAILED] * 60], ["no_evidence"], "no evidence: 0 of 60 cases have a value of any score"),
    ("two lucky cases", [LOWER, HIGHER, [1.0, 1.0]], ["better", "other_methods"], "b is better than a: grade +0.500 "),
    ("all are worse", [HIGHER, LOWER, RISING], ["worse", "other_methods"], "c is worse than a: grade -0.250 "),
    ("no question shared", [[*RISING, *[None] * 60], [*[None] * 60, *HIGHER]], ["no_pairs"], "the methods share no question"),
    ("the better one crashed", [LOWER, HIGHER[:30] + [FAILED] * 30], ["values_lost", "inconclusive"],
     f"30 {LOST} b (system error 30); b is not shown to differ from a"),
    ("one crash of sixty", [LOWER, [*HIGHER[:59], FAILED]], ["better"], "b is better than a"),
]  # fmt: skip


@pytest.mark.parametrize(("methods", "codes", "first"), [pytest.param(*row[1:], id=row[0]) for row in STARTS])
def test_a_run_begins_with_what_matters_most(tmp_path: Path, methods: list[list[Any]], codes: list[str], first: str) -> None:
    folder = scored_run(tmp_path, methods_of(**dict(zip("abc", methods, strict=False))))
    data = read_report_data(folder, folder.iteration(1), ReportSettings())
    verdict = run_verdict(data)
    assert [reason["code"] for reason in verdict["reasons"]] == codes
    assert verdict["sentence"].startswith(first)
    report = build_report(data)
    shown = line_of(terminal_of(report, 1000), first[:12])
    page = unescape(re.sub(r"<[^>]+>", "", html_of(report)))
    assert shown == verdict["sentence"]
    assert verdict["sentence"].removeprefix("no evidence: ") in page
    assert verdict["sentence"] in re.sub(r"\\|\*\*", "", markdown_of(report))
