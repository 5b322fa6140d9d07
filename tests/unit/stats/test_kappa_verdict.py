"""Whether kappa lies above .8: passed, failed, or how many labels it would take."""

import math

import numpy as np
import pytest

from ragpipe.stats.detection import decide_kappa


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
def test_verdicts(right: tuple[int, int], wrong: tuple[int, int], state: str, reason: str | None) -> None:
    verdict = decide_kappa(*judged(right, wrong))
    assert (verdict.state, verdict.reason) == (state, reason)


def test_labels_needed() -> None:
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
    assert error is not None
    z = 1.959963984540054 + 0.8416212335729143
    expected = 100 * (z * error / (1 - 0.81) / (math.atanh(0.9) - math.atanh(0.8))) ** 2
    assert verdict.state == "not_enough_labels"
    assert verdict.labels_needed is not None
    # simulated: of 200 and 300 rows with a kappa of .9, .68 and .85 passed
    assert 200 < verdict.labels_needed < 320
    assert verdict.labels_needed >= math.ceil(expected)
    verdict = decide_kappa(*judged((17, 18), (3, 2)))
    assert verdict.kappa.value == pytest.approx(0.75)
    assert (verdict.state, verdict.labels_needed) == ("not_enough_labels", None)


def test_grades_and_targets() -> None:
    labels = np.tile([1.0, 2, 3, 4, 5], 40)
    verdicts = np.where(np.arange(200) % 20 == 0, labels + 1, labels)
    assert decide_kappa(labels, verdicts, scale=(1, 5)).state == "passed"
    assert decide_kappa(labels, 6 - verdicts + 1, scale=(1, 6)).state == "failed"
    labels, verdicts = judged((48, 47), (2, 3))
    assert decide_kappa(labels, verdicts, target=0.7).state == "passed"
    assert decide_kappa(labels, verdicts, target=0.99).state == "failed"
    with pytest.raises(ValueError, match="between 0 and 1, found 1"):
        decide_kappa(labels, verdicts, target=1.0)
