"""What the documents' dashboards show: bands of low scores, categories, scores by stage; and the same as CSV files."""

import csv
from pathlib import Path
from typing import Any

import pytest

from ragpipe.core.score import ScoreSpec
from ragpipe.report.settings import ReportSettings
from ragpipe.runs.write_reports import build_report, read_report_data, write_report_files
from ragpipe.score.settings import ScoringSettings
from ragpipe.store.run_folder import RunFolder
from ragpipe.testing.scripted import shipped_metric
from tests.support.compared_runs import scored_run
from tests.support.reports import html_of, markdown_of, terminal_of
from tests.support.run_tables import Row

AXES = (
    ScoreSpec("answer_faithfulness", 1, 5, metric="synthesis", stage="generation"),
    ScoreSpec("answer_completeness", 1, 5, metric="synthesis", stage="generation"),
)
SYNTHESIS = {"faithfulness": [1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 5, 5], "completeness": [1, 2, 2, 3, 3, 3, 3, 3, 4, 4, 5, 5]}
"""Low answers as in answer-synthesis-evaluation.md: 3 completely false, 3 mostly false, 4 mixed; completeness 1, 2 and 5 in its bands."""
CATEGORIES = {  # rag-evaluation-framework.md, 7.3: total, passed, rate
    "should_answer_complete": (100, 96, "96.0%"), "should_answer_partial": (50, 42, "84.0%"), "should_reject_policy": (100, 97, "97.0%"),
    "should_reject_no_ctx": (30, 26, "86.7%"), "edge_cases": (20, 14, "70.0%"),
}  # fmt: skip


def finished(root: Path, specs: tuple[ScoreSpec, ...], rows: list[Row], **settings: Any) -> RunFolder:
    scoring = ScoringSettings.model_validate({"weights": {specs[0].name: 1.0}, **settings})
    return scored_run(root, rows, specs=specs, scoring=scoring)


@pytest.fixture
def low_run(tmp_path: Path) -> RunFolder:
    values = zip(SYNTHESIS["faithfulness"], SYNTHESIS["completeness"], strict=True)
    rows = [
        Row(f"q{n}", "a", {"answer_faithfulness": (one, "Claim 3 is not in it"), "answer_completeness": two}, {"category": "courses" if one < 3 else "other"})
        for n, (one, two) in enumerate(values)
    ]  # fmt: skip
    return finished(tmp_path, AXES, rows)


@pytest.fixture
def dashboard(tmp_path: Path) -> RunFolder:
    rows = [
        Row(f"{category}-{n}", "a", {"answer_relevance": float(n < passed)}, {"category": category})
        for category, (total, passed, _) in CATEGORIES.items()
        for n in range(total)
    ]
    return finished(tmp_path, (ScoreSpec("answer_relevance", binary=True),), rows, thresholds={"answer_relevance": 1.0})


def report_of(run: RunFolder) -> Any:
    return build_report(read_report_data(run, run.iteration(1), ReportSettings(formats=["markdown"])))


def test_tables_of_low_scores_and_stages(low_run: RunFolder) -> None:
    page = markdown_of(report_of(low_run))
    section = page.partition("## Low scores")[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("| `")]
    bands = {(row[0], row[1]): row[2] for row in cells if len(row) == 5}
    assert bands == {
        ("`answer_faithfulness`", "`completely_false`"): "3 of 12 (25.0%)",
        ("`answer_faithfulness`", "`mostly_false`"): "3 of 12 (25.0%)",
        ("`answer_faithfulness`", "`mixed`"): "4 of 12 (33.3%)",
        ("`answer_completeness`", "`fail`"): "1 of 12 (8.3%)",
        ("`answer_completeness`", "`weak`"): "2 of 12 (16.7%)",
        ("`answer_completeness`", "`descriptive_only`"): "5 of 12 (41.7%)",
    }
    assert "Allow only facts of the contexts in the system prompt." in section
    assert ["`answer_completeness`", "`category: courses`", "6 of 6 (100.0%)", "1.5 x"] in cells
    assert "Low scores" in html_of(report_of(low_run))
    assert stages_of(low_run) == ["### Generation"]


def test_tables_of_the_dashboard(dashboard: RunFolder) -> None:
    report = report_of(dashboard)
    page, screen, markdown = html_of(report), terminal_of(report), markdown_of(report)
    opened = page.partition('<section id="categories"')[2].partition("<details")[0]
    for category, (total, passed, rate) in CATEGORIES.items():
        assert f"| `{category}` | {total} | {passed} | {rate} |" in markdown
        assert [category, str(total), str(passed), rate] in [line.split() for line in screen.splitlines()]
        assert f"{category}</a>" in opened
        assert f"{passed} of {total}" in opened
        assert rate in opened
    assert stages_of(dashboard) == ["### End to end"]
    written = write_report_files(dashboard, dashboard.iteration(1), ReportSettings(formats=["csv"]))
    folder = dashboard.export / "report"
    assert {path.name for path in written if path.parent == folder} == {
        f"{name}.csv" for name in ("scores", "categories", "gates", "failure_modes", "low_scores")
    }
    categories = {
        row["category"]: (int(row["total"]), int(row["passed"]), f"{float(row['rate']):.1%}") for row in rows_of(folder / "categories.csv")
    }
    assert categories == CATEGORIES
    scores = {(row["field"], row["value"], row["score"]): row for row in rows_of(folder / "scores.csv")}
    assert float(scores["", "", "answer_relevance"]["mean"]) == pytest.approx(275 / 300)
    edge = scores["category", "edge_cases", "answer_relevance"]
    assert (edge["n"], float(edge["pass_rate"]), edge["stage"]) == ("20", 0.7, "end_to_end")
    modes = {row["failure_mode"]: row for row in rows_of(folder / "failure_modes.csv") if not row["field"]}
    assert (modes["irrelevant_answer"]["n"], modes["irrelevant_answer"]["n_cases"]) == ("25", "300")


STAGES = {  # rag-evaluation-framework.md, 3.2; the other metrics by what they use
    "retrieval": "retrieval", "context_relevance": "retrieval", "context_recall": "retrieval", "faithfulness": "generation",
    "groundedness": "generation", "context_utilization": "generation", "citation": "generation", "attribution_hit": "generation",
    "answer_relevance": "end_to_end", "policy_compliance": "end_to_end", "format": "end_to_end", "correctness": "end_to_end",
}  # fmt: skip


@pytest.mark.parametrize(("metric", "stage"), STAGES.items())
def test_scores_have_the_stage_of_the_document(metric: str, stage: str) -> None:
    assert {spec.stage for spec in shipped_metric(metric).score_specs} == {stage}


def stages_of(run: RunFolder) -> list[str]:
    results = markdown_of(report_of(run)).partition("## Results")[2].partition("\n## ")[0]
    return [line for line in results.splitlines() if line.startswith("#")]


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))
