"""Agreement on recorded human labels: the figures of EXPECTED.json, which other libraries computed, to 6 places."""

import itertools
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from ragpipe.stats.agreement import cohen_kappa, difference_of_versions
from ragpipe.stats.detection import balanced_accuracy
from ragpipe.stats.difference_verdict import benjamini_hochberg, decide_difference, decide_together, holm
from ragpipe.stats.differences import paired_difference

pytestmark = pytest.mark.slow
COVERAGE = {"not_covered": 0.0, "partially_covered": 0.5, "fully_covered": 1.0}
PREDICTED = {"NO_COVERAGE": 0.0, "PARTIAL_COVERAGE": 0.5, "FULL_COVERAGE": 1.0}


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text(encoding="utf-8"))


def coverage(folder: Path, judge: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Summary of a Haystack: people's and the judge's grades of insights, 0, 1/2 or 1, and the summary of each."""
    rows = []
    for number, sample in enumerate(read(folder, "summhay_eval/eval_benchmark_data.json")):
        grades = {row["insight_id"]: PREDICTED[row["coverage"]] for row in sample[judge]}
        rows += [(COVERAGE[row["coverage"]], grades[row["insight_id"]], number) for row in sample["annotation"]]
    labels, verdicts, numbers = zip(*rows, strict=True)
    return np.array(labels), np.array(verdicts), np.array(numbers)


def test_difference_of_two_judges(real_data: Path) -> None:
    """Two judges of the same insights; the difference is that of their recorded kappas, and surely above 0 (.49 against .29)."""
    labels, better, summaries = coverage(real_data, "predictions_prompted_gpt-4o")
    _, worse, _ = coverage(real_data, "predictions_prompted_gpt3.5")
    blocks = read(real_data, "EXPECTED.json")["summhay"]
    kappas = [blocks[f"predictions_prompted_{name}"]["ordinal"]["cohen_kappa"] for name in ("gpt3.5", "gpt-4o")]
    result = difference_of_versions(cohen_kappa, labels, worse, better, summaries)
    assert result.value == pytest.approx(kappas[1] - kappas[0], abs=2e-6)
    assert result.interval.low > 0.1
    whole = difference_of_versions(balanced_accuracy, *((grades == 1).astype(float) for grades in (labels, worse, better)), summaries)
    assert whole.interval is not None


MODELS = ("gpt-3.5-turbo-0613", "gpt-4-0613", "llama-2-13b-chat", "llama-2-70b-chat", "llama-2-7b-chat", "mistral-7B-instruct")


@lru_cache
def hallucinated(path: Path) -> dict[str, dict[int, float]]:
    """By model and question: 1 where people marked a hallucination in the answer."""
    found: dict[str, dict[int, float]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        for response in record["responses"]:
            found.setdefault(response["model"], {})[record["source_id"]] = float(bool(response["labels"]))
    return found


def pair(real_data: Path, base: str, candidate: str) -> tuple[np.ndarray, np.ndarray]:
    marks = hallucinated(real_data / "ragtruth_qa/ragtruth_qa.jsonl")
    shared = sorted(set(marks[base]) & set(marks[candidate]))
    return np.array([marks[base][q] for q in shared]), np.array([marks[candidate][q] for q in shared])


@pytest.mark.parametrize(("base", "candidate"), list(itertools.combinations(MODELS, 2)))
def test_two_language_models(real_data: Path, base: str, candidate: str) -> None:
    """The rate of hallucinated answers on shared questions: interval and t of scipy, exact p of statsmodels where few changed."""
    tables = pytest.importorskip("statsmodels.stats.contingency_tables")
    old, new = pair(real_data, base, candidate)
    paired = paired_difference(old, new, low=0, high=1)
    counts = np.array([[np.sum((old == i) & (new == j)) for j in (0, 1)] for i in (0, 1)])
    assert (paired.n, paired.wins, paired.losses) == (len(old), counts[0, 1], counts[1, 0])
    assert paired.difference == pytest.approx(new.mean() - old.mean())
    exact = tables.mcnemar(counts, exact=True).pvalue
    test = stats.ttest_rel(new, old)
    assert paired.p_value == pytest.approx(exact if paired.changed <= 12 else test.pvalue)
    asymptotic = tables.mcnemar(counts, exact=False, correction=False).pvalue
    assert paired.p_value == pytest.approx(exact if paired.changed <= 12 else asymptotic, abs=0.02)
    if paired.can_decide:
        bounds = test.confidence_interval(0.95)
        assert (paired.interval.low, paired.interval.high) == pytest.approx((bounds.low, bounds.high))


def test_fifteen_comparisons_together(real_data: Path) -> None:
    """Holm and Benjamini-Hochberg over the pairs as statsmodels adjusts the same p-values; what stands after it."""
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    verdicts = []
    for base, candidate in itertools.combinations(MODELS, 2):
        old, new = pair(real_data, base, candidate)
        verdicts.append(decide_difference(old, new, low=0, high=1, smallest_effect=0.05, higher_is_better=False))
    p_values = [verdict.paired.p_value for verdict in verdicts]
    rejected, adjusted, *_ = multitest.multipletests(p_values, alpha=0.05, method="holm")
    assert holm(p_values) == pytest.approx(list(adjusted))
    assert benjamini_hochberg(p_values) == pytest.approx(list(multitest.multipletests(p_values, method="fdr_bh")[1]))
    decided = decide_together(verdicts)
    assert [verdict.state in ("better", "worse") for verdict in decided] == list(rejected)
    assert 0 < sum(rejected) < sum(verdict.state in ("better", "worse") for verdict in verdicts)


def test_five_models_against_one_by_question(real_data: Path) -> None:
    """Each question is in up to five rows: the cluster-robust interval of statsmodels with t(G - 1)."""
    api = pytest.importorskip("statsmodels.api")
    marks = hallucinated(real_data / "ragtruth_qa/ragtruth_qa.jsonl")
    base, *others = "gpt-4-0613", *(model for model in MODELS if model != "gpt-4-0613")
    rows = [
        (marks[base][question], mark, question) for model in others for question, mark in marks[model].items() if question in marks[base]
    ]
    old, new = (np.array([row[place] for row in rows]) for place in (0, 1))
    questions = np.array([row[2] for row in rows], dtype=np.int64)
    paired = paired_difference(old, new, questions, low=0, high=1)
    fit = api.OLS(new - old, np.ones(len(rows))).fit(cov_type="cluster", cov_kwds={"groups": questions}, use_t=True)
    assert (paired.n, paired.clusters) == (len(rows), 69)
    assert paired.difference == pytest.approx(fit.params[0])
    assert paired.error == pytest.approx(fit.bse[0])
    assert (paired.interval.low, paired.interval.high) == pytest.approx(tuple(fit.conf_int(0.05)[0]))
    assert paired.p_value == pytest.approx(fit.pvalues[0], rel=1e-6)
