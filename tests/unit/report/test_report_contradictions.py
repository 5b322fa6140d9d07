"""The section on contradicted claims: which it lists, in what order and how many in each medium."""

from pathlib import Path
from typing import Any

import pytest

from ragpipe.core.score import ScoreSpec
from ragpipe.report.diagnosis_section import contradictions_section
from ragpipe.report.model import Report
from ragpipe.report.report_data import ReportData, lowest_cases, read_contradictions
from ragpipe.score.settings import ScoringSettings
from ragpipe.store.run_folder import RunFolder
from tests.support.reports import html_of, markdown_of, report_of
from tests.support.run_tables import Row, score, write_run

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

PLACE = {"chunk": "c1", "rank": 1, "start": 0, "end": 5}


def claims(*verdicts: str, quotes: int = 1) -> dict[str, Any]:
    """Details with a claim for each verdict, named by its place, and as many quotes."""
    evidence = [{"quote": f"quote {number}", "places": [PLACE]} for number in range(1, quotes + 1)]
    return {
        "claims": [
            {"claim": f"claim {place}", "supported": verdict == "supported", "verdict": verdict, "evidence": evidence}
            for place, verdict in enumerate(verdicts, 1)
        ]
    }


def report_on(root: Path, *rows: Row) -> Report:
    """The section alone, from the files of a run; the quotes of the page come from no case."""
    write_run(root, rows)
    score(root, [ScoreSpec("faithfulness")], ScoringSettings(thresholds={"faithfulness": 0.9}))
    iteration = RunFolder(root).iteration(1)
    found = read_contradictions(iteration, lowest_cases(iteration.records, 10))
    return report_of(contradictions_section(ReportData({}, {}, contradictions=found)))


def row(name: str, value: float, details: dict[str, Any]) -> Row:
    return Row(name, "a", {"faithfulness": value}, details={"faithfulness": details})


def test_the_contradicted_claims_of_the_lowest_cases_are_listed(tmp_path: Path) -> None:
    """The lowest case first; a case that passed is none of them, and only contradicted claims are listed."""
    report = report_on(
        tmp_path,
        row("good", 1, claims("contradicted")),
        row("mixed", 0.5, claims("supported", "contradicted", "not_supported", quotes=2)),
        row("bad", 0.2, claims("contradicted", quotes=0)),
    )
    place = "context 1 (chunk c1), characters 0 to 5"
    page = markdown_of(report)
    assert "## Contradicted claims of the lowest cases" in page
    assert f"- `mixed` / `a`: `faithfulness`. `claim 2` **Contradicted by:** `{place}`: `quote 1` `{place}`: `quote 2`" in page
    assert f"{place}: quote 1" in html_of(report)


def test_the_page_shows_fifty_and_says_where_the_others_are(tmp_path: Path) -> None:
    report = report_on(tmp_path, row("q", 0.1, claims(*["contradicted"] * 60)))
    assert markdown_of(report).count("**Contradicted by:**") == 50
    assert "10 more in the details of scores.parquet." in markdown_of(report)


def test_a_run_without_contradicted_claims_has_no_such_section(tmp_path: Path) -> None:
    unasked = {"claims": [{"claim": "c", "supported": False, "evidence": [{"quote": "q", "places": [PLACE]}]}]}
    report = report_on(tmp_path, row("q", 0, unasked), row("r", 0.5, claims("supported", "not_supported")))
    assert report.sections == ()
