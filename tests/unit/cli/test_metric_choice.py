"""Which metrics a file allows without a model, and what the others need."""

import pytest

from ragpipe.cli.option_files import choose_metrics, score_names
from ragpipe.core.registry import option_files
from ragpipe.metrics.needs import ANSWERABLE, FIELDS, DataFacts

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test


def test_answers_with_contexts_and_references():
    choice = choose_metrics(DataFacts(["answer", "contexts", "reference"]))
    assert {"faithfulness", "groundedness", "context_recall"} <= set(choice.chosen)
    assert "chunk_faithfulness" not in choice.chosen, "what a single chunk says is easily misread"
    assert choice.left_out["correctness"] == "a language model"
    assert choice.left_out["semantic_similarity"] == "an embedder"
    assert choice.left_out["citation"] == "citations"


def test_without_references_what_needs_them_is_left_out():
    choice = choose_metrics(DataFacts(["answer", "contexts"]))
    assert choice.left_out["context_recall"] == "reference"
    assert choice.left_out["correctness"] == "a language model, reference"


def test_a_metric_that_the_embedded_judge_answers_in_part_is_chosen_where_it_tells_something():
    """It grades passages by the reference answer alone: without one a language model must."""
    facts = DataFacts(["answer", "contexts"])
    bare = next(field for field in FIELDS if field.name == "reference").without(ANSWERABLE)
    assert choose_metrics(facts, [bare, bare]).left_out["context_precision"] == "a language model"
    assert "faithfulness" in choose_metrics(facts, [bare, bare]).chosen
    assert "context_precision" in choose_metrics(facts, [bare, ANSWERABLE]).chosen


def test_every_shipped_metric_is_chosen_or_left_out_with_a_need():
    shipped = set(option_files("metrics")) - {"recorded", "chunk_faithfulness", "chunk_relevancy", "one_chunk_suffices"}
    choice = choose_metrics(DataFacts())
    assert set(choice.chosen) | set(choice.left_out) == shipped
    assert not set(choice.chosen) & set(choice.left_out)
    assert all(choice.left_out.values())


def test_names_of_scores_and_composites_are_taken():
    assert {"faithfulness", "overall_score", "ragas_score", "hit@5"} <= score_names()
