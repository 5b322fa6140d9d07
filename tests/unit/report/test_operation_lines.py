"""Latency of two sides, where one time-out decides the mean; figures calculated by hand."""

from pathlib import Path
from typing import Any

import pytest

from ragpipe.report.compare_charts import score_link, unscaled_forest
from ragpipe.report.comparison_summary import headline_table, needed_lines, operation_rows, summary_lines
from ragpipe.report.styled_text import columns_of
from tests.support.compared_runs import compared, scored_run
from tests.support.reports import table_text
from tests.support.run_tables import Row

pytestmark = pytest.mark.slow


@pytest.fixture
def document(tmp_path: Path) -> dict[str, Any]:
    """Nine cases of 700 ms take 900, and one of 30,000 takes 1,000."""

    def rows(times: list[float]) -> list[Row]:
        return [Row(f"q{n}", "default", {"grade": n / len(times)}, output={"timings": {"total_ms": time}}) for n, time in enumerate(times)]

    base, new = rows([700.0] * 9 + [30_000.0]), rows([900.0] * 9 + [1000.0])
    return compared(scored_run(tmp_path / "a", base), scored_run(tmp_path / "b", new)).document


def test_medians_stand_beside_a_mean_that_one_time_out_turns_round(document: dict[str, Any]) -> None:
    """Medians 700 and 900, the middle ratio 9/7, the mean from 3,630 to 910."""
    latency = document["operations"]["latency_ms"]
    assert latency["typical"] == {"base_median": 700.0, "candidate_median": 900.0, "median_ratio": pytest.approx(9 / 7)}
    median, mean = operation_rows(document["operations"])
    assert median == ["latency_ms median", "700.0", "900.0", "x1.29", "1/0/9", "", ""]
    assert mean[:3] == ["latency_ms mean", "3,630", "910.0"]
    assert latency["state"] == mean[5] == "inconclusive"
    chart = unscaled_forest(document["operations"], ("a", "b"), score_link("b"))
    assert "inconclusive, median 700.0 → 900.0, x1.29 in the middle case" in chart


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(
    ("columns", "heads"),
    [
        (60, ["score", "difference", "verdict"]),
        (80, ["score", "base", "new", "difference", "w/t/l", "verdict"]),
        (160, ["score", "base", "new", "difference", "w/t/l", "verdict", "could", "show"]),
    ],
)
def test_the_table_of_a_comparison_fits_the_screen(document: dict[str, Any], columns: int, heads: list[str]) -> None:
    lines = table_text(headline_table(document), columns)
    assert max(map(columns_of, lines)) <= columns
    assert lines[0].split() == heads
    assert [line.split()[0] for line in lines[1:4]] == ["grade", "latency_ms", "latency_ms"]


def test_what_undecided_scores_need_is_a_sentence(document: dict[str, Any]) -> None:
    """The summary says which parts the composite has."""
    candidate = {"method": "", "name": "x", "run_id": "y"}
    document["scores"]["grade"]["parts"] = [[2, 8], [3, 8]]
    first = next(summary_lines({"candidates": [candidate], "comparisons": [document]}, document))
    assert first == "grade: 2 of 8 and 3 of 8 parts were measured"
    score = {**document["scores"]["grade"], "state": "inconclusive", "changed": 3, "reason": "too_wide"}
    score |= {"detectable": 0.11, "n": 40, "n_needed": 264, "smallest_effect": 0.05, "headline": True}
    assert list(needed_lines({"grade": score})) == [
        "grade is inconclusive: too few cases: 40 could show a difference of 0.110; one of 0.050 takes about 264"
    ]
