"""The cases of a test set that templates make: drafts drawn by the counts, each as a record of the native form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ragpipe.core.digest import sha256
from ragpipe.core.errors import DataError, Problem
from ragpipe.extras.test_sets.answered_cases import (
    citation_pair_drafts,
    complete_drafts,
    conflict_drafts,
    quote_only_drafts,
)
from ragpipe.extras.test_sets.drafts import Draft, DrawnQuestion, QuestionDraw
from ragpipe.extras.test_sets.edge_cases import edge_drafts
from ragpipe.extras.test_sets.english import as_sentence, fill
from ragpipe.extras.test_sets.partial_cases import partial_date_drafts, partial_entity_drafts, partial_list_drafts
from ragpipe.extras.test_sets.question_templates import Kind, Templates
from ragpipe.extras.test_sets.rejected_cases import no_context_drafts, policy_drafts
from ragpipe.extras.test_sets.source_documents import SourceDocuments
from ragpipe.extras.test_sets.synthesize_settings import UP_TO

Record = dict[str, Any]
COMPLETE, PARTIAL, REJECT_POLICY = "should_answer_complete", "should_answer_partial", "should_reject_policy"
REJECT_NO_CONTEXT, EDGE = "should_reject_no_context", "edge_cases"


@dataclass(frozen=True, slots=True)
class _KindOfCase:
    drafts: Callable[[SourceDocuments, Templates], Iterator[Draft]]
    category: str
    subcategory: str


KINDS: Mapping[Kind, _KindOfCase] = {
    "complete": _KindOfCase(complete_drafts, COMPLETE, "fact"),
    "quote_only": _KindOfCase(quote_only_drafts, COMPLETE, "quote_only"),
    "citation_pair": _KindOfCase(citation_pair_drafts, COMPLETE, "citation_pair"),
    "conflict": _KindOfCase(conflict_drafts, COMPLETE, "conflicting_notes"),
    "partial_list": _KindOfCase(partial_list_drafts, PARTIAL, "partial_list_results"),
    "partial_dates": _KindOfCase(partial_date_drafts, PARTIAL, "partial_date_range"),
    "partial_entities": _KindOfCase(partial_entity_drafts, PARTIAL, "partial_entity_coverage"),
    "policy": _KindOfCase(policy_drafts, REJECT_POLICY, "policy"),
    "no_context": _KindOfCase(no_context_drafts, REJECT_NO_CONTEXT, "unknown"),
    "edge": _KindOfCase(edge_drafts, EDGE, "edge"),
}
"""Each kind with the category and, where neither draft nor template names one, the subcategory of its cases."""


def template_cases(
    documents: SourceDocuments, templates: Templates, counts: Mapping[Kind, int | None], draw: QuestionDraw, seed: int
) -> list[Record]:
    """The cases, kind by kind.

    Args:
        documents: the documents.
        templates: the templates.
        counts: how many cases of each kind; None for up to `UP_TO`.
        draw: the draw, which keeps questions different over all kinds.
        seed: the seed of the draw, for the origin of each case.

    Raises DataError where the documents give fewer questions of a kind than its number, with the number that they give.
    """
    records: list[Record] = []
    short: dict[Kind, tuple[int, int]] = {}
    for kind, count in counts.items():
        drawn = draw.take(KINDS[kind].drafts(documents, templates), UP_TO if count is None else count)
        if count is not None and len(drawn) < count:
            short[kind] = (count, len(drawn))
        records += [case_record(question, seed) for question in drawn]
    if short:
        raise _too_few(short)
    return records


def _too_few(short: Mapping[Kind, tuple[int, int]]) -> DataError:
    problems = [
        Problem(
            "the documents",
            f"synthesize.counts.{kind}",
            f"{count:,} cases are asked for",
            f"at most {possible:,}: so many facts, lists and conflicts can be asked about",
            "synthesize.per_fact=2 asks about each in two wordings",
        )
        for kind, (count, possible) in short.items()
    ]
    words = " ".join(f"synthesize.counts.{kind}={possible}" for kind, (_, possible) in short.items())
    return DataError(f"too few questions; nothing was written. What there is: {words}", problems)


def case_record(drawn: DrawnQuestion, seed: int) -> Record:
    """A drawn question as a record of the native form."""
    draft, kind = drawn.draft, KINDS[drawn.draft.kind]
    question = draft.template.question
    reference = None if question.reference is None else _reference(fill(question.reference, draft.slots))
    origin = {
        "kind": "template",
        "source": draft.template.name,
        "documents": list(draft.documents),
        "seed": seed,
        **({"fact": draft.fact} if draft.fact else {}),
    }
    record = {
        "id": case_id(draft.kind, drawn.question),
        "question": drawn.question,
        **({} if reference is None else {"references": [reference]}),
        **draft.labels,
        "category": kind.category,
        "subcategory": draft.labels.get("subcategory") or question.subcategory or kind.subcategory,
        "question_type": draft.kind,
        "meta": {"origin": origin, **({"values": list(draft.values)} if draft.values else {})},
    }
    return record


def _reference(text: str) -> str:
    """The reference answer; a list at its end stays as it is."""
    is_list = text.rpartition("\n")[2].startswith("- ")
    return text if is_list else as_sentence(text)


def case_id(kind: str, question: str) -> str:
    """The id of a case: its kind and eight digits of its question's hash, so that a case keeps its id in a set made anew."""
    return f"{kind}-{sha256(question)[:8]}"
