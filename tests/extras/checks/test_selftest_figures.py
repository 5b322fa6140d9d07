"""What counts as caught, and the figures of a self-test, calculated by hand and against statsmodels."""

import math

import pytest

from ragpipe.extras.checks.changed_cases import Pair, Scored
from ragpipe.extras.checks.selftest import TOLERANCE, case_floor, expected_direction, result_rows, rows_by_any_score, score_outcomes

SHARE, NOISE = (0.0, 1.0, True), (0.0, 5.0, False)
"""Lowest and highest value of a score, and whether a higher one is better."""


def outcomes(pairs, *, expect=None, declared=SHARE, score="s"):
    """Of mutants with a changed number, by a score before and after; with a floor of .1."""
    made = [Pair("change_number", (f"q{n}", "m", 1), (f"q{n}", "m~change_number", 1)) for n in range(len(pairs))]
    values = {}
    for mutant, (before, after) in zip(made, pairs, strict=True):
        values |= {} if before is None else {mutant.base: [before]}
        values |= {} if after is None else {mutant.changed: [after]}
    expectations = {"change_number": expect or {"worse": ["s"]}}
    return list(score_outcomes(Scored(score, *declared, values), made, expectations, 0.1))


@pytest.mark.parametrize(("declared", "before", "after", "status"), [
    (SHARE, 1.0, 0.5, "as_expected"),
    (SHARE, 1.0, 0.95, "missed"),  # within the tolerance
    (SHARE, 1.0, 1.0, "missed"),
    (SHARE, 0.5, 1.0, "missed"),
    (SHARE, 0.0, 0.0, "at_end"),
    (SHARE, 0.05, 0.0, "at_end"),  # no room for a change that counts
    (SHARE, None, 0.0, "no_value"),
    (SHARE, 1.0, None, "no_value"),
    (NOISE, 1.0, 3.0, "as_expected"),  # worse is higher where a lower score is better
    (NOISE, 3.0, 1.0, "missed"),
    (NOISE, 5.0, 5.0, "at_end"),
    (NOISE, 0.0, 0.4, "missed"),
])  # fmt: skip
def test_a_score_that_must_become_worse(declared, before: float | None, after: float | None, status: str) -> None:
    assert [outcome.status for outcome in outcomes([(before, after)], declared=declared)] == [status]


def test_what_counts_as_caught() -> None:
    same = {"same": ["s"]}
    assert [o.status for o in outcomes([(0.2, 0.25), (0.9, 0.7), (1.0, 1.0)], expect=same)] == ["as_expected", "missed", "as_expected"]
    expectation = {"worse": ["recall@*"], "worse_in_reference": ["correctness"], "same": ["mrr", "recall@1"]}
    assert expected_direction("recall@5", expectation, in_reference=False) == "worse"
    assert expected_direction("recall@1", expectation, in_reference=False) == "worse"
    assert expected_direction("recall_all@5", expectation, in_reference=False) is None
    assert expected_direction("mrr", expectation, in_reference=False) == "same"
    assert expected_direction("correctness", expectation, in_reference=False) is None
    assert expected_direction("correctness", expectation, in_reference=True) == "worse"
    assert expected_direction("mrr", None, in_reference=True) is None
    both = {"worse": ["s", "t"], "same": ["u"]}
    first = outcomes([(1.0, 0.0), (1.0, 1.0), (1.0, 1.0), (0.0, 0.0)], expect=both)
    second = outcomes([(1.0, 1.0), (1.0, 0.0), (1.0, 1.0), (0.0, 0.0)], expect=both, score="t")
    (row,) = rows_by_any_score([*first, *second, *outcomes([(1.0, 0.0)] * 4, expect=both, score="u")])
    assert (row["n"], row["found"]) == (3, 2)
    (row,) = result_rows(outcomes([(0.0, 0.0)]))
    assert (row["n"], row["share"], row["interval"], row["at_end"]) == (0, None, None, 1)
    assert rows_by_any_score(outcomes([(0.0, 0.0)])) == []


def test_intervals_of_the_figures() -> None:
    # variances within the cases: 1, 0 and 0.25; their mean is s^2
    values = {("a", "m", 1): [1.0, 2.0, 3.0], ("b", "m", 1): [4.0, 4.0, 4.0], ("c", "m", 1): [0.5, 1.0, 1.5]}
    limit, source = case_floor(Scored("s", *NOISE, values))
    assert source == "iterations"
    assert limit == pytest.approx(1.959964 * math.sqrt(2 * (1.25 / 3) / 3) / 5, rel=1e-6)
    once = {key: value[:1] for key, value in values.items()}
    assert case_floor(Scored("s", *NOISE, once)) == (TOLERANCE, "tolerance")
    statsmodels = pytest.importorskip("statsmodels.stats.proportion")
    pairs = [(1.0, 0.0)] * 7 + [(1.0, 1.0)] * 3 + [(0.0, 0.0)] * 2 + [(None, 0.0)]
    (row,) = result_rows(outcomes(pairs))
    assert (row["n"], row["found"], row["at_end"], row["no_value"], row["clusters"]) == (10, 7, 2, 1, 10)
    assert row["share"] == 0.7
    low, high = statsmodels.proportion_confint(7, 10, method="wilson")
    assert (row["interval"]["low"], row["interval"]["high"]) == pytest.approx((low, high))
    assert row["mean_change"] == pytest.approx(-0.7)
    same = {"same": ["s"]}
    (still,) = result_rows(outcomes([(0.5, 0.5 + change) for change in (0.1, -0.1) * 5], expect=same))
    (moved,) = result_rows(outcomes([(0.5, 0.5 - change) for change in (0.05, 0.04) * 5], expect=same))
    (few,) = result_rows(outcomes([(0.5, 0.3)] * 3, expect=same))
    assert (still["state"], moved["state"], few["state"]) == ("stays", "moves", "stays")
    assert (moved["found"], moved["n"]) == (10, 10), "each change is within the tolerance, all of them together are not"
