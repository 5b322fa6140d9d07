"""What a page says in words beside its figures: of a judge that is embedded, of a composite that lacks parts, of a scale."""

from pathlib import Path
from typing import Any

import pytest

from ragpipe.reports.build import build_report
from ragpipe.reports.model import Chart, Report
from ragpipe.reports.settings import ReportSettings
from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.settings import ScoringSettings
from ragpipe.stages.write_reports import read_report_data
from ragpipe.store.run.run_folder import RunFolder
from tests.support.reports import markdown_of
from tests.support.run_tables import Row, score, write_run

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

SPECS = [ScoreSpec(name, 0, 1) for name in ("faithfulness", "citation")]
WEIGHTS = {"faithfulness": 0.4, "citation": 0.4, "rejection_calibration": 0.2}


def report_of(root: Path, calls: list[dict[str, Any]], **report: Any) -> Report:
    """Six questions, two methods, two of the three parts of the overall score."""
    rows = [
        Row(f"q{n}", method, {"faithfulness": value, "citation": value})
        for method, value in (("old", 0.2), ("new", 0.8))
        for n in range(6)
    ]
    write_run(root, rows, calls)
    settings = {"thresholds": {"faithfulness": 0.5}, "weights": WEIGHTS, "fill_defaults": False}
    score(root, SPECS, ScoringSettings.model_validate(settings))
    run = RunFolder(root)
    return build_report(read_report_data(run, run.iteration(1), ReportSettings.model_validate(report)))


def embedded_call(key: str, status: str = "ok") -> dict[str, Any]:
    names = {"sample_id": "q0", "method": "old", "metric": "faithfulness", "judge": "j"}
    return {**names, "key": key, "status": status, "attempts": 0}


def test_questions_that_were_answered_here_are_not_called_calls(tmp_path: Path) -> None:
    page = markdown_of(report_of(tmp_path, [embedded_call("1"), embedded_call("2")]))
    cost = page.partition("## Cost")[2].partition("\n## ")[0]
    assert "| metric | questions | failed |" in cost
    assert "| `all` | 2 | 0 |" in cost
    assert "tokens" not in cost
    assert "A case on average" not in cost


def test_a_question_without_a_stored_reply_was_not_answered_here(tmp_path: Path) -> None:
    page = markdown_of(report_of(tmp_path, [embedded_call("1", "missing_reply")]))
    assert "answered without a call" not in page
    assert "missing_reply" in page.partition("## Cost")[2].partition("\n## ")[0]


def test_the_first_chart_names_the_parts_of_an_overall_score(tmp_path: Path) -> None:
    report = report_of(tmp_path, [], formats=["html"])
    (better,) = (section for section in report.sections if section.name == "better")
    markup = "".join(str(part.markup) for part in better.parts if isinstance(part, Chart))
    assert "overall_score: 2 of 3 parts (faithfulness, citation)." in markup


@pytest.mark.parametrize(("percent", "count"), [([], 0), (["faithfulness"], 1)])
def test_a_scale_is_explained_where_it_is_used(tmp_path: Path, percent: list[str], count: int) -> None:
    page = markdown_of(report_of(tmp_path, [], percent=percent))
    assert page.count("a score of 0 to 1, printed times 100") == count
