"""The terminal: the result of a run, a sweep and a comparison at every width, from runs written by hand."""

import io
import os
import pty
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragpipe.core.score import ScoreSpec
from ragpipe.report.console import Console
from ragpipe.report.cost_section import cost_lines, cost_with_system
from ragpipe.report.job_comparison import COMPARISON_SCHEMA, Job
from ragpipe.report.model import plain_text
from ragpipe.report.report_data import ReportData
from ragpipe.report.settings import ReportSettings
from ragpipe.report.styled_text import Good, columns_of, folded_name
from ragpipe.report.sweep_page import sweep_section
from ragpipe.report.terminal import each_kind_once, print_warnings
from ragpipe.runs.combine_iterations import combine_iterations
from ragpipe.runs.run_report import build_report, read_report_data
from ragpipe.score.gate_settings import Gate
from ragpipe.score.settings import ScoringSettings
from ragpipe.store.run_folder import RunFolder
from tests.support.reports import report_of, terminal_of
from tests.support.run_tables import Row, score, score_iterations, write_run

pytestmark = pytest.mark.slow
WIDTHS = (60, 80, 100, 160)
SPECS = [ScoreSpec("faithfulness"), ScoreSpec("correctness", 1, 5)]
EVIL = "[red]a[/red] \x1b[2J\u202e=H(1)"
LONG = "a_method_with_a_name_of_sixty_characters_that_nobody_can_read"


def data_of(root: Path, rows: Sequence[Row], specs: Sequence[ScoreSpec] = SPECS, **gates: Gate) -> ReportData:
    write_run(root, rows)
    score(root, specs, ScoringSettings(gates=gates, slices=[]))
    run = RunFolder(root)
    return read_report_data(run, run.iteration(1), ReportSettings(formats=["terminal"]))


def rows_of(methods: Mapping[str, Sequence[float]]) -> list[Row]:
    return [Row(f"q{place}", method, {"faithfulness": value}) for method, values in methods.items() for place, value in enumerate(values)]


def text_of(data: ReportData, columns: int) -> list[str]:
    return terminal_of(build_report(data), columns).splitlines()


def test_methods_stand_with_their_difference_and_few_of_many_are_shown(tmp_path: Path) -> None:
    """Six questions, each better by a half: a mean of .25 against one of .75, and a difference of one half in all of them."""
    lines = text_of(data_of(tmp_path, rows_of({"old": [0.25] * 6, "new": [0.75] * 6})), 100)
    assert lines[0].startswith("new is ")
    assert "12 cases on 6 questions, 2 methods, iteration 1; no judge" in lines
    place = next(number for number, line in enumerate(lines) if line.startswith("faithfulness  mean [95%]"))
    assert lines[place].split()[-6:] == ["against", "old", "cases", "in", "both", "verdict"]
    assert lines[place + 1].split()[:2] == ["old", "0.25"]
    assert lines[place + 1].split()[-1] == "6", "of how many cases"
    assert lines[place + 2].split()[:2] == ["new", "0.75"]
    assert "+0.500" in lines[place + 2]
    lines = text_of(data_of(tmp_path, rows_of({f"m{n:02}": [n / 12] for n in range(12)})), 100)
    assert [line.split()[0] for line in lines if re.match(r"m\d\d  ", line)] == ["m00", "m01", "m02", "m09", "m10", "m11"]
    assert "and 6 methods between them in the report" in lines


@pytest.mark.thorough(tried=4)
@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("count", [1, 3, 12])
def test_nothing_is_wider_than_the_screen(tmp_path: Path, columns: int, count: int) -> None:
    names = [LONG, EVIL, "漢字" * 20, *(f"method-{number}" for number in range(9))][:count]
    values = {name: [place / 12, 0.5, 1.0, 0.0, 0.3] for place, name in enumerate(names)}
    rows = [replace(row, results={**row.results, "correctness": 3.0}) for row in rows_of(values)]
    lines = text_of(data_of(tmp_path, rows), columns)
    assert max(map(columns_of, lines)) <= columns
    assert not [line for line in lines if "\x1b" in line or "\u202e" in line]
    assert len(lines) <= 52, "a name of sixty characters takes lines, and loses none"


@pytest.mark.parametrize(
    ("output", "error"), [({}, "first error: q0: faithfulness: timeout: no answer"), ({"error": "HTTP 500"}, "first error: q0: HTTP 500")]
)
def test_a_run_without_a_value_says_why(tmp_path: Path, output: dict[str, str], error: str) -> None:
    rows = [Row(f"q{n}", "a", {"faithfulness": ("error", "timeout: no answer")}, output=output) for n in range(4)]
    lines = text_of(data_of(tmp_path, rows), 80)
    assert lines[0].startswith("no evidence: 0 of 4 cases have a value of any score")
    assert error in " ".join(map(str.strip, lines))
    assert any(line.startswith("no value: faithfulness (timeout 4)") for line in lines)


def gate_of(verdict: str, outcome: str, **more: Any) -> dict[str, Any]:
    return {
        "name": "reject", "score": "faithfulness", "of": "mean", "min": 0.7, "max": None, "where": {}, "tier": "critical",
        "value": 0.62, "values": [0.62], "by": "interval", "interval": {"low": 0.53, "high": 0.7, "method": "t"},
        "n_ok": 40, "n_cases": 40, "coverage": 1.0, "verdict": verdict, "outcome": outcome,
        "sentence": f"mean of faithfulness is 0.62 over 40 cases (at least 0.7): {verdict.replace('_', ' ')}, a reason",
        **more,
    }  # fmt: skip


PASSED, ABSENT = gate_of("passed", "passed"), {"value": None, "interval": None}


@pytest.mark.parametrize(("gates", "line"), [
    ([gate_of("failed", "blocked")], "BLOCKED: 1 of 1 gate failed: reject 0.62 [0.53, 0.70], at least 0.7"),
    ([PASSED | {"name": f"g{n}"} for n in range(4)], "passed: 4 of 4 gates"),
    ([PASSED, gate_of("inconclusive", "warned", name="b")],
     "not blocked, with warnings: 1 of 2 gates passed; b 0.62 [0.53, 0.70], at least 0.7 (inconclusive, critical)"),
    ([gate_of("no_evidence", "blocked", **ABSENT)], "BLOCKED: 1 of 1 gate did not pass: reject, at least 0.7 (no evidence)"),
    ([gate_of("not_applicable", "reported", name="c", **ABSENT), PASSED], "passed: 1 of 2 gates; 1 does not apply"),
])  # fmt: skip
def test_the_first_line_is_the_verdict(tmp_path: Path, gates: list[dict[str, Any]], line: str) -> None:
    lines = text_of(replace(data_of(tmp_path, rows_of({"a": [0.5]})), gates={"gates": gates}), 160)
    assert " ".join(map(str.strip, lines)).startswith(f"{line}. faithfulness 0.50, n = 1: too few to tell; ")
    assert any(line.split() == ["gate", "tier", "value", "limit", "cases", "verdict"] for line in lines)


def test_warnings_stand_once_per_kind_and_in_three_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    late = [("late", "faithfulness: 3 cases are late"), ("late", "mrr: 12 cases are late")]
    assert each_kind_once([*late, ("x", "other"), late[0]]) == ["faithfulness: 3 cases are late (and 1 more such warning)", "other"]
    many = [f"{'word ' * 20}{letter}" for letter in "abcdef"]
    err = io.StringIO()
    monkeypatch.setenv("COLUMNS", "80")
    console = Console(out=io.StringIO(), err=err)
    for _ in range(2):
        print_warnings([("", text) for text in many], console, "out/report.html")
    lines = err.getvalue().splitlines()
    assert len(lines) <= 3, "and none is said again"
    assert lines[-1] == "warning: and 5 more in report.html"


@pytest.mark.parametrize(
    ("name", "limit", "lines"),
    [
        ("llama-2-13b-chat", 16, ["llama-2-13b-chat"]),
        ("llama-2-13b-chat", 12, ["llama-2-13b-", "chat"]),
        ("human_hallucinated_strict", 16, ["human_", "hallucinated_", "strict"]),
        ("human_hallucinated \u2193", 14, ["human_", "hallucinated \u2193"]),
        ("a" * 12, 5, ["aaaaa", "aaaaa", "aa"]),
        ("\u6f22\u5b57\u6f22", 4, ["\u6f22\u5b57", "\u6f22"]),
    ],
)
def test_a_long_name_is_broken_and_never_cut(name: str, limit: int, lines: list[str]) -> None:
    assert folded_name(name, limit).split("\n") == lines


def printed_on_a_terminal(monkeypatch: pytest.MonkeyPatch, **environment: str) -> str:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in {"TERM": "xterm-256color", **environment}.items():
        monkeypatch.setenv(name, value)
    reader, writer = pty.openpty()
    with os.fdopen(writer, "w") as out:
        Console(out=out, err=io.StringIO()).lines([(Good("better"), " than before")])
    text = b""
    while not text.endswith(b"\r\n"):  # a terminal hands over what it has so far
        text += os.read(reader, 1000)
    os.close(reader)
    return text.decode()


def test_words_have_colours_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert printed_on_a_terminal(monkeypatch) == "\x1b[32mbetter\x1b[0m than before\r\n"
    assert printed_on_a_terminal(monkeypatch, TERM="dumb") == "better than before\r\n"
    assert printed_on_a_terminal(monkeypatch, NO_COLOR="1") == "better than before\r\n"
    out = io.StringIO()
    Console(out=out, err=io.StringIO()).lines([(Good("better"), " than before")])
    assert out.getvalue() == "better than before\n"


def test_the_least_and_the_most_of_the_iterations_stand_beside_one_method(tmp_path: Path) -> None:
    """Six questions of .2 in the first iteration, .6 in the second: a mean of .4 between .20 and .60."""
    tables = [[Row(f"q{n}", "a", {"faithfulness": value}) for n in range(6)] for value in (0.2, 0.6)]
    score_iterations(tmp_path, tables, SPECS[:1], ScoringSettings(slices=[]))
    run = RunFolder(tmp_path)
    combine_iterations(run, [1, 2], ScoringSettings(slices=[]))
    lines = text_of(read_report_data(run, run.iteration(2), ReportSettings(formats=["terminal"])), 100)
    assert next(line for line in lines if line.startswith("score")).split()[-2:] == ["passed", "iterations"]
    row = next(line for line in lines if line.startswith("faithfulness  "))
    assert row.split()[:5] == ["faithfulness", "end", "to", "end", "0.40"]
    assert row.split()[-1] == "0.20-0.60"
    assert lines[0].endswith("n = 6, 2 iterations; unsupported_answer in 100.0% of the cases.")


@pytest.mark.parametrize("columns", WIDTHS)
def test_an_id_that_is_a_hash_stands_with_its_question(tmp_path: Path, columns: int) -> None:
    sample, question = "h0123456789ab", "May a parcel stay at the counter over night?"
    data = data_of(tmp_path, [Row(sample, "a", {"faithfulness": 0.0}, labels={"question": question})])
    lines = text_of(data, columns)
    assert data.questions == {sample: question}
    row = next(line for line in lines if sample in line)
    assert columns_of(row) <= columns
    if columns >= 80:
        assert "May a parcel stay" in row
    if columns >= 160:
        assert question in row
        assert "sources do not support" in row, "and what is wrong"


def used(**counts: Any) -> dict[str, Any]:
    none = {"calls": 12, "calls_computed": 0, "calls_failed": 0, "uses": 12, "usd": 0.0, "usd_known": 0.0, "unpriced": 0}
    return {**none, "unpriced_reasons": {}, "failures": {}, "replies": 12, "tokens_in": 0, "tokens_out": 0, **counts}


@pytest.mark.parametrize(
    ("bill", "spent", "text"),
    [
        ({}, {"calls": 0}, "cost: judge 12 recorded replies, no call"),
        ({}, {"calls": 12}, "cost: judge 12 calls, $0.00"),
        ({"usd": 0.6, "usd_known": 0.6}, {"calls": 12}, "cost: judge 12 calls, $0.6000"),
        ({"usd": 0.6, "usd_known": 0.6}, {"calls": 0}, "cost: judge 12 calls, $0.6000, paid by this run 0 calls, $0.00"),
        ({"calls_failed": 2, "usd": 1.0, "usd_known": 1.0}, {"calls": 10}, "cost: judge 12 calls (2 without a reply), $1.00"),
        ({"calls": 1, "usd": 1.0, "usd_known": 1.0}, {"calls": 1}, "cost: judge 1 call, $1.00"),
        ({"calls_computed": 12}, {"calls": 0}, "cost: judge scripted 12 checks, no call"),
        ({"calls_computed": 12, "by_judge": {"detector/m@ab12": {}}}, {"calls": 0}, "cost: judge 12 checks, no call"),
    ],
)
def test_replies_that_cost_nothing_are_called_recorded(tmp_path: Path, bill: dict[str, Any], spent: dict[str, Any], text: str) -> None:
    data = data_of(tmp_path, [Row("q", "a", {"faithfulness": 1.0})])
    cost = {"used": used(**bill), "spent": {**used(), **spent}, "wasted": {"replies": 0, "usd": 0.0}}
    (line,) = cost_lines(replace(data, cost={**data.cost, **cost}))
    assert plain_text(line) == text


@pytest.mark.parametrize(("usage", "line", "note"), [
    # llamaindex-evaluators.md, "Putting It All Together": 1 (queryRag) + 15 + 15 + 1 (correctness) = 32 calls, 2 embeddings
    (
        {"calls": 1, "embedding_calls": 2, "prompt_tokens": 900, "completion_tokens": 100},
        "cost: judge 31 calls, $1.00; system 1 call, 2 embeddings, 1,000 tokens, price unknown",
        ["With the system: 32.0 calls (31.0 of the judge, 1.0 of the system) and 2.0 embeddings a case."],
    ),
    ({"requests": 3, "cost_usd": 0.5}, "cost: judge 31 calls, $1.00; system 3 calls, $0.5000",
     ["With the system: 34.0 calls (31.0 of the judge, 3.0 of the system) a case."]),
    ({"total_tokens": 1}, "cost: judge 31 calls, $1.00; system 1 token, price unknown", []),
])  # fmt: skip
def test_the_calls_of_a_whole_query_are_counted(tmp_path: Path, usage: dict[str, float], line: str, note: list[str]) -> None:
    data = data_of(tmp_path, [Row("query-004", "a", {"faithfulness": 1.0}, output={"usage": usage})])
    bill = {**used(calls=31, uses=31, replies=31, usd=1.0, usd_known=1.0), "per_case": {"calls": 31.0}}
    cost = {"used": bill, "spent": used(calls=31, replies=31), "wasted": {"replies": 0, "usd": 0.0}}
    assert plain_text(next(iter(cost_lines(replace(data, cost={**data.cost, **cost}))))) == line
    assert list(cost_with_system(bill, data.metrics["overall"]["operations"]["usage"])) == note


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_mean_of_too_few_questions_says_so_in_a_sweep(columns: int) -> None:
    """Job 1 has an interval of fewer than five questions, job 2 a single value and none, job 3 enough of them."""
    bounds, declared = {"low": 0.1, "high": 0.9}, {"low": 0, "high": 1, "higher_is_better": True, "threshold": 0.5}
    names = ("faithfulness", "groundedness", "correctness")
    jobs, rows = [], []
    for number, (n, interval) in enumerate(((4, {**bounds, "too_few": True}), (1, None), (8, bounds))):
        figures = {"mean": 0.5, "n_ok": n, "interval": interval, **({} if interval else {"interval_reason": "one_value"})}
        metrics = {
            "iterations": [1], "scoring": {"weights_used": {}, "coverage_floor": 0.95}, "by": {"method": {}},
            "declared": dict.fromkeys(names, declared),
            "overall": {"n_cases": 10, "n_samples": 10, "scores": dict.fromkeys(names, figures)},
        }  # fmt: skip
        cost = {"total": {"used": used(usd=0.5, usd_known=0.5), "spent": used()}}
        jobs.append(Job(number, [f"k={number + 1}"], 0, "complete", folder=Path("out"), metrics=metrics, cost=cost))
        ends = {"interval_low": interval and interval["low"], "interval_high": interval and interval["high"], "n_ok": n}
        row = {**dict.fromkeys(COMPARISON_SCHEMA.names), "job": number, "mean": 0.5, "ranked_with": 0, **ends}
        rows += [{**row, "score": name} for name in names]
    texts = terminal_of(report_of(sweep_section(jobs, rows)), columns).splitlines()
    assert max(map(columns_of, texts)) <= columns
    assert [text.split()[:5] for text in texts[1:3]] == [["k=1", "0.50", "too", "few", "4"], ["k=2", "0.50", "too", "few", "1"]]
    assert texts[3].split()[:4] == ["k=3", "0.50", "[0.10,", "0.90]"]
