"""The short result of a run: its lines at every width, from runs written by hand."""

from __future__ import annotations

import io
import os
import pty
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragpipe.reports.console import Console
from ragpipe.reports.report_data import ReportData
from ragpipe.reports.settings import ReportSettings
from ragpipe.reports.short_report import each_kind_once, print_short_report, result_lines, warning_lines
from ragpipe.reports.styled_text import (
    Bad,
    Good,
    Screen,
    columns_of,
    cut,
    cut_apart,
    cut_in_the_middle,
    narrowed,
    table_columns,
    table_lines,
    wrapped,
)
from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.gates.gate_settings import Gate
from ragpipe.scoring.settings import ScoringSettings
from ragpipe.stages.write_reports import read_report_data
from ragpipe.store.run.run_folder import RunFolder
from tests.support.run_tables import Row, score, write_run

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

WIDTHS = (60, 80, 100, 160)
SPECS = [ScoreSpec("faithfulness"), ScoreSpec("correctness", 1, 5)]
EVIL = "[red]a[/red] \x1b[2J\u202e=H(1)"
LONG = "a_method_with_a_name_of_sixty_characters_that_nobody_can_read"


def data_of(root: Path, rows: Sequence[Row], **gates: Gate) -> ReportData:
    """What the short result is made from."""
    write_run(root, rows)
    score(root, SPECS, ScoringSettings(gates=gates, slices=[]))
    run = RunFolder(root)
    return read_report_data(run, run.iteration(1), ReportSettings(formats=["terminal"]))


def rows_of(methods: Mapping[str, Sequence[float]]) -> list[Row]:
    """One case per method and value, of the questions q0, q1, ..."""
    return [
        Row(f"q{place}", method, {"faithfulness": value})
        for method, values in methods.items()
        for place, value in enumerate(values)
    ]


def text_of(data: ReportData, columns: int) -> list[str]:
    return ["".join(line) for line in result_lines(data, Screen(columns))]


def test_two_methods_stand_with_their_paired_difference(tmp_path: Path) -> None:
    """Six questions, each better by a half: a mean of .25 against one of .75, and a difference of one half in all of them."""
    data = data_of(tmp_path, rows_of({"old": [0.25] * 6, "new": [0.75] * 6}))
    lines = text_of(data, 100)
    assert lines[0] == "no gates: 2 methods, 12 cases, 6 questions; no judge"
    place = next(
        number for number, line in enumerate(lines) if line.startswith("faithfulness: mean [95% interval], n,")
    )
    assert lines[place].endswith("difference from old, pairs of cases")
    assert lines[place + 1].split()[:2] == ["old", "0.25"]
    assert lines[place + 1].split()[-1] == "6"
    assert lines[place + 2].split()[:2] == ["new", "0.75"]
    assert "+0.500" in lines[place + 2]


@pytest.mark.thorough(tried=4)
@pytest.mark.slow
@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("count", [1, 3, 12])
def test_nothing_is_wider_than_the_screen(tmp_path: Path, columns: int, count: int) -> None:
    names = [LONG, EVIL, "漢字" * 20, *(f"method-{number}" for number in range(9))][:count]
    values = {name: [place / 12, 0.5, 1.0, 0.0, 0.3] for place, name in enumerate(names)}
    rows = [replace(row, results={**row.results, "correctness": 3.0}) for row in rows_of(values)]
    lines = text_of(data_of(tmp_path, rows), columns)
    assert max(map(columns_of, lines)) <= columns
    assert not [line for line in lines if "\x1b" in line or "\u202e" in line]
    assert len(lines) <= 24


def test_of_twelve_methods_the_first_the_best_and_the_worst_are_shown(tmp_path: Path) -> None:
    lines = text_of(data_of(tmp_path, rows_of({f"m{n:02}": [n / 12] for n in range(12)})), 100)
    assert [line.split()[0] for line in lines if line.startswith("m")] == ["m00", "m01", "m02", "m09", "m10", "m11"]
    assert "and 6 methods between them in the report" in lines


@pytest.mark.parametrize(
    ("output", "error"),
    [({}, "first error: q0: faithfulness: timeout: no answer"), ({"error": "HTTP 500"}, "first error: q0: HTTP 500")],
)
def test_a_run_without_a_value_says_why(tmp_path: Path, output: dict[str, str], error: str) -> None:
    rows = [Row(f"q{n}", "a", {"faithfulness": ("error", "timeout: no answer")}, output=output) for n in range(4)]
    lines = text_of(data_of(tmp_path, rows), 80)
    assert "no evidence: 0 of 4 cases have a score" in lines
    assert error in lines
    assert any(line.startswith("no value: faithfulness (timeout 4)") for line in lines)


def gate_of(verdict: str, outcome: str, **more: Any) -> dict[str, Any]:
    return {
        "name": "reject",
        "score": "faithfulness",
        "of": "mean",
        "min": 0.7,
        "max": None,
        "where": {},
        "tier": "critical",
        "value": 0.62,
        "interval": {"low": 0.53, "high": 0.7},
        "n_ok": 40,
        "values": [0.62],
        "n_cases": 40,
        "verdict": verdict,
        "outcome": outcome,
        "sentence": f"mean of faithfulness is 0.62 over 40 cases (at least 0.7): {verdict.replace('_', ' ')}, a reason",
        **more,
    }


@pytest.mark.parametrize(
    ("gates", "line"),
    [
        ([gate_of("failed", "blocked")], "BLOCKED: 1 of 1 gate failed: reject 0.62 [0.53, 0.70], at least 0.7"),
        ([gate_of("passed", "passed", name=f"g{n}") for n in range(4)], "passed: 4 of 4 gates"),
        (
            [gate_of("passed", "passed"), gate_of("inconclusive", "warned", name="b")],
            "not blocked, with warnings: 1 of 2 gates passed; b 0.62 [0.53, 0.70], at least 0.7 (inconclusive, critical)",
        ),
        (
            [gate_of("no_evidence", "blocked", value=None, interval=None)],
            "BLOCKED: 1 of 1 gate did not pass: reject, at least 0.7 (no evidence)",
        ),
        (
            [gate_of("not_applicable", "reported", value=None, interval=None, name="c"), gate_of("passed", "passed")],
            "passed: 1 of 2 gates; c, at least 0.7 (not applicable, critical)",
        ),
    ],
)
def test_the_first_line_is_the_verdict(tmp_path: Path, gates: list[dict[str, Any]], line: str) -> None:
    data = replace(data_of(tmp_path, rows_of({"a": [0.5]})), gates={"gates": gates})
    lines = text_of(data, 160)
    assert lines[0] == line
    assert lines[1].split() == ["gate", "tier", "value", "limit", "cases", "verdict"]


def test_warnings_stand_once_per_kind_and_in_four_lines() -> None:
    late = [("late", "faithfulness: 3 cases are late"), ("late", "mrr: 12 cases are late")]
    assert each_kind_once([*late, ("x", "other"), late[0]]) == [
        "faithfulness: 3 cases are late (and 1 more such warning)",
        "other",
    ]
    many = [f"{'word ' * 20}{letter}" for letter in "abcdef"]
    lines = ["".join(line) for line in warning_lines(many, "report.html", Screen(80))]
    assert len(lines) <= 4
    assert lines[-1] == "warning: and 5 more in report.html"


def test_lines_are_cut_and_wrapped_by_columns() -> None:
    assert cut("abcdefgh", 6) == "abc..."
    assert cut("漢字漢字", 7) == "漢字..."
    assert cut_in_the_middle("abcdefghijklmnop", 11) == "abcde...nop"
    line = (Bad("BLOCKED:"), " 1 of 4 gates failed and here is more")
    assert wrapped(line, 24) == [("BLOCKED:", " 1 of 4 gates"), ("  ", "failed and here is"), ("  ", "more")]
    assert type(wrapped(line, 24)[0][0]) is Bad
    grid = [["name", "a", "b"], ["x", "1", "22"]]
    assert table_columns(grid) == 11
    assert ["".join(row) for row in table_lines(grid)] == ["name  a   b", "x     1  22"]
    assert narrowed(grid, ("c", "a"), 8) == [["name", "b"], ["x", "22"]]


@pytest.mark.parametrize(
    ("names", "limit", "shortened"),
    [
        (["llama-2-7b-chat", "llama-2-13b-chat"], 12, ["ll...7b-chat", "l...13b-chat"]),
        (["a" * 12 + "1" + "z" * 12, "a" * 12 + "2" + "z" * 12], 10, ["...1zzz...", "...2zzz..."]),
        (["v1" + "z" * 20, "v2" + "z" * 20], 12, ["v1zzzz...zzz", "v2zzzz...zzz"]),
        (["short", "llama-2-70b-chat"], 16, ["short", "llama-2-70b-chat"]),
        (["same-name-of-a-method"] * 2, 12, ["same-n...hod"] * 2),
    ],
)
def test_names_that_differ_are_cut_so_that_they_differ(names: list[str], limit: int, shortened: list[str]) -> None:
    assert [cut_in_the_middle(name, 12) for name in ("llama-2-7b-chat", "llama-2-13b-chat")] == ["llama-...hat"] * 2
    assert cut_apart(names, limit) == shortened
    assert len(set(cut_apart(names, limit))) == len(set(names))
    assert all(columns_of(text) <= limit for text in cut_apart(names, limit))


MODELS = ("llama-2-7b-chat", "llama-2-13b-chat", "llama-2-70b-chat", "gpt-3.5-turbo-0613", "gpt-4-0613", "mistral-7b")


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@pytest.mark.parametrize("columns", [60, 80, 150])
def test_every_mean_has_its_count_and_too_few_is_said_at_every_width(tmp_path: Path, columns: int) -> None:
    """Six methods over four questions each: an interval says nothing, and each mean is of four values."""
    rows = rows_of({name: [1.0, 0.5, 0.0, 0.5] for name in MODELS})
    rows = [replace(row, results={**row.results, "correctness": 3.0}) for row in rows]
    lines = text_of(data_of(tmp_path, rows), columns)
    first = [line for line in lines if line.startswith(MODELS)][:6]
    assert [line.split()[0] for line in first] == list(MODELS)
    assert all(line.split()[1:5] == ["0.50", "too", "few", "4"] for line in first)
    rest = lines[lines.index(first[-1]) + 1 :]
    second = "\n".join(rest)
    assert second.count("3.00 too few") == second.count("3.00") == 6
    counts = [line.split() for line in rest if line.startswith(("n ", "correctness 1-5  "))]
    assert counts[0][1] == "4" if columns == 60 else "4" in counts[0]


def test_one_method_keeps_its_count_on_a_narrow_screen(tmp_path: Path) -> None:
    lines = text_of(data_of(tmp_path, rows_of({"a": [1.0, 0.5, 0.0, 0.5]})), 40)
    assert next(line for line in lines if line.startswith("faithfulness")).split() == [
        "faithfulness",
        "0.50",
        "too",
        "few",
        "4",
    ]


def printed_on_a_terminal(monkeypatch: pytest.MonkeyPatch, **environment: str) -> str:
    """What a terminal gets of one good word."""
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


def test_an_ascii_stream_gets_ascii(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    data = data_of(tmp_path, rows_of({"größe": [0.5], "漢字": [1.0]}))
    print_short_report(data, "outputs/x/report.html", Console(out=out, err=io.StringIO()))
    out.seek(0)
    lines = out.read().splitlines()
    assert any(line.startswith("gr\\xf6\\xdfe ") for line in lines)
    assert lines[-1] == "report: outputs/x/report.html"
