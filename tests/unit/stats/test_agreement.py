"""Agreement, its intervals and verdicts: worked examples of the literature, and scikit-learn, scipy and others as oracles."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ragpipe.stats import agreement
from ragpipe.stats.agreement import cohen_kappa, estimate_kappa, kendall, pearson, quadratic_kappa, spearman
from ragpipe.stats.detection import decide_kappa
from ragpipe.stats.intervals import Estimate
from ragpipe.stats.several_raters import estimate_ac, estimate_alpha, fleiss_kappa, gwet_ac, krippendorff_alpha, mean_distances

NONE = math.nan
GRADES = st.integers(0, 5)
PAIRS = st.lists(st.tuples(GRADES, GRADES), min_size=2, max_size=60)


def _arrays(pairs: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    both = np.array(pairs, dtype=float)
    return both[:, 0], both[:, 1]


def test_kappa_of_two_raters_and_whole_pairs() -> None:
    # the textbook's 2x2 table: both yes 20, both no 15, yes/no 5, no/yes 10. p_o = 35/50 = 0.7,
    # p_e = (25*30 + 25*20) / 2500 = 0.5, kappa = 0.2 / 0.5 = 0.4
    old = np.array([1.0] * 20 + [1.0] * 5 + [0.0] * 10 + [0.0] * 15)
    new = np.array([1.0] * 20 + [0.0] * 5 + [1.0] * 10 + [0.0] * 15)
    found = cohen_kappa(old, new)
    assert (found.n, found.reason) == (50, None)
    assert (found.value, agreement.equal_share(old, new)) == (pytest.approx(0.4, abs=1e-12), pytest.approx(0.7))
    with pytest.raises(ValueError, match="same cases"):
        cohen_kappa(np.zeros(2), np.zeros(3))
    with pytest.raises(ValueError, match="finite"):
        pearson(np.array([1.0, math.nan]), np.array([1.0, 2.0]))


@pytest.mark.parametrize(("function", "old", "new", "reason"), [
    (cohen_kappa, [], [], "no_pairs"), (cohen_kappa, [1, 1], [1, 1], "one_class"), (quadratic_kappa, [], [], "no_pairs"),
    (quadratic_kappa, [3, 3, 3], [3, 3, 3], "one_class"), (pearson, [], [], "no_pairs"), (pearson, [1], [2], "one_pair"),
    (pearson, [0.1, 0.1, 0.1], [1, 2, 3], "no_spread"), (spearman, [1, 2, 3], [4, 4, 4], "no_spread"),
    (kendall, [], [], "no_pairs"), (kendall, [1], [2], "one_pair"), (kendall, [1, 2, 3], [4, 4, 4], "no_spread"),
])  # fmt: skip
def test_what_is_not_defined_says_why(function, old: list[float], new: list[float], reason: str) -> None:
    found = function(np.array(old, float), np.array(new, float))
    assert (found.n, found.value, found.reason) == (len(old), None, reason)


@pytest.mark.slow
@given(PAIRS)
def test_the_same_as_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    from sklearn.metrics import cohen_kappa_score

    old, new = _arrays(pairs)
    if len({*old, *new}) == 1:
        assert cohen_kappa(old, new).reason == quadratic_kappa(old, new).reason == "one_class"
        return
    plain = cohen_kappa_score(old.astype(int), new.astype(int))
    weighted = cohen_kappa_score(old.astype(int), new.astype(int), weights="quadratic", labels=list(range(6)))
    assert cohen_kappa(old, new).value == pytest.approx(plain, abs=1e-12)
    assert quadratic_kappa(old, new).value == pytest.approx(weighted, abs=1e-12)


@pytest.mark.slow
@given(st.lists(st.tuples(*[st.floats(-1e6, 1e6) | GRADES.map(float)] * 2), min_size=3, max_size=40))
def test_the_same_as_scipy(pairs: list[tuple[float, float]]) -> None:
    old, new = _arrays(pairs)
    assert agreement.ranks(old).tolist() == stats.rankdata(old).tolist()
    if len(set(old)) == 1 or len(set(new)) == 1:
        assert pearson(old, new).reason == spearman(old, new).reason == kendall(old, new).reason == "no_spread"
        return
    assert kendall(old, new).value == pytest.approx(stats.kendalltau(old, new).statistic, abs=1e-12)
    assert spearman(old, new).value == pytest.approx(stats.spearmanr(old, new).statistic, abs=1e-9)
    if min(np.ptp(old) / np.max(np.abs(old)), np.ptp(new) / np.max(np.abs(new))) > 1e-6:  # where scipy is exact itself
        assert pearson(old, new).value == pytest.approx(stats.pearsonr(old, new).statistic, abs=1e-9)


def array(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def quadratic(labels: np.ndarray, verdicts: np.ndarray, questions: np.ndarray | None = None) -> Estimate:
    return estimate_kappa(labels, verdicts, questions, scale=(1, 5))


@pytest.mark.parametrize(
    ("scale", "value", "bounds"),
    [(None, 0.582608695652, (0.140719013122, 0.854464126752)), ((1, 5), 0.757575757576, (-0.364714075443, 0.972633652645))],
)
def test_the_interval_of_twelve_rows(scale: tuple[float, float] | None, value: float, bounds: tuple[float, float]) -> None:
    """Two rows a question: the outer bounds of both intervals of docs/statistics.md, pair by pair and question by question with
    scipy's quantile. Of classes the high end is by the agreement, of grades the low one."""
    labels, verdicts = array(1, 5, 2, 4, 3, 3, 5, 1, 2, 4, 4, 5), array(1, 5, 2, 3, 3, 4, 5, 2, 2, 4, 1, 5)
    result = estimate_kappa(labels, verdicts, np.repeat(np.arange(6), 2), scale=scale)
    assert (result.n, result.clusters, result.value, result.reason) == (12, 6, pytest.approx(value, abs=1e-11), None)
    assert (result.interval.low, result.interval.high) == pytest.approx(bounds, abs=1e-11)
    assert result.interval.method == "jackknife_wilson"


@pytest.mark.parametrize(("labels", "verdicts", "questions", "value", "reason"), [
    ([], [], [], None, "no_pairs"), ([1, 1], [1, 1], [1, 2], None, "one_class"), ([1, 2], [1, 2], [3, 3], 1.0, "one_sample"),
    ([1, 1, 2], [1, 1, 2], [1, 2, 3], 1.0, "rests_on_one_question"),
])  # fmt: skip
@pytest.mark.parametrize("estimate", [estimate_kappa, quadratic])
def test_no_interval_of_kappa_without_grounds(estimate, labels, verdicts, questions, value, reason) -> None:
    result = estimate(array(*labels), array(*verdicts), np.array(questions, dtype=np.int64))
    assert (result.n, result.value, result.interval, result.reason) == (len(labels), value, None, reason)


def test_grades_are_on_the_scale() -> None:
    with pytest.raises(ValueError, match="values from 0 to 4 are off the scale 1 to 5"):
        quadratic(array(0, 2), array(2, 4))
    with pytest.raises(ValueError, match="a scale runs from low to high, found 5 to 1"):
        estimate_kappa(array(1, 2), array(2, 4), scale=(5, 1))


@pytest.mark.parametrize("correlation", [pearson, spearman, kendall])
def test_the_interval_of_a_correlation_is_that_of_the_page(correlation) -> None:
    rng = np.random.default_rng(2)
    labels, questions = rng.integers(1, 6, 40).astype(float), rng.integers(0, 15, 40)
    scores = labels + rng.normal(size=40)
    result = agreement.estimate_correlation(correlation, labels, scores, questions)
    groups = np.unique(questions)
    without = [correlation(labels[questions != g], scores[questions != g]).value for g in groups]
    error = math.sqrt((len(groups) - 1) / len(groups) * float(np.sum((without - np.mean(without)) ** 2)))
    assert result.value == correlation(labels, scores).value
    centre, half = math.atanh(result.value), stats.t.ppf(0.975, len(groups) - 1) * error / (1 - result.value**2)
    assert (result.interval.low, result.interval.high) == pytest.approx((math.tanh(centre - half), math.tanh(centre + half)))
    assert (result.interval.method, result.error) == ("jackknife_z", pytest.approx(error))


@pytest.mark.parametrize(
    ("labels", "scores", "questions", "value", "reason"),
    [
        ([], [], [], None, "no_pairs"),
        ([1], [2], [1], None, "one_pair"),
        ([1, 1, 1], [1, 2, 3], [1, 2, 3], None, "no_spread"),
        ([1, 2, 3, 5], [2, 4, 6, 10], [1, 2, 3, 4], 1.0, "no_spread"),
        ([1, 2, 3], [3, 2, 1], [7, 7, 7], -1.0, "one_sample"),
        ([1, 1, 1, 2], [3, 2, 1, 4], [1, 2, 3, 4], None, "rests_on_one_question"),
    ],
)
@pytest.mark.parametrize("correlation", [pearson, spearman, kendall])
def test_no_interval_of_a_correlation_without_grounds(correlation, labels, scores, questions, value, reason) -> None:
    result = agreement.estimate_correlation(correlation, array(*labels), array(*scores), np.array(questions, dtype=np.int64))
    assert (result.interval, result.reason) == (None, reason)
    if reason != "rests_on_one_question":
        assert result.value == (None if value is None else pytest.approx(value))


@pytest.mark.parametrize("seed", range(5))
def test_error_of_kappa_equals_statsmodels(seed: int) -> None:
    """Its standard error is that of large samples: 300 rows are close."""
    inter_rater = pytest.importorskip("statsmodels.stats.inter_rater")
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, 300)
    verdicts = np.where(rng.random(300) < 0.3, rng.integers(0, 3, 300), labels)
    table = np.bincount(labels * 3 + verdicts, minlength=9).reshape(3, 3)
    plain, weighted = inter_rater.cohens_kappa(table), inter_rater.cohens_kappa(table, wt="quadratic")
    ours = estimate_kappa(labels.astype(float), verdicts.astype(float))
    grades = estimate_kappa(labels.astype(float), verdicts.astype(float), scale=(0, 2))
    assert (ours.value, grades.value) == pytest.approx((plain.kappa, weighted.kappa))
    assert (ours.error, grades.error) == pytest.approx((plain.std_kappa, weighted.std_kappa), rel=0.03)
    assert cohen_kappa(labels, verdicts).value == pytest.approx(plain.kappa)


def judged(right: tuple[int, int], wrong: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat([1.0, 0.0, 1.0, 0.0], [*right, *wrong]), np.repeat([1.0, 0.0, 0.0, 1.0], [*right, *wrong])


@pytest.mark.parametrize(
    ("right", "wrong", "state", "reason"),
    [
        ((100, 100), (0, 0), "passed", None),  # at least .96
        ((20, 15), (5, 10), "failed", None),  # kappa .4 of 50
        ((10, 10), (0, 0), "not_enough_labels", None),
        ((95, 4), (0, 0), "not_enough_labels", "few_outside_largest_class"),
        ((20, 0), (0, 0), "not_enough_labels", "one_class"),
        ((20, 0), (1, 0), "not_enough_labels", "rests_on_one_question"),
        ((0, 0), (0, 0), "not_enough_labels", "no_pairs"),
    ],
)
def test_verdicts_on_kappa(right: tuple[int, int], wrong: tuple[int, int], state: str, reason: str | None) -> None:
    verdict = decide_kappa(*judged(right, wrong))
    assert (verdict.state, verdict.reason) == (state, reason)


def test_labels_that_kappa_needs() -> None:
    """Half of each class, E = 1/2: the mean agreement must exceed 1 - .2 / 2 = .9. With A = 1 that takes
    (1.959964 * sqrt(.9 * .1) / .1)^2 = 34.6 rows; the jackknife sees no spread. Three rows per question: three times that."""
    labels, verdicts = judged((10, 10), (0, 0))
    assert decide_kappa(labels, verdicts).labels_needed == 35
    thrice = decide_kappa(np.tile(labels, 3), np.tile(verdicts, 3), np.tile(np.arange(20), 3))
    assert thrice.state == "not_enough_labels"
    assert thrice.labels_needed == math.ceil(3 * 1.959963984540054**2 * 0.09 / 0.01) == 104
    # n * ((1.96 + .84) * s / (1 - kappa^2) / (atanh kappa - atanh .8))^2.
    verdict = decide_kappa(*judged((48, 47), (2, 3)))
    kappa, error = verdict.kappa.value, verdict.kappa.error
    assert kappa == pytest.approx(0.9)
    z = 1.959963984540054 + 0.8416212335729143
    expected = 100 * (z * error / (1 - 0.81) / (math.atanh(0.9) - math.atanh(0.8))) ** 2
    assert verdict.state == "not_enough_labels"
    # simulated: of 200 and 300 rows with a kappa of .9, .68 and .85 passed
    assert 200 < verdict.labels_needed < 320
    assert verdict.labels_needed >= math.ceil(expected)
    verdict = decide_kappa(*judged((17, 18), (3, 2)))
    assert verdict.kappa.value == pytest.approx(0.75)
    assert (verdict.state, verdict.labels_needed) == ("not_enough_labels", None)


def test_kappa_of_grades_and_other_targets() -> None:
    labels = np.tile([1.0, 2, 3, 4, 5], 40)
    verdicts = np.where(np.arange(200) % 20 == 0, labels + 1, labels)
    assert decide_kappa(labels, verdicts, scale=(1, 5)).state == "passed"
    assert decide_kappa(labels, 6 - verdicts + 1, scale=(1, 6)).state == "failed"
    labels, verdicts = judged((48, 47), (2, 3))
    assert decide_kappa(labels, verdicts, target=0.7).state == "passed"
    assert decide_kappa(labels, verdicts, target=0.99).state == "failed"
    with pytest.raises(ValueError, match="between 0 and 1, found 1"):
        decide_kappa(labels, verdicts, target=1.0)


RATING = st.sampled_from([1.0, 2.0, 3.0, 4.0, 5.0, NONE])


def matrix(*rows: list[float]) -> np.ndarray:
    return np.array(rows, dtype=np.float64)


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


@given(st.lists(st.tuples(RATING, RATING, RATING), max_size=30))
def test_alpha_equals_the_krippendorff_package(rows: list[tuple[float, float, float]]) -> None:
    package = pytest.importorskip("krippendorff")
    ratings = np.array(rows, dtype=np.float64).reshape(-1, 3)
    for squared, level in ((False, "nominal"), (True, "interval")):
        ours = krippendorff_alpha(ratings, squared=squared)
        if ours.value is not None:
            theirs = package.alpha(reliability_data=ratings.T, level_of_measurement=level)
            assert ours.value == pytest.approx(theirs, abs=1e-9)
