"""Figures of preference against references, recorded people and judges, and a part of the simulation of docs/statistics.md."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import decisions as benchmark
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from ragpipe.calibration.score_calibration import RatedCases, agreement_statistics, choices, confusion_of, most_chosen
from ragpipe.core.score import ScoreSpec
from ragpipe.stats.preference import bradley_terry, decide_preference, rate_at_equal_length
from ragpipe.testing.scripted import shipped_metric


@pytest.mark.parametrize(
    ("values", "state", "counts"),
    [
        ([1] * 12, "better", (12, 0, 0)),
        ([0] * 12, "worse", (0, 0, 12)),
        ([1] * 5 + [0.5] * 3, "inconclusive", (5, 3, 0)),
        ([1, 0] * 8 + [0.5] * 4, "inconclusive", (8, 4, 8)),
        ([0.5] * 200, "same", (0, 200, 0)),
        ([2 / 3] * 20 + [1 / 3] * 2, "better", (20, 0, 2)),
        ([1], "inconclusive", (1, 0, 0)),
    ],
)
def test_a_winner_needs_an_interval_beyond_one_half_and_six_decided_questions(
    values: list[float], state: str, counts: tuple[int, ...]
) -> None:
    verdict = decide_preference(np.array(values, dtype=float))
    assert (verdict.state, (verdict.wins, verdict.ties, verdict.losses)) == (state, counts)


def test_intervals_narrow_with_the_pairs_and_rows_of_one_question_count_as_one() -> None:
    assert decide_preference(np.ones(40), np.repeat(np.arange(5), 8)).state == "inconclusive"
    by_order = [decide_preference(np.full(50, 0.5), None, np.full(50, differs)).state for differs in (0.0, 1.0)]
    assert by_order == ["same", "inconclusive"], "ties of a judge that goes by the order say nothing"
    alone = decide_preference(np.array([1.0, 0, 1, 1, 1, 1, 1, 0]))
    repeated = decide_preference(np.repeat([1.0, 0, 1, 1, 1, 1, 1, 0], 4), np.repeat(np.arange(8), 4))
    assert repeated.rate.interval.low == pytest.approx(alone.rate.interval.low, abs=0.02)
    widths = []
    for n in (20, 80, 320):
        interval = decide_preference(np.tile([1.0, 0.5, 0.0, 1.0], n // 4)).rate.interval
        widths.append(interval.high - interval.low)
    assert all(before > 1.6 * after for before, after in pairwise(widths))


def test_the_rate_at_equal_length_is_the_intercept_of_a_logistic_regression() -> None:
    rng = np.random.default_rng(1)
    longer = rng.normal(40, 120, 300)
    column = np.tanh(longer / np.std(longer))
    won = rng.random(300) < expit(0.4 + 1.2 * column)
    values = np.where(rng.random(300) < 0.2, 0.5, won.astype(float))

    def loss(theta: Any) -> float:
        linear = theta[0] + theta[1] * column
        return float(np.sum(np.logaddexp(0, linear) - values * linear) + 0.05 * theta[1] ** 2)

    reference = expit(minimize(loss, np.zeros(2), tol=1e-12).x[0])
    found = rate_at_equal_length(values, longer)
    assert found.value == pytest.approx(reference, abs=1e-5)
    assert found.interval.low < reference < found.interval.high < np.mean(values) + 0.1
    assert rate_at_equal_length(1 - values, -longer).value == pytest.approx(1 - reference, abs=1e-5)


@pytest.mark.parametrize(
    ("values", "longer", "reason"),
    [([1, 0] * 10, [5] * 20, "one_sided"), ([1] * 20, [5, -5] * 10, "one_class"), ([1, 0], [5, -5], "one_sided"), ([], [], "one_sided")],
)
def test_no_rate_at_equal_length_where_it_would_be_a_guess(values: list[float], longer: list[float], reason: str) -> None:
    assert rate_at_equal_length(np.array(values, dtype=float), np.array(longer, dtype=float)).reason == reason


def test_strengths_of_two_sides_are_the_log_odds_with_half_a_win_each() -> None:
    values = np.array([1.0] * 14 + [0.0] * 5 + [0.5])
    zeros, ones = np.zeros(20, dtype=np.int64), np.ones(20, dtype=np.int64)
    first, second = bradley_terry(zeros, ones, values, np.arange(20), sides=2)
    assert first.value == 0
    assert second.value == pytest.approx(np.log((14.5 + 0.5) / (5.5 + 0.5)), abs=1e-6)
    assert 0 < second.interval.low < second.value < second.interval.high


def test_strengths_of_several_sides_are_those_of_most_likelihood() -> None:
    rng, true = np.random.default_rng(4), np.array([0.0, 0.5, 1.2])
    pairs = [(0, 1), (0, 2), (1, 2)]
    first, second = (np.repeat([pair[side] for pair in pairs], 60) for side in (0, 1))
    values = (rng.random(180) < expit(true[second] - true[first])).astype(float)

    def loss(strengths: Any) -> float:
        all_of_them = np.concatenate([[0], strengths])
        linear = all_of_them[second] - all_of_them[first]
        prior = sum(0.5 * (np.logaddexp(0, d) + np.logaddexp(0, -d)) for d in (all_of_them[b] - all_of_them[a] for a, b in pairs))
        return float(np.sum(np.logaddexp(0, linear) - values * linear) + prior)

    reference = minimize(loss, np.zeros(2), tol=1e-12).x
    found = bradley_terry(first, second, values, np.tile(np.arange(60), 3), sides=3)
    assert [estimate.value for estimate in found[1:]] == pytest.approx(reference.tolist(), abs=1e-4)
    widths = [estimate.interval.high - estimate.interval.low for estimate in found[1:] if estimate.interval]
    assert all(0.4 < width < 2 for width in widths)


SPEC: ScoreSpec = shipped_metric("preference").scores()[0]


def content(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("judge", ["gpt-3.5-turbo", "pandalm-7b"])
def test_recorded_judges_of_pandalm_agree_with_people_as_published(real_data: Path, judge: str) -> None:
    expected, seen = content(real_data / "EXPECTED.json")["pandalm"], {"1": 0.0, "2": 1.0, "0": 0.5, "tie": 0.5}
    people = content(real_data / "pandalm" / "testset-v1.json")
    gold = most_chosen(np.array([[seen[str(item[f"annotator{n}"])] for n in (1, 2, 3)] for item in people]))
    assert int(np.sum(np.isnan(gold))) == expected["no_majority"]
    assert {name: int(np.sum(gold == seen[name])) for name in ("0", "1", "2")} == expected["gold_counts"]
    key = "gpt_result" if judge.startswith("gpt") else "pandalm_result"
    by_id = {item["idx"]: item[key] for item in content(real_data / "pandalm" / f"{judge}-testset-v1.json")}
    given = np.array([seen.get(str(by_id[item["idx"]]).lower(), np.nan) for item in people])
    rated = RatedCases(gold, gold, given, choices(given), np.arange(len(people)))
    statistics, wanted = agreement_statistics(rated, SPEC, 0.95), expected[judge]
    assert statistics["agreement"].n == wanted["n"]
    assert statistics["agreement"].value == pytest.approx(wanted["accuracy"], abs=6e-7)
    assert statistics["kappa"].value == pytest.approx(wanted["cohen_kappa"], abs=6e-7)
    counts = np.array(wanted["confusion_gold_rows_0_1_2"])
    decided = counts[1:, 1:]
    assert statistics["agreement_without_ties"].value == pytest.approx(np.trace(decided) / np.sum(decided), abs=1e-9)
    confusion = confusion_of(rated, SPEC)
    assert confusion.classes == ["win", "tie", "loss"]
    assert np.array_equal(np.array(confusion.counts), counts[np.ix_([2, 0, 1], [2, 0, 1])])


@pytest.mark.parametrize("label", ["correctness_label", "completeness_label", "overall_label"])
def test_recorded_scores_of_ragchecker_choose_as_people_do(real_data: Path, label: str) -> None:
    expected = content(real_data / "EXPECTED.json")["ragchecker"][label]["sign_agreement_where_humans_agree_nonzero"]
    by_instance: dict[int, list[float]] = {}
    for item in content(real_data / "ragchecker_meta" / "human_labeled_data.json"):
        by_instance.setdefault(item["instance_id"], []).append(0.5 + 0.5 * np.sign(item[label]))
    judged = content(real_data / "ragchecker_meta" / "baseline_ragchecker.json")
    deltas = np.array([item["model2"]["ragchecker"][label] - item["model1"]["ragchecker"][label] for item in judged])
    chosen = (deltas > 0).astype(float)  # the reference counts an equal score as the first one's
    gold = most_chosen(np.array([by_instance[item["instance_id"]] for item in judged]))
    kept = RatedCases(gold, gold, deltas, chosen, np.arange(len(judged))).where(gold != 0.5).with_verdicts()
    assert agreement_statistics(kept, SPEC, 0.95)["agreement"].value == pytest.approx(expected, abs=6e-7)


def test_more_questions_are_needed_by_scores_than_by_preference(real_data: Path) -> None:
    """On LLMBar's pairs, with the same judge asked in both ways: 100 questions where people prefer the new one in 70 % of them."""
    for judge, apart in (("ChatGPT", 0.2), ("GPT-4", 0.0)):
        by_preference, by_scores = benchmark.power_on_recorded(real_data, judge, 0.7, 100, 200, 3)
        assert by_preference > by_scores + apart


@pytest.mark.slow
@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("cell", [(40, False), (100, False), (100, True)], ids=str)
def test_intervals_hold_and_equal_systems_seldom_have_a_winner(cell: tuple[int, bool]) -> None:
    labels, repetitions = (60 if cell[0] >= 100 else 0), 300
    found = np.array([benchmark.preferences(cell, kind, labels, repetitions, 11) for kind in (*benchmark.CHOSEN, *benchmark.EQUAL)])
    covered, corrected = found[:, 0], found[:, 1]
    assert 0.93 - 0.01 <= covered.mean() <= 0.97 + 0.01
    assert covered.min() >= 0.92 - 0.045
    if labels:
        assert corrected.min() >= 0.92 - 0.045
    assert found[len(benchmark.CHOSEN) :, 2].mean() <= 0.05 + 0.015
