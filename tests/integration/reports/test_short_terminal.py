"""The short result of real runs: how many lines the quickstart and a sweep end with, at every width."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from ragpipe.cli import main
from ragpipe.reports.settings import ReportSettings
from ragpipe.reports.short_report import cost_lines, each_kind_once, result_lines, warning_lines, warnings_of
from ragpipe.reports.styled_text import Screen, columns_of
from ragpipe.stages.write_reports import read_report_data
from ragpipe.store.run.run_folder import RunFolder
from tests.support.finished_runs import FinishedRuns
from tests.support.terminals import on_a_terminal

pytestmark = pytest.mark.slow  # whole runs

SWEEP = ["-m", "+experiment=quickstart", "metrics=[retrieval]", "scoring.thresholds.retrieval_score=0.5,0.6,0.7,0.8"]


def _screen_lines(text: str, columns: int) -> int:
    """Lines that a terminal of this width shows."""
    return sum(max(1, math.ceil(columns_of(line) / columns)) for line in text.splitlines())


@pytest.fixture(scope="module")
def run(finished_runs: FinishedRuns) -> RunFolder:
    return RunFolder(finished_runs.of("+experiment=quickstart", "report.formats=[]").latest())


@pytest.mark.parametrize(("columns", "most"), [(60, 32), (80, 25), (100, 25), (160, 25)])
def test_the_result_of_the_quickstart_fits_a_screen(run: RunFolder, columns: int, most: int) -> None:
    """With the plan, two lines of progress and the path of the report."""
    data = read_report_data(run, run.iteration(1), ReportSettings(percent=["faithfulness"]))
    screen = Screen(columns)
    warnings = warning_lines(each_kind_once(warnings_of(data)), "report.html", screen)
    lines = ["".join(line) for line in (*result_lines(data, screen), *warnings, *cost_lines(data, screen))]
    plan = math.ceil(76 / columns)
    assert len(lines) + plan + 2 + 1 <= most
    assert max(map(columns_of, lines)) <= columns
    shown = "\n".join(lines)
    for method in ("baseline", "rerank", "no_rerank_small_k"):
        assert f"\n{method} " in shown
    assert "+0.184" in shown
    assert "and 0 more" not in shown


def test_a_start_prints_at_most_25_lines_and_the_page_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(
        "ragpipe.reports.console.PLAIN_S", 3600
    )  # a line of progress more for each 5 s of a slow machine
    assert main(["+experiment=quickstart"]) == 0
    shown = capfd.readouterr()
    assert _screen_lines(shown.out + shown.err, 80) <= 25
    page = shown.out.splitlines()[-1].removeprefix("report: ")
    assert Path(page).is_file()
    assert main(["+experiment=quickstart", "report.detail=full"]) == 0
    assert _screen_lines(capfd.readouterr().out, 80) > 100


@pytest.mark.thorough
def test_a_sweep_of_four_jobs_is_one_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(
        "ragpipe.reports.console.PLAIN_S", 3600
    )  # a line of progress more for each 5 s of a slow machine
    assert main(SWEEP) == 0
    shown = capfd.readouterr()
    assert _screen_lines(shown.out + shown.err, 80) <= 30
    lines = shown.out.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("job ")] == ["1/4", "2/4", "3/4", "4/4", "method"]
    assert [line.split()[0] for line in lines if line.startswith("retrieval_score=")] == [
        f"retrieval_score={threshold}" for threshold in (0.5, 0.6, 0.7, 0.8)
    ]
    assert not any("to the best" in line for line in lines), "a threshold changes no score"
    assert Path(lines[-1].removeprefix("comparison: ")).is_file()


@pytest.mark.thorough
def test_a_terminal_gets_colours_unless_it_wants_none(tmp_path: Path) -> None:
    words = ["+experiment=quickstart", f"output_dir={tmp_path / 'out'}"]
    coloured = on_a_terminal(words, tmp_path, 80, TERM="xterm-256color")
    assert "\x1b[32mbetter\x1b[0m" in coloured
    assert "\x1b[33mwarning:\x1b[0m" in coloured
    plain = on_a_terminal(words, tmp_path, 80, TERM="xterm-256color", NO_COLOR="1")
    result = plain[plain.index("no gates:") :]
    assert "better" in result
    assert "\x1b[" not in result
