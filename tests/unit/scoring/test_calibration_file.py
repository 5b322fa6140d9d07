"""calibration.json: what is read, what is refused with its place, and which difference makes it no longer hold."""

import copy
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragpipe.core.errors import DataError, FormatMismatch
from ragpipe.schema.format_version import FORMAT
from ragpipe.scoring.calibration_file import (
    Binding,
    Calibration,
    CaseStrata,
    asked_shapes,
    binding_differences,
    binding_of,
    read_calibration,
)

IDENTITY: dict[str, Any] = {
    "judge_identity": {"model": "openai/gpt-4o-mini-2024-07-18", "temperature": 0.0},
    "metrics": {
        "faithfulness": {
            "class": "FaithfulnessMetric",
            "version": 2,
            "parameters": {"batch": 20, "steps": "separate"},
            "prompts": {"extract": "a" * 64, "verify": "b" * 64},
        },
        "retrieval": {"class": "RetrievalMetric", "version": 1, "parameters": {"k": [5]}, "prompts": {}},
    },
}
SHAPES = {"extract": "Claims@0123456789ab", "verify": "Verdicts@ba9876543210"}


def bound(threshold: float | None = 0.85, shapes: dict[str, str] = SHAPES, **changed: Any) -> Binding:
    identity = copy.deepcopy(IDENTITY)
    for path, value in changed.items():
        *parents, last = path.split("__")
        place = identity
        for parent in parents:
            place = place[parent]
        place[last] = value
    return binding_of(identity, "faithfulness", shapes, threshold)


def content() -> dict[str, Any]:
    interval = {"level": 0.95, "low": 0.7, "high": 0.95, "method": "jackknife_wilson", "too_few": False}
    kappa = {"n": 60, "clusters": 50, "value": 0.86, "interval": interval, "reason": None}
    score = {
        "metric": "faithfulness", "draw_id": "d1", "recorded": None, "reference": "single",
        "bound_to": bound().model_dump(mode="json"),
        "target": {"statistic": "kappa", "above": 0.8, "relative_to_ceiling": False}, "limit": 0.8,
        "state": "not_enough_labels", "labels_needed": 240, "reason": None, "unjudged": 0, "statistics": {"kappa": kappa},
        "confusion": {"classes": ["failed", "passed"], "counts": [[20, 2], [2, 36]]}, "prevalence": None,
        "judged_prevalence": None, "ceiling": None, "slices": [], "length_baseline": None,
        "strata": None, "corrected": None,
        "labels": [{
            "sample_id": "q1", "method": "rag", "repeat": 1, "answer_sha256": "c" * 64, "label": 1.0, "annotators": 1,
            "part": "random", "stratum": "all", "probability": 0.6, "passed": True, "judge_passed": None,
        }],
    }  # fmt: skip
    judge = {"label": "openai/gpt-4o-mini-2024-07-18", "identity": "d" * 64}
    return {"format": FORMAT, "run_id": "0123456789ab", "judge": judge, "scores": {"faithfulness": score}}


def written(folder: Path, document: Any) -> Path:
    path = folder / "calibration.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return path


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    read = read_calibration(written(tmp_path, content()))
    assert read.as_json() == content()
    assert Calibration.model_validate(content()) == read
    assert read.scores["faithfulness"].calibrated is None


@pytest.mark.parametrize(("state", "calibrated"), [("passed", True), ("failed", False), ("not_enough_labels", None)])
def test_the_state_says_whether_a_score_is_calibrated(tmp_path: Path, state: str, calibrated: bool | None) -> None:
    document = content()
    document["scores"]["faithfulness"]["state"] = state
    assert read_calibration(written(tmp_path, document)).scores["faithfulness"].calibrated is calibrated


def _without(document: dict[str, Any], *path: str) -> dict[str, Any]:
    place = document
    for key in path[:-1]:
        place = place[key]
    del place[path[-1]]
    return document


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("{", ("file", "no readable JSON")),
        ("[]", ("file", "another JSON document")),
        ({"format": FORMAT, "run_id": "x"}, ("file", "another JSON document")),
        (json.dumps(content()).replace("0.86", "NaN"), ("file", "NaN")),
        (_without(content(), "run_id"), ("run_id", "nothing")),
        (_without(content(), "scores", "faithfulness", "state"), ("scores.faithfulness.state", "nothing")),
        ({**content(), "judged_by": "x"}, ("judged_by", "an unknown key")),
    ],
)
def test_a_damaged_file_is_refused_with_its_place(tmp_path: Path, document: Any, words: tuple[str, str]) -> None:
    path = written(tmp_path, document)
    with pytest.raises(DataError) as caught:
        read_calibration(path)
    problem = caught.value.problems[0]
    assert (problem.where, problem.key) == (str(path), words[0])
    assert words[1] in problem.found
    assert "task=calibrate" in problem.fix


def test_a_missing_file_and_another_format_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        read_calibration(tmp_path / "calibration.json")
    with pytest.raises(FormatMismatch, match=f"format {FORMAT - 1}"):
        read_calibration(written(tmp_path, {**content(), "format": FORMAT - 1}))


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"judge_identity__model": "openai/gpt-5-2025-08-07"},
         "judge.model: openai/gpt-4o-mini-2024-07-18 -> openai/gpt-5-2025-08-07"),
        ({"judge_identity__season": "autumn"}, "judge.season: (absent) -> autumn"),
        ({"metrics__faithfulness__version": 3}, "metric_version: 2 -> 3"),
        ({"metrics__faithfulness__parameters__batch": 5}, "settings.parameters.batch: 20 -> 5"),
        ({"metrics__faithfulness__prompts__verify": "e" * 64}, "prompts.verify: bbbbbbbbbbbb -> eeeeeeeeeeee"),
        ({"shapes": {**SHAPES, "verify": "QuotedVerdicts@ba9876543210"}},
         "answer_shape.verify: Verdicts@ba9876543210 -> QuotedVerdicts@ba9876543210"),
        ({"shapes": {**SHAPES, "verify": "Verdicts@ffffffffffff"}},
         "answer_shape.verify: Verdicts@ba9876543210 -> Verdicts@ffffffffffff"),
        ({"threshold": 0.7}, "threshold: 0.85 -> 0.7"),
        ({"threshold": None}, "threshold: 0.85 -> None"),
    ],
)  # fmt: skip
def test_every_difference_is_named(changed: dict[str, Any], line: str) -> None:
    assert binding_differences(bound(), bound(**changed)) == [line]


@pytest.mark.parametrize(
    "shapes",
    [
        SHAPES,
        {"extract": "Claims@0123456789ab"},  # no answer had a claim, so nothing was verified
        {"extract": "Claims", "verify": "Verdicts"},  # the run keeps no messages
        {**SHAPES, "repair": "Verdicts@ba9876543210"},
    ],
)
def test_what_was_not_asked_or_not_kept_is_no_difference(shapes: dict[str, str]) -> None:
    assert binding_differences(bound(), bound(shapes=shapes)) == []
    assert binding_differences(bound(shapes=shapes), bound()) == []


def test_a_score_that_asks_no_judge_is_bound_to_none() -> None:
    assert binding_of(IDENTITY, "retrieval", {}, None).judge is None


def test_the_forms_of_answers_come_from_the_questions(tmp_path: Path) -> None:
    rows = [
        ("faithfulness", "extract", "Claims", '{"a": 1}', "m"),
        ("faithfulness", "extract", "Claims", '{"a":1}', "m"),  # the same schema in other white space
        ("faithfulness", "verify", "Verdicts", None, "m"),
        ("similarity", "embed", "Vector", None, "minilm@1"),
    ]
    path = tmp_path / "judge_inputs.parquet"
    names = ["metric", "step", "answer", "schema", "judge"]
    pq.write_table(pa.table([pa.array(column) for column in zip(*rows, strict=True)], names), path)
    shapes = asked_shapes(path)
    assert shapes["faithfulness"]["verify"] == "Verdicts"
    # sha256 of {"a":1}
    assert shapes["faithfulness"]["extract"] == "Claims@015abd7f5cc5"
    assert shapes["similarity"] == {"embed": "minilm@1"}


def test_strata_are_those_of_the_cases_in_any_order() -> None:
    strata = CaseStrata(
        names=["far", "near"], sample_id=["a", "a", "b"], method=["m", "n", "m"], repeat=[1, 1, 2], stratum=[1, 0, 1]
    )
    keys = [("b", "m", 2), ("b", "m", 1), ("a", "n", 1), ("a", "m", 1)]
    assert strata.codes(keys).tolist() == [1, -1, 0, 1], "-1: not drawn from"


@pytest.mark.parametrize(("stratum", "fault"), [([0], "lists of one length"), ([0, 1], "places of the 1 names")])
def test_strata_that_are_no_table_are_refused(stratum: list[int], fault: str, tmp_path: Path) -> None:
    document = content()
    score = document["scores"]["faithfulness"]
    score["strata"] = {
        "names": ["all"], "sample_id": ["a", "b"], "method": ["m", "m"], "repeat": [1, 1], "stratum": stratum
    }  # fmt: skip
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps(document))
    with pytest.raises(DataError) as error:
        read_calibration(path)
    assert fault in str(error.value)
