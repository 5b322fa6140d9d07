"""Edge cases: several readings, a false premise, two parts of which one breaks a policy, too little to go on. For analysis, not for gates."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from ragpipe.extras.test_sets.anchors import anchor
from ragpipe.extras.test_sets.drafts import Draft
from ragpipe.extras.test_sets.fact_slots import NamedFact, by_key, named_facts, partners
from ragpipe.extras.test_sets.question_templates import Templates
from ragpipe.extras.test_sets.source_documents import SourceDocuments

_FIGURES = re.compile(r"\d[\d.,]*")
FEW_WORDS = 3


def edge_drafts(documents: SourceDocuments, templates: Templates) -> Iterator[Draft]:
    """Drafts of every form that the templates have."""
    named = list(named_facts(documents, documents.facts))
    groups = by_key(named)
    for key, group in groups.items():
        yield from _shared_key_drafts(templates, key, group)
        for pair in partners(group):
            for fact, other in (pair, pair[::-1]):
                if (
                    _is_like(other.value, fact.value)
                    and other.value.casefold() not in fact.fact.section.text.casefold()
                ):
                    slots = {**fact.slots, "wrong_value": other.value}
                    yield from _fact_drafts(templates, "false_premise", fact, slots)
    for fact in named:
        if fact.subject.is_name and fact.about == "fact":
            yield from _fact_drafts(templates, "two_parts", fact, fact.slots)
    for document, subject in documents.subjects():
        for template in templates.fitting("edge", "name", {"name": subject.words}):
            yield Draft(
                "edge",
                template,
                {"name": subject.words},
                ("name", subject.words, template.name),
                fact=f"{document.rel_path}#{template.question.subcategory}",
                labels={
                    "expected": {"behavior": template.question.behavior},
                    "subcategory": template.question.subcategory,
                },
                documents=(document.rel_path,),
            )


def _is_like(wrong: str, right: str) -> bool:
    """Whether a value could be mistaken for another one: other figures of the same unit, or a few other words."""
    if wrong == right:
        return False
    if _FIGURES.search(wrong + right):
        return _FIGURES.sub("0", wrong) == _FIGURES.sub("0", right)
    return max(len(wrong.split()), len(right.split())) <= FEW_WORDS


def _shared_key_drafts(templates: Templates, key: str, group: Sequence[NamedFact]) -> Iterator[Draft]:
    """A question with a key that several documents have, without saying which of them is meant."""
    slots = {name: group[0].slots[name] for name in ("key", "is")}
    for template in templates.fitting("edge", "shared_key", slots):
        yield Draft(
            "edge",
            template,
            slots,
            ("shared_key", key, template.name),
            fact=key,
            labels={
                **_places(group),
                "expected": {"behavior": template.question.behavior},
                "subcategory": template.question.subcategory,
            },
            documents=tuple(fact.fact.document.rel_path for fact in group),
        )


def _fact_drafts(templates: Templates, about: str, named: NamedFact, slots: dict[str, str]) -> Iterator[Draft]:
    for template in templates.fitting("edge", about, slots):
        yield Draft(
            "edge",
            template,
            slots,
            (about, named.fact.document.rel_path, template.name),
            fact=named.topic,
            labels={
                **_places([named]),
                "expected": {"behavior": template.question.behavior},
                "subcategory": template.question.subcategory,
            },
            values=(named.value,) if template.question.reference else (),
            documents=(named.fact.document.rel_path,),
        )


def _places(group: Sequence[NamedFact]) -> dict[str, Any]:
    return {
        "anchors": [anchor(named.fact.document, named.fact.section, named.fact.value) for named in group],
        "relevant_docs": [named.fact.document.rel_path for named in group],
    }
