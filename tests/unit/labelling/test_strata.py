"""What is drawn from, and the strata: by a field, by closeness to the threshold, by disagreement."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragpipe.core.errors import ConfigError, DataError
from ragpipe.labelling.label_settings import LabelSettings
from ragpipe.labelling.population import NO_LABEL, Population, read_population, with_same_answers
from ragpipe.labelling.strata import Strata, strata_of
from ragpipe.schema.score import ScoreSpec

SPEC = ScoreSpec("f")


def records(path: Path, values: list[float | None], passed: list[bool | None]) -> Path:
    """A table of the columns that are read: cases q0, q1 ... of one method."""
    count = len(values)
    path.parent.mkdir(parents=True)
    table = pa.table({
        "sample_id": [f"q{number}" for number in range(count)], "method": ["a"] * count, "repeat": [1] * count,
        "category": ["x", None, "y", "y"][:count], "tags": pa.array([["t", "u"], [], ["t"], ["t"]][:count], pa.list_(pa.string())),
        "meta": ['{"kind": {"of": 1}}', None, "{}", '{"kind": {"of": 2}}'][:count],
        "f": pa.array(values, pa.float64()), "f.passed": pa.array(passed, pa.bool_()),
    })  # fmt: skip
    pq.write_table(table, path)
    return path


def test_the_population_has_the_means_over_the_iterations(tmp_path: Path) -> None:
    """q1 has a value in the second iteration only, q3 in none."""
    first = records(tmp_path / "1" / "r.parquet", [1.0, None, 0.0, None], [True, None, False, None])
    second = records(tmp_path / "2" / "r.parquet", [0.5, 0.25, 0.0, None], [True, False, True, None])
    population = read_population([first, second], "f", "category")
    assert population.keys == [("q0", "a", 1), ("q2", "a", 1), ("q1", "a", 1)]
    assert population.values == [0.75, 0.0, 0.25]
    assert population.passed == [1.0, 0.5, 0.0]
    assert population.verdicts() == ["passed", "failed", "failed"]
    assert population.labels == ["x", "y", NO_LABEL]


@pytest.mark.parametrize(("field", "labels"), [
    ("tag", ["t, u", NO_LABEL, "t", "t"]),
    ("meta.kind.of", ["1", NO_LABEL, NO_LABEL, "2"]),
    ("method", ["a", "a", "a", "a"]),
    (None, ["", "", "", ""]),
])  # fmt: skip
def test_the_labels_of_a_field(tmp_path: Path, field: str | None, labels: list[str]) -> None:
    path = records(tmp_path / "1" / "r.parquet", [1.0] * 4, [None] * 4)
    assert read_population([path], "f", field).labels == labels


def test_a_score_without_a_value_has_no_population(tmp_path: Path) -> None:
    path = records(tmp_path / "1" / "r.parquet", [None, None], [None, None])
    with pytest.raises(DataError, match="no case with a value"):
        read_population([path], "f")


def test_only_cases_with_the_same_answer_are_compared(tmp_path: Path) -> None:
    """q0 is the same in both, q1 has another answer, q2 another chunk, q3 is not in the other run."""
    rows = [("q0", "A.", "[]"), ("q1", "B.", "[]"), ("q2", "C.", "[]"), ("q3", "D.", None)]
    others = [("q0", "A.", "[]"), ("q1", "b.", "[]"), ("q2", "C.", '[{"id":"c"}]')]
    paths = []
    for name, cells in (("own", rows), ("other", others)):
        columns = dict(zip(("sample_id", "answer", "chunks"), zip(*cells, strict=True), strict=True))
        paths.append(tmp_path / name)
        pq.write_table(pa.table({**columns, "method": ["a"] * len(cells), "repeat": [1] * len(cells)}), paths[-1])
    same = with_same_answers(of([0.1, 0.2, 0.3, 0.4]), *paths)
    assert (same.keys, same.values, same.labels) == ([("q0", "a", 1)], [0.1], ["x"])


def of(values: list[float], passed: list[float | None] | None = None, first: int = 0) -> Population:
    keys = [(f"q{number}", "a", 1) for number in range(first, first + len(values))]
    return Population(
        keys, values, passed or [None] * len(values), ["x", "y"] * (len(values) // 2) + ["x"] * (len(values) % 2)
    )


def strata(
    population: Population, threshold: float | None = None, rejudged: Population | None = None, **settings: object
) -> Strata:
    return strata_of(LabelSettings.model_validate(settings), population, SPEC, threshold, rejudged)


def test_a_random_draw_has_one_stratum() -> None:
    assert strata(of([1.0, 0.0])) == Strata(["all", "all"], {}, "random")


@pytest.mark.parametrize(
    ("allocation", "shares"), [("proportional", {"x": 2.0, "y": 1.0}), ("equal", {"x": 1.0, "y": 1.0})]
)
def test_a_field_makes_the_strata(allocation: str, shares: dict[str, float]) -> None:
    made = strata(of([1.0, 0.0, 0.5]), draw="stratified", allocation=allocation)
    assert made == Strata(["x", "y", "x"], shares, "stratified")


def test_verdicts_make_the_strata() -> None:
    made = strata(of([1.0, 0.0], [1.0, 0.0]), draw="stratified", field="verdict")
    assert made.names == ["passed", "failed"]


def test_close_to_the_threshold() -> None:
    """The scale is 0 to 1: within .15 of .7 are .55 to .85."""
    made = strata(of([0.54, 0.55, 0.7, 0.85, 0.86]), 0.7, draw="threshold")
    assert made == Strata(["far", "near", "near", "near", "far"], {"near": 1.0}, "targeted")


def test_disagreement_of_verdicts_and_cases_that_the_other_run_lacks() -> None:
    other = of([0.9, 0.1], [1.0, 1.0], first=1)
    made = strata(of([0.9, 0.9, 0.1], [1.0, 1.0, 0.0]), rejudged=other, draw="disagreement")
    assert made.names == ["not_compared", "agree", "disagree"]


def test_without_verdicts_a_quarter_of_the_scale_is_a_disagreement() -> None:
    made = strata(of([0.5, 0.5, 0.5]), rejudged=of([0.74, 0.75, 0.25]), draw="disagreement")
    assert made.names == ["agree", "disagree", "disagree"]


def test_what_cannot_be_targeted_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"scoring\.thresholds\.f"):
        strata(of([0.5]), draw="threshold")
    with pytest.raises(DataError, match=r"label\.near=0\.2 reaches the closest"):
        strata(of([0.5, 0.1]), 0.7, draw="threshold")
    with pytest.raises(DataError, match="no disagreement over f in 2 cases"):
        strata(of([0.5, 0.5]), rejudged=of([0.5, 0.6]), draw="disagreement")
    with pytest.raises(ConfigError, match="a score with a scale"):
        strata_of(LabelSettings.model_validate({"draw": "threshold"}), of([0.5]), ScoreSpec("f", None, None), 0.7, None)


@pytest.mark.parametrize("field", ["verdict", "category", "meta.x", "tag"])
def test_fields_of_a_case(field: str) -> None:
    assert LabelSettings.model_validate({"field": field}).field == field


@pytest.mark.parametrize(
    "settings", [{"field": "colour"}, {"annotators": ["ann", "ann"]}, {"annotators": [" "]}, {"n": 0}]
)
def test_wrong_settings_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"unknown field|different names|greater than"):
        LabelSettings.model_validate(settings)
