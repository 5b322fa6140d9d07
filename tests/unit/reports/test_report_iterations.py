"""The reports of several iterations: their headline is that of all, with the cases of the last."""

from __future__ import annotations

import io
import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ragpipe.reports.console import Console
from ragpipe.reports.model import Table
from ragpipe.reports.report_data import ReportData, read_results
from ragpipe.reports.run_page.page_cases import IterationValues
from ragpipe.reports.sections.cost_section import iterations_section
from ragpipe.reports.settings import ReportSettings
from ragpipe.schema.sample import OUTPUT_KEY
from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.settings import ScoringSettings
from ragpipe.stages.combine_iterations import combine_iterations
from ragpipe.stages.score_iteration import ScoreInputs, score_iteration
from ragpipe.stages.write_reports import write_reports
from ragpipe.store.run.run_folder import RunFolder
from tests.support.page_blocks import block_json
from tests.support.run_tables import Row, spent, write_run

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

SPECS = [ScoreSpec("faithfulness"), ScoreSpec("answer_relevance")]
BASELINE = ((1.0, 0.2, 0.6), (0.2, 0.2, 0.8))  # of each question the three iterations: means 0.6, 0.2, 0.7
RERANK = ((0.9, 0.9, 0.9), (0.9, 0.9, 0.3))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two questions, two methods, three iterations. A case under 0.85 with a relevant answer is a hallucination."""
    root = tmp_path_factory.mktemp("iterations")
    for number in range(1, 4):
        rows = [
            Row(f"q{q}", method, {"faithfulness": values[q][number - 1], "answer_relevance": 1.0})
            for q in range(2)
            for method, values in (("baseline", BASELINE), ("rerank", RERANK))
        ]
        made = write_run(root / f"of {number}", rows)
        shutil.move(made, root / f"iteration-{number}")
        for file in ("samples.parquet", "outputs.parquet"):
            shutil.copy(root / f"of {number}" / file, root / file)
        score_iteration(ScoreInputs(
            root / f"iteration-{number}", samples=root / "samples.parquet", outputs=root / "outputs.parquet", specs=SPECS,
            settings=ScoringSettings(), signature=f"ragpipe 0 | test | iteration {number}",
            judge={"label": "scripted", "uncalibrated": False}, run_id="me", spent=spent(), rates={},
        ))  # fmt: skip
    combine_iterations(RunFolder(root), [1, 2, 3], ScoringSettings())
    return root


def reported(run: Path, monkeypatch: pytest.MonkeyPatch, columns: int = 120) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    settings = ReportSettings(formats=["terminal", "markdown", "html"], detail="full", percent=["faithfulness"])
    out = io.StringIO()
    write_reports(run / "iteration-3", target=run, settings=settings, console=Console(out=out, err=io.StringIO()))
    return out.getvalue()


@pytest.mark.slow
def test_the_headline_is_that_of_all_iterations(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """baseline: the mean of .6, .2 and .7 is .5, the last iteration alone says .7; rerank: of .9, .9, .6 it is .8."""
    out = reported(run, monkeypatch)
    page, html = (run / "report.md").read_text(), (run / "report.html").read_text()
    row = next(line for line in page.splitlines() if line.startswith("| `faithfulness x100`"))
    assert [re.match(r"[\d.]+ \[[\d.]+, [\d.]+\]", cell.strip())[0].split()[0] for cell in row.split("|")[2:4]] == [  # type: ignore[index]
        "50.0", "80.0",
    ]  # fmt: skip
    assert re.search(r"faithfulness x100 +50\.0 \[[\d.]+, [\d.]+\] +80\.0 \[", out)
    assert "<b>50.0</b>" in html
    assert "3 iterations" in page.split("## ")[0]
    assert "3 iterations" in html
    assert "ragpipe 0 | test | iterations 1-3" in out


@pytest.mark.slow
def test_diagnoses_are_counted_in_every_iteration(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below .85: baseline q0 in the 2nd and 3rd, q1 in all, rerank q1 in the 3rd: 6 of 12; the last alone has 3 of 4."""
    out = reported(run, monkeypatch)
    page = (run / "report.md").read_text()
    assert re.search(r"hallucination: 6 of 12 \(50\.0%\)", out)
    assert "- `hallucination`: 6 of 12 (50.0%)." in page
    assert "Counted in each of 3 iterations: 4 cases x 3." in page
    assert "**For example:** `q1` / `baseline`, `q0` / `baseline`, `q1` / `rerank`\n" in page, (
        "those that most iterations name"
    )


def test_every_block_of_a_narrow_terminal_names_the_method(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = reported(run, monkeypatch, 60).split("Over 3 iterations")[1:]
    assert len(blocks) > 1, "the table does not fit"
    for block in blocks:
        assert re.search(r"faithfulness x100 +baseline", block)
        assert re.search(r"faithfulness x100 +rerank", block)


def test_a_case_of_the_page_has_the_values_of_all_iterations_where_they_differ(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page is of the third iteration; answer_relevance is 1 in all, and so are the three values of rerank in q0."""
    reported(run, monkeypatch)
    html = (run / "report.html").read_text()
    assert block_json(html, "index")["iterations"] == [1, 2, 3]
    cases = block_json(html, "d0")
    assert [case.get("it", {}).get("faithfulness") for case in cases] == [
        [1.0, 0.2, 0.6], None, [0.2, 0.2, 0.8], [0.9, 0.9, 0.3],
    ]  # fmt: skip
    assert all("answer_relevance" not in case.get("it", {}) for case in cases)


def test_values_of_iterations_go_by_the_name_of_a_case(run: Path) -> None:
    """Other orders of rows, and a case that an iteration lacks: its value is missing there."""
    records = [run / f"iteration-{number}" / "records.parquet" for number in (1, 2, 3)]
    table = pq.read_table(records[1])
    pq.write_table(table.slice(1).take(list(range(table.num_rows - 2, -1, -1))), run / "other.parquet")
    third = pq.read_table(records[2], columns=list(OUTPUT_KEY)).to_pylist()
    cases = [(case["sample_id"], case["method"], case["repeat"]) for case in third]
    values = IterationValues([records[0], run / "other.parquet"], cases, ["faithfulness", "unknown"])
    assert [values.differing(place) for place in range(4)] == [
        {"faithfulness": [1.0, None]}, {}, {}, {},
    ]  # fmt: skip


def test_an_earlier_iteration_is_shown_by_itself(run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(run, tmp_path / "run"))
    out = io.StringIO()
    monkeypatch.setenv("COLUMNS", "120")
    settings = ReportSettings(formats=["terminal"], detail="full", percent=["faithfulness"])
    write_reports(copied / "iteration-1", target=copied, settings=settings, console=Console(out=out, err=io.StringIO()))
    assert "Over" not in out.getvalue()
    assert re.search(r"faithfulness x100 +60\.0 \[", out.getvalue())


@pytest.mark.parametrize(
    ("answer", "usd", "cell", "words"),
    [
        # a case costs twice what judging it once does, and r* = sqrt(2 * .03 / .09) is below 1: more cases
        (
            0.02,
            0.03,
            "6.0 x (best 1.0)",
            "Here it costs 2.0 times as much ($0.0200 for its answer, $0.0100 to judge it once)",
        ),
        (0.48, 0.03, "6.0 x (best 4.0)", "Here it costs 48.0 times as much"),  # sqrt(48 / 3)
        (None, 0.03, "6.0 x", "what its answer costs is not recorded"),
        (0.02, None, "6.0 x", "What judging a case costs is not known"),
    ],
)
def test_more_cases_or_more_judgings(run: Path, answer: float | None, usd: float | None, cell: str, words: str) -> None:
    metrics, cost = read_results(run, run / "iteration-3")
    noise = {
        "n_cases": 2,
        "repeats": 3,
        "judge_variance": 0.03,
        "item_variance": 0.09,
        "floor": 0.1,
        "second_judging_from": 6.0,
    }
    for group in metrics["by"]["method"].values():
        group["scores"]["faithfulness"]["noise"] = noise
    metrics["overall"]["operations"]["usage"] = {} if answer is None else {"cost_usd": {"mean": answer}}
    cost["used"]["per_case"]["usd"] = usd
    section = iterations_section(ReportData(metrics, cost))
    assert section is not None
    table, *notes = section.parts
    assert isinstance(table, Table)
    assert table.rows[0].cells[-1] == cell
    assert words in str(notes)
