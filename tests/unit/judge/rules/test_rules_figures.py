"""The benchmark's statistics against scikit-learn, and the figures of docs/judges.md against the data."""

import re

import numpy as np
import pytest
import rules as benchmark

from tests.support.pages import DOCS

PAGE = DOCS / "judges.md"


def test_auroc_and_kappa_worked_by_hand():
    # 20 both yes, 5 and 10 apart, 15 both no: agreement .70, by chance .50
    truth = np.array([True] * 25 + [False] * 25)
    said = np.array([True] * 20 + [False] * 5 + [True] * 10 + [False] * 15)
    assert benchmark.kappa(truth, said) == pytest.approx(0.4)
    # of the six pairs (3 or 1 against 0, 1, 2): three won and one and a half, a tie counting half
    flag, suspicion = np.array([True, True, False, False, False]), np.array([3.0, 1.0, 0.0, 1.0, 2.0])
    assert benchmark.auroc(flag, suspicion) == pytest.approx(4.5 / 6)


@pytest.mark.slow
def test_auroc_and_kappa_agree_with_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    generator = np.random.default_rng(5)
    for _ in range(30):
        truth = generator.random(60) < 0.3
        suspicion = np.round(truth * 0.3 + generator.random(60), 1)  # with ties
        said = suspicion > 0.6
        assert benchmark.auroc(truth, suspicion) == pytest.approx(metrics.roc_auc_score(truth, suspicion), abs=1e-12)
        assert benchmark.kappa(truth, said) == pytest.approx(metrics.cohen_kappa_score(truth, said), abs=1e-9)


def test_one_class_has_no_auroc_and_a_constant_no_kappa():
    assert np.isnan(benchmark.auroc(np.zeros(4, bool), np.arange(4.0)))
    assert benchmark.kappa(np.zeros(4, bool), np.zeros(4, bool)) == 0
    assert benchmark.kappa(np.array([True, False]), np.array([False, False])) == 0


def test_the_halves_split_questions(real_data):
    path = real_data / "ragtruth_qa" / "ragtruth_qa.jsonl"
    halves = {which: list(benchmark.labelled(path, which)) for which in ("development", "held_out")}
    questions = {which: {case.question for case in cases} for which, cases in halves.items()}
    assert not questions["development"] & questions["held_out"]
    assert len(questions["development"] | questions["held_out"]) == 70
    every = [case for cases in halves.values() for case in cases]
    assert (len(every), sum(case.hallucinated for case in every), sum(case.strict for case in every)) == (412, 129, 102)
    assert all(len(case.passages) == 3 for case in every)


@pytest.mark.slow
def test_the_page_states_the_figures_of_the_held_out_half(real_data):
    page = PAGE.read_text(encoding="utf-8")
    rows, counts = benchmark.measure(real_data / "ragtruth_qa" / "ragtruth_qa.jsonl")
    stated = [line for line in page.split("\n") if re.match(r"\| (all spans|without implicit_true) \|", line)]
    assert stated == [str(row) for row in rows if row.labels == "all spans" and row.judge != "always supported"]
    sentence = (
        f"{counts['questions']} questions, {counts['answers']} answers, {counts['hallucinated']} hallucinated "
        f"({counts['strict']} without spans marked as true although not in the passages), {counts['flagged']} flagged."
    )
    assert sentence in page


@pytest.mark.slow
def test_the_page_states_the_figures_of_the_chunks_and_the_citations(real_data):
    rows = [benchmark.chunk_row(real_data, name) for name in benchmark.CHUNK_SETS]
    rows.append(benchmark.citation_row(real_data / "expertqa" / "rand_val.jsonl"))
    page = PAGE.read_text(encoding="utf-8").split("\n")
    assert [row for row in rows if row not in page] == []
