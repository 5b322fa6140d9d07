"""Cases that the documents answer in full: a fact, a paragraph, a source that may only be quoted, two sources, two notes in conflict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ragpipe.documents.markdown import Document
from ragpipe.extras.test_sets.anchors import Role, anchor
from ragpipe.extras.test_sets.document_facts import Fact, Paragraph, facts, paragraphs
from ragpipe.extras.test_sets.drafts import Draft, drafts_of
from ragpipe.extras.test_sets.fact_slots import (
    NamedFact,
    by_key,
    heading_slot,
    named_facts,
    partners,
    subject_slots,
    topic_heading,
)
from ragpipe.extras.test_sets.question_templates import Templates
from ragpipe.extras.test_sets.source_documents import SourceDocuments, Subject
from ragpipe.patterns.sentences import sentences


def complete_drafts(documents: SourceDocuments, templates: Templates) -> Iterator[Draft]:
    """Questions about one fact, or about the one paragraph under a heading."""
    for named in named_facts(documents, documents.facts):
        yield from drafts_of(
            templates,
            "complete",
            named.about,
            named.slots,
            (named.topic, named.fact.document.rel_path),
            fact=named.topic,
            **_fact_labels(named),
        )
    for document in documents.plain:
        for paragraph in paragraphs(document):
            if heading := topic_heading(paragraph):
                subject = documents.subject(document)
                slots = _paragraph_slots(documents, heading, paragraph, subject)
                topic = f"{document.rel_path}#{paragraph.section.heading_path}"
                labels = {"anchors": [_paragraph_anchor(paragraph)], "relevant_docs": [document.rel_path]}
                yield from drafts_of(
                    templates,
                    "complete",
                    "paragraph",
                    slots,
                    (topic, document.rel_path),
                    fact=topic,
                    labels={**labels, "answerable": True, "expected": {"behavior": "answer"}},
                    values=(paragraph.text,),
                    documents=(document.rel_path,),
                )


def quote_only_drafts(documents: SourceDocuments, templates: Templates) -> Iterator[Draft]:
    """Questions about a paragraph of a source that may only be quoted; the answer has to quote it."""
    for document in documents.quotable:
        for paragraph in paragraphs(document):
            if (heading := topic_heading(paragraph)) is None:
                continue
            subject = documents.subject(document)
            slots = {"source": subject.words, "heading": heading_slot(heading, subject), "quote": paragraph.text}
            topic = f"{document.rel_path}#{paragraph.section.heading_path}"
            yield from drafts_of(
                templates,
                "quote_only",
                "passage",
                slots,
                (topic, document.rel_path),
                fact=topic,
                labels={
                    "anchors": [_paragraph_anchor(paragraph)],
                    "relevant_docs": [document.rel_path],
                    "answerable": True,
                    "expected": {"behavior": "answer", "must_quote": True},
                },
                values=(paragraph.text,),
                documents=(document.rel_path,),
            )


def citation_pair_drafts(documents: SourceDocuments, templates: Templates) -> Iterator[Draft]:
    """Questions that compare two documents by a key that both have; the answer has to cite both."""
    for key, group in by_key(list(named_facts(documents, documents.facts))).items():
        for first, second in partners(group):
            paths = (first.fact.document.rel_path, second.fact.document.rel_path)
            slots = {
                **first.slots,
                **_compared(first),
                "other_subject": second.subject.words,
                "other_value": second.value,
            }
            yield from drafts_of(
                templates,
                "citation_pair",
                "two_facts",
                slots,
                (" ".join(paths), key, paths[0], paths[1]),
                fact=f"{first.topic} + {second.topic}",
                labels={
                    "anchors": [_fact_anchor(first.fact), _fact_anchor(second.fact)],
                    "relevant_docs": list(paths),
                    "answerable": True,
                    "expected": {"behavior": "answer", "requires_citations": True, "citations": list(paths)},
                },
                values=(first.value, second.value),
                documents=paths,
            )


def conflict_drafts(documents: SourceDocuments, templates: Templates) -> Iterator[Draft]:
    """Questions about a fact on which a note and the older one that it replaces differ; the newer one has to be cited."""
    for newer, older in documents.conflicts:
        if newer.policy == "summarize":
            yield from _fact_conflicts(documents, templates, newer, older)
            yield from _paragraph_conflicts(documents, templates, newer, older)


def silent_conflicts(documents: SourceDocuments, templates: Templates) -> list[str]:
    """The paths of the notes that replace another one and about which no template asks; sorted."""
    asked = {draft.documents[0] for draft in conflict_drafts(documents, templates)}
    return [newer.rel_path for newer, _ in documents.conflicts if newer.rel_path not in asked]


def _fact_conflicts(
    documents: SourceDocuments, templates: Templates, newer: Document, older: Document
) -> Iterator[Draft]:
    before = {named.fact.key.casefold(): named for named in named_facts(documents, list(facts(older)))}
    for named in named_facts(documents, list(facts(newer))):
        old = before.get(named.fact.key.casefold())
        if old is not None and old.value != named.value and named.about == "fact":
            places = [_fact_anchor(named.fact, "newer"), _fact_anchor(old.fact, "older")]
            key = {name: named.slots[name] for name in ("key", "is", "value")}
            subject = documents.shared_subject(newer, older)
            lone = {"only_key": key["key"]} if subject is None or documents.is_only(key["key"], newer, older) else {}
            slots = {**key, **lone, **(subject_slots(subject) if subject else {}), "old_value": old.value}
            yield from _conflict(templates, "fact", slots, named.value, places, named.topic)


def _paragraph_conflicts(
    documents: SourceDocuments, templates: Templates, newer: Document, older: Document
) -> Iterator[Draft]:
    before = {topic_heading(paragraph): paragraph for paragraph in paragraphs(older)}
    for paragraph in paragraphs(newer):
        heading = topic_heading(paragraph)
        old = before.get(heading)
        if heading and old is not None and old.text != paragraph.text:
            places = [_paragraph_anchor(paragraph, "newer"), _paragraph_anchor(old, "older")]
            subject = documents.shared_subject(newer, older)
            slots = {"only_heading": heading_slot(heading, Subject("", False)), "text": paragraph.text}
            if subject:
                lone = slots if documents.is_only(heading, newer, older) else {}
                slots = {**lone, **_paragraph_slots(documents, heading, paragraph, subject)}
            topic = f"{newer.rel_path}#{paragraph.section.heading_path}"
            yield from _conflict(templates, "paragraph", slots, paragraph.text, places, topic)


def _conflict(
    templates: Templates, about: str, slots: dict[str, str], value: str, places: list[dict[str, Any]], fact: str
) -> Iterator[Draft]:
    """Drafts about a place in the newer note and the one in the older note that it contradicts.

    Args:
        templates: all templates.
        about: fact or paragraph.
        slots: what the newer note says.
        value: the literal text of the newer note.
        places: the anchors of the newer and of the older note.
        fact: where the newer note says it.
    """
    newer, older = (place["rel_path"] for place in places)
    yield from drafts_of(
        templates,
        "conflict",
        about,
        slots,
        (str(places[0]), newer),
        fact=fact,
        labels={
            "anchors": places,
            "relevant_docs": [newer, older],
            "recency_conflict_rule": "cite_newer",
            "answerable": True,
            "expected": {"behavior": "answer"},
        },
        values=(value,),
        documents=(newer, older),
    )


def _paragraph_slots(
    documents: SourceDocuments, heading: str, paragraph: Paragraph, subject: Subject
) -> dict[str, str]:
    """The slots of a paragraph. `only_heading` is the heading where it says enough alone: it has three words or more, and no other document
    has it."""
    shown = heading_slot(heading, subject)
    is_enough = (
        not subject.is_name
        and not shown.startswith('"')
        and len(shown.split()) > 2
        and documents.is_only(heading, paragraph.document)
    )
    return {
        "heading": shown,
        "text": paragraph.text,
        **subject_slots(subject),
        **({"only_heading": shown} if is_enough else {}),
    }


def _compared(named: NamedFact) -> dict[str, str]:
    plural = named.slots["is"] == "are"
    return {"that": "those" if plural else "that", "does": "do" if plural else "does"}


def _fact_labels(named: NamedFact) -> dict[str, Any]:
    path = named.fact.document.rel_path
    labels = {
        "anchors": [_fact_anchor(named.fact)],
        "relevant_docs": [path],
        "answerable": True,
        "expected": {"behavior": "answer"},
    }
    return {"labels": labels, "values": (named.value,), "documents": (path,)}


def _fact_anchor(fact: Fact, role: Role = None) -> dict[str, Any]:
    return anchor(fact.document, fact.section, fact.value, role=role)


def _paragraph_anchor(paragraph: Paragraph, role: Role = None) -> dict[str, Any]:
    return anchor(paragraph.document, paragraph.section, sentences(paragraph.text)[0], role=role)
