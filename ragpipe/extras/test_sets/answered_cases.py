"""Cases that the documents answer in full: a fact, a paragraph, a source that may only be quoted, two sources, two notes in conflict."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

from ragpipe.core.digest import sha256
from ragpipe.core.text import sentences
from ragpipe.data.markdown import Document
from ragpipe.extras.test_sets.drafts import Draft, Role, anchor, answered, drafts_of
from ragpipe.extras.test_sets.english import capitalised, is_plural, uncapitalised, verb_be, verb_past, word_set
from ragpipe.extras.test_sets.question_templates import Templates
from ragpipe.extras.test_sets.source_documents import (
    Fact,
    Paragraph,
    SourceDocuments,
    Subject,
    facts,
    is_person,
    last_heading,
    paragraphs,
)


def complete_drafts(documents: SourceDocuments, templates: Templates) -> Iterator[Draft]:
    """Questions about one fact, or about the one paragraph under a heading."""
    for named in named_facts(documents, documents.facts):
        path = named.fact.document.rel_path
        rest = {"fact": named.topic, "values": (named.value,), **answered([_fact_anchor(named.fact)], path)}
        yield from drafts_of(templates, "complete", named.about, named.slots, (named.topic, path), **rest)
    for document in documents.plain:
        for paragraph in paragraphs(document):
            if heading := topic_heading(paragraph):
                slots = _paragraph_slots(documents, heading, paragraph, documents.subject(document))
                spread, rest = (paragraph.topic, document.rel_path), _about_paragraph(paragraph)
                yield from drafts_of(templates, "complete", "paragraph", slots, spread, **rest)


def quote_only_drafts(documents: SourceDocuments, templates: Templates) -> Iterator[Draft]:
    """Questions about a paragraph of a source that may only be quoted; the answer has to quote it."""
    for document in documents.quotable:
        for paragraph in paragraphs(document):
            if heading := topic_heading(paragraph):
                subject = documents.subject(document)
                slots = {"source": subject.words, "heading": heading_slot(heading, subject), "quote": paragraph.text}
                spread, rest = (paragraph.topic, document.rel_path), _about_paragraph(paragraph, must_quote=True)
                yield from drafts_of(templates, "quote_only", "passage", slots, spread, **rest)


def citation_pair_drafts(documents: SourceDocuments, templates: Templates) -> Iterator[Draft]:
    """Questions that compare two documents by a key that both have; the answer has to cite both."""
    for key, group in by_key(list(named_facts(documents, documents.facts))).items():
        for first, second in partners(group):
            paths = (first.fact.document.rel_path, second.fact.document.rel_path)
            other = {"other_subject": second.subject.words, "other_value": second.value}
            slots = {**first.slots, **_compared(first), **other}
            spread = (" ".join(paths), key, *paths)
            rest: dict[str, Any] = {"fact": f"{first.topic} + {second.topic}", "values": (first.value, second.value)}
            places = [_fact_anchor(first.fact), _fact_anchor(second.fact)]
            rest |= answered(places, *paths, requires_citations=True, citations=list(paths))
            yield from drafts_of(templates, "citation_pair", "two_facts", slots, spread, **rest)


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


def _fact_conflicts(documents: SourceDocuments, templates: Templates, newer: Document, older: Document) -> Iterator[Draft]:
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


def _paragraph_conflicts(documents: SourceDocuments, templates: Templates, newer: Document, older: Document) -> Iterator[Draft]:
    before = {topic_heading(paragraph): paragraph for paragraph in paragraphs(older)}
    for paragraph in paragraphs(newer):
        old = before.get(heading := topic_heading(paragraph))
        if heading and old is not None and old.text != paragraph.text:
            places = [_paragraph_anchor(paragraph, "newer"), _paragraph_anchor(old, "older")]
            subject = documents.shared_subject(newer, older)
            slots = {"only_heading": heading_slot(heading, Subject("", False)), "text": paragraph.text}
            if subject:
                lone = slots if documents.is_only(heading, newer, older) else {}
                slots = {**lone, **_paragraph_slots(documents, heading, paragraph, subject)}
            yield from _conflict(templates, "paragraph", slots, paragraph.text, places, paragraph.topic)


def _conflict(
    templates: Templates, about: str, slots: dict[str, str], value: str, places: list[dict[str, Any]], fact: str
) -> Iterator[Draft]:
    """Drafts about a place in the newer note and the one in the older note that it contradicts."""
    newer, older = (place["rel_path"] for place in places)
    rest = {"fact": fact, "values": (value,), **answered(places, newer, older, rule="cite_newer")}
    yield from drafts_of(templates, "conflict", about, slots, (str(places[0]), newer), **rest)


def _about_paragraph(paragraph: Paragraph, **expected: Any) -> dict[str, Any]:
    """What a draft about a paragraph asks for, and its labels."""
    labels = answered([_paragraph_anchor(paragraph)], paragraph.document.rel_path, **expected)
    return {"fact": paragraph.topic, "values": (paragraph.text,), **labels}


def _paragraph_slots(documents: SourceDocuments, heading: str, paragraph: Paragraph, subject: Subject) -> dict[str, str]:
    shown = heading_slot(heading, subject)
    is_phrase = not subject.is_name and not shown.startswith('"') and len(shown.split()) > 2
    lone = {"only_heading": shown} if is_phrase and documents.is_only(heading, paragraph.document) else {}
    return {"heading": shown, "text": paragraph.text, **subject_slots(subject), **lone}


def _compared(named: NamedFact) -> dict[str, str]:
    plural = named.slots["is"] == "are"
    return {"that": "those" if plural else "that", "does": "do" if plural else "does"}


def _fact_anchor(fact: Fact, role: Role = None) -> dict[str, Any]:
    return anchor(fact.document, fact.section, fact.value, role=role)


def _paragraph_anchor(paragraph: Paragraph, role: Role = None) -> dict[str, Any]:
    return anchor(paragraph.document, paragraph.section, sentences(paragraph.text)[0], role=role)


_NO_ATTRIBUTE = re.compile(
    r".*\d.*|.*\w+ed|available|built|closed|compatible|due|free|made|new|open|sold|spoken|valid|\w+ing"
    r"|(?:.* )?(?:at|by|for|from|in|of|on|per|since|that|to|until|with|without)(?: .*)?|.+ (?-i:[A-Z][a-z]).*",
    re.IGNORECASE,
)
"""Keys that no question can put behind "the": "Founded", "Available in", "Pack of five"."""
_PARTICIPLE = re.compile(r"\w+ed|built|made|sold", re.IGNORECASE)
_GENERAL = re.compile(
    r"(?:at a glance|basics|data|details|facts|figures|general|highlights|in brief|key (?:data|facts|figures)|overview|profile|results?"
    r"|specifications?|summary|technical data)",
    re.IGNORECASE,
)
"""Headings under which a key speaks for itself."""
_NO_TOPIC = re.compile(
    r"(?:abroad|background|comments?|introduction|notes?|questions?|references|unchanged|what's new"
    r"|(?:after|before|for|how|if|in|what|when|where|which|who|why)\b.*)",
    re.IGNORECASE,
)
"""Headings that do not say what stands under them, or that are questions themselves."""
_LIST_NOUNS = word_set(
    "actions advantages benefits causes changes conditions consequences duties examples exceptions features findings goals highlights "
    "improvements limits measures objectives options places principles priorities reasons recommendations requirements "
    "responsibilities risks rules signs steps symptoms tasks tips values wishes"
)
"""Plural nouns that say what the items of a list are."""
_PREPOSITION = re.compile(r" (?:against|at|by|for|from|in|of|on|to|with) ")
_COUNTABLE = word_set(
    "amount board council date day deadline device fee hour level limit method number office order period plan policy price "
    "procedure process programme rate reset rule schedule size team time trial type warning"
)
"""Nouns that need an article in the singular: "the return period"."""
_ARTICLE = re.compile(r"(?:a|an|the) ")
_PERIODICITY = re.compile(
    r" ?\b(?:(?:by|per|for each) (?:month|quarter|half[- ]year|year)|(?:over|in) the (?:months|quarters|years))$|^(?:monthly|quarterly|yearly|annual) ",
    re.IGNORECASE,
)


SMALL_GROUP, NEXT_FEW = 12, 4
"""Up to how many facts of one key are all paired with each other, and with how many each of a larger group is."""


@dataclass
class NamedFact:
    """A fact with the subject that a question names for it."""

    fact: Fact
    subject: Subject
    is_only: bool = False
    is_heading_only: bool = False
    """Whether no other document has its key, and its heading."""

    @property
    def topic(self) -> str:
        """Where the fact stands, as one text."""
        return f"{self.fact.document.rel_path}#{self.fact.section.heading_path}#{self.fact.key}"

    @cached_property
    def about(self) -> str:
        """What a template about it is about: `fact` where the key can stand behind "the", `entry` where it cannot, alone or under its
        heading, `person` where it is a name."""
        if is_person(self.fact):
            return "person"
        heading = last_heading(self.fact.section)
        is_general = not heading or heading == self.fact.document.title or bool(_GENERAL.fullmatch(heading))
        if (self.subject.is_name or is_general) and not _NO_ATTRIBUTE.fullmatch(self.fact.key):
            return "fact"
        return "entry" if is_general else "entry_under_heading"

    @property
    def slots(self) -> dict[str, str]:
        """The slots of the fact."""
        if self.about == "person":
            return {"person": self.fact.key, "value": self.value}
        slots = {"value": self.value, **subject_slots(self.subject)}
        if self.about == "fact":
            key = uncapitalised(self.fact.key)
            lone = {"only_key": key} if self.is_only and not (self.subject.is_name or self.subject.period) else {}
            return {**slots, "key": key, "is": verb_be(key), "was": verb_past(key), **lone}
        if self.about == "entry_under_heading":
            heading = last_heading(self.fact.section)
            slots["heading"] = heading
            if is_plural(heading):
                slots["headings"] = uncapitalised(heading)
        if self.is_heading_only and _PARTICIPLE.fullmatch(self.fact.key):
            slots["participle"] = uncapitalised(self.fact.key)
        if self.is_only and not self.subject.is_name:
            slots["only_entry"] = self.fact.key
        return {**slots, "entry": self.fact.key}

    @property
    def value(self) -> str:
        """The value without a full stop at its end."""
        return self.fact.value.removesuffix(".")


def subject_slots(subject: Subject) -> dict[str, str]:
    """The slots of a subject: `subject` of a name, `source` and `does` of a text, with `topic` and `period` where its title has them;
    `of_subject` and `for_subject` of both."""
    both = {"of_subject": subject.of, "for_subject": subject.for_it}
    if subject.is_name:
        return {**both, "subject": subject.words}
    slots = {**both, "source": subject.words, "does": "do" if subject.is_plural else "does"}
    return slots | {name: text for name, text in (("topic", subject.topic), ("period", subject.period)) if text}


def named_facts(documents: SourceDocuments, facts: Sequence[Fact]) -> Iterator[NamedFact]:
    """The facts that a question can name: a key that several sections of a document have is named with its section; one that a section
    has twice is left out."""
    in_document = Counter((fact.document.rel_path, fact.key.casefold()) for fact in facts)
    in_section = Counter((fact.document.rel_path, fact.section.line, fact.key.casefold()) for fact in facts)
    for fact in facts:
        path, key = fact.document.rel_path, fact.key.casefold()
        if in_section[path, fact.section.line, key] > 1:
            continue
        is_only = in_document[path, key] == 1 and documents.is_only(key, fact.document)
        is_heading_only = documents.is_only(last_heading(fact.section), fact.document)
        named = NamedFact(fact, documents.subject(fact.document), is_only, is_heading_only)
        if in_document[path, key] > 1 and named.about != "entry_under_heading":
            named.subject = named.subject.part(last_heading(fact.section))
        yield named


def by_key(facts: Sequence[NamedFact]) -> Mapping[str, list[NamedFact]]:
    """The facts of different documents by key, where two documents or more have it and their subjects are names."""
    groups: dict[str, dict[str, NamedFact]] = defaultdict(dict)
    for named in facts:
        if named.subject.is_name and named.about == "fact":
            groups[named.fact.key.casefold()].setdefault(named.fact.document.rel_path, named)
    return {key: list(group.values()) for key, group in sorted(groups.items()) if len(group) > 1}


def partners(group: Sequence[NamedFact]) -> Iterator[tuple[NamedFact, NamedFact]]:
    """Pairs of facts of one key: all pairs of a small group, of a large one each fact with the next few in the order of a hash."""
    if len(group) <= SMALL_GROUP:
        yield from combinations(group, 2)
        return
    ring = sorted(group, key=lambda named: sha256(named.topic))
    for place, named in enumerate(ring):
        yield from ((named, ring[(place + step) % len(ring)]) for step in range(1, NEXT_FEW + 1))


def heading_slot(heading: str, subject: Subject) -> str:
    """A heading inside a question: in quotation marks where it would need an article that a rule cannot tell ("Return", "Position of
    Tarnwick"), and as it is behind the name of a thing ("the warranty of the Kestrel leak sensor")."""
    if subject.is_name:
        return _ARTICLE.sub("", heading)
    words = heading.split()
    if len(words) > 1 and words[-1] in _COUNTABLE and not _ARTICLE.match(heading):
        return f"the {heading}"
    has_article = _ARTICLE.match(heading) or words[0].endswith("ing") or is_plural(heading)
    needs_marks = len(words) == 1 or (not has_article and _PREPOSITION.search(heading))
    return f'"{capitalised(heading)}"' if needs_marks else heading


def topic_heading(paragraph: Paragraph) -> str | None:
    """What a paragraph is about, by its heading; None where the heading does not say it."""
    heading = last_heading(paragraph.section)
    is_topic = heading and not (_NO_TOPIC.fullmatch(heading) or _GENERAL.fullmatch(heading))
    return uncapitalised(heading) if is_topic and paragraph.section.level > 1 else None


def is_narrow(noun: str) -> bool:
    """Whether a plural noun says of what: "rules for suppliers"; not "good places"."""
    return bool(_PREPOSITION.search(noun))


def list_noun(heading: str) -> str | None:
    """The heading of a list as a plural noun for its items ("rules for suppliers"); None where it is none."""
    head = re.split(r" (?:of|for|in|to|with|by|at|on) ", heading)[0].split()
    return uncapitalised(heading) if head and head[-1].casefold() in _LIST_NOUNS and len(heading.split()) <= 5 else None


def series_noun(heading: str) -> str | None:
    """What the figures of a series are, by its heading without "by quarter" and the like; None where nothing remains."""
    noun = _PERIODICITY.sub("", heading).strip()
    return None if not noun or _NO_TOPIC.fullmatch(noun) else uncapitalised(noun)
