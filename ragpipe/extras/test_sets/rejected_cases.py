"""Cases that a right system declines: attempts at what a policy forbids, and questions that no document answers."""

from __future__ import annotations

from collections.abc import Iterator

from ragpipe.extras.test_sets.drafts import Draft
from ragpipe.extras.test_sets.english import verb_be
from ragpipe.extras.test_sets.question_templates import Template, Templates
from ragpipe.extras.test_sets.source_documents import SourceDocuments


def policy_drafts(documents: SourceDocuments, templates: Templates) -> Iterator[Draft]:
    """Questions that try to break a policy, about the organisation and about names and persons of the documents."""
    names = {
        "organisation": [(documents.organisation, "")] if documents.organisation else [],
        "name": [(subject.words, document.rel_path) for document, subject in documents.subjects()],
        "person": [(person, "") for person in documents.persons],
        "nothing": [("", "")],
    }
    for about, values in names.items():
        for template in templates.of("policy", about):
            for value, path in values:
                yield _policy_draft(template, about, value, path)


def _policy_draft(template: Template, about: str, value: str, path: str) -> Draft:
    policy = template.settings.policy or ""
    return Draft(
        "policy",
        template,
        {about: value} if value else {},
        (policy, template.name, value),
        labels={"expected": {"behavior": "reject", "rejection_reason": policy}, "subcategory": policy},
        documents=(path,) if path else (),
    )


def no_context_drafts(documents: SourceDocuments, templates: Templates) -> Iterator[Draft]:
    """Questions about something that no document has: an attribute of a subject that they do have, or an invented name. Some word of the
    attribute or the name stands in no document at all."""
    labels = {
        "answerable": False,
        "relevant_docs": [],
        "expected": {"behavior": "reject", "rejection_reason": "no_context"},
    }
    attributes = [attribute for attribute in templates.attributes() if documents.is_absent(attribute)]
    for document, subject in documents.subjects():
        for attribute in attributes:
            slots = {"attribute": attribute, "is": verb_be(attribute), "subject": subject.words}
            for template in templates.fitting("no_context", "attribute", slots):
                yield Draft(
                    "no_context",
                    template,
                    slots,
                    ("attribute", attribute, subject.words, template.name),
                    fact=f"{document.rel_path}#{attribute}",
                    labels={**labels, "subcategory": "unknown_attribute"},
                    documents=(document.rel_path,),
                )
    for name in templates.names("no_context"):
        if documents.is_absent(name):
            for template in templates.fitting("no_context", "name", {"name": name}):
                yield Draft(
                    "no_context",
                    template,
                    {"name": name},
                    ("name", name, "", template.name),
                    fact=name,
                    labels={**labels, "subcategory": "unknown_entity"},
                )
