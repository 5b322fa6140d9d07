"""What report.html says above its cases: verdict, order, charts and their links, on small literal runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ragpipe.reports.build import build_report, section_builders
from ragpipe.reports.model import Chart, Report, Section, plain_text
from ragpipe.reports.run_page.run_page import front_markup
from ragpipe.reports.settings import ReportSettings
from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.settings import ScoringSettings
from ragpipe.stages.write_reports import read_report_data
from ragpipe.store.run.run_folder import RunFolder
from tests.support.run_tables import Result, Row, score, write_run

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

GRADE = ScoreSpec("grade", 0, 1)
BASE: dict[str, Any] = {"thresholds": {"grade": 0.5}, "weights": {"grade": 1.0}, "fill_defaults": False}


def report_of_rows(root: Path, rows: list[Row], **scoring: Any) -> Report:
    write_run(root, rows)
    metrics = score(root, [GRADE], ScoringSettings.model_validate({**BASE, **scoring}))
    assert metrics["n_cases"] == len(rows)
    run = RunFolder(root)
    return build_report(read_report_data(run, run.iteration(1), ReportSettings(formats=["html"])))


def rows_of(**methods: list[Result]) -> list[Row]:
    """A row per value, question q0 and on for each method; the first half of the questions is of category a."""
    return [
        Row(f"q{n}", method, {"grade": value}, {"category": "a" if n < len(values) / 2 else "b"})
        for method, values in methods.items()
        for n, value in enumerate(values)
    ]


def verdict_text(report: Report) -> str:
    assert report.verdict is not None
    return " ".join([report.verdict.lead, *map(plain_text, report.verdict.sentences)])


def section(report: Report, name: str) -> Section:
    return next(section for section in report.sections if section.name == name)


def charts(report: Report, name: str) -> str:
    return "".join(str(part.markup) for part in section(report, name).parts if isinstance(part, Chart))


def test_one_method_has_its_mean_and_says_that_there_are_no_gates(tmp_path: Path) -> None:
    """12 of 20 are 1: the mean is .6."""
    report = report_of_rows(tmp_path, rows_of(bot=[0.0] * 8 + [1.0] * 12))
    assert re.match(r"no gates grade 0\.60 \[0\.\d\d, 0\.\d\d\], n = 20\.$", verdict_text(report))
    better = section(report, "better")
    assert better.title == "How good?"
    assert '<a href="#v=1&amp;score=grade&amp;verdict=fail">grade</a>' in charts(report, "better")
    assert '<line class="limit" x1="50.0" x2="50.0"' in charts(report, "better")


def test_a_method_that_is_better_in_every_pair_beats_the_first(tmp_path: Path) -> None:
    """Ten pairs: differences of .3 and .5 in turn, .4 on average."""
    new = [0.4 + 0.1 * (n % 2 * 2) for n in range(10)]
    report = report_of_rows(tmp_path, rows_of(old=[0.1] * 10, new=new))
    sentence = r"new beats old by 0\.400 \[0\.\d{3}, 0\.\d{3}\] in grade over 10 pairs\.$"
    assert re.search(sentence, verdict_text(report))
    html = charts(report, "better")
    assert "10 / 0 / 0" in html
    assert '<a href="#v=1&amp;score=grade&amp;only=1">grade</a>' in html


def test_a_method_that_is_worse_is_behind_by_a_positive_amount(tmp_path: Path) -> None:
    new = [0.1 + 0.2 * (n % 2) for n in range(10)]
    report = report_of_rows(tmp_path, rows_of(old=[0.6] * 10, new=new))
    sentence = r"new is behind old by 0\.400 \[(0\.\d{3}), (0\.\d{3})\] in grade over 10 pairs"
    match = re.search(sentence, verdict_text(report))
    assert match
    assert float(match[1]) < 0.4 < float(match[2])


def test_few_questions_show_no_interval(tmp_path: Path) -> None:
    report = report_of_rows(tmp_path, rows_of(old=[0.1, 0.3, 0.2], new=[0.9, 0.8, 0.9]))
    assert "new against old in grade: n = 3, too few to tell" in verdict_text(report)
    html = charts(report, "better")
    assert "n = 3: too few" in html
    assert 'class="interval"' not in html


def test_nothing_judged_is_no_evidence_with_the_first_error(tmp_path: Path) -> None:
    report = report_of_rows(tmp_path, rows_of(bot=[("error", "timeout: no reply")] * 4))
    assert report.verdict is not None
    assert (report.verdict.kind, report.verdict.lead) == ("bad", "no evidence")
    assert "0 of 4 cases have a value of any score. First error: grade timeout" in verdict_text(report)
    assert "4 judgements failed" in report.verdict.remarks
    front_markup(report)


def test_gates_stand_blocked_first_with_their_state_and_link(tmp_path: Path) -> None:
    """20 cases with the mean .6; in category a it is .2: 2 of 10."""
    gates = {
        "fine": {"score": "grade", "of": "mean", "min": 0.1, "by": "point"},
        "high": {"score": "grade", "of": "mean", "min": 0.9, "by": "point", "where": {"category": "a"}},
        "warns": {"score": "grade", "of": "mean", "min": 0.95, "by": "point", "tier": "quality"},
        "looks": {"score": "grade", "of": "mean", "min": 0.99, "by": "point", "tier": "diagnostic"},
    }
    values: list[Result] = [0.0] * 8 + [1.0] * 12
    report = report_of_rows(tmp_path, rows_of(bot=values), gates=gates, accept_uncalibrated=True)
    assert verdict_text(report).startswith("blocked 1 of 4 gates: high 0.2")
    html = charts(report, "gates")
    badges = re.findall(r'<span class="badge (\w*)">([^<]*)</span>', html)
    assert badges == [
        ("bad", "failed, blocked"),
        ("warn", "failed, warned"),
        ("good", "passed"),
        ("", "failed, reported"),
    ]
    assert 'href="#v=1&amp;score=grade&amp;verdict=fail&amp;slice=category:a">high</a>' in html
    assert '<line class="limit" x1="90.0" x2="90.0"' in html
    assert re.search(r'high</a>.*?<line class="mean" x1="20\.0"', html, re.DOTALL)


def test_what_is_wrong_goes_by_diagnosis_and_opens_its_cases(tmp_path: Path) -> None:
    """Three of ten gave no answer, one failed to answer at all."""
    answers = [{"answer": ""}] * 3 + [{"answer": None, "error": "TimeoutError: slow"}] + [{"answer": "Yes."}] * 6
    rows = [Row(f"q{n}", "bot", {"grade": 1.0}, {}, answer) for n, answer in enumerate(answers)]
    html = charts(report_of_rows(tmp_path, rows, fill_defaults=True), "problems")
    assert re.findall(r"mode=(\w+)", html)[:2] == ["blank_answer", "system_failure"]
    assert re.findall(r"<b>([\d.]+%)</b>", html)[:2] == ["30.0%", "10.0%"]
    assert re.findall(r'class="share" x="0" y="0" width="([\d.]+)"', html)[:2] == ["30.0", "10.0"]


def test_without_a_diagnosis_the_failure_modes_are_shown(tmp_path: Path) -> None:
    """Two of ten fail the grade."""
    rows = [Row(f"q{n}", "bot", {"grade": 0.0 if n < 2 else 1.0}, {}, {}) for n in range(10)]
    html = charts(report_of_rows(tmp_path, rows, failure_modes={"low": {"score": "grade", "below": 0.5}}), "problems")
    assert re.findall(r"mode=(\w+)", html) == ["low"]
    assert re.findall(r"<b>([\d.]+%)</b>", html) == ["20.0%"]


@pytest.mark.slow
def test_a_slice_is_shaded_where_its_interval_leaves_the_mean_of_the_run_out(tmp_path: Path) -> None:
    """Category a is 0 in each of 20 cases, b is 1 in each of 20: the mean of the run is .5."""
    report = report_of_rows(tmp_path, rows_of(bot=[0.0] * 20 + [1.0] * 20))
    html = charts(report, "slices")
    link = "#v=1&amp;score=grade&amp;verdict=fail&amp;slice=category:a"
    assert re.search(
        rf'<td class="worse-2"><a href="{link}" title="[^"]*worse than the whole run, 0.50">▼ 0.00</a>', html
    )
    assert re.search(r'<td class="better-2"><a [^>]*>▲ 1.00</a>', html)


def test_a_slice_of_few_questions_is_grey(tmp_path: Path) -> None:
    report = report_of_rows(tmp_path, rows_of(bot=[0.0] * 3 + [1.0] * 3))
    assert re.findall(r'<td class="([\w -]+)">', charts(report, "slices")) == ["grey few", "grey few"]


def test_bars_name_the_values_of_their_cases(tmp_path: Path) -> None:
    """.12 and .19 are in the bar of .1 to .2; 1 is in the last one."""
    report = report_of_rows(tmp_path, rows_of(bot=[0.12, 0.19, 1.0, 1.0, 1.0]))
    links = re.findall(
        r'href="#v=1&amp;score=grade&amp;from=([\d.]+)&amp;to=([\d.]+)" aria-label="([^"]*)"', charts(report, "spread")
    )
    assert links == [("0.12", "0.19", "2 cases, 0.12 to 0.19"), ("1", "1", "3 cases, 1")]


def test_what_the_system_did_not_record_is_said_and_not_zero(tmp_path: Path) -> None:
    rows = rows_of(bot=[0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    for row in rows:
        row.output = {"timings": {"total": 200.0}}
    report = report_of_rows(tmp_path, rows)
    (chart,) = [part for part in section(report, "spread").parts if isinstance(part, Chart) and part.title == "Quality, latency and cost"]  # fmt: skip
    assert "Not recorded by the system: tokens and cost." in plain_text(chart.note)
    assert "200 [200, 200] ms" in chart.markup
    assert "not recorded" in chart.markup


def test_sections_stand_in_the_order_in_which_they_are_asked_for(tmp_path: Path) -> None:
    gates = {"fine": {"score": "grade", "of": "mean", "min": 0.1, "by": "point"}}
    rows = rows_of(old=[0.1, 0.6] * 5, new=[0.3, 0.9] * 5)
    report = report_of_rows(tmp_path, rows, gates=gates, accept_uncalibrated=True)
    names = [section.name for section in report.sections if section.name not in ("lowest", "distributions")]
    expected = ["better", "scores", "methods", "gates", "slices", "spread", "coverage", "cost", "operations", "reading"]
    where = "a section of the first page stands here too, in the order of `section` in ragpipe/core/built_in.py"
    assert [name for name in names if name in expected] == expected, where
    assert len(section_builders()) == len(set(section_builders()))
    front = front_markup(report)
    above, below = (re.findall(r'<section id="(\w+)"', str(part)) for part in (front.sections, front.fine_print))
    on_the_page = ["better", "scores", "methods", "gates", "spread", "slices"]  # the second column before where
    assert [name for name in above if name in expected] == on_the_page, "and here, in the order of the page"
    assert below == expected[6:], where
    assert str(front.fine_print).rstrip().endswith("</ul>"), "the signature stands last"


@pytest.mark.slow
@pytest.mark.parametrize("name", ['</a><script>alert(1)</script>"', "m" * 60])
def test_twelve_methods_with_any_name_are_borne(tmp_path: Path, name: str) -> None:
    methods = {f"{name}{place}": [0.1 * (place % 9), 0.5, 0.9, 0.4, 0.3, 0.2] for place in range(12)}
    report = report_of_rows(tmp_path, rows_of(**methods))
    front = front_markup(report)
    html = str(front.head + front.sections + front.fine_print)
    assert "<script" not in html
    assert verdict_text(report).count("The other 10:") == 1
    assert html.count('class="forest"') == 11
    assert html.count('class="histogram"') <= 12
