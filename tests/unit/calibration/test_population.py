"""What is drawn from: means over the iterations, and who may label."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragpipe.calibration.label_files import LabelSettings, read_population
from ragpipe.core.errors import DataError


def records(path, values):
    """A table of the columns that are read: cases q0, q1 ... of one method."""
    count = len(values)
    path.parent.mkdir(parents=True)
    table = pa.table({
        "sample_id": [f"q{number}" for number in range(count)], "method": ["a"] * count, "repeat": [1] * count,
        "f": pa.array(values, pa.float64()),
    })  # fmt: skip
    pq.write_table(table, path)
    return path


def test_the_population_has_the_means_over_the_iterations(tmp_path):
    """q1 has a value in the second iteration only, q3 in none."""
    first = records(tmp_path / "1" / "r.parquet", [1.0, None, 0.0, None])
    second = records(tmp_path / "2" / "r.parquet", [0.5, 0.25, 0.0, None])
    population = read_population([first, second], "f")
    assert population.keys == [("q0", "a", 1), ("q2", "a", 1), ("q1", "a", 1)]
    assert population.values == [0.75, 0.0, 0.25]


def test_a_score_without_a_value_has_no_population(tmp_path):
    path = records(tmp_path / "1" / "r.parquet", [None, None])
    with pytest.raises(DataError, match="no case with a value"):
        read_population([path], "f")


@pytest.mark.parametrize("settings", [{"draw": "colour"}, {"annotators": ["ann", "ann"]}, {"annotators": [" "]}, {"n": 0}])
def test_wrong_settings_are_refused(settings):
    with pytest.raises(ValueError, match=r"Input should be|different names|greater than"):
        LabelSettings.model_validate(settings)
