"""Several outputs of one method for one question: cases of their own in every table, one cluster in the statistics."""

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ragpipe.comparing.run_agreement import agreement
from ragpipe.reports.model import CaseName
from ragpipe.reports.report_data import ReportData
from ragpipe.reports.sections.diagnosis_section import diagnosis_section
from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.settings import ScoringSettings
from ragpipe.stages.combine_iterations import combine_iterations
from ragpipe.stages.score_iteration import ScoreInputs, score_iteration
from ragpipe.store.run.run_folder import RunFolder
from tests.support.reports import markdown_of, report_of, terminal_of
from tests.support.run_tables import Row, records, score, spent, stored, write_run

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

FAITHFUL = ScoreSpec("faithfulness")
SETTINGS = ScoringSettings(thresholds={"faithfulness": 0.5})
VALUES = {"q1": (1.0, 0.0), "q2": (0.4, 0.8), "q3": (0.9, 0.9), "q4": (0.0, 0.0), "q5": (1.0, 0.6)}
ROWS = [
    Row(sample, "a", {"faithfulness": value}, repeat=repeat)
    for sample, values in VALUES.items()
    for repeat, value in enumerate(values, 1)
]
"""Both repeats of a question stand beside each other, where nothing but the repeat tells them apart."""


def test_each_repeat_keeps_its_own_scores(tmp_path: Path) -> None:
    write_run(tmp_path, ROWS)
    score(tmp_path, [FAITHFUL], SETTINGS)
    assert [(row["sample_id"], row["repeat"], row["faithfulness"]) for row in records(tmp_path)] == [
        (sample, repeat, value) for sample, values in VALUES.items() for repeat, value in enumerate(values, 1)
    ]


def test_repeats_are_no_more_questions(tmp_path: Path) -> None:
    """Two answers with the same score to each of five questions say as much as one: mean and interval are the same, and the
    interval of the share that passed is no narrower."""
    found = {}
    for times in (1, 2):
        rows = [
            Row(sample, "a", {"faithfulness": first}, repeat=repeat)
            for sample, (first, _) in VALUES.items()
            for repeat in range(1, times + 1)
        ]
        write_run(tmp_path / str(times), rows)
        found[times] = score(tmp_path / str(times), [FAITHFUL], SETTINGS)
    assert [(one["n_cases"], one["n_samples"]) for one in found.values()] == [(5, 5), (10, 5)]
    once, twice = (one["overall"]["scores"]["faithfulness"] for one in found.values())
    assert once["mean"] == twice["mean"] == pytest.approx(0.66)
    for bound in ("low", "high"):
        assert once["interval"][bound] == pytest.approx(twice["interval"][bound])
    width_once, width_twice = (one["pass_interval"]["high"] - one["pass_interval"]["low"] for one in (once, twice))
    assert width_twice >= width_once


def test_a_case_is_named_with_its_repeat_where_it_is_not_the_first(tmp_path: Path) -> None:
    write_run(tmp_path, ROWS)
    metrics = score(tmp_path, [FAITHFUL], SETTINGS)
    band = stored(tmp_path, "low_scores.json")["scores"]["faithfulness"]["bands"][0]
    assert [(one["sample_id"], one["method"], one["repeat"]) for one in band["examples"]] == [
        ("q1", "a", 2), ("q4", "a", 1), ("q4", "a", 2),
    ]  # fmt: skip
    report = report_of(diagnosis_section(ReportData(metrics, {})))
    assert "for example: q1/a repeat 2, q2/a, q4/a\n" in terminal_of(report, 200)
    assert "`q1` / `a` repeat 2, `q2` / `a`" in markdown_of(report)
    assert CaseName.of({"sample_id": "q1", "method": "a", "repeat": 2}).address == "#v=1&case=q1/a/2"


def test_flips_and_agreement_match_a_repeat_with_itself(tmp_path: Path) -> None:
    """Iteration 2 (and the new run) says the same but of q1, whose second answer passes now."""
    other = [Row(r.sample, r.method, {"faithfulness": 1.0}, repeat=r.repeat) if (r.sample, r.repeat) == ("q1", 2) else r
             for r in ROWS]  # fmt: skip
    for number, rows in enumerate((ROWS, other), 1):
        made = write_run(tmp_path / str(number), rows)
        target = tmp_path / f"iteration-{number}"
        shutil.move(made, target)
        for name in ("samples.parquet", "outputs.parquet"):
            shutil.copy(tmp_path / str(number) / name, tmp_path / name)
        score_iteration(ScoreInputs(
            target, samples=tmp_path / "samples.parquet", outputs=tmp_path / "outputs.parquet", specs=[FAITHFUL],
            settings=SETTINGS, signature=f"ragpipe 0 | test | iteration {number}",
            judge={"label": "scripted", "uncalibrated": False}, run_id="me", spent=spent(), rates={},
        ))  # fmt: skip
    found = combine_iterations(RunFolder(tmp_path), [1, 2], SETTINGS)
    assert [case for case in found["flips"]["cases"] if case["score"] == "faithfulness"] == [
        {"sample_id": "q1", "method": "a", "repeat": 2, "score": "faithfulness", "passed": 1, "of": 2}
    ]
    tables = [{1: tmp_path / f"iteration-{number}" / "records.parquet"} for number in (1, 2)]
    scores = {name: {**found["declared"][name], **one} for name, one in found["overall"]["scores"].items()}
    compared = agreement(*tables, old_scores=scores, new_scores=scores)
    assert compared["cases"] == {"both": 10, "only_old": 0, "only_new": 0}
    shuffled = pq.read_table(tables[1][1]).take([9, 3, 0, 1, 2, 8, 7, 6, 5, 4])  # the same cases in another order
    pq.write_table(shuffled, tmp_path / "shuffled.parquet")
    assert agreement(tables[0], {1: tmp_path / "shuffled.parquet"}, old_scores=scores, new_scores=scores) == compared
    flips = compared["scores"]["faithfulness"]["flips"]
    assert flips["to_failed"]["n"] == 0
    assert flips["to_passed"]["examples"] == [
        {"sample_id": "q1", "method": "a", "repeat": 2, "iteration": 1, "old": 0.0, "new": 1.0}
    ]
