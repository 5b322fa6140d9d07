"""Rogan and Gladen's share with the interval of Lang and Reiczigel: their published examples, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ragpipe.stats.rogan_gladen import RoganGladen, rogan_gladen


def of_counts(
    positive: int, n: int, sensitive: tuple[int, int], specific: tuple[int, int], **more: np.ndarray
) -> RoganGladen:
    """Positive verdicts of n; right verdicts of the positive labels, and of the negative ones."""
    verdicts = np.array([1.0] * positive + [0.0] * (n - positive))
    labels = np.array([1.0] * sensitive[1] + [0.0] * specific[1])
    right = [1.0] * sensitive[0] + [0.0] * (sensitive[1] - sensitive[0])
    wrong = [0.0] * specific[0] + [1.0] * (specific[1] - specific[0])
    return rogan_gladen(verdicts, labels, np.array(right + wrong), **more)


@pytest.mark.parametrize(
    ("positive", "n", "sensitive", "specific", "low", "high"),
    [
        (4060, 11284, (178, 179), (358, 359), 0.349, 0.372),
        (51, 2971, (32, 33), (20, 20), 0, 0.053),
        (259, 509, (84, 127), (96, 109), 0.58, 0.87),
        (51, 509, (23, 41), (187, 195), 0.037, 0.195),
    ],
)
def test_the_examples_of_the_article(
    positive: int, n: int, sensitive: tuple[int, int], specific: tuple[int, int], low: float, high: float
) -> None:
    """Lang and Reiczigel 2014, as the R package asht prints them: to two or three places."""
    result = of_counts(positive, n, sensitive, specific)
    assert result.interval is not None
    places = 3 if low not in (0.58,) else 2
    assert (round(result.interval.low, places), round(result.interval.high, places)) == (low, high)


def test_the_value_by_hand() -> None:
    """80 of 100 pass; 45 of 50 good answers and 30 of 40 bad ones are told: (.8 + .75 - 1) / (.9 + .75 - 1)."""
    result = of_counts(80, 100, (45, 50), (30, 40))
    assert (result.judge.mean, result.sensitivity.mean, result.specificity.mean) == (0.8, 0.9, 0.75)
    assert result.value == pytest.approx(0.55 / 0.65)
    assert (result.n, result.labels, result.reason) == (100, 90, None)


def test_a_share_below_what_the_judge_lets_through_is_none() -> None:
    """10 of 100 pass although a judge with specificity .8 passes 20 of 100 bad answers: cut at 0."""
    result = of_counts(10, 100, (60, 60), (48, 60))
    assert (result.value, result.interval.low if result.interval else None) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("positive", "n", "sensitive", "specific", "reason"),
    [
        (0, 0, (20, 20), (20, 20), "no_values"),
        (5, 10, (20, 20), (0, 0), "one_class"),
        (5, 10, (0, 0), (20, 20), "one_class"),
        (5, 10, (40, 80), (40, 80), "weak_judge"),
        (5, 10, (6, 6), (7, 7), "weak_judge"),  # Wilson: 6 / (6 + 3.84) + 7 / (7 + 3.84) = 1.256
        (5, 10, (7, 7), (8, 8), None),  # 7 / 10.84 + 8 / 11.84 = 1.321
    ],
)
def test_refusals(
    positive: int, n: int, sensitive: tuple[int, int], specific: tuple[int, int], reason: str | None
) -> None:
    result = of_counts(positive, n, sensitive, specific)
    assert (result.reason, result.value is None, result.interval is None) == (
        reason,
        reason is not None,
        reason is not None,
    )


def test_labels_and_verdicts_are_classes() -> None:
    with pytest.raises(ValueError, match="label is 0 or 1"):
        rogan_gladen(np.ones(3), np.array([0.5, 1.0]), np.ones(2))


def test_copies_of_a_question_are_no_news() -> None:
    """Each case and each label five times: as wide as once, where all rows of a question are alike."""
    once = of_counts(80, 100, (45, 50), (36, 40))
    five = of_counts(
        400, 500, (225, 250), (180, 200), questions=np.arange(500) // 5, label_questions=np.arange(450) // 5
    )
    assert five.value == pytest.approx(once.value)
    assert once.interval is not None
    assert five.interval is not None
    widths = [result.interval.high - result.interval.low for result in (once, five) if result.interval]
    assert widths[1] == pytest.approx(widths[0], rel=0.02)


@pytest.mark.slow
@given(
    st.integers(1, 200), st.floats(0, 1), st.tuples(st.integers(5, 80), st.floats(0.5, 1)),
    st.tuples(st.integers(5, 80), st.floats(0.5, 1)),
)  # fmt: skip
def test_the_value_is_in_its_interval_and_classes_may_change_places(
    n: int, share: float, sensitive: tuple[int, float], specific: tuple[int, float]
) -> None:
    positive = round(n * share)
    kinds = [(round(rows * rate), rows) for rows, rate in (sensitive, specific)]
    result = of_counts(positive, n, kinds[0], kinds[1])
    turned = of_counts(n - positive, n, kinds[1], kinds[0])
    assert result.reason == turned.reason
    assume(result.reason is None)
    assert result.value is not None
    assert result.interval is not None
    assert turned.interval is not None
    assert 0 <= result.interval.low <= result.value <= result.interval.high <= 1
    assert turned.value == pytest.approx(1 - result.value)
    assert (turned.interval.low, turned.interval.high) == pytest.approx(
        (1 - result.interval.high, 1 - result.interval.low)
    )
