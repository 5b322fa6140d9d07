"""Judges and people in six public data sets: every statistic of agreement is that of other libraries (EXPECTED.json, 6 places).

RefChecker's claims have people's labels and no judge: `tests/unit/test_human_labels.py` holds the metric against them.
"""

import json
import math
from collections import Counter
from functools import cache

import numpy as np
import pytest

from ragpipe.calibration.score_calibration import RatedCases, agreement_statistics, confusion_of
from ragpipe.core.score import ScoreSpec
from ragpipe.judge.jury import Aggregation, one_value
from ragpipe.score.jury_agreement import raters_agreement
from ragpipe.stats.agreement import equal_share, estimate_kappa
from ragpipe.stats.differences import mcnemar_p
from ragpipe.stats.several_raters import estimate_ac, estimate_alpha
from tests.support.rows import first_rows

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

NONE = math.nan
PLACES = 1e-6


@cache
def content(path):
    return json.loads(path.read_text(encoding="utf-8"))


def expected(folder, block):
    return content(folder / "EXPECTED.json")[block]


def agreement(labels, scores, questions, low, high):
    """All statistics of two raters without verdicts; grades are the values that people used."""
    empty = np.full(len(labels), NONE)
    rated = RatedCases(labels, empty, scores, empty, questions)
    grades = tuple((f"{value:g}", float(value)) for value in sorted(set(labels.tolist()), reverse=True))
    spec = ScoreSpec("people", low, high, grades=grades)
    return agreement_statistics(rated, spec, 0.95), rated, spec


def check(statistics, figures):
    """Correlations, mean absolute difference and bias; each interval, where there is one, holds its value."""
    names = {"pearson": "pearson", "spearman": "spearman", "kendall": "kendall_tau_b", "mae": "mae",
             "difference": "bias_judge_minus_human"}  # fmt: skip
    for name, key in names.items():
        if key in figures:
            statistic = statistics[name]
            assert (statistic.n, statistic.value) == (figures["n"], pytest.approx(figures[key], abs=PLACES)), name
            assert statistic.interval.low < statistic.value < statistic.interval.high, name


def check_ordinal(labels, scores, questions, scale, figures):
    """Plain and quadratic kappa, equal pairs and the table of counts."""
    statistics, rated, spec = agreement(labels, scores, questions, *scale)
    assert statistics["quadratic_kappa"].value == pytest.approx(figures["kappa_quadratic"], abs=PLACES)
    assert estimate_kappa(labels, scores, questions).value == pytest.approx(figures["cohen_kappa"], abs=PLACES)
    assert equal_share(labels, scores) == pytest.approx(figures["exact"], abs=PLACES)
    table = confusion_of(rated, spec)
    assert table.counts == figures["confusion_human_rows"]
    assert (sum(map(sum, table.counts)), len(labels)) == (figures["n"], figures["n"])


def recorded(row, judge):
    return float(next(iter(row["annotations"][judge].values()))["value"])


# ---- RAGChecker: two annotators prefer one of two answers, -2 to 2

PREFERENCES = ("correctness_label", "completeness_label", "overall_label")


def preferences(folder, label):
    """Both annotators' labels of each instance, and the judge's differences spread over -2 to 2."""
    judged = {row["instance_id"]: row for row in content(folder / "ragchecker_meta/baseline_ragchecker.json")}
    people: dict[int, list[float]] = {}
    for row in content(folder / "ragchecker_meta/human_labeled_data.json"):
        people.setdefault(row["instance_id"], []).append(float(row[label]))
    apart = np.array([judged[i]["model2"]["ragchecker"][label] - judged[i]["model1"]["ragchecker"][label] for i in people])
    return np.array(list(people.values())), ((apart - apart.min()) / np.ptp(apart) - 0.5) * 4


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("label", PREFERENCES)
def test_preferences_of_ragchecker(real_data, label):
    figures = expected(real_data, "ragchecker")[label]
    people, judge = preferences(real_data, label)
    questions = np.arange(len(people))
    check(agreement(people.mean(axis=1), judge, questions, -2, 2)[0], figures["judge_vs_mean_human"])
    every_label = agreement(people.ravel(), np.repeat(judge, 2), np.repeat(questions, 2), -2, 2)[0]
    for name, key in (("pearson", "pearson"), ("spearman", "spearman"), ("kendall", "kendall_b")):
        assert every_label[name].value == pytest.approx(figures["judge_vs_human"][key], abs=PLACES)
        assert (every_label[name].n, every_label[name].clusters) == (280, 140)
    first, second = people.T
    between = agreement(first, second, questions, -2, 2)[0]
    for name in ("pearson", "spearman"):
        assert between[name].value == pytest.approx(figures["human_vs_human"][name], abs=PLACES)
    check_ordinal(first, second, questions, (-2, 2), figures["human_vs_human"]["ordinal"])
    assert between["alpha_interval"].value == pytest.approx(figures["alpha"]["interval"], abs=PLACES)
    assert estimate_alpha(people).value == pytest.approx(figures["alpha"]["nominal"], abs=PLACES)


# ---- SummHay: six judges grade how far a summary covers an insight

GRADES = {"not_covered": 0.0, "partially_covered": 0.5, "fully_covered": 1.0,
          "NO_COVERAGE": 0.0, "PARTIAL_COVERAGE": 0.5, "FULL_COVERAGE": 1.0}  # fmt: skip
SCALE = (0.0, 1.0)


def insights(folder, judge):
    """People's grades, a judge's, and the number of the summary."""
    rows = []
    for number, sample in enumerate(content(folder / "summhay_eval/eval_benchmark_data.json")):
        judged = {row["insight_id"]: GRADES[row["coverage"]] for row in sample[judge]}
        rows += [(GRADES[row["coverage"]], judged[row["insight_id"]], number) for row in sample["annotation"]]
    labels, grades, numbers = zip(*rows, strict=True)
    return np.array(labels), np.array(grades), np.array(numbers)


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize(
    "judge", first_rows(["prompted_gpt-4o", "prompted_claude3-haiku", "prompted_claude3-opus", "prompted_gemini-1.5-pro",
                         "prompted_gpt3.5", "9fs_gpt-4o"], keep=1),
)  # fmt: skip
def test_judges_of_summhay(real_data, judge):
    figures = expected(real_data, "summhay")[f"predictions_{judge}"]
    labels, grades, summaries = insights(real_data, f"predictions_{judge}")
    check(agreement(labels, grades, summaries, *SCALE)[0], figures)
    check_ordinal(labels, grades, summaries, SCALE, figures["ordinal"])


def test_the_jury_of_summhay(real_data):
    figures = expected(real_data, "summhay")["jury"]
    labels, _, summaries = insights(real_data, figures["judges"][0])
    grades = np.stack([insights(real_data, judge)[1] for judge in figures["judges"]], axis=1)
    rules: dict[str, tuple[Aggregation, bool]] = {
        "mean": ("mean", True), "median": ("median", True), "min": ("min", True), "max": ("min", False),
    }  # fmt: skip
    for name, (rule, higher_is_better) in rules.items():
        combined = np.array([one_value(row, rule, higher_is_better=higher_is_better) for row in grades.tolist()])
        check(agreement(labels, combined, summaries, *SCALE)[0], figures[name])
        if name != "mean":
            check_ordinal(labels, combined, summaries, SCALE, figures[name]["ordinal"])
    by_majority = [one_value(row, "majority") for row in grades.tolist()]
    untied = np.array([value is not None for value in by_majority])
    majority, of_majority = figures["majority (items with one mode)"], np.array(by_majority, dtype=float)[untied]
    assert (untied.sum(), (~untied).sum()) == (majority["items"], majority["ties"]) == (835, 52)
    check_ordinal(labels[untied], of_majority, summaries[untied], SCALE, majority["ordinal"])
    nominal, squared = (raters_agreement(grades, figures["judges"], nominal=nominal) for nominal in (True, False))
    assert nominal["fleiss_kappa"] == pytest.approx(figures["fleiss"], abs=PLACES)
    assert nominal["unanimous"] == pytest.approx(figures["unanimous"], abs=PLACES)
    assert nominal["alpha"] == pytest.approx(figures["alpha"]["nominal"], abs=PLACES)
    assert squared["alpha"] == pytest.approx(figures["alpha"]["interval"], abs=PLACES)


# ---- PandaLM: three annotators prefer one of two answers or neither; a judge's unreadable replies are left out


def test_annotators_of_pandalm(real_data):
    figures = expected(real_data, "pandalm")
    rows = content(real_data / "pandalm/testset-v1.json")
    ratings = np.array([[float(row[f"annotator{i}"]) for i in (1, 2, 3)] for row in rows])
    found = raters_agreement(ratings, "123", nominal=True)
    for pair in ("12", "13", "23"):
        assert found["pairs"][", ".join(pair)]["kappa"] == pytest.approx(figures[f"kappa_{pair}"], abs=PLACES)
    assert found["fleiss_kappa"] == pytest.approx(figures["fleiss"], abs=PLACES)
    assert found["alpha"] == pytest.approx(figures["alpha_nominal"], abs=PLACES)
    gold = Counter(one_value(row, "majority") for row in ratings.tolist())
    assert gold[None] == figures["no_majority"]
    assert {f"{value:g}": count for value, count in gold.items() if value is not None} == figures["gold_counts"]
    assert estimate_ac(ratings, np.arange(3.0)).value == pytest.approx(figures["gwet_ac1"], abs=5e-6)  # five places


@pytest.mark.parametrize("judge", ["gpt-3.5-turbo", "pandalm-7b"])
def test_judges_of_pandalm(real_data, judge):
    figures = expected(real_data, "pandalm")[judge]
    rows = content(real_data / "pandalm/testset-v1.json")
    majority = {row["idx"]: one_value([row[f"annotator{i}"] for i in (1, 2, 3)], "majority") for row in rows}
    field = "gpt_result" if judge.startswith("gpt") else "pandalm_result"
    verdicts = {"Tie": 0.0, "0": 0.0, "1": 1.0, "2": 2.0}
    judged = [(row["idx"], str(row[field])) for row in content(real_data / f"pandalm/{judge}-testset-v1.json")]
    pairs = [(float(majority[idx]), verdicts[text]) for idx, text in judged if text in verdicts]
    assert len(judged) - len(pairs) == figures["unparsable"]
    labels, scores = np.array(pairs).T
    assert equal_share(labels, scores) == pytest.approx(figures["accuracy"], abs=PLACES)
    assert estimate_kappa(labels, scores).value == pytest.approx(figures["cohen_kappa"], abs=PLACES)
    empty = np.full(len(pairs), NONE)
    table = confusion_of(RatedCases(labels, empty, scores, empty, np.arange(len(pairs))), ScoreSpec("people", 0, 2))
    assert table.counts == figures["confusion_gold_rows_0_1_2"]


# ---- LLMBar: the same judge shown both orders of a pair; a reply without a winner is a class of its own


@pytest.mark.parametrize(
    "recorded", ["ChatGPT/Rating", "ChatGPT/Vanilla", "Falcon/Vanilla", "GPT-4/CoT", "GPT-4/Rating", "GPT-4/Vanilla",
                 "LLaMA2/Vanilla", "PaLM2/Vanilla"],
)  # fmt: skip
def test_judges_of_llmbar_agree_with_themselves(real_data, recorded):
    figures = expected(real_data, "llmbar")[f"Natural/{recorded}"]
    rows = content(real_data / f"llmbar/Natural/{recorded}/result.json")
    results = [row["results"][-1] for row in rows]
    orders = [np.array([float(row[f"swap = {order}"]["winner"] or 0) for row in results]) for order in (False, True)]
    assert estimate_kappa(*orders).value == pytest.approx(figures["kappa_agreement"], abs=PLACES)
    assert equal_share(*orders) == pytest.approx(figures["equal"] / figures["n"])
    labels = np.array([float(row["label"]) for row in rows])
    right = [labels == winners for winners in orders]
    gained, lost = int(np.sum(~right[0] & right[1])), int(np.sum(right[0] & ~right[1]))
    order_figures = figures["mcnemar_order"]
    assert (lost, gained) == (order_figures["b10"], order_figures["b01"])
    assert mcnemar_p(gained, lost) == pytest.approx(order_figures["p_exact"], abs=PLACES)
    for order, winners in zip((False, True), orders, strict=True):
        assert equal_share(labels, winners) == pytest.approx(figures[f"correct_{order}"] / figures["n"])
