"""One score against people: how labels become a reference, what counts, the ceiling between people, the verdict."""

import krippendorff
import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import cohen_kappa_score, confusion_matrix, roc_auc_score

from ragpipe.calibration.people_labels import JudgedCases, LabelledCase, PeopleLabels, verdicts_of
from ragpipe.calibration.score_calibration import ScoreEvidence, calibrate_score, human_ceiling, reference_of
from ragpipe.core.score import ScoreSpec
from ragpipe.report.calibration_report import advice_lines
from ragpipe.score.calibration_file import Binding, CalibrationTarget, LabelPart
from ragpipe.score.dimensions import Fields

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

SHARE = ScoreSpec("faithfulness")
GRADE = ScoreSpec("style", 1.0, 5.0, grades=tuple((str(step), float(step)) for step in range(5, 0, -1)))
ERRORS = ScoreSpec("made_up", higher_is_better=False, binary=True)
NAN = np.nan
KAPPA = CalibrationTarget(statistic="kappa", above=0.8)


def labels_of(ratings, parts=None, threshold=None):
    matrix = np.array(ratings, dtype=np.float64)
    matrix = matrix if matrix.ndim == 2 else matrix[:, None]
    cases = [
        LabelledCase((f"q{place}", "rag", 1), part, "all", 0.5, f"{place:064d}")
        for place, part in enumerate(parts or ["random"] * len(matrix))
    ]
    return PeopleLabels(cases, [f"p{place}" for place in range(matrix.shape[1])], matrix, "d1", threshold=threshold)


def calibrated(labels, values, *, spec=SHARE, threshold=0.85, questions=None, lengths=None, target=KAPPA, methods=None):
    scores = np.array(values, dtype=np.float64)
    n = len(scores)
    judged = JudgedCases(
        scores,
        verdicts_of(scores, spec, threshold),
        np.arange(n) if questions is None else np.array(questions),
        np.full(n, NAN) if lengths is None else np.array(lengths, dtype=np.float64),
        None,
        Fields({"sample_id": pa.array([f"q{place}" for place in range(n)]), "method": pa.array(methods or ["rag"] * n)}),
    )
    binding = Binding(judge={}, metric_version=1, settings={}, prompts={}, answer_shape={}, threshold=threshold)
    answers = [f"{place:064d}" for place in range(n)]
    evidence = ScoreEvidence("faithfulness", spec, labels, judged, answers, binding)
    return calibrate_score(evidence, target, ["method"], 0.95)


@pytest.mark.parametrize(("spec", "ratings", "threshold", "labels", "verdicts", "rule"), [
    (SHARE, [[1.0], [0.0]], 0.85, [1, 0], [1, 0], "single"),
    # most annotators decide; a tie has no verdict, and a missing label is no vote
    (SHARE, [[1, 1, 0], [1, 0, NAN], [0, NAN, NAN]], 0.85, [2 / 3, 0.5, 0], [1, NAN, 0], "majority"),
    (ERRORS, [[1, 1], [0, 0], [0, 1]], None, [1, 0, 0.5], [0, 1, NAN], "majority"),
    # grades: the threshold holds for their mean
    (GRADE, [[5, 4], [4, 3], [5, 1]], 4.0, [4.5, 3.5, 3], [1, 0, 0], "mean"),
    (GRADE, [[4, 4], [2, 3]], None, [4, 2.5], [NAN, NAN], "mean"),
    (SHARE, [[0.5, 1.0], [1.0, 1.0]], 0.85, [0.75, 1], [0, 1], "mean"),
])  # fmt: skip
def test_labels_of_several_people_become_one(spec, ratings, threshold, labels, verdicts, rule):
    people = reference_of(labels_of(ratings), spec, threshold)
    np.testing.assert_allclose(people.labels, labels, atol=1e-9)
    np.testing.assert_array_equal(people.verdicts, np.array(verdicts, dtype=np.float64))
    assert people.rule == rule


def test_labels_have_a_threshold_of_their_own_where_they_come_from_another_scale():
    people = reference_of(labels_of([[0.6], [0.7], [0.9]], threshold=0.65), SHARE, 0.85)
    np.testing.assert_array_equal(people.verdicts, [0, 1, 1])


def test_equal_means_are_ties_whatever_the_order_of_the_ratings():
    thirds = [1 / 3, 2 / 3, 1.0]
    orders = [[thirds[i] for i in order] for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0))]
    assert len(set(reference_of(labels_of([*orders, [2 / 3] * 3]), SHARE, None).labels)) == 1


def test_figures_are_those_of_scikit_learn():
    rng = np.random.default_rng(7)
    labels = (rng.random(120) < 0.6).astype(float)
    values = np.round(np.clip(labels * 0.4 + rng.random(120) * 0.6, 0, 1), 1)
    result = calibrated(labels_of(labels), values, threshold=0.5)
    verdicts = values >= 0.5
    statistics = {name: statistic.value for name, statistic in result.statistics.items()}
    assert statistics["kappa"] == pytest.approx(cohen_kappa_score(labels, verdicts))
    assert statistics["auroc"] == pytest.approx(roc_auc_score(labels, values))
    assert statistics["agreement"] == pytest.approx(np.mean(labels == verdicts))
    assert statistics["sensitivity"] == pytest.approx(np.mean(verdicts[labels == 1]))
    assert statistics["specificity"] == pytest.approx(1 - np.mean(verdicts[labels == 0]))
    assert statistics["mae"] == pytest.approx(np.mean(np.abs(values - labels)))
    assert statistics["difference"] == pytest.approx(np.mean(values - labels))
    assert statistics["pearson"] == pytest.approx(np.corrcoef(labels, values)[0, 1])
    reliability = np.array([labels, verdicts])
    assert statistics["alpha"] == pytest.approx(krippendorff.alpha(reliability, level_of_measurement="nominal"))
    assert result.confusion.classes == ["failed", "passed"]
    assert result.confusion.counts == confusion_matrix(labels, verdicts).tolist()
    assert result.prevalence.value == pytest.approx(np.mean(labels))
    assert result.judged_prevalence.value == pytest.approx(np.mean(verdicts))
    for statistic in result.statistics.values():
        assert statistic.n in (120, int(labels.sum()), 120 - int(labels.sum()))
        assert statistic.interval is not None


def test_where_lower_is_better_a_low_score_speaks_for_the_answer():
    made_up = [1.0] * 10 + [0.0] * 10
    result = calibrated(labels_of(made_up), made_up, spec=ERRORS, threshold=0.0)
    assert (result.statistics["auroc"].value, result.statistics["kappa"].value) == (1.0, 1.0)
    assert result.confusion.counts == [[10, 0], [0, 10]]


def test_grades_are_compared_as_grades():
    labels, values = [5, 4, 4, 2, 1, 3, 5, 2], [5, 4, 3, 2, 1, 4, 4, 1]
    result = calibrated(labels_of(labels), values, spec=GRADE, threshold=None)
    assert "kappa" not in result.statistics
    assert result.statistics["quadratic_kappa"].value == pytest.approx(cohen_kappa_score(labels, values, weights="quadratic"))
    alpha = krippendorff.alpha(np.array([labels, values], dtype=float), level_of_measurement="interval")
    assert result.statistics["alpha_interval"].value == pytest.approx(alpha)
    assert "ac2" in result.statistics
    assert result.confusion.classes == ["1", "2", "3", "4", "5"]
    assert np.trace(np.array(result.confusion.counts)) == 4


def test_only_the_random_part_of_a_draw_counts_and_every_label_is_kept():
    parts: list[LabelPart] = ["random", "stratified", "random", "stratified"]
    result = calibrated(labels_of([1, 0, 0, 0], parts), [1.0, 1.0, 0.0, 1.0], methods=["a", "a", "b", "b"])
    assert (result.statistics["agreement"].n, result.statistics["agreement"].value) == (2, 1.0)
    assert [label.part for label in result.labels] == parts
    assert {part.value: part.difference.n for part in result.slices} == {"a": 1, "b": 1}


def test_a_slice_has_the_figures_of_its_cases():
    rng = np.random.default_rng(5)
    labels = (rng.random(80) < 0.5).astype(float)
    values = np.round(labels * 0.5 + rng.random(80) * 0.5, 1)
    methods = ["a" if place % 2 else "b" for place in range(80)]
    parts = {part.value: part for part in calibrated(labels_of(labels), values, threshold=0.5, methods=methods).slices}
    assert set(parts) == {"a", "b"}
    for name, part in parts.items():
        kept = np.array(methods) == name
        assert part.field == "method"
        assert part.statistics["kappa"].value == pytest.approx(cohen_kappa_score(labels[kept], values[kept] >= 0.5))
        assert part.statistics["auroc"].value == pytest.approx(roc_auc_score(labels[kept], values[kept]))
        assert part.difference.value == pytest.approx(np.mean(values[kept] - labels[kept]))


def test_people_among_themselves_are_those_of_krippendorff_and_scikit_learn():
    rng = np.random.default_rng(3)
    truth = rng.integers(1, 6, 80)
    ratings = np.clip(truth[:, None] + rng.integers(-1, 2, (80, 3)), 1, 5).astype(float)
    ratings[rng.random((80, 3)) < 0.25] = NAN
    ratings = ratings[(~np.isnan(ratings)).any(axis=1)]
    verdicts = verdicts_of(ratings.ravel(), GRADE, 4.0).reshape(ratings.shape)
    ceiling = human_ceiling(ratings, verdicts, np.arange(len(ratings)), GRADE, judge_reliability=None, level=0.95)
    several = ratings[np.sum(~np.isnan(ratings), axis=1) > 1]
    pairs = np.array([
        (row[i], row[j]) for row in several for i in range(3) for j in range(3)
        if i != j and not np.isnan(row[i]) and not np.isnan(row[j])
    ])  # fmt: skip
    statistics = ceiling.statistics
    assert statistics["kappa"].n == len(pairs) // 2
    assert statistics["kappa"].value == pytest.approx(cohen_kappa_score(pairs[:, 0] >= 4, pairs[:, 1] >= 4))
    quadratic = cohen_kappa_score(pairs[:, 0], pairs[:, 1], weights="quadratic")
    assert statistics["quadratic_kappa"].value == pytest.approx(quadratic)
    alpha = krippendorff.alpha(ratings.T, level_of_measurement="interval")
    assert statistics["alpha_interval"].value == pytest.approx(alpha)
    correlation = np.corrcoef(pairs.T)[0, 1]
    k = np.mean(np.sum(~np.isnan(several), axis=1))
    assert ceiling.reference_reliability == pytest.approx(k * correlation / (1 + (k - 1) * correlation))
    assert ceiling.highest_correlation == pytest.approx(np.sqrt(ceiling.reference_reliability or 0))
    assert (ceiling.annotators, ceiling.cases) == (3, len(several))


def test_one_annotator_has_no_ceiling():
    assert calibrated(labels_of([1, 0, 1]), [1, 0, 1]).ceiling is None


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize(("n", "wrong", "state", "reason"), [
    (400, 4, "passed", None),  # kappa .98 on 400
    (60, 3, "not_enough_labels", None),  # kappa .9 on 60: the interval holds .8
    (400, 120, "failed", None),  # kappa .4
    (6, 0, "not_enough_labels", "few_outside_largest_class"),
])  # fmt: skip
def test_the_interval_decides(n, wrong, state, reason):
    labels = (np.arange(n) % 2).astype(float)
    values = labels.copy()
    values[:wrong] = 1 - values[:wrong]
    result = calibrated(labels_of(labels), values)
    assert (result.state, result.reason) == (state, reason)
    assert result.statistics["kappa"].value == pytest.approx(1 - 2 * wrong / n)  # half of each class, errors of both
    assert (result.labels_needed is not None) == (state == "not_enough_labels" and reason is None)


@pytest.mark.parametrize(("spec", "target", "reason"), [
    (GRADE, "kappa", "no_threshold"), (ScoreSpec("count", None, None), "quadratic_kappa", "no_scale"),
])  # fmt: skip
def test_what_cannot_be_decided_says_why(spec, target, reason):
    asked = CalibrationTarget(statistic=target, above=0.8)
    result = calibrated(labels_of([1, 2, 3, 4, 5, 2]), [1, 2, 3, 4, 5, 3], spec=spec, threshold=None, target=asked)
    assert (result.state, result.reason) == ("not_enough_labels", reason)


def test_the_length_of_the_answer_is_the_baseline():
    labels = (np.arange(60) % 2).astype(float)
    noise = np.random.default_rng(1).random(60)
    lengths = 100 + 50 * (1 - labels) + 60 * noise  # longer answers fail
    as_good_as_length = calibrated(labels_of(labels), 1 - (lengths - 100) / 110, lengths=lengths).length_baseline
    assert as_good_as_length.shorter_passes
    assert as_good_as_length.auroc.value == pytest.approx(roc_auc_score(labels, -lengths))
    assert as_good_as_length.difference.value == pytest.approx(0, abs=1e-12)
    better = calibrated(labels_of(labels), labels, lengths=noise).length_baseline
    assert better.difference.interval.low > 0
    assert calibrated(labels_of([1, 1, 1]), [1, 1, 0], lengths=[1, 2, 3]).length_baseline is None
    for word, values, other in (("better", labels, noise), ("worse", noise, 2 - labels)):
        (line,) = advice_lines("s", calibrated(labels_of(labels), values, lengths=other))
        assert line.startswith(f"s: {word} than the length of the answer")
