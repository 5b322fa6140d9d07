"""AC1, AC2 and alpha: worked examples, the krippendorff package, recorded annotators, and what always holds."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ragpipe.stats.several_raters import estimate_ac, estimate_alpha, fleiss_kappa, gwet_ac, krippendorff_alpha, mean_distances

NONE = math.nan
RATING = st.sampled_from([1.0, 2.0, 3.0, 4.0, 5.0, NONE])
ROWS = st.lists(st.tuples(RATING, RATING, RATING, st.integers(0, 6)), max_size=30)
"""Three raters, question."""


def matrix(*rows: list[float]) -> np.ndarray:
    return np.array(rows, dtype=np.float64)


def columns(rows: list[tuple[float, float, float, int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([r[:3] for r in rows], dtype=np.float64).reshape(-1, 3), np.array([r[3] for r in rows], dtype=np.int64)


FIFTY = np.array([[1, 1]] * 20 + [[1, 0]] * 5 + [[0, 1]] * 10 + [[0, 0]] * 15, dtype=float)
"""Two raters: kappa .4."""
OBSERVERS = matrix(
    [1, 2, 3, 3, 2, 1, 4, 1, 2, NONE, NONE, NONE], [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, NONE, 3], [NONE, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, NONE],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, NONE],
).T  # fmt: skip
"""Four observers of twelve units: Krippendorff 2011, "Computing Krippendorff's alpha-reliability", example C."""


def test_ac1_and_ac2_by_hand() -> None:
    """p_a = .7; class 1 has (25 + 30) / 100 of the ratings, so p_e = 2 * .55 * .45 = .495."""
    assert gwet_ac(FIFTY, np.array([0.0, 1.0])).value == pytest.approx((0.7 - 0.495) / 0.505)
    # grades 1/2, 2/2, 3/1 of 1 to 3: p_a = (3/4 + 1 + 0) / 3 = 21/36. Shares 1/3, 1/2, 1/6: sum of pi (1 - pi) = 22/36, and T
    # = 3 + 4 * 3/4 = 6, so p_e = 22/36: (21 - 22) / (36 - 22).
    ratings = matrix([1, 2], [2, 2], [3, 1])
    assert gwet_ac(ratings, np.array([1.0, 2.0, 3.0]), squared=True).value == pytest.approx(-1 / 14)
    # the third unit has one rating of class 1: no pair, but a share. Shares of 1: (1 + 1/2 + 1) / 3 = 5/6, so p_e = 2 * 5/6 *
    # 1/6 = 5/18; p_a = (1 + 0) / 2.
    ac = gwet_ac(matrix([1, 1], [0, 1], [1, NONE], [NONE, NONE]), np.array([0.0, 1.0]))
    assert (ac.n, ac.value) == (2, pytest.approx((9 - 5) / (18 - 5)))


def test_fleiss_kappa_and_alpha_of_published_tables() -> None:
    """The published values, to three places; eleven units have two ratings or more."""
    nominal, interval = krippendorff_alpha(OBSERVERS), krippendorff_alpha(OBSERVERS, squared=True)
    assert (nominal.n, interval.n) == (11, 11)
    assert (round(nominal.value or 0, 3), round(interval.value or 0, 3)) == (0.743, 0.849)
    # P = .378 and P_e = .213: kappa .210.
    kappa = fleiss_kappa(np.array([np.repeat(np.arange(5.0), counts) for counts in TEN_SUBJECTS]))
    assert (kappa.n, round(kappa.value or 0, 3)) == (10, 0.210)
    assert fleiss_kappa(np.empty((0, 3))).reason == "no_pairs"
    assert fleiss_kappa(np.ones((4, 3))).reason == "one_class"
    with pytest.raises(ValueError, match="use alpha"):
        fleiss_kappa(matrix([1, NONE]))
    with pytest.raises(ValueError, match="at least two"):
        fleiss_kappa(np.ones((4, 1)))


TEN_SUBJECTS = [
    [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
    [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
]  # fmt: skip
"""How many of 14 raters put each of ten subjects into each of five classes: the worked example of the article on Wikipedia."""


def test_distances_classes_and_scales() -> None:
    """1 1 2: one of three pairs is equal. 1 3 with one skipped: distance 2. 1 2 4: squares 1, 4, 9."""
    ratings = matrix([1, 1, 2], [1, NONE, 3], [1, 2, 4])
    assert mean_distances(ratings) == pytest.approx([2 / 3, 1, 1])
    assert mean_distances(ratings, squared=True) == pytest.approx([2 / 3, 4, 14 / 3])
    with pytest.raises(ValueError, match="none of the classes"):
        gwet_ac(FIFTY, np.array([1.0, 2.0]))
    with pytest.raises(ValueError, match="two different classes"):
        gwet_ac(np.ones((3, 2)), np.array([1.0]))
    with pytest.raises(ValueError, match="off the scale 0 to 3"):
        estimate_alpha(OBSERVERS, scale=(0, 3))


def test_where_raters_are_missing_alpha_has_the_jackknife_alone() -> None:
    questions = np.array([0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5])
    result = estimate_alpha(OBSERVERS, questions)
    without = [krippendorff_alpha(OBSERVERS[questions != q]).value or 0.0 for q in range(6)]
    error = math.sqrt(5 / 6 * sum((v - sum(without) / 6) ** 2 for v in without))
    assert result.value is not None
    centre, half = math.atanh(result.value), stats.t.ppf(0.975, 5) * error / (1 - result.value**2)
    assert (result.interval.low, result.interval.high) == pytest.approx((math.tanh(centre - half), math.tanh(centre + half)))
    assert (result.interval.method, result.n, result.clusters) == ("jackknife_z", 11, 6)


def test_intervals_of_unanimous_raters_and_of_fifty_cases() -> None:
    """Twenty units of one class: the mean agreement is at least 20 / (20 + t^2), and chance gives none of the disagreement
    away: AC1 has E = 1 as all ratings are of one class. t(19) = 2.093024054408263."""
    result = estimate_ac(np.ones((20, 2)), np.array([0.0, 1.0]))
    assert (result.value, result.reason) == (1.0, None)
    assert (result.interval.low, result.interval.high) == pytest.approx((20 / (20 + 2.093024054408263**2), 1.0))
    # by the page: the jackknife over 20 questions, and the mean agreement .7 through 1 - (1 - .) / E with E of .505 and of
    # .5.
    questions = np.tile(np.arange(20), 3)[:50]
    of_ac, of_alpha = estimate_ac(FIFTY, np.array([0.0, 1.0]), questions).interval, estimate_alpha(FIFTY, questions).interval
    assert (of_ac.low, of_ac.high) == pytest.approx((0.228073723200, 0.557821935790), abs=1e-11)
    assert (of_alpha.low, of_alpha.high) == pytest.approx((0.220354460432, 0.553400155148), abs=1e-11)
    assert of_ac.method == of_alpha.method == "jackknife_wilson"


@pytest.mark.parametrize(
    ("ratings", "questions", "value", "reason"),
    [
        ([[1, NONE], [NONE, 2]], [1, 2], None, "no_pairs"),
        ([[1, 1], [1, 1]], [1, 2], None, "one_class"),
        ([[1, 1], [2, 2]], [3, 3], 1.0, "one_sample"),
        ([[1, 1], [2, 2]], [3, 4], 1.0, "rests_on_one_question"),
        ([[1, 1, NONE], [2, 2, 2], [1, 1, NONE], [2, 2, NONE]], [1, 2, 3, 4], 1.0, "no_spread"),
    ],
)
def test_no_interval_of_alpha_without_grounds(ratings: list[list[float]], questions: list[int], value: float | None, reason: str) -> None:
    result = estimate_alpha(matrix(*ratings), np.array(questions))
    assert (result.value, result.interval, result.reason) == (value, None, reason)


@given(ROWS)
def test_alpha_equals_the_krippendorff_package(rows: list[tuple[float, float, float, int]]) -> None:
    package = pytest.importorskip("krippendorff")
    ratings, _ = columns(rows)
    for squared, level in ((False, "nominal"), (True, "interval")):
        ours = krippendorff_alpha(ratings, squared=squared)
        if ours.value is not None:
            theirs = package.alpha(reliability_data=ratings.T, level_of_measurement=level)
            assert ours.value == pytest.approx(theirs, abs=1e-9)
