"""Differences: paired, of two independent samples, and of two versions over the jackknife; by hand and against scipy."""

import json
import math
from pathlib import Path
from statistics import mean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.proportion import confint_proportions_2indep

from ragpipe.stats.agreement_coefficients import Coefficient, cohen_kappa
from ragpipe.stats.detection import auroc, balanced_accuracy
from ragpipe.stats.independent_difference import IndependentRows, independent_difference
from ragpipe.stats.intervals import estimate_mean
from ragpipe.stats.jackknife import difference_of_versions, fisher_bounds, jackknife_error, questions_of
from ragpipe.stats.paired_difference import PairedDifference, paired_difference

ROWS = st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10), st.integers(0, 8)), max_size=40)
"""Base, candidate, question."""


def array(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def columns(rows: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return (array(*(r[0] / 10 for r in rows)), array(*(r[1] / 10 for r in rows)), np.array([r[2] for r in rows], dtype=np.int64))


def bounds(result: PairedDifference) -> tuple[float, float]:
    assert result.interval is not None
    return result.interval.low, result.interval.high


def test_independent_rows_are_the_paired_t_test() -> None:
    rng = np.random.default_rng(4)
    base, candidate = rng.random(20), rng.random(20)
    result = paired_difference(base, candidate, low=0, high=1)
    test = stats.ttest_rel(candidate, base)
    assert (result.n, result.clusters, result.changed, result.can_decide) == (20, 20, 20, True)
    assert result.difference == pytest.approx(np.mean(candidate - base))
    assert result.p_value == pytest.approx(test.pvalue)
    ci = test.confidence_interval(0.95)
    assert bounds(result) == pytest.approx((ci.low, ci.high))
    assert result.standardized == pytest.approx(test.statistic / math.sqrt(20))
    error = (ci.high - ci.low) / 2 / stats.t.ppf(0.975, 19)
    assert result.detectable == pytest.approx((stats.t.ppf(0.975, 19) + stats.t.ppf(0.8, 19)) * error)
    assert result.interval is not None
    assert result.interval.method == "t"


def test_repeated_questions_by_hand() -> None:
    """Six questions of two rows. Differences add up to .2 .4 .2 .4 .2 .4, mean .15; each question's residuals add up to -.1
    or .1. V = 6/5 * 6 * .01 / 144 = .0005; t(5) = 2.570581835636314. All signs alike: p = 2 / 2^6."""
    candidate = array(0.1, 0.1, 0.4, 0.0, 0.3, -0.1, 0.2, 0.2, 0.0, 0.2, 0.1, 0.3)
    result = paired_difference(np.zeros(12), candidate, np.repeat([4, 1, 8, 2, 9, 3], 2), low=-1, high=1)
    half = 2.570581835636314 * math.sqrt(0.0005)
    assert bounds(result) == pytest.approx((0.15 - half, 0.15 + half))
    assert (result.wins, result.losses, result.ties, result.net_wins) == (9, 1, 2, 8 / 12)
    assert (result.changed, result.p_value) == (6, 1 / 32)
    assert result.interval is not None
    assert result.interval.method == "clustered_t"


def test_one_changed_question_of_ten_by_hand() -> None:
    """A row of +1 and one of -1 are added: mean 1/12 of 12 rows; squares (121 + 9 + 121 + 169)/144 = 35/12, times 12/11, over
    144. t(9) = 2.2621571627409915. One sign is no evidence: p = 1."""
    result = paired_difference(np.zeros(10), array(1, *[0] * 9), low=0, high=1)
    error = math.sqrt(35 / 12 * 12 / 11) / 12
    half = 2.2621571627409915 * error
    assert bounds(result) == pytest.approx((1 / 12 - half, 1 / 12 + half))
    assert (result.difference, result.p_value, result.changed, result.can_decide) == (0.1, 1.0, 1, False)
    assert result.detectable == pytest.approx(half + stats.t.ppf(0.8, 9) * error)
    assert result.interval is not None
    assert result.interval.method == "added_questions"


@pytest.mark.parametrize(("changed", "method", "can_decide"), [(5, "added_questions", False), (6, "t", True)])
def test_five_changed_questions_cannot_decide(changed: int, method: str, can_decide: bool) -> None:
    """All signs alike: p = 2 / 2^5 = .0625 is not below .05, 2 / 2^6 is."""
    result = paired_difference(np.zeros(10), array(*[1] * changed, *[0] * (10 - changed)), low=0, high=1)
    assert result.interval is not None
    assert (result.interval.method, result.can_decide) == (method, can_decide)
    assert result.p_value == 2.0 ** (1 - changed)


def test_added_questions_are_as_large_as_the_others_weigh() -> None:
    """Questions of 3 and 1 rows: (9 + 1) / 4 = 2.5 rows each. All rows equal: mean 0 of 9, squares 2 * 2.5^2, times 4/3;
    t(1) = 12.7 leaves the scale."""
    result = paired_difference(np.full(4, 2.0), np.full(4, 2.0), np.array([1, 1, 1, 2]), low=1, high=5)
    assert (result.difference, result.p_value, result.standardized) == (0.0, 1.0, None)
    assert bounds(result) == (-4, 4)
    error = 4 * math.sqrt(4 / 3 * 2 * 2.5**2) / 9
    assert result.detectable == pytest.approx((stats.t.ppf(0.975, 1) + stats.t.ppf(0.8, 1)) * error)


def test_nothing_but_equal_gains_is_no_certainty() -> None:
    """Ten questions that all went from 0 to 1: mean 10/12; squares (40 + 4 + 484)/144, times 12/11, over 144: 1/36."""
    result = paired_difference(np.zeros(10), np.ones(10), low=0, high=1)
    half = 2.2621571627409915 / 6
    assert bounds(result) == pytest.approx((10 / 12 - half, 1.0))
    assert result.p_value == 2 / 2**10
    assert result.can_decide
    assert paired_difference(np.zeros(40), np.ones(40), low=0, high=1).p_value == 2.0**-39


def test_equal_gains_but_for_rounding_are_no_certainty() -> None:
    """Thirteen questions rise by .2, which floating point makes several numbers close to it. No spread, so no interval without a
    scale; only the signs as they are and all turned are so far from 0: p = 2 / 2^13 (Fisher's exact sign-flip test)."""
    base = np.arange(1, 14) / 10
    assert len(np.unique(base + 0.2 - base)) > 1
    result = paired_difference(base, base + 0.2)
    assert (result.interval, result.reason, result.p_value) == (None, "no_spread", 2 / 2**13)


@pytest.mark.parametrize(("n", "drop"), [(15, 0.1), (30, 0.05), (40, 0.05), (80, 0.02), (100, 0.02), (30, 0.2), (100, 0.05)])
def test_a_drop_that_may_not_show_is_in_the_interval(n: int, drop: float) -> None:
    """Of 0/1 rows a share of `drop` falls and none rises: the exact coverage, summed over the binomial distribution, is never
    below .92. The least is that of t where just 6 or 7 change."""
    covered = 0.0
    for falls in range(n + 1):
        interval = paired_difference(np.ones(n), array(*[0] * falls, *[1] * (n - falls)), low=0, high=1).interval
        assert interval is not None
        covered += float(stats.binom.pmf(falls, n, drop)) * (interval.low - 1e-9 <= -drop <= interval.high + 1e-9)
    assert covered >= 0.92


@pytest.mark.parametrize(
    ("base", "candidate", "questions", "changed", "difference", "reason"),
    [
        ([], [], [], 0, None, "no_pairs"),
        ([1], [3], [1], 1, 2.0, "one_sample"),
        ([1, 2], [3, 1], [1, 1], 1, 0.5, "one_sample"),
        ([1, 2, 3], [1, 2, 5], [1, 2, 3], 1, 2 / 3, "few_changed"),
        ([1, 2, 3], [1, 2, 3], [1, 2, 3], 0, 0.0, "no_spread"),
        ([1, 2, 3, 4, 5, 6, 7], [2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 5, 6, 7], 7, 1.0, "no_spread"),
    ],
)
def test_no_interval_without_grounds(base, candidate, questions, changed, difference, reason) -> None:
    result = paired_difference(array(*base), array(*candidate), np.array(questions, dtype=np.int64))
    assert (result.n, result.clusters, result.changed) == (len(base), len(set(questions)), changed)
    assert result.difference == (None if difference is None else pytest.approx(difference))
    assert (result.interval, result.detectable, result.reason, result.can_decide) == (None, None, reason, False)


def test_values_are_on_the_scale_and_of_the_same_rows() -> None:
    with pytest.raises(ValueError, match="off the scale 0 to 1"):
        paired_difference(array(0, 1), array(1, 2), low=0, high=1)
    with pytest.raises(ValueError, match="same cases"):
        paired_difference(array(0, 1), array(1))


@pytest.mark.parametrize(("better", "worse", "same"), [(9, 2, 5), (2, 3, 95), (6, 0, 4), (5, 5, 90), (12, 0, 1), (0, 7, 0)])
def test_zeros_and_ones_are_mcnemars_exact_test(better: int, worse: int, same: int) -> None:
    base = array(*[0] * better, *[1] * worse, *[1] * same)
    candidate = array(*[1] * better, *[0] * worse, *[1] * same)
    result = paired_difference(base, candidate, low=0, high=1)
    assert result.p_value == pytest.approx(stats.binomtest(better, better + worse).pvalue)
    assert (result.wins, result.losses, result.ties) == (better, worse, same)


@given(ROWS.filter(bool))
def test_few_changed_questions_are_the_exact_permutation_test(rows: list[tuple[int, int, int]]) -> None:
    base, candidate, questions = columns(rows)
    # in whole tenths: what rounding leaves of sums that are zero (3e-17) would count as a change in the oracle
    sums = array(0.0, *(round(10 * float(np.sum((candidate - base)[questions == q]))) for q in np.unique(questions)))
    test = stats.permutation_test(
        (sums,), lambda x, axis: np.sum(x, axis=axis), permutation_type="samples", n_resamples=np.inf, vectorized=True
    )  # fmt: skip
    assert paired_difference(base, candidate, questions).p_value == pytest.approx(test.pvalue)


@pytest.mark.slow
@given(ROWS, st.randoms(use_true_random=False))
def test_sides_order_and_scale(rows: list[tuple[int, int, int]], random) -> None:
    base, candidate, questions = columns(rows)
    result = paired_difference(base, candidate, questions, low=0, high=1)
    assert result.wins + result.losses + result.ties == result.n == len(rows)
    base, candidate, questions = columns(random.sample(rows, len(rows)))
    turned = paired_difference(1 + 4 * candidate, 1 + 4 * base, 90 - 7 * questions, low=1, high=5)
    assert (turned.n, turned.clusters, turned.changed, turned.reason) == (
        result.n, result.clusters, result.changed, result.reason
    )  # fmt: skip
    assert (turned.wins, turned.losses, turned.ties) == (result.losses, result.wins, result.ties)
    assert turned.p_value == pytest.approx(result.p_value)
    if result.interval is None:
        assert turned.interval is None
        return
    low, high = bounds(result)
    assert bounds(turned) == pytest.approx((-4 * high, -4 * low), abs=1e-9)
    assert -1 <= low <= result.difference + 1e-12
    assert result.difference - 1e-12 <= high <= 1
    assert high - low > 0.01
    assert 0 < result.p_value <= 1


@pytest.mark.parametrize(("block", "field"), [
    ("human faithfulness", "faithfulness"), ("human completeness", "completeness"), ("human appropriateness", "appropriateness"),
    ("human naturalness", "naturalness"), ("rl_f", "rl_f"), ("rb_llm", "rb_llm"), ("rb_agg", "rb_agg"),
])  # fmt: skip
def test_two_recorded_systems(real_data: Path, block: str, field: str) -> None:
    """The same 78 tasks answered by both: figures of EXPECTED.json by scipy, to 6 places."""
    figures = json.loads((real_data / "EXPECTED.json").read_text(encoding="utf-8"))["mtrag"]
    expected = figures[f"paired gpt-4o minus llama-3.1-405b-instruct: {block}"]
    text = (real_data / "mtrag_human/mtrag_human_evaluations.json").read_text(encoding="utf-8")
    values: dict[str, dict[str, float]] = {}
    for row in json.loads(text)["evaluations"]:
        marks = mean(float(mark["value"]) for mark in row["annotations"][field].values())
        values.setdefault(row["model_id"], {})[row["task_id"]] = marks
    tasks = sorted(values["gpt-4o"])
    candidate, base = (array(*(values[m][task] for task in tasks)) for m in ("gpt-4o", "llama-3.1-405b-instruct"))
    result = paired_difference(base, candidate)
    of_rounding = int(np.sum((base != candidate) & (np.abs(candidate - base) < 1e-12)))  # no win and no loss here
    assert (result.n, result.wins) == (expected["n"], expected["wins"])
    assert (result.losses, result.ties) == (expected["losses"] - of_rounding, expected["ties"] + of_rounding)
    assert result.difference == pytest.approx(expected["mean_diff"], abs=1e-6)
    assert result.p_value == pytest.approx(expected["p_t"], abs=1e-6)
    assert result.standardized == pytest.approx(expected["cohen_dz"], abs=1e-6)
    low, high = bounds(result)
    error = expected["mean_diff"] / expected["t"]
    assert (high - low) / 2 == pytest.approx(stats.t.ppf(0.975, 77) * error, abs=1e-5)


@pytest.mark.parametrize("recorded", ["GPT-4/CoT", "GPT-4/Rating", "GPT-4/Vanilla"])
def test_recorded_verdicts_in_both_orders(real_data: Path, recorded: str) -> None:
    """Right or wrong in each order of a pair: McNemar's exact p of EXPECTED.json."""
    expected = json.loads((real_data / "EXPECTED.json").read_text(encoding="utf-8"))["llmbar"][f"Natural/{recorded}"]
    rows = json.loads((real_data / f"llmbar/Natural/{recorded}/result.json").read_text(encoding="utf-8"))
    base, candidate = (
        array(*(str(row["results"][-1][f"swap = {order}"]["winner"]) == str(row["label"]) for row in rows)) for order in (False, True)
    )
    result = paired_difference(base, candidate, low=0, high=1)
    counts = expected["mcnemar_order"]
    assert {result.wins, result.losses} == {counts["b10"], counts["b01"]}
    assert result.p_value == pytest.approx(counts["p_exact"], abs=1e-6)


def hits(count: int, n: int) -> IndependentRows:
    return IndependentRows(np.repeat([1.0, 0.0], [count, n - count]))


# Newcombe (1998), table II, method 10: two proportions and the interval of their difference
@pytest.mark.parametrize(
    ("first", "second", "low", "high"),
    [
        ((56, 70), (48, 80), 0.0524, 0.3339), ((9, 10), (3, 10), 0.1705, 0.8090), ((6, 7), (2, 7), 0.0582, 0.8062),
        ((5, 56), (0, 29), -0.0381, 0.1926), ((0, 10), (0, 20), -0.1611, 0.2775), ((0, 10), (0, 10), -0.2775, 0.2775),
        ((10, 10), (0, 20), 0.6791, 1.0000), ((10, 10), (0, 10), 0.6075, 1.0000),
    ],
)  # fmt: skip
def test_published_intervals(first: tuple[int, int], second: tuple[int, int], low: float, high: float) -> None:
    found = independent_difference(hits(*second), hits(*first), low=0, high=1, binary=True).interval
    assert found
    assert (found.low, found.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


@given(st.data())
def test_rates_are_those_of_another_library(data: st.DataObject) -> None:
    sizes = [data.draw(st.integers(2, 300)) for _ in range(2)]
    counts = [data.draw(st.integers(0, size)) for size in sizes]
    expected = confint_proportions_2indep(counts[0], sizes[0], counts[1], sizes[1], method="newcomb", compare="diff")
    found = independent_difference(hits(counts[1], sizes[1]), hits(counts[0], sizes[0]), low=0, high=1, binary=True)
    assert found.interval
    assert (found.interval.low, found.interval.high) == pytest.approx(expected, abs=1e-9)
    assert found.interval.low <= found.difference <= found.interval.high


def test_rows_of_one_question_count_as_one() -> None:
    values = np.array([1.0, 0.0, 1.0, 1.0, 0.0, 1.0])
    alone = independent_difference(IndependentRows(values), IndependentRows(values), low=0, high=1).interval
    asked = np.repeat(np.arange(6), 3)
    repeated = IndependentRows(np.repeat(values, 3), asked)
    together = independent_difference(repeated, repeated, low=0, high=1).interval
    assert alone
    assert together
    assert (together.low, together.high) == pytest.approx((alone.low, alone.high))


def test_without_an_interval_there_is_none() -> None:
    single, several = IndependentRows(np.array([0.5])), IndependentRows(np.array([0.5, 0.7]))
    assert independent_difference(single, several, low=0, high=1).interval is None
    assert independent_difference(single, several, low=0, high=1).difference == pytest.approx(0.1)
    assert independent_difference(IndependentRows(np.array([])), several, low=0, high=1).difference is None
    assert independent_difference(IndependentRows(np.array([2.0, 2.0])), several).interval is None, "equal counts have no spread"


@pytest.mark.parametrize(("rate", "sizes"), [(0.85, (200, 200)), (0.5, (60, 200)), (0.95, (100, 40))])
def test_equal_systems_seldom_differ(rate: float, sizes: tuple[int, int]) -> None:
    """The interval of two equal rates leaves out 0 in about 5 % of 400 repetitions, give or take three standard errors of .011."""
    rng = np.random.default_rng(11)
    counts = [rng.binomial(size, rate, 400) for size in sizes]
    wrong = 0
    for first, second in zip(*counts, strict=True):
        interval = independent_difference(hits(first, sizes[0]), hits(second, sizes[1]), low=0, high=1, binary=True).interval
        assert interval
        wrong += not interval.low <= 0 <= interval.high
    assert wrong / 400 <= 0.083


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "low", "high"), [("shares", 0.030, 0.066), ("two rows a question", 0.026, 0.064)])
def test_graded_and_repeated_rows_of_equal_systems(kind: str, low: float, high: float) -> None:
    """With other draws than the table of docs/statistics.md (.053 and .045 of 100 questions), give or take three standard errors of .006."""
    rng = np.random.default_rng(23)

    def sample() -> IndependentRows:
        rates = rng.beta(1.275, 0.225, 100) if kind == "shares" else rng.beta(1.7, 0.3, 50)
        if kind == "shares":
            return IndependentRows(rng.binomial(5, rates) / 5)
        asked = np.repeat(np.arange(50), 2)
        return IndependentRows((rng.random(100) < rates[asked]).astype(float), asked)

    wrong = 0
    for _ in range(1500):
        interval = independent_difference(sample(), sample(), low=0, high=1, binary=kind != "shares").interval
        assert interval
        wrong += not interval.low <= 0 <= interval.high
    assert low <= wrong / 1500 <= high


ROWS_OF_JACKKNIFE = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 1), st.integers(0, 6)), min_size=1, max_size=40)
"""Label, verdict of the first version, of the second, question."""


def columns_of_jackknife(rows: list[tuple[int, int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    labels, base, candidate = (array(*(r[k] for r in rows)) for k in range(3))
    return labels, base, candidate, np.array([r[3] for r in rows], dtype=np.int64)


def accuracy(labels: np.ndarray, verdicts: np.ndarray) -> Coefficient:
    return Coefficient(len(labels), float(np.mean(labels == verdicts)))


def test_of_questions_with_equally_many_rows_it_is_the_clustered_standard_error() -> None:
    """Then leaving a question out moves the mean by (mean - its mean) / (G - 1), so G/(G-1) * sum of (m * deviation)^2 / n^2."""
    values, questions = array(2, 4, 6, 8, 4, 6), np.array([0, 0, 1, 1, 2, 2])
    error, _ = jackknife_error(lambda kept: float(np.mean(values[kept])), *questions_of(6, questions))
    interval = estimate_mean(values, questions).interval
    assert interval is not None
    assert error == pytest.approx((interval.high - interval.low) / 2 / 4.302652729911275) == math.sqrt(4 / 3)


@pytest.mark.parametrize(
    ("statistic", "groups", "expected"),
    [
        (lambda kept: 1.0, 1, (None, "one_sample")),
        (lambda kept: 1.0, 4, (0.0, "no_spread")),
        (lambda kept: None if not kept[2] else 1.0, 4, (None, "rests_on_one_question")),
    ],
)
def test_no_error_without_grounds(statistic, groups: int, expected: tuple[float | None, str]) -> None:
    assert jackknife_error(statistic, np.arange(groups), groups) == expected


def test_fishers_bounds() -> None:
    """atanh(1/2) is half the logarithm of 3: that much to each side gives tanh(0) = 0 and tanh(ln 3) = (9 - 1) / (9 + 1)."""
    error = 0.75 * math.log(3) / 4  # brought to the scale of z: divided by 1 - 1/4
    assert fisher_bounds(0.5, error, 2.0) == pytest.approx((0.0, 0.8))
    assert fisher_bounds(-0.5, error, 2.0) == pytest.approx((-0.8, 0.0))
    assert fisher_bounds(1.0, 0.0, 2.0) == (1.0, 1.0)
    assert fisher_bounds(-1.0, 0.1, 2.0) == (-1.0, -1.0)


def test_difference_by_hand() -> None:
    """Share of right verdicts of three questions with two rows each: the first version is right in 1, 1, 1 of 2, the second
    in 2, 2, 1. Difference 5/6 - 3/6 = 1/3; without each question (3 - 2)/4, (3 - 2)/4 and (4 - 2)/4: mean 1/3, squares
    2/144 + 1/36 = 1/24, times 2/3 = 1/36. t(2) = 4.302652729911275."""
    labels = np.ones(6)
    result = difference_of_versions(accuracy, labels, array(1, 0, 1, 0, 1, 0), array(1, 1, 1, 1, 0, 1), np.array([5, 5, 8, 8, 2, 2]))
    assert (result.n, result.clusters, result.base, result.candidate) == (6, 3, 0.5, pytest.approx(5 / 6))
    assert result.difference == pytest.approx(1 / 3)
    assert result.interval is not None
    half = 4.302652729911275 / 6
    assert (result.interval.low, result.interval.high) == pytest.approx((1 / 3 - half, 1 / 3 + half))
    assert (result.interval.method, result.interval.too_few) == ("jackknife_t", True)


@pytest.mark.parametrize(
    ("labels", "base", "candidate", "questions", "difference", "reason"),
    [
        ([], [], [], [], None, "no_pairs"),
        ([1, 1], [1, 0], [1, 1], [1, 2], None, "one_class"),
        ([1, 0, 1, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 1, 1], 0.5, "one_sample"),
        ([1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0], [1, 2, 3, 4], 0.0, "no_spread"),
        ([1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 2, 3], 0.25, "rests_on_one_question"),
    ],
)
def test_no_interval_of_a_difference_without_grounds(labels, base, candidate, questions, difference, reason) -> None:
    result = difference_of_versions(balanced_accuracy, array(*labels), array(*base), array(*candidate), np.array(questions, dtype=np.int64))
    assert (result.difference, result.interval, result.reason) == (difference, None, reason)


def test_the_same_labels_make_a_narrower_interval_than_two_single_ones() -> None:
    """Two versions that err on the same 30 of 120 answers but two: the difference is far surer than either figure."""
    rng = np.random.default_rng(3)
    labels = np.repeat([1.0, 0.0], 60)
    base = np.where(rng.permutation(120) < 30, 1 - labels, labels)
    candidate = base.copy()
    candidate[np.flatnonzero(base != labels)[:2]] = labels[np.flatnonzero(base != labels)[:2]]
    result = difference_of_versions(cohen_kappa, labels, base, candidate)
    assert result.interval is not None
    assert result.interval.high - result.interval.low < 0.1


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@given(ROWS_OF_JACKKNIFE, st.randoms(use_true_random=False))
@pytest.mark.parametrize("statistic", [auroc, cohen_kappa, balanced_accuracy])
def test_a_difference_has_no_side_and_no_order(statistic, rows: list[tuple[int, int, int, int]], random) -> None:
    labels, base, candidate, questions = columns_of_jackknife(rows)
    there = difference_of_versions(statistic, labels, base, candidate, questions)
    shuffled = random.sample(rows, len(rows))
    labels, base, candidate, questions = columns_of_jackknife(shuffled)
    back = difference_of_versions(statistic, labels, candidate, base, 90 - questions)
    assert (there.n, there.clusters) == (back.n, back.clusters)
    assert (there.difference is None) == (back.difference is None)
    if there.interval is None or back.interval is None:
        assert there.interval is back.interval
        return
    assert there.difference == pytest.approx(-back.difference, abs=1e-12)
    assert (there.interval.low, there.interval.high) == pytest.approx((-back.interval.high, -back.interval.low), abs=1e-9)
    assert there.interval.low <= there.difference <= there.interval.high


@pytest.mark.slow
@given(ROWS_OF_JACKKNIFE)
def test_copies_of_rows_are_no_news(rows: list[tuple[int, int, int, int]]) -> None:
    labels, base, candidate, questions = columns_of_jackknife(rows)
    once = difference_of_versions(cohen_kappa, labels, base, candidate, questions)
    twice = difference_of_versions(cohen_kappa, np.tile(labels, 2), np.tile(base, 2), np.tile(candidate, 2), np.tile(questions, 2))
    assert once.reason == twice.reason
    if once.interval is not None and twice.interval is not None:
        assert (once.interval.low, once.interval.high) == pytest.approx((twice.interval.low, twice.interval.high), abs=1e-9)
