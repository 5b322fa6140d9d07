"""Draws by method through task=label, task=calibrate and task=rescore: all their labels count in corrected means, by strata."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from ragpipe.calibration.label_files import draw_folders, read_drawn
from ragpipe.cli.command_line import main
from ragpipe.stats.corrected_mean import CorrectedMean, corrected_mean
from tests.integration.cli.test_label import label, sheet
from tests.support.finished_runs import FinishedRuns

pytestmark = pytest.mark.slow  # whole runs, several per test

ITERATION = "iteration-1"


@pytest.fixture(scope="module")
def demo(finished_runs: FinishedRuns) -> Path:
    return finished_runs.of("+experiment=quickstart", "metrics=[faithfulness]", "report.formats=[]").latest()


def judged_values(run: Path) -> dict[tuple[str, str, int], float]:
    rows = pq.read_table(run / ITERATION / "records.parquet").to_pylist()
    return {(row["sample_id"], row["method"], row["repeat"]): row["faithfulness"] for row in rows if row["faithfulness"] is not None}


def labelled(run: Path, *words: str) -> Path:
    """A draw whose sheet is filled in by people who reject half of what the judge accepts. Returns its folder."""
    assert label(run, "label.metric=faithfulness", *words) == 0
    (folder,) = draw_folders(run)
    rng, values = random.Random(3), judged_values(run)
    grades = {}
    for row in read_drawn(folder).to_pylist():
        value = values[row["sample_id"], row["method"], row["repeat"]]
        grades[row["item"]] = str(0.0 if rng.random() < 0.5 else value)
    assert label(run, f"label.import=[{sheet(folder, run.parent / 'ann.csv', 'ann', grades)}]") == 0
    return folder


def calibrated_score(run: Path, *words: str) -> dict[str, Any]:
    assert main(["task=calibrate", f"run={run}", *words]) == 0
    score: dict[str, Any] = json.loads((run / "calibration/calibration.json").read_text())["scores"]["faithfulness"]
    return score


def rescored(run: Path, *words: str) -> Path:
    before = set(run.parent.iterdir())
    calibration = f"scoring.calibration={run / 'calibration/calibration.json'}"
    main(["task=rescore", f"run={run}", "report.formats=[]", calibration, *words])
    (made,) = {path for path in set(run.parent.iterdir()) - before if path.is_dir()}
    return made


def by_strata(run: Path, score: dict[str, Any], method: str | None = None) -> CorrectedMean:
    """The corrected mean from the tables of the draw and the run."""
    values = {key: value for key, value in judged_values(run).items() if method in (None, key[1])}
    labels = {(row["sample_id"], row["method"], row["repeat"]): row["label"] for row in score["labels"]}
    return corrected_mean(
        np.array(list(values.values())),
        np.array([labels.get(key, np.nan) for key in values]),
        np.unique([key[0] for key in values], return_inverse=True)[1],
        strata=np.unique([key[1] for key in values], return_inverse=True)[1],
        low=0.0,
        high=1.0,
    )


@pytest.mark.thorough
def test_all_labels_of_a_draw_by_method_correct_by_their_strata(demo: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(demo, tmp_path / demo.name))
    labelled(run, "label.n=80", "label.draw=by_method")
    score = calibrated_score(run)
    parts = [label["part"] for label in score["labels"]]
    assert (len(parts), parts.count("random"), parts.count("stratified")) == (80, 40, 40)
    assert score["statistics"]["agreement"]["n"] == 40, "agreement goes by the random part"
    method = sorted({key[1] for key in judged_values(run)})[0]
    gate = "+scoring.gates.%s={score: faithfulness, min: 0.1%s}"
    made = rescored(run, gate % ("everything", ""), gate % ("one", f", where: {{method: {method}}}"))
    corrected = json.loads((made / ITERATION / "metrics.json").read_text())["corrected"]["faithfulness"]
    expected = by_strata(run, score)
    assert expected.interval is not None
    assert (corrected["labels"], corrected["mean"]) == (80, pytest.approx(expected.value))
    assert corrected["interval"]["low"] == pytest.approx(expected.interval.low)
    gates = {gate["name"]: gate for gate in json.loads((made / "gates.json").read_text())["gates"]}
    assert gates["everything"]["value"] == pytest.approx(expected.value)
    of_method = by_strata(run, score, method)
    assert gates["one"]["value"] == pytest.approx(of_method.value)
    assert gates["one"]["corrected"]["labels"] == of_method.labels
    # the folder alone is enough
    shutil.rmtree(run)
    assert main(["task=verify", f"run={made}"]) == 0
