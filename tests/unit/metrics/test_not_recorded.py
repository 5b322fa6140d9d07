"""A part of the output that the data set does not record is no finding: whatever needs it is skipped, and says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragpipe.core.resources import conf_dir
from ragpipe.metrics.base import Metric, run_skip_reason
from ragpipe.schema.sample import Case, Output, Sample
from ragpipe.schema.table_schemas import OUTPUTS, output_from, output_row, table_of
from ragpipe.testing.scripted import make_case, shipped_metric
from tests.support.new_metric import COMMAND

BOTH, CONTEXTS, ANSWER, NEITHER = {"contexts", "answer"}, {"contexts"}, {"answer"}, set[str]()
# By hand from the definitions in docs/metrics.md: the parts of the output without which the score cannot be told.
RESTS_ON: dict[str, set[str]] = {
    "abstention": ANSWER, "answer_class": ANSWER, "answer_relevance": ANSWER, "answer_synthesis": BOTH,
    "attribution_hit": CONTEXTS, "chunk_faithfulness": BOTH, "chunk_relevancy": BOTH, "one_chunk_suffices": BOTH,
    "citation": BOTH, "context_precision": CONTEXTS, "context_recall": CONTEXTS, "context_relevance": CONTEXTS,
    "context_sufficiency": CONTEXTS, "context_utilization": BOTH, "contextual_correctness": BOTH, "correctness": ANSWER,
    "expected_citation_recall": CONTEXTS, "factual_accuracy": ANSWER, "faithfulness": BOTH, "format": ANSWER,
    "groundedness": BOTH, "list_completeness": ANSWER, "must_quote": BOTH, "noise_sensitivity": BOTH, "nuggets": ANSWER, "policy_compliance": ANSWER,
    "recency_conflict": CONTEXTS, "recorded": NEITHER, "rejection_calibration": ANSWER, "relevance_grade": CONTEXTS, "retrieval": CONTEXTS,
    "rubric": ANSWER, "scope_miss": NEITHER, "semantic_similarity": ANSWER, "source_policy": BOTH,
}  # fmt: skip
CHUNK = {"text": "The warranty lasts two years.", "rel_path": "a.md", "policy": "quote_only"}
FULL: dict[str, Any] = {
    "answer": "The warranty lasts two years.", "chunks": [CHUNK], "references": ["Two years."], "relevant_chunks": ["c1"],
    "anchors": [{"rel_path": "a.md", "role": "newer"}, {"rel_path": "b.md", "role": "older"}],
    "recency_conflict_rule": "cite_newer", "citations": ["c1"], "folder_mode": "on", "selected_folders": ["x"], "recorded": {"helpful": 1},
    "expected": {"behavior": "answer", "requires_citations": True, "citations": ["a.md"], "must_quote": True, "context_has": 5},
}  # fmt: skip


def full(name: str, **other: Any) -> Case:
    return make_case(**{**FULL, "answerable": name != "abstention", **other})


def shipped(name: str) -> Metric:
    take = {"take": {"helpful": {"binary": True}}} if name == "recorded" else {}
    return shipped_metric(name, **take)


def test_every_shipped_metric_is_in_the_table_or_has_tests_of_its_own() -> None:
    shipped = {path.stem for path in (conf_dir() / "metrics").glob("*.yaml")}
    assert set(RESTS_ON) <= shipped
    for name in shipped - set(RESTS_ON):
        own = Path(__file__).with_name(f"test_{name}.py")
        text = own.read_text(encoding="utf-8") if own.exists() else ""
        assert "not_recorded" in text, f"which parts does {name} need? `{COMMAND} {name}` writes {own.name}"


@pytest.mark.parametrize("name", RESTS_ON)
def test_a_metric_is_skipped_exactly_without_a_part_that_it_rests_on(name: str) -> None:
    metric = shipped(name)
    assert run_skip_reason(metric, full(name), embedder=True) is None
    for part, lacking in (("answer", {"answer": None}), ("contexts", {"chunks": None})):
        found = run_skip_reason(metric, full(name, **lacking), embedder=True)
        assert found == (f"not_recorded: {part}" if part in RESTS_ON[name] else None)


@pytest.mark.thorough(tried=8)
@pytest.mark.slow
@pytest.mark.parametrize("name", RESTS_ON)
@settings(deadline=None)  # a busy machine
@given(
    answer=st.sampled_from([None, "", "...", "I do not know.", "The warranty lasts two years. [1]"]),
    chunks=st.sampled_from([None, [], [CHUNK], [CHUNK, {"text": ""}]]),
    citations=st.sampled_from([[], ["c1"], ["c9"]]),
    abstained=st.sampled_from([None, True, False]),
)
def test_nothing_is_measured_of_a_part_that_is_not_recorded(name: str, **output: Any) -> None:
    case = full(name, **output)
    lacking = {part for part in RESTS_ON[name] if not case.records(part)}  # type: ignore[arg-type]
    flag = case.output.abstained
    if (name == "abstention" and flag is not None) or (name == "rejection_calibration" and flag):
        lacking = NEITHER  # the system's own flag decides, not the text
    found = run_skip_reason(shipped(name), case, embedder=True)
    assert not lacking or (found or "").startswith("not_recorded: ")
    assert lacking or not (found or "").startswith("not_recorded: ")


def test_the_acknowledgement_of_a_conflict_is_read_in_the_answer() -> None:
    metric = shipped_metric("recency_conflict")
    silent = full("recency_conflict", answer=None, recency_conflict_rule="acknowledge_both")
    assert run_skip_reason(metric, silent, embedder=True) == "not_recorded: answer"


def test_what_does_not_apply_says_so_first() -> None:
    """A case without a reference says nothing of what the data set lacks: it would not be measured anyway."""
    for name, why in (("correctness", "no_reference_answer"), ("context_recall", "no_reference_answer"),
                      ("retrieval", "no_relevance_labels"), ("abstention", "no_answerable_label")):  # fmt: skip
        assert run_skip_reason(shipped_metric(name), make_case(answer=None, chunks=None), embedder=True) == why


def test_a_metric_of_the_users_own_cannot_pass_over_it() -> None:
    class Own(Metric):
        reads = frozenset({"contexts"})

        def run_skip_reason(self, case: Case) -> str | None:
            return None

    assert run_skip_reason(Own(name="own"), make_case(chunks=None), embedder=True) == "not_recorded: contexts"


def test_contexts_that_are_known_by_their_ids_alone() -> None:
    """Ids serve the metrics of retrieval; nobody is asked about a text that is not there."""
    ids = [{"id": "c1"}, {"id": "c2"}]
    for name, why in (("faithfulness", "not_recorded: context_texts"), ("context_precision", "not_recorded: context_texts"),
                      ("retrieval", None)):  # fmt: skip
        case = make_case(answer="Yes.", chunks=ids, references=["Yes."], relevant_chunks=["c1"])
        assert run_skip_reason(shipped_metric(name), case, embedder=True) == why, name
    some = make_case(answer="Yes.", chunks=[*ids, {"id": "c3", "text": "Yes."}])
    assert run_skip_reason(shipped_metric("faithfulness"), some, embedder=True) is None


def test_absent_and_empty_stay_apart_in_the_tables() -> None:
    outputs = [
        Output(sample_id="q1"), Output(sample_id="q2", answer="", chunks=[]), Output(sample_id="q3", answer="a", chunks=None),
    ]  # fmt: skip
    table = table_of([output_row(output, row) for row, output in enumerate(outputs)], OUTPUTS)
    assert table["answer"].to_pylist() == [None, "", "a"]
    assert table["chunks"].to_pylist() == [None, "[]", None]
    assert [output_from(row) for row in table.to_pylist()] == outputs
    cases = [Case(Sample(id=o.sample_id, question="?"), o) for o in outputs]
    assert [(c.answer, c.contexts) for c in cases] == [("", []), ("", []), ("a", [])]
    assert [(c.records("answer"), c.records("contexts")) for c in cases] == [
        (False, False),
        (True, True),
        (True, False),
    ]
