"""Iterations ask again for real: a noisy judge behind the local server, with its noise planted case by case."""

import json
import random
import shutil
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import ragpipe
from ragpipe.cli.command_line import main
from ragpipe.stats.corrected_mean import corrected_mean
from ragpipe.testing.openai_server import serving
from tests.integration.cli.test_calibrate import cases_of, write_labels
from tests.support.finished_runs import FinishedRuns
from tests.support.harness import arguments, write_cases
from tests.support.place import Place, output_of

pytestmark = pytest.mark.slow

GRADES = (
    (5.0, 5.0, 5.0, 5.0),
    (2.0, 2.0, 2.0, 2.0),
    (4.5, 4.0, 5.0, 4.5),  # noise above the threshold of 4: no flip
    (4.5, 3.5, 4.5, 4.5),  # flips: passes 2 of the first 3
    (3.0, 4.0, 3.5, 3.0),  # flips: passes 1 of the first 3
    (1.0, 1.5, 2.0, 2.5),
    (4.0, 4.0, 3.9, 4.0),  # flips: passes 2 of the first 3
    (5.0, 4.5, 4.5, 5.0),
)
"""Of each case what the judge says when it is asked the 1st, 2nd, 3rd and 4th time."""


@pytest.fixture
def place(here: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Place]:
    data = write_cases(here / "data.jsonl", len(GRADES))
    script = [
        {"match": rf"What does case {case} say", "reply": json.dumps({"reason": "so it is", "score": grade}), "times": 1}
        for case, grades in enumerate(GRADES)
        for grade in grades
    ]
    with serving(script=script) as server:
        yield Place(server, arguments(data, here / "out", server.url, metrics="correctness"), here, capsys)


def means_of(iterations: int) -> list[float]:
    return [statistics.fmean(grades[i] for grades in GRADES) for i in range(iterations)]


def content(run: Path, iterations: range) -> dict[str, bytes]:
    folders = [run / f"iteration-{i}" for i in iterations]
    return {str(p.relative_to(run)): p.read_bytes() for f in folders for p in f.rglob("*") if p.is_file()}


def test_the_planted_noise_comes_out(place: Place) -> None:
    assert place.run("iterations=3") == 3 * len(GRADES)
    assert ".wall.json" not in (place.folder / "seal.json").read_text(), "how long it took is no finding"
    final = ragpipe.load(place.folder).final
    found = final["overall"]["scores"]["correctness"]
    assert found["means"] == pytest.approx(means_of(3))
    assert found["mean"] == pytest.approx(statistics.fmean(means_of(3)))
    assert found["spread"]["sd"] == pytest.approx(statistics.stdev(means_of(3)))
    judge = statistics.fmean(statistics.variance(grades[:3]) for grades in GRADES)
    assert found["noise"]["judge_variance"] == pytest.approx(judge)
    items = statistics.variance(statistics.fmean(grades[:3]) for grades in GRADES) - judge / 3
    assert found["noise"]["item_variance"] == pytest.approx(items)
    assert found["flips"] == {"rate": pytest.approx(3 / 8 * 2 / 3), "n_cases": 8}, "of 3 cases 2 of 3 pairs differ"
    flips = [(one["sample_id"], one["passed"], one["of"]) for one in final["flips"]["cases"] if one["score"] == "correctness"]
    assert flips == [("q00003", 2, 3), ("q00004", 1, 3), ("q00006", 2, 3)]
    assert found["pass_rates"] == pytest.approx([5 / 8, 5 / 8, 4 / 8])
    assert "cost: judge 24 calls" in place.said, "the bill is that of all iterations, as the figures are"


@pytest.mark.thorough
def test_a_fourth_iteration_asks_a_quarter_of_the_whole(place: Place) -> None:
    asked = place.run("iterations=3")
    first = content(place.folder, range(1, 4))
    run = place.folder
    later = place.run("iterations=4")
    assert later == len(GRADES) == (asked + later) / 4
    assert place.folder == run, "the number of iterations makes no other run"
    assert content(run, range(1, 4)) == first
    final, cost = place.json("final/metrics.json"), place.json("final/cost.json")
    assert final["iterations"] == [1, 2, 3, 4]
    assert final["overall"]["scores"]["correctness"]["means"] == pytest.approx(means_of(4))
    assert cost["total"]["used"]["calls"] == cost["total"]["spent"]["calls"] == asked + later
    assert [bill["spent"]["calls"] for bill in cost["iterations"].values()] == [len(GRADES)] * 4
    assert place.run("iterations=4") == 0


def test_max_calls_is_one_limit_over_the_iterations_of_a_start(here: Path) -> None:
    """Of 4 cases twice 8 calls are planned; replies that must be asked for again double them."""
    with serving(faults=["not_json"]) as server:
        data = write_cases(here / "data.jsonl", 4)
        words = arguments(data, here / "out", server.url, "iterations=2", metrics="correctness")
        assert main([*words, "judge.max_calls=10"]) == 4
        assert 8 <= server.tries <= 10  # what waited for its turn at the stop was not sent
        main([*words, "judge.max_calls=10"])
        assert server.tries == 16


GATE = "+scoring.gates.grounded={score: faithfulness, min: %s}"


@pytest.fixture(scope="module")
def demo(finished_runs: FinishedRuns) -> Path:
    """A run that ends with 3: a critical gate by an uncalibrated judge."""
    words = ["+experiment=quickstart", "metrics=[faithfulness]", "report.formats=[]", GATE % 0.65]
    return finished_runs.of(*words, code=3).latest()


def calibrated(demo: Path, folder: Path) -> tuple[Path, Path]:
    """A copy of the run, and the calibration by 60 random labels of people who find much that the judge does not."""
    run, rng = Path(shutil.copytree(demo, folder / demo.name)), random.Random(7)
    drawn = rng.sample(cases_of(run), 60)
    write_labels(run, "drawn", [{**case, "label": 0.0 if rng.random() < 0.5 else case["value"]} for case in drawn])
    assert main(["task=calibrate", f"run={run}"]) == 0
    return run, run / "calibration/calibration.json"


def rescored(run: Path, *words: str) -> tuple[int, Path]:
    before = set(run.parent.iterdir())
    code = main(["task=rescore", f"run={run}", "report.formats=[]", *words])
    (made,) = set(run.parent.iterdir()) - before - {run.parent / "runs.md"}
    return code, made


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def test_a_gate_changes_its_mind_by_the_corrected_mean(demo: Path, tmp_path: Path) -> None:
    assert read(demo / "gates.json")["gates"][0]["verdict"] == "uncalibrated"
    run, calibration = calibrated(demo, tmp_path)
    code, made = rescored(run, f"scoring.calibration={calibration}")
    (gate,) = read(made / "gates.json")["gates"]
    assert (code, gate["verdict"]) == (3, "failed"), "the judge alone says .79"
    assert gate["corrected"]["raw"] > 0.75
    assert f", corrected by {gate['corrected']['labels']} labels, uncorrected {gate['corrected']['raw']:.4g} (" in gate["sentence"]
    assert gate["interval"]["high"] < 0.65
    rows = pq.read_table(made / "iteration-1/records.parquet").to_pylist()
    rows = [row for row in rows if row["faithfulness"] is not None]
    labels = {(x["sample_id"], x["method"], x["repeat"]): x["label"] for x in read(calibration)["scores"]["faithfulness"]["labels"]}
    keys = [(row["sample_id"], row["method"], row["repeat"]) for row in rows]
    expected = corrected_mean(
        np.array([row["faithfulness"] for row in rows]), np.array([labels.get(key, np.nan) for key in keys]),
        np.unique([key[0] for key in keys], return_inverse=True)[1], low=0.0, high=1.0,
    )  # fmt: skip
    corrected = read(made / "iteration-1/metrics.json")["corrected"]["faithfulness"]
    assert corrected == read(made / "final/metrics.json")["corrected"]["faithfulness"]
    assert corrected["mean"] == pytest.approx(expected.value)
    assert gate["value"] == pytest.approx(expected.value)
    assert corrected["interval"]["low"] == pytest.approx(expected.interval.low)
    assert read(made / "iteration-1/cost.json")["spent"]["calls"] == 0
    shutil.rmtree(run)
    assert main(["task=verify", f"run={made}"]) == 0
    code, again = rescored(made, "scoring.gates.grounded.min=0.2")
    assert (code, read(again / "gates.json")["gates"][0]["verdict"]) == (0, "passed")


def test_all_labels_of_a_draw_by_method_correct_by_their_strata(demo: Path, tmp_path: Path) -> None:
    """Half of 80 labels are of the random part: agreement goes by these, the mean of all cases and of one method by all labels."""
    run, rng = Path(shutil.copytree(demo, tmp_path / demo.name)), random.Random(3)
    parts = ["random"] * 40 + ["stratified"] * 40
    drawn = [{**case, "part": part, "stratum": case["method"]} for case, part in zip(rng.sample(cases_of(run), 80), parts, strict=True)]
    write_labels(run, "d", [{**case, "label": 0.0 if rng.random() < 0.5 else case["value"]} for case in drawn], draw="by_method")
    assert main(["task=calibrate", f"run={run}"]) == 0
    calibration = run / "calibration/calibration.json"
    score = read(calibration)["scores"]["faithfulness"]
    assert score["statistics"]["agreement"]["n"] == 40
    gate = "+scoring.gates.%s={score: faithfulness, min: 0.1%s}"
    words = [gate % ("everything", ""), gate % ("one", ", where: {method: baseline}"), f"scoring.calibration={calibration}"]
    _, made = rescored(run, *words)
    labels = {(x["sample_id"], x["method"]): x["label"] for x in score["labels"]}
    rows = [row for row in pq.read_table(made / "iteration-1/records.parquet").to_pylist() if row["faithfulness"] is not None]
    gates = {gate["name"]: gate for gate in read(made / "gates.json")["gates"]}
    for name, kept in (("everything", rows), ("one", [row for row in rows if row["method"] == "baseline"])):
        columns = {column: np.unique([row[column] for row in kept], return_inverse=True)[1] for column in ("sample_id", "method")}
        known = np.array([labels.get((row["sample_id"], row["method"]), np.nan) for row in kept])
        values = np.array([row["faithfulness"] for row in kept])
        expected = corrected_mean(values, known, columns["sample_id"], strata=columns["method"], low=0.0, high=1.0)
        assert gates[name]["value"] == pytest.approx(expected.value)
        assert gates[name]["corrected"]["labels"] == expected.labels
        assert gates[name]["interval"]["low"] == pytest.approx(expected.interval.low)


def test_labels_of_other_answers_correct_nothing(demo: Path, tmp_path: Path) -> None:
    run, calibration = calibrated(demo, tmp_path)
    document = read(calibration)
    document["scores"]["faithfulness"]["labels"][0]["answer_sha256"] = "0" * 64
    calibration.write_text(json.dumps(document))
    code, made = rescored(run, f"scoring.calibration={calibration}")
    (gate,) = read(made / "gates.json")["gates"]
    assert (code, gate["verdict"]) == (3, "uncalibrated")
    assert "corrected" not in gate
    corrected = read(made / "iteration-1/metrics.json")["corrected"]["faithfulness"]
    assert (corrected["mean"], corrected["reason"], corrected["other_answers"]) == (None, "other_answers", 1)


def test_a_calibration_that_holds_and_passed_is_trusted_and_one_for_another_judge_is_not(demo: Path, tmp_path: Path) -> None:
    run, calibration = calibrated(demo, tmp_path)
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


def test_the_plan_says_what_the_gate_will_make_of_a_calibration(demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, calibration = calibrated(demo, tmp_path)
    document = read(calibration)
    score = document["scores"]["faithfulness"]
    plan = ["+experiment=quickstart", "metrics=[faithfulness]", f"output_dir={tmp_path}", "task=plan", GATE % 0.65]

    def said(**changes: Any) -> str:
        (tmp_path / "c.json").write_text(json.dumps({**document, "scores": {"faithfulness": {**score, **changes}}}))
        capsys.readouterr()
        assert main([*plan, f"scoring.calibration={tmp_path / 'c.json'}"]) == 0
        return capsys.readouterr().err.replace("\n", " ")

    assert "calibrated" not in said(state="passed")
    assert "corrected by 60 labels if they are of the answers of this run" in said()
    bound = {**score["bound_to"], "metric_version": 99}
    assert "calibrated for something else: metric_version: 99 -> " in said(state="passed", labels=[], bound_to=bound)
    assert "the calibration cannot be used" in output_of([*plan, f"scoring.calibration={run / 'gates.json'}"], 2, capsys).err
