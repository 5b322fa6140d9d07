"""A calibration in scoring: what it makes of gates and means, without a call, and with the folder alone."""

import json
import random
import shutil
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from ragpipe.cli import main
from ragpipe.stats.corrected_mean import corrected_mean
from tests.integration.tasks.test_calibrate import cases_of, label
from tests.support.finished_runs import FinishedRuns

pytestmark = pytest.mark.slow  # whole runs, several per test

GATE = "+scoring.gates.grounded={score: faithfulness, min: %s}"


@pytest.fixture(scope="module")
def demo(finished_runs: FinishedRuns) -> Path:
    """A run that ends with 3: a critical gate by an uncalibrated judge."""
    words = ["+experiment=quickstart", "metrics=[faithfulness]", "report.formats=[]", GATE % 0.65]
    return finished_runs.of(*words, code=3).latest()


def calibrated(demo: Path, folder: Path, grade: Callable[[float, random.Random], float]) -> tuple[Path, Path]:
    """A copy of the run, and the calibration by 60 random labels that `grade` makes of the judge's values."""
    run, rng = Path(shutil.copytree(demo, folder / demo.name)), random.Random(7)
    drawn = rng.sample(cases_of(run), 60)
    label(run, "drawn", [{**case, "label": grade(case["value"], rng)} for case in drawn])
    assert main(["task=calibrate", f"run={run}"]) == 0
    return run, run / "calibration/calibration.json"


def strict(value: float, rng: random.Random) -> float:
    """People who find much that the judge does not."""
    return 0.0 if rng.random() < 0.5 else value


def agreeing(value: float, rng: random.Random) -> float:
    return value


def rescored(run: Path, *words: str) -> tuple[int, Path]:
    before = set(run.parent.iterdir())
    code = main(["task=rescore", f"run={run}", "report.formats=[markdown,html,terminal]", "report.detail=full", *words])
    (made,) = set(run.parent.iterdir()) - before - {run.parent / "runs.md"}
    return code, made


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def test_a_gate_changes_its_mind_by_the_corrected_mean(
    demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert read(demo / "gates.json")["gates"][0]["verdict"] == "uncalibrated"
    run, calibration = calibrated(demo, tmp_path, strict)
    code, made = rescored(run, f"scoring.calibration={calibration}")
    (gate,) = read(made / "gates.json")["gates"]
    assert (code, gate["verdict"]) == (3, "failed"), "the judge alone says .79"
    assert gate["corrected"]["raw"] > 0.75
    assert gate["interval"]["high"] < 0.65

    rows = pq.read_table(made / "iteration-1/records.parquet").to_pylist()
    rows = [row for row in rows if row["faithfulness"] is not None]
    labels = {
        (x["sample_id"], x["method"], x["repeat"]): x["label"]
        for x in read(calibration)["scores"]["faithfulness"]["labels"]
    }
    keys = [(row["sample_id"], row["method"], row["repeat"]) for row in rows]
    expected = corrected_mean(
        np.array([row["faithfulness"] for row in rows]),
        np.array([labels.get(key, np.nan) for key in keys]),
        np.unique([key[0] for key in keys], return_inverse=True)[1],
        low=0.0,
        high=1.0,
    )
    corrected = read(made / "iteration-1/metrics.json")["corrected"]["faithfulness"]
    assert corrected == read(made / "final/metrics.json")["corrected"]["faithfulness"]
    assert corrected["mean"] == pytest.approx(expected.value)
    assert gate["value"] == pytest.approx(expected.value)
    assert expected.interval is not None
    assert corrected["interval"]["low"] == pytest.approx(expected.interval.low)
    assert read(made / "iteration-1/cost.json")["spent"]["calls"] == 0
    page = (made / "report.md").read_text()
    assert "Corrected by human labels" in page
    assert "`faithfulness` failed its calibration: kappa" in page
    assert "failed calibration faithfulness" in read(made / "gates.json")["signature"]

    shutil.rmtree(run)
    assert main(["task=verify", f"run={made}"]) == 0
    code, again = rescored(made, "scoring.gates.grounded.min=0.2")
    assert (code, read(again / "gates.json")["gates"][0]["verdict"]) == (0, "passed")
    assert "uncalibrated" not in capsys.readouterr().err

    capsys.readouterr()
    assert rescored(made, f"scoring.gates.grounded.min={gate['interval']['high'] - 0.02}")[0] == 0
    assert (
        f"with {gate['corrected']['labels']} labels of {corrected['n']} cases this gate cannot tell"
        in capsys.readouterr().out
    )


def test_a_gate_decided_on_the_corrected_mean_is_trusted_though_the_calibration_cannot_tell_yet(
    demo: Path, tmp_path: Path
) -> None:
    run, calibration = calibrated(demo, tmp_path, agreeing)
    code, made = rescored(run, f"scoring.calibration={calibration}", "scoring.gates.grounded.min=0.6")
    (gate,) = read(made / "gates.json")["gates"]
    assert (code, gate["verdict"]) == (0, "passed")
    assert gate["corrected"]["labels"] == 60


def test_labels_of_other_answers_correct_nothing(demo: Path, tmp_path: Path) -> None:
    run, calibration = calibrated(demo, tmp_path, strict)
    document = read(calibration)
    document["scores"]["faithfulness"]["labels"][0]["answer_sha256"] = "0" * 64
    calibration.write_text(json.dumps(document))
    code, made = rescored(run, f"scoring.calibration={calibration}")
    (gate,) = read(made / "gates.json")["gates"]
    assert (code, gate["verdict"]) == (3, "uncalibrated")
    assert "corrected" not in gate
    corrected = read(made / "iteration-1/metrics.json")["corrected"]["faithfulness"]
    assert (corrected["mean"], corrected["reason"], corrected["other_answers"]) == (None, "other_answers", 1)


def test_where_too_few_labels_fall_the_judge_alone_is_measured_and_not_trusted(demo: Path, tmp_path: Path) -> None:
    run, calibration = calibrated(demo, tmp_path, strict)
    gate = "+scoring.gates.baseline={score: faithfulness, min: 0.1, where: {method: baseline}}"
    code, made = rescored(run, f"scoring.calibration={calibration}", gate)
    verdicts = {gate["name"]: gate["verdict"] for gate in read(made / "gates.json")["gates"]}
    assert (code, verdicts["baseline"]) == (3, "uncalibrated")


def test_a_calibration_that_holds_and_passed_is_trusted_and_one_for_another_judge_is_not(
    demo: Path, tmp_path: Path
) -> None:
    run, calibration = calibrated(demo, tmp_path, strict)
    document = read(calibration)
    score = document["scores"]["faithfulness"]
    score |= {"state": "passed", "labels": []}
    calibration.write_text(json.dumps(document))
    code, made = rescored(run, f"scoring.calibration={calibration}", "scoring.gates.grounded.min=0.6")
    assert (code, read(made / "gates.json")["gates"][0]["verdict"]) == (0, "passed")
    metrics = read(made / "iteration-1/metrics.json")
    assert metrics["calibration"]["faithfulness"]["calibrated"] is True
    assert (metrics["judge"]["calibrated"], "uncalibrated" in metrics["signature"]) == (True, False)

    score["bound_to"]["judge"]["threshold"] = 0.99
    calibration.write_text(json.dumps(document))
    code, made = rescored(run, f"scoring.calibration={calibration}", "scoring.gates.grounded.min=0.6")
    assert (code, read(made / "gates.json")["gates"][0]["verdict"]) == (3, "uncalibrated")
    state = read(made / "iteration-1/metrics.json")["calibration"]["faithfulness"]
    assert (state["calibrated"], "judge.threshold: 0.99 -> " in state["why"]) == (None, True)


def test_the_plan_says_what_the_gate_will_make_of_a_calibration(
    demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, calibration = calibrated(demo, tmp_path, strict)
    document = read(calibration)
    score = document["scores"]["faithfulness"]
    plan = ["+experiment=quickstart", "metrics=[faithfulness]", f"output_dir={tmp_path}", "task=plan", GATE % 0.65]

    def said(**changes: Any) -> str:
        changed = {**document, "scores": {"faithfulness": {**score, **changes}}}
        (tmp_path / "c.json").write_text(json.dumps(changed))
        capsys.readouterr()
        assert main([*plan, f"scoring.calibration={tmp_path / 'c.json'}"]) == 0
        return capsys.readouterr().err.replace("\n", " ")

    assert "calibrated" not in said(state="passed")
    assert "corrected by 60 labels if they are of the answers of this run" in said()
    assert "(faithfulness: kappa " in said(labels=[])
    bound = {**score["bound_to"], "metric_version": 99}
    assert "calibrated for something else: metric_version: 99 -> " in said(state="passed", labels=[], bound_to=bound)
    assert main([*plan, f"scoring.calibration={run / 'gates.json'}"]) == 2
    assert "the calibration cannot be used" in capsys.readouterr().err


def test_what_is_no_calibration_is_refused(demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Path(shutil.copytree(demo, tmp_path / demo.name))
    assert main(["task=rescore", f"run={run}", f"scoring.calibration={run / 'gates.json'}"]) == 2
    assert main(["task=rescore", f"run={run}", f"scoring.calibration={'0' * 64}"]) == 2
    assert capsys.readouterr().err.count("the calibration cannot be used") == 2
    assert [path for path in run.parent.iterdir() if path.is_dir()] == [run]


def other_data(folder: Path) -> Path:
    """Every second question of the demonstration, asked in other words: other data for a label."""
    lines = (files("ragpipe") / "data/demo/cases.jsonl").read_text(encoding="utf-8").splitlines()[::2]
    records = [json.loads(line) for line in lines]
    path = folder / "other.jsonl"
    path.write_text(
        "".join(json.dumps(record | {"question": f"Please: {record['question']}"}) + "\n" for record in records)
    )
    return path


@pytest.mark.thorough
def test_labels_of_other_data_correct_nothing(demo: Path, tmp_path: Path) -> None:
    _, calibration = calibrated(demo, tmp_path, agreeing)
    words = ["+experiment=quickstart", "metrics=[faithfulness]", "report.formats=[markdown]", GATE % 0.1]
    words += [f"dataset.path={other_data(tmp_path)}", f"scoring.calibration={calibration}", f"output_dir={tmp_path}/b"]
    assert main(words) == 3
    made = (tmp_path / "b/quickstart/latest").resolve()
    (gate,) = read(made / "gates.json")["gates"]
    assert (gate["verdict"], gate.get("corrected")) == ("uncalibrated", None)

    corrected = read(made / "iteration-1/metrics.json")["corrected"]["faithfulness"]
    assert (corrected["mean"], corrected["reason"], corrected["other_answers"]) == (None, "other_answers", 60)
    assert "the labels are of other answers" in (made / "report.md").read_text()
