"""The cases of a test set that templates make: drafts drawn by the counts, each as a record of the native form."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ragpipe.core.digest import sha256
from ragpipe.core.errors import DataError, Problem
from ragpipe.extras.test_sets.answered_cases import (
    NamedFact,
    by_key,
    citation_pair_drafts,
    complete_drafts,
    conflict_drafts,
    is_narrow,
    list_noun,
    named_facts,
    partners,
    quote_only_drafts,
    series_noun,
    subject_slots,
)
from ragpipe.extras.test_sets.drafts import Draft, DrawnQuestion, QuestionDraw, anchor, answered, drafts_of
from ragpipe.extras.test_sets.english import as_sentence, enumerated, fill, in_words, meaning_words, verb_be
from ragpipe.extras.test_sets.question_templates import Kind, Templates
from ragpipe.extras.test_sets.source_documents import (
    PeriodSeries,
    SourceDocuments,
    full_text,
    item_lists,
    last_heading,
    period_series,
)

UP_TO = 10
"""How many cases of a kind are made where no number is given: fewer where the documents give fewer."""
_MORE_ITEMS = (2, 5)
_MORE_PERIODS = (1, 2, 3)
"""How many more than there are a question asks for."""
_OTHERS = 3  # invented names that are put beside one fact


def partial_list_drafts(documents: SourceDocuments, templates: Templates) -> Iterator[Draft]:
    """Questions for more items than a list has; `expected.context_has` is how many it has."""
    for document in documents.plain:
        subject = subject_slots(documents.subject(document))
        for items in item_lists(document):
            heading = last_heading(items.section)
            if not heading or heading.casefold() == document.title.casefold():
                continue
            noun = list_noun(heading)
            for more in _MORE_ITEMS:
                only = noun and is_narrow(noun) and documents.is_only(heading, document)
                slots = {
                    **({"noun": noun} if noun else {"heading": heading}),
                    **({"only_noun": noun} if noun and only else {}),
                    "asked": in_words(len(items.items) + more),
                    "known": in_words(len(items.items)),
                    "items": "\n".join(f"- {item}" for item in items.items),
                    **subject,
                }
                topic, path = f"{document.rel_path}#{items.section.heading_path}", document.rel_path
                places, spread = [anchor(document, items.section, *items.items)], (topic, path, str(more))
                rest: dict[str, Any] = {"fact": topic, "values": items.items}
                rest |= answered(places, path, context_has=len(items.items))
                yield from drafts_of(templates, "partial_list", "list", slots, spread, **rest)


def partial_date_drafts(documents: SourceDocuments, templates: Templates) -> Iterator[Draft]:
    """Questions for a range of periods that goes on beyond the last one of a series."""
    for document in documents.plain:
        for series in period_series(document):
            noun = series_noun(last_heading(series.section))
            for start in range(len(series.rows)):
                for more in _MORE_PERIODS:
                    if noun and _are_unknown(documents, series, noun, more):
                        yield from _range_drafts(documents, templates, series, noun, start, more)


def partial_entity_drafts(documents: SourceDocuments, templates: Templates) -> Iterator[Draft]:
    """Questions about two subjects, of which the second is an invented name that is in no document."""
    others = [name for name in templates.names("partial_entities") if documents.is_absent(name)]
    for named in named_facts(documents, documents.facts):
        if not named.subject.is_name or named.about != "fact":
            continue
        path = named.fact.document.rel_path
        for other in sorted(others, key=lambda name: sha256([named.topic, name]))[:_OTHERS]:
            slots, spread = {**named.slots, "other": other}, (path, other, named.topic)
            places = [anchor(named.fact.document, named.fact.section, named.fact.value)]
            rest = {"fact": named.topic, "values": (named.value,), **answered(places, path)}
            yield from drafts_of(templates, "partial_entities", "fact", slots, spread, **rest)


def _are_unknown(documents: SourceDocuments, series: PeriodSeries, noun: str, more: int) -> bool:
    """Whether no document that could be about the same figures names one of the periods after the last."""
    later = [str(series.rows[-1][0].later(step)) for step in range(1, more + 1)]
    about = [document for document in documents.all if meaning_words(noun) <= documents.words[document.rel_path]]
    return not any(period in full_text(document) for document in (*about, series.document) for period in later)


def _range_drafts(
    documents: SourceDocuments, templates: Templates, series: PeriodSeries, noun: str, start: int, more: int
) -> Iterator[Draft]:
    """Drafts for the periods of a series from number `start` to `more` after the last."""
    document, rows = series.document, series.rows[start:]
    last = rows[-1][0]
    missing = [str(last.later(step)) for step in range(1, more + 1)]
    slots = {
        "first": str(rows[0][0]),
        "last": missing[-1],
        "periods": {"half": "half-years"}.get(last.unit, f"{last.unit}s"),
        "missing": enumerated(missing),
        "rows": "\n".join(f"- {period}: {figure}" for period, figure in rows),
        "noun": noun,
        **subject_slots(documents.subject(document)),
    }
    topic = f"{document.rel_path}#{series.section.heading_path}"
    figures = tuple(figure for _, figure in rows)
    rest = {"fact": topic, "values": figures}
    rest |= answered([anchor(document, series.section, *figures)], document.rel_path)
    yield from drafts_of(templates, "partial_dates", "series", slots, (topic, str(start), str(more)), **rest)


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
                if _is_like(other.value, fact.value) and other.value.casefold() not in fact.fact.section.text.casefold():
                    slots = {**fact.slots, "wrong_value": other.value}
                    yield from _fact_drafts(templates, "false_premise", fact, slots)
    for fact in named:
        if fact.subject.is_name and fact.about == "fact":
            yield from _fact_drafts(templates, "two_parts", fact, fact.slots)
    for document, subject in documents.subjects():
        slots = {"name": subject.words}
        for template in templates.fitting("edge", "name", slots):
            spread, topic = (("name", subject.words, template.name), f"{document.rel_path}#{template.question.subcategory}")
            yield Draft("edge", template, slots, spread, topic, documents=(document.rel_path,))


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
    rest = {"fact": key, "labels": _places(group), "documents": tuple(fact.fact.document.rel_path for fact in group)}
    yield from drafts_of(templates, "edge", "shared_key", slots, ("shared_key", key), **rest)


def _fact_drafts(templates: Templates, about: str, named: NamedFact, slots: dict[str, str]) -> Iterator[Draft]:
    path = named.fact.document.rel_path
    for draft in drafts_of(templates, "edge", about, slots, (about, path), fact=named.topic, documents=(path,)):
        values = (named.value,) if draft.template.question.reference else ()
        yield replace(draft, labels=_places([named]), values=values)


def _places(group: Sequence[NamedFact]) -> dict[str, Any]:
    return {
        "anchors": [anchor(named.fact.document, named.fact.section, named.fact.value) for named in group],
        "relevant_docs": [named.fact.document.rel_path for named in group],
    }


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
            policy = template.settings.policy or ""
            labels = {"expected": {"behavior": "reject", "rejection_reason": policy}, "subcategory": policy}
            for value, path in values:
                slots, spread = {about: value} if value else {}, (policy, template.name, value)
                yield Draft("policy", template, slots, spread, labels=labels, documents=(path,) if path else ())


def no_context_drafts(documents: SourceDocuments, templates: Templates) -> Iterator[Draft]:
    """Questions about something that no document has: an attribute of a subject that they do have, or an invented name. Some word of the
    attribute or the name stands in no document at all."""
    labels = {"answerable": False, "relevant_docs": [], "expected": {"behavior": "reject", "rejection_reason": "no_context"}}
    attributes = [attribute for attribute in templates.attributes() if documents.is_absent(attribute)]
    for document, subject in documents.subjects():
        for attribute in attributes:
            slots = {"attribute": attribute, "is": verb_be(attribute), "subject": subject.words}
            rest: dict[str, Any] = {"fact": f"{document.rel_path}#{attribute}", "documents": (document.rel_path,)}
            rest["labels"] = {**labels, "subcategory": "unknown_attribute"}
            spread = ("attribute", attribute, subject.words)
            yield from drafts_of(templates, "no_context", "attribute", slots, spread, **rest)
    for name in templates.names("no_context"):
        if documents.is_absent(name):
            rest = {"fact": name, "labels": {**labels, "subcategory": "unknown_entity"}}
            yield from drafts_of(templates, "no_context", "name", {"name": name}, ("name", name, ""), **rest)


Record = dict[str, Any]
COMPLETE, PARTIAL, REJECT_POLICY = "should_answer_complete", "should_answer_partial", "should_reject_policy"
REJECT_NO_CONTEXT, EDGE = "should_reject_no_context", "edge_cases"


KINDS: Mapping[Kind, tuple[Callable[[SourceDocuments, Templates], Iterator[Draft]], str, str]] = {
    "complete": (complete_drafts, COMPLETE, "fact"),
    "quote_only": (quote_only_drafts, COMPLETE, "quote_only"),
    "citation_pair": (citation_pair_drafts, COMPLETE, "citation_pair"),
    "conflict": (conflict_drafts, COMPLETE, "conflicting_notes"),
    "partial_list": (partial_list_drafts, PARTIAL, "partial_list_results"),
    "partial_dates": (partial_date_drafts, PARTIAL, "partial_date_range"),
    "partial_entities": (partial_entity_drafts, PARTIAL, "partial_entity_coverage"),
    "policy": (policy_drafts, REJECT_POLICY, "policy"),
    "no_context": (no_context_drafts, REJECT_NO_CONTEXT, "unknown"),
    "edge": (edge_drafts, EDGE, "edge"),
}
"""Each kind with its drafts, the category and, where neither draft nor template names one, the subcategory of its cases."""


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
    records, short = list[Record](), dict[Kind, tuple[int, int]]()
    for kind, count in counts.items():
        drawn = draw.take(KINDS[kind][0](documents, templates), UP_TO if count is None else count)
        if count is not None and len(drawn) < count:
            short[kind] = (count, len(drawn))
        records += [case_record(question, seed) for question in drawn]
    if short:
        raise _too_few(short)
    return records


def _too_few(short: Mapping[Kind, tuple[int, int]]) -> DataError:
    problems = []
    for kind, (count, possible) in short.items():
        key, found = f"synthesize.counts.{kind}", f"{count:,} cases are asked for"
        expected = f"at most {possible:,}: so many facts, lists and conflicts can be asked about"
        problems.append(Problem("the documents", key, found, expected, "ask for fewer, or add documents"))
    words = " ".join(f"synthesize.counts.{kind}={possible}" for kind, (_, possible) in short.items())
    return DataError(f"too few questions; nothing was written. What there is: {words}", problems)


def case_record(drawn: DrawnQuestion, seed: int) -> Record:
    """A drawn question as a record of the native form."""
    draft, (_, category, subcategory) = drawn.draft, KINDS[drawn.draft.kind]
    question = draft.template.question
    reference = None if question.reference is None else _reference(fill(question.reference, draft.slots))
    origin = {
        "kind": "template",
        "source": draft.template.name,
        "documents": list(draft.documents),
        "seed": seed,
        **({"fact": draft.fact} if draft.fact else {}),
    }
    edge = {"expected": {"behavior": question.behavior}, "subcategory": None} if draft.kind == "edge" else {}
    return {
        "id": case_id(draft.kind, drawn.question),
        "question": drawn.question,
        **({} if reference is None else {"references": [reference]}),
        **draft.labels,
        **edge,
        "category": category,
        "subcategory": draft.labels.get("subcategory") or question.subcategory or subcategory,
        "question_type": draft.kind,
        "meta": {"origin": origin, **({"values": list(draft.values)} if draft.values else {})},
    }


def _reference(text: str) -> str:
    """The reference answer; a list at its end stays as it is."""
    is_list = text.rpartition("\n")[2].startswith("- ")
    return text if is_list else as_sentence(text)


def case_id(kind: str, question: str) -> str:
    """The id of a case: its kind and eight digits of its question's hash, so that a case keeps its id in a set made anew."""
    return f"{kind}-{sha256(question)[:8]}"
