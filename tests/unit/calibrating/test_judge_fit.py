"""Fitted settings of the embedded judge: advised where unseen questions show a gain, never within noise."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pydantic import ValidationError
from sklearn.metrics import cohen_kappa_score

from ragpipe.calibrating.judge_fit import IN_USE, EmbeddedFit, candidates_of, fit_judge, fit_lines, judge_section, values_of
from ragpipe.calibrating.people_labels import JudgedCases, judged_cases
from ragpipe.judging.heuristic.claim_features import extract_features, index_sources
from ragpipe.judging.heuristic.settings import HeuristicSettings, OverlapWeights
from ragpipe.judging.heuristic.verdict_rules import decide
from ragpipe.schema.score import ScoreSpec
from ragpipe.scoring.dimensions import CASE
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.testing.scripted import make_case, shipped_metric


def noisy(labels: Any, right: float, rng: Any) -> Any:
    """Verdicts of which this share is right."""
    return np.where(rng.random(len(labels)) < right, labels, 1 - labels)


@pytest.mark.slow
def test_a_candidate_that_is_surely_better_is_advised() -> None:
    rng = np.random.default_rng(0)
    labels = (np.arange(100) % 2).astype(float)
    verdicts = np.stack([noisy(labels, 0.55, rng), noisy(labels, 0.6, rng), noisy(labels, 0.95, rng)], axis=1)
    fit = fit_judge(labels, verdicts, rng.random(100))
    assert (fit.chosen, fit.is_advised) == (2, True)
    assert fit.fitted is not None
    assert fit.in_use == pytest.approx(cohen_kappa_score(labels, verdicts[:, 0]))
    # every fold finds the third, so each case has its verdict
    assert fit.fitted.kappa == pytest.approx(cohen_kappa_score(labels, verdicts[:, 2]))
    assert fit.fitted.gain == pytest.approx(fit.fitted.kappa - fit.in_use)
    assert fit.over_length is not None
    assert fit.over_length.is_sure


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@pytest.mark.parametrize("n", [60, 100])
def test_among_equally_good_candidates_the_settings_in_use_stay(n: int) -> None:
    """50 candidates with the same agreement: the best in a sample is the best by chance. At most 5 % of samples are advised; of
    60 samples with that share more than 6 come up in 3 % of tests."""
    advised = 0
    for seed in range(60):
        rng = np.random.default_rng([n, seed])
        labels = (rng.random(n) < 0.6).astype(float)
        verdicts = np.stack([noisy(labels, 0.75, rng) for _ in range(50)], axis=1)
        advised += fit_judge(labels, verdicts, rng.random(n), seed=seed).is_advised
    assert advised <= 6


@pytest.mark.slow
def test_a_lead_by_chance_is_not_advised() -> None:
    rng = np.random.default_rng(1)
    labels = (rng.random(60) < 0.6).astype(float)
    verdicts = np.stack([noisy(labels, 0.75, rng) for _ in range(30)], axis=1)
    best = max(cohen_kappa_score(labels, column) for column in verdicts.T)
    assert best > cohen_kappa_score(labels, verdicts[:, 0]) + 0.1
    assert not fit_judge(labels, verdicts, rng.random(60)).is_advised


@pytest.mark.slow
def test_a_judge_that_measures_the_length_is_no_better_than_the_length() -> None:
    rng = np.random.default_rng(4)
    lengths = rng.integers(50, 500, 80).astype(float)
    labels = noisy((lengths < 250).astype(float), 0.85, rng)
    fit = fit_judge(labels, (lengths < 250).astype(float)[:, None], lengths)
    assert fit.length == pytest.approx(fit.in_use, abs=0.15)
    assert fit.over_length is not None
    assert not fit.over_length.is_sure
    assert not fit.is_advised


@pytest.mark.parametrize(("n", "positive", "reason"), [(39, 20, "few_labels"), (60, 56, "few_outside_largest_class"), (60, 30, None)])
def test_too_few_labels_fit_nothing(n: int, positive: int, reason: str | None) -> None:
    labels = (np.arange(n) < positive).astype(float)
    fit = fit_judge(labels, labels[:, None], np.arange(n, dtype=float))
    assert (fit.n, fit.reason, fit.chosen) == (n, reason, IN_USE)


def test_cases_of_a_question_are_in_one_fold() -> None:
    """Each question's cases repeat a candidate that happens to be right there: learnt by heart, it is worth nothing elsewhere."""
    rng = np.random.default_rng(2)
    questions = np.repeat(np.arange(12), 8)
    labels = (rng.random(12) < 0.5).astype(float)[questions]
    verdicts = (rng.random((12, 300)) < 0.5).astype(float)[questions]
    fit = fit_judge(labels, verdicts, rng.random(96), questions)
    assert fit.clusters == 12
    assert cohen_kappa_score(labels, verdicts[:, int(np.argmax((verdicts == labels[:, None]).mean(axis=0)))]) > 0.7
    assert fit.fitted is not None
    assert fit.fitted.kappa is not None
    assert fit.fitted.kappa < 0.5
    assert not fit.is_advised


CLAIM, SOURCE = "Green tea is grown in Uji.", ("Tea that is green grows in the hills near Uji and in Kyoto.",)


@pytest.mark.parametrize("name", ["recall", "window", "bigrams", "lcs"])
def test_one_overlap_alone_is_that_overlap(name: str) -> None:
    index = index_sources(SOURCE)
    weights = OverlapWeights(**{part: float(part == name) for part in ("recall", "window", "bigrams", "lcs")})
    finding = decide([CLAIM], index, HeuristicSettings(overlap_weights=weights))[0]
    assert finding.overlap == getattr(extract_features(CLAIM, index, 3), name)


def test_equal_weights_are_the_plain_mean_and_only_set_weights_are_identity() -> None:
    index = index_sources(SOURCE)
    alike = HeuristicSettings(overlap_weights=OverlapWeights(recall=2, window=2, bigrams=2, lcs=2))
    plain = HeuristicSettings()
    assert decide([CLAIM], index, alike)[0].overlap == pytest.approx(decide([CLAIM], index, plain)[0].overlap)
    assert "overlap_weights" not in plain.identity_of_judge()
    assert alike.identity_of_judge()["overlap_weights"]["lcs"] == 2
    with pytest.raises(ValidationError, match="not all 0"):
        OverlapWeights(recall=0, window=0, bigrams=0, lcs=0)


def test_candidates_begin_with_the_settings_in_use_and_change_nothing_else() -> None:
    settings = HeuristicSettings(threshold=0.4, window=2)
    candidates = candidates_of(settings)
    assert candidates[0] == settings
    assert len(candidates) == len(set(candidates)) == 9 * 11
    assert all(candidate.window == 2 for candidate in candidates)


def test_candidates_judge_as_a_run_by_them_would() -> None:
    case = make_case(answer=f"{CLAIM} It is drunk in Madrid.", chunks=list(SOURCE))
    metric = shipped_metric("faithfulness")
    low, high = HeuristicSettings(threshold=0.05), HeuristicSettings(threshold=1.0)
    # `Madrid` is in no source: never supported; the first claim by the low threshold alone
    assert values_of(metric, "faithfulness", [case], [low, high]).tolist() == [[0.5, 0.0]]
    assert np.isnan(values_of(metric, "faithfulness", [make_case(answer="")], [low])).all()


@pytest.mark.slow
def test_the_fitted_judge_is_a_judge_section_and_is_said_in_words() -> None:
    rng = np.random.default_rng(0)
    labels = (np.arange(100) % 2).astype(float)
    verdicts = np.stack([noisy(labels, 0.55, rng), noisy(labels, 0.95, rng)], axis=1)
    fit = fit_judge(labels, verdicts, rng.random(100))
    settings = HeuristicSettings(threshold=0.45, overlap_weights=OverlapWeights(recall=1, window=0, bigrams=0, lcs=0))
    assert HeuristicSettings.model_validate(yaml.safe_load(judge_section(settings, "0123456789ab", "faithfulness"))) == settings
    lines = list(fit_lines("faithfulness", EmbeddedFit(settings, fit)))
    assert "take threshold 0.45, overlap weights recall 1, window 0, bigrams 0, lcs 0" in lines[0]
    assert "better than the length of the answer alone" in lines[1]
    kept = fit_judge(labels, verdicts[:, :1], rng.random(100))
    assert "keep the settings in use" in next(fit_lines("faithfulness", EmbeddedFit(settings, kept)))
    few = fit_judge(labels[:20], verdicts[:20], rng.random(20))
    assert "fewer than 40 labels" in next(fit_lines("faithfulness", EmbeddedFit(settings, few)))


IDS = ["a", "b", "c", "d"]
SHARE = ScoreSpec("faithfulness")


def judged(root: Path, iterations: Sequence[Sequence[float | None]], keys: Sequence[str] = IDS) -> JudgedCases:
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


def test_values_are_means_and_verdicts_are_those_of_most_iterations(tmp_path: Path) -> None:
    both = judged(tmp_path, [[1.0, 1.0, 0.5, None], [1.0, 0.5, 0.5, None], [0.5, None, 1.0, None]])
    np.testing.assert_allclose(both.values, [2.5 / 3, 0.75, 2 / 3, np.nan])
    # 2 of 3, a tie of two, 1 of 3, none
    np.testing.assert_array_equal(both.verdicts, [1, np.nan, 0, np.nan])


def test_the_reliability_is_the_correlation_of_two_iterations(tmp_path: Path) -> None:
    first, second = [0.1, 0.5, 0.9, 0.4], [0.2, 0.4, 0.8, 0.7]
    pairs = np.array([[*first, *second], [*second, *first]])  # each pair in both orders
    assert judged(tmp_path, [first, second]).reliability == pytest.approx(np.corrcoef(pairs)[0, 1])


def test_one_iteration_has_no_reliability_and_its_values_as_they_are(tmp_path: Path) -> None:
    one = judged(tmp_path, [[1 / 3, None, 0.85, 1.0]])
    assert one.reliability is None
    np.testing.assert_array_equal(one.values, [1 / 3, np.nan, 0.85, 1.0])
    np.testing.assert_array_equal(one.verdicts, [0, np.nan, 1, 1])


def test_rows_are_in_the_order_of_the_labels(tmp_path: Path) -> None:
    some = judged(tmp_path, [[0.1, 0.2, 0.3, 0.4]], ["d", "a", "c"])
    np.testing.assert_array_equal(some.values, [0.4, 0.1, 0.3])
    np.testing.assert_array_equal(some.lengths, [40, 10, 30])
    assert some.questions.tolist() == [2, 0, 1]
    category = some.fields.of("category")
    assert [(int(case), category.names[code]) for case, code in zip(category.cases, category.codes, strict=True)] == [(1, "x"), (2, "y")]
