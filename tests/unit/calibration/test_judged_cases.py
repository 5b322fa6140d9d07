"""What a run says of labelled cases: values, verdicts, reliability."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragpipe.calibration.people_labels import judged_cases
from ragpipe.core.score import ScoreSpec
from ragpipe.score.dimensions import CASE
from ragpipe.store.run_folder import RunFolder

IDS = ["a", "b", "c", "d"]
SHARE = ScoreSpec("faithfulness")


def judged(root, iterations, keys=IDS):
    """The score of the cases of `IDS` in each iteration, before a threshold of .85."""
    for number, values in enumerate(iterations, 1):
        folder = root / f"iteration-{number}"
        folder.mkdir()
        columns = {name: pa.nulls(len(IDS), kind) for name, kind, _ in CASE}
        columns |= {"sample_id": pa.array(IDS), "method": pa.array(["rag"] * 4), "repeat": pa.array([1] * 4)}
        columns |= {"answer_chars": pa.array([10, None, 30, 40]), "category": pa.array(["x", "x", "y", None])}
        pq.write_table(pa.table({**columns, SHARE.name: pa.array(values, pa.float64())}), folder / "records.parquet")
    cases = [(name, "rag", 1) for name in keys]
    return judged_cases(RunFolder(root), list(range(1, len(iterations) + 1)), SHARE, 0.85, cases)


def test_values_are_means_and_verdicts_are_those_of_most_iterations(tmp_path):
    both = judged(tmp_path, [[1.0, 1.0, 0.5, None], [1.0, 0.5, 0.5, None], [0.5, None, 1.0, None]])
    np.testing.assert_allclose(both.values, [2.5 / 3, 0.75, 2 / 3, np.nan])
    # 2 of 3, a tie of two, 1 of 3, none
    np.testing.assert_array_equal(both.verdicts, [1, np.nan, 0, np.nan])


def test_the_reliability_is_the_correlation_of_two_iterations(tmp_path):
    first, second = [0.1, 0.5, 0.9, 0.4], [0.2, 0.4, 0.8, 0.7]
    pairs = np.array([[*first, *second], [*second, *first]])  # each pair in both orders
    assert judged(tmp_path, [first, second]).reliability == pytest.approx(np.corrcoef(pairs)[0, 1])


def test_one_iteration_has_no_reliability_and_its_values_as_they_are(tmp_path):
    one = judged(tmp_path, [[1 / 3, None, 0.85, 1.0]])
    assert one.reliability is None
    np.testing.assert_array_equal(one.values, [1 / 3, np.nan, 0.85, 1.0])
    np.testing.assert_array_equal(one.verdicts, [0, np.nan, 1, 1])


def test_rows_are_in_the_order_of_the_labels(tmp_path):
    some = judged(tmp_path, [[0.1, 0.2, 0.3, 0.4]], ["d", "a", "c"])
    np.testing.assert_array_equal(some.values, [0.4, 0.1, 0.3])
    np.testing.assert_array_equal(some.lengths, [40, 10, 30])
    assert some.questions.tolist() == [2, 0, 1]
    category = some.fields.of("category")
    assert [(int(case), category.names[code]) for case, code in zip(category.cases, category.codes, strict=True)] == [(1, "x"), (2, "y")]
