"""Every row of the metric catalogue has an implementation, and stands in the table of docs/metrics.md."""

import re

import numpy as np

from ragpipe.data.index_manifest import ChunkTokens, Coverage, IndexCoverage
from ragpipe.score.accumulators import Accumulators
from ragpipe.score.cost import operations
from ragpipe.score.settings import ScoringSettings
from tests.support.pages import DOCS

# the score names of the catalogue, section by section (recall_any@k is another name of hit@k there) -> the file that gives them
ROWS = {
    **dict.fromkeys(["hit@k", "recall_all@k", "recall@k", "precision@k", "mrr", "ndcg@k", "map@k", "retrieval_score"], "retrieval"),
    "scope_miss": "scope_miss", "attribution_hit": "attribution_hit", "recency_conflict": "recency_conflict",
    "context_relevance": "context_relevance", "context_precision": "context_precision", "context_recall": "context_recall",
    "context_utilization": "context_utilization", "noise_sensitivity_relevant": "noise_sensitivity",
    "noise_sensitivity_irrelevant": "noise_sensitivity", "faithfulness": "faithfulness",
    "chunk_faithfulness": "chunk_faithfulness", "chunk_relevancy": "chunk_relevancy", "groundedness": "groundedness",
    "answer_faithfulness": "answer_synthesis", "answer_completeness": "answer_synthesis",
    "answer_relevance": "answer_relevance", "correctness": "correctness", "contextual_correctness": "contextual_correctness",
    "factual_accuracy": "factual_accuracy", "semantic_similarity": "semantic_similarity",
    "correct_answers": "answer_class", "wrong_answers": "answer_class", "dont_know_answers": "answer_class",
    "citation": "citation", "source_policy": "source_policy", "expected_citation_recall": "expected_citation_recall",
    "must_quote": "must_quote", "policy_compliance": "policy_compliance", "rejection_calibration": "rejection_calibration",
    "abstention": "abstention", "hallucination_on_unanswerable": "abstention",
    "context_sufficiency": "context_sufficiency", "nuggets": "nuggets", "relevance_grade": "relevance_grade",
    "rubric": "rubric", "format": "format", "list_completeness": "list_completeness",
}  # fmt: skip


def test_the_catalogue_is_implemented() -> None:
    """In the generated table, which has the file by score name."""
    page = (DOCS / "metrics.md").read_text(encoding="utf-8").split("## At a glance")[1].split("\n## ")[0]
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    table = {name: cells[1].strip("`").removesuffix(".yaml") for cells in rows for name in re.findall(r"`([^`]+)`", cells[0])}
    assert {score: table.get(score) for score in ROWS} == ROWS
    # section 7: ragas_score with its parts, and the weights of overall_score.
    settings = ScoringSettings()
    parts = {"faithfulness": 0.3, "context_precision": 0.2, "context_recall": 0.2, "answer_relevance": 0.3}
    assert settings.active_composites()["ragas_score"].weights == parts
    assert settings.active_composites()["ragas_score"].scale == [0, 100]
    assert settings.weights == {
        "retrieval_score": 0.10, "context_relevance": 0.10, "faithfulness": 0.20, "answer_relevance": 0.15,
        "citation": 0.15, "source_policy": 0.10, "policy_compliance": 0.10, "rejection_calibration": 0.10,
    }  # fmt: skip
    assert set(settings.weights) <= set(ROWS)
    # section 8, by what the files hold.
    ledger = Accumulators([], [])
    ledger.close()
    assert {"error_rate", "timeout_rate", "empty_rate", "latency_ms"} <= set(operations(ledger, np.arange(0)))
    assert {"chunkers", "embeddings", "index_versions", "overall"} <= set(IndexCoverage.model_fields)
    counted = {"documents", "documents_without_chunks", "chunks_attempted", "chunks_embedded", "chunks_skipped", "skipped_because"}
    assert counted <= set(Coverage.model_fields)
    assert {"min", "mean", "max", "p95"} <= set(ChunkTokens.model_fields)
