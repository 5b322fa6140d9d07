"""Pages that lead from other names to ragpipe's: what they lead to exists, and the metric catalogue is implemented."""

import re

import numpy as np
import pytest

from ragpipe.cli.command_line import compose
from ragpipe.core import registry
from ragpipe.core.sample import Expected
from ragpipe.data.index_manifest import ChunkTokens, Coverage, IndexCoverage
from ragpipe.data.settings import OUTPUT_FIELDS, SAMPLE_FIELDS
from ragpipe.score.accumulators import Accumulators
from ragpipe.score.cost import operations
from ragpipe.score.settings import ScoringSettings
from tests.support.pages import DOCS

_CODE = re.compile(r"`([^`]+)`")


def rows(page: str, title: str) -> list[list[str]]:
    section = (DOCS / page).read_text(encoding="utf-8").split(f"## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.fixture(scope="module")
def scores() -> set[str]:
    """The names of all shipped scores, without cut-off."""
    chosen = [name for name in registry.option_files("metrics") if name != "recorded"]  # it names its scores after the data
    config = compose(["dataset=demo", f"metrics=[{','.join(chosen)}]"])
    return {spec.name.partition("@")[0] for metric in config.metrics.values() for spec in metric.scores()}


OF_EXTRAS = {"bert_score_f1", "bert_score_f1_raw"}
"""Scores of the designs that an extra brings."""


@pytest.mark.slow
def test_every_score_that_the_page_names_exists(scores: set[str]) -> None:
    known = scores | set(ScoringSettings().active_composites())
    named = {name.partition("@")[0] for row in rows("deviations.md", "Scores") for name in _CODE.findall(row[1])}
    assert named - known <= OF_EXTRAS


def test_fields_exist_and_deviations_have_no_gap() -> None:
    known = SAMPLE_FIELDS | OUTPUT_FIELDS | {f"expected.{name}" for name in Expected.model_fields}
    named = {name for row in rows("deviations.md", "Fields of a case") for name in _CODE.findall(row[1])}
    assert named - known == set()
    text = (DOCS / "deviations.md").read_text(encoding="utf-8")
    numbers = [int(number) for number in re.findall(r"^\| D(\d+) \|", text, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 17


@pytest.mark.parametrize("name", [
    "ragas_faithfulness", "ragas_context_precision", "ragas_context_recall", "ragas_answer_relevance", "ragas_score",
    "factual_accuracy_percentage", "semantic_similarity_percentage", "bert_score_f1", "correct_answers_count",
    "wrong_answers_count", "dont_know_answers_count", "Recall_any@K", "Recall_all@K", "FaithfulnessEvaluator",
    "RelevancyEvaluator", "CorrectnessEvaluator", "judge_reliability", "completenessScore",
])  # fmt: skip
def test_every_name_of_the_designs_is_found_on_the_page(name: str) -> None:
    """The names are those of the designs' own summary tables and result objects."""
    assert name in (DOCS / "deviations.md").read_text(encoding="utf-8")


def test_the_options_that_the_configuration_page_lists_are_those_that_are_shipped() -> None:
    text = (DOCS / "configuration.md").read_text(encoding="utf-8").partition("<!-- end -->")[0]
    listed = {group: set(_CODE.findall(cells)) for group, cells in re.findall(r"^\| \[?`\+?(\w+)`[^|]*\|[^|]*\|(.*)\|$", text, re.M)}
    folders = {path.name for folder in registry.option_folders() for path in folder.iterdir() if path.is_dir()}
    shipped = {group: set(registry.option_files(group)) for group in folders - {"metrics", "patterns", "schema"}}
    page = {group: listed.get(group, set()) for group in shipped}
    wrong = {group: sorted(page[group] ^ options) for group, options in shipped.items() if page[group] != options}
    assert wrong == {}, f"docs/configuration.md, the table of option groups, and conf/ differ: {wrong}"


@pytest.mark.slow
@pytest.mark.parametrize("page", ["migrating-from-ragas.md", "migrating-from-deepeval.md", "migrating-from-promptfoo.md"])
def test_every_metric_of_the_other_tool_leads_to_a_score_or_to_words(page: str, scores: set[str]) -> None:
    for there, here, remark in rows(page, "Metrics"):
        assert _CODE.findall(there), f"{page}: a row without a name"
        named = {name.partition("@")[0] for name in _CODE.findall(here)}
        assert named <= scores, f"{page}: {there} leads to {named - scores}"
        assert named or here == "-", f"{page}: {there}: neither a score nor -"
        assert remark, f"{page}: {there}: nothing is said of what differs"


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
