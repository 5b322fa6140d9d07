"""The documents that questions are made from: which may be asked about, by what name, and which words stand in them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ragpipe.core.text import WORD
from ragpipe.data.markdown import Document, DocumentSection
from ragpipe.extras.test_sets.english import Period, is_plural, meaning_words, read_period, uncapitalised

_TEXTS = (
    "agreement|charter|checklist|contract|faq|glossary|guide|guidelines?|handbook|list|manual|memo|minutes|note|notice|plan|policy|"
    "procedure|process|programme|report|roadmap|rules|schedule|strategy|study|survey|terms|trial"
)
_KIND_OF_TEXT = re.compile(
    rf"(?!(?:how|if|what|when|where|which|who|why)\b)(?:[\w'\u2019-]+ ){{0,3}}(?:{_TEXTS})"
    r"(?: (?:Q[1-4] |H[12] )?(?:19|20)\d\d| (?:about|for|in|of|on|to|with) .+)?",
    re.IGNORECASE,
)
"""Titles that name a kind of text: "travel policy", "annual report 2025", "note on leak detection"."""
_IN_A_SENTENCE = re.compile(r"(?<=[a-z0-9,;] )[A-Z][\w'\u2019-]+")
_QUOTED = re.compile(r'the document "(.+)"')
_NO_TOPIC = re.compile(r"(?:about|how|if|what|when|where|which|who|why)\b", re.IGNORECASE)
_PERIOD_AT_END = re.compile(r"\breport ((?:Q[1-4] |H[12] )?(?:19|20)\d\d)\Z")
_WORDS_ONLY = re.compile(r"[\w'\u2019-]+(?: [\w'\u2019-]+){0,5}")
_BRACKETS = re.compile(r" *\([^()]*\)\Z")
_YEAR_AT_END = re.compile(r"[ ,]* (?:of |in |for )?(?:19|20)\d\d\Z")
_PERSON = re.compile(r"[A-Z][\w'\u2019-]+(?: [A-Z]\.)? [A-Z][\w'\u2019-]+")
_ROLE = re.compile(
    r"\b(?:author|chair|chief|contact|director|editor|founder|head|lead|manager|officer|owner|president|sponsor)\b",
    re.IGNORECASE,
)
_PEOPLE = re.compile(r"\b(?:board|contacts?|council|leadership|management|people|staff|team)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Subject:
    """How a question speaks of a document: by the thing that it describes, where its title is a name ("the Kestrel leak sensor"), else
    as a text ("the travel policy", 'the document "Error codes"')."""

    words: str
    is_name: bool

    @property
    def of(self) -> str:
        """Behind a noun: of the Kestrel leak sensor, in the travel policy."""
        return f"{'of' if self.is_name else 'in'} {self.words}"

    @property
    def for_it(self) -> str:
        """Behind what it has several of: for the Kestrel leak sensor, in the travel policy."""
        return f"{'for' if self.is_name else 'in'} {self.words}"

    @property
    def topic(self) -> str | None:
        """What a text is about, as one says it before a colon: "parental leave"; None where its title cannot be said so."""
        quoted = _QUOTED.fullmatch(self.words)
        is_topic = not self.is_name and quoted and not _NO_TOPIC.match(quoted[1])
        return uncapitalised(quoted[1]) if quoted and is_topic else None

    @property
    def period(self) -> str | None:
        """The period that a report is about, by its title: "Q1 2026"."""
        found = _PERIOD_AT_END.search(self.words)
        return found[1] if found and not self.is_name else None

    @property
    def is_plural(self) -> bool:
        """Whether a verb behind it is plural: the warranty terms."""
        return not self.is_name and not self.words.endswith(('"', ")")) and is_plural(self.words)

    def part(self, heading: str) -> Subject:
        """A part of it, by its heading in brackets."""
        return Subject(f"{self.words} ({heading})", self.is_name)


class SourceDocuments:
    """All documents of the folder.

    Questions are asked of those that may be told in other words (policy `summarize`) and that no other document contradicts:
    `plain`. `quotable` are those with policy `quote_only`; `conflicts` are pairs of a note and the older one that it replaces.
    A `no_use` document is never asked about, but its words count when a question must have no answer. `organisation` is the name of
    the company or office that the documents are about; None where it is not known.
    """

    def __init__(self, documents: Sequence[Document], organisation: str | None = None):
        self.all = tuple(sorted(documents, key=lambda document: document.rel_path))
        self.organisation = organisation
        by_path = {document.rel_path: document for document in self.all}
        pairs = [(document, by_path.get(document.front_matter.get("replaces", ""))) for document in self.all]
        self.conflicts = [(newer, older) for newer, older in pairs if older is not None]
        disputed = {document.rel_path for pair in self.conflicts for document in pair}
        titles = Counter(document.title for document in self.all)
        undisputed = [document for document in self.all if document.rel_path not in disputed and titles[document.title] == 1]
        self.plain = [document for document in undisputed if document.policy == "summarize"]
        self.quotable = [document for document in self.all if document.policy == "quote_only"]

    @cached_property
    def words(self) -> dict[str, frozenset[str]]:
        """The meaningful words of each document, with those of its title and headings, by its path."""
        return {document.rel_path: meaning_words(full_text(document)) for document in self.all}

    @cached_property
    def facts(self) -> list[Fact]:
        """The facts of the plain documents, in order."""
        return [fact for document in self.plain for fact in facts(document)]

    @cached_property
    def persons(self) -> list[str]:
        """The persons that plain documents name, in alphabetical order: as the value of a key such as "Owner", or as a key with a role
        behind it or under a heading such as "Team"."""
        named = []
        for fact in self.facts:
            if is_person(fact):
                named.append(fact.key)
            elif _ROLE.search(fact.key) and (match := _PERSON.match(fact.value)):
                named.append(match[0])
        return sorted(set(named))

    def is_absent(self, phrase: str) -> bool:
        """Whether some word of the phrase stands in no document: then no search for its words can find it. A phrase of stop
        words alone is not absent."""
        return bool(meaning_words(phrase) - frozenset().union(*self.words.values()))

    def subject(self, document: Document) -> Subject:
        """How a question speaks of the document, by its title; brackets at its end are left out.

        A title is a name where its first word stands with a capital inside a sentence of some document, and nowhere with a small letter
        ("Kestrel leak sensor"), or where all of it stands inside a sentence with its capitals ("Project Atlas"). Others are named as
        the kind of text that they are, or by the title in quotation marks.
        """
        return self._named(_BRACKETS.sub("", document.title))

    def shared_subject(self, newer: Document, older: Document) -> Subject | None:
        """How a question speaks of a note and the older one that it replaces, without saying which: by their common title, years and
        brackets at its end aside. None where they have none in common."""
        titles = [_YEAR_AT_END.sub("", _BRACKETS.sub("", document.title)) for document in (newer, older)]
        return self._named(titles[0]) if titles[0] and titles[0].casefold() == titles[1].casefold() else None

    def is_only(self, name: str, *documents: Document) -> bool:
        """Whether no other document has a key or a heading of this name."""
        return self._paths_by_name[name.casefold()] <= {document.rel_path for document in documents}

    @cached_property
    def _paths_by_name(self) -> Mapping[str, set[str]]:
        """The paths of the documents that have a key or a heading of a name."""
        paths: dict[str, set[str]] = defaultdict(set)
        for document in self.all:
            for name in (*(fact.key for fact in facts(document)), *map(last_heading, document.sections)):
                paths[name.casefold()].add(document.rel_path)
        return paths

    def _named(self, title: str) -> Subject:
        words = title.split()
        if _WORDS_ONLY.fullmatch(title) and self._is_name(title, words):
            return Subject(title if words[-1][0].isupper() else f"the {title}", True)
        if _KIND_OF_TEXT.fullmatch(title):
            return Subject(f"the {uncapitalised(title)}", False)
        return Subject(f'the document "{title}"', False)

    def subjects(self) -> Iterator[tuple[Document, Subject]]:
        """Each plain document whose title is a name, with it."""
        pairs = ((document, self.subject(document)) for document in self.plain)
        return ((document, subject) for document, subject in pairs if subject.is_name)

    def _is_name(self, title: str, words: Sequence[str]) -> bool:
        if words[0] in self._capitals and words[0].casefold() not in self._small_words:
            return True
        has_capitals = len(words) > 1 and all(word[0].isupper() for word in words)
        return has_capitals and re.search(rf"[a-z,;] {re.escape(title)}\b", self._running_text) is not None

    @cached_property
    def _running_text(self) -> str:
        return "\n".join(section.text for document in self.all for section in document.sections)

    @cached_property
    def _capitals(self) -> frozenset[str]:
        """The words that stand with a capital inside a sentence of any document."""
        return frozenset(_IN_A_SENTENCE.findall(self._running_text))

    @cached_property
    def _small_words(self) -> frozenset[str]:
        """The words that stand anywhere with a small first letter."""
        return frozenset(word for word in WORD.findall(self._running_text) if word[0].islower())


def is_person(fact: Fact) -> bool:
    """Whether the key of a fact is a person's name: two words with capitals, with a role behind them or under a heading for people."""
    is_about_people = _ROLE.search(fact.value) or _PEOPLE.search(fact.section.heading_path)
    return bool(_PERSON.fullmatch(fact.key) and is_about_people)


def full_text(document: Document) -> str:
    """The title, the headings and the texts of a document."""
    return "\n".join((document.title, *(f"{section.heading_path}\n{section.text}" for section in document.sections)))


def last_heading(section: DocumentSection) -> str:
    """The section's own heading, without those above it; empty for text before the first heading."""
    return section.heading_path.rpartition(" > ")[2]


_MARK = re.compile(r"(?P<indent>[ \t]*)(?:[-*+]|\d{1,3}[.)])[ \t]+(?P<text>\S.*)")
_KEYED = re.compile(r"\*\*(?P<key>[^*:]{1,60}?)(?::\*\*|\*\*:)\s*(?P<value>\S.*)")
_BOLD = re.compile(r"\*\*([^*]+)\*\*")
_MARKUP = re.compile(r"[\[\]`*|<>#]|(?<!\w)_|_(?!\w)")
_FENCE = re.compile(r"[ \t]*(?:```|~~~)")
_OTHER_BLOCK = re.compile(r"[ \t]*(?:[|>]|#{1,6} |-{3,}$|={3,}$)")
FEWEST_ITEMS = 3
LONGEST_VALUE, LONGEST_PARAGRAPH = 200, 700
"""Characters of a value, an item and a paragraph that a reference answer repeats."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A key with its value. `value` stands in the text of the section word by word, white space aside."""

    document: Document
    section: DocumentSection
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class SectionList:
    """The one list of a section: all items of its outermost level."""

    document: Document
    section: DocumentSection
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PeriodSeries:
    """Figures of consecutive periods, the earliest first."""

    document: Document
    section: DocumentSection
    rows: tuple[tuple[Period, str], ...]


@dataclass(frozen=True, slots=True)
class Paragraph:
    """The text of a section that has nothing but paragraphs, on one line."""

    document: Document
    section: DocumentSection
    text: str

    @property
    def topic(self) -> str:
        """Where the paragraph stands, as one text."""
        return f"{self.document.rel_path}#{self.section.heading_path}"


def facts(document: Document) -> Iterator[Fact]:
    """The facts of a document in order, without those whose key is a period."""
    for section in document.sections:
        for key, value in _keyed(section):
            if read_period(key) is None and _is_plain(key) and _is_plain(value):
                yield Fact(document, section, key, value)


def item_lists(document: Document) -> Iterator[SectionList]:
    """The lists of a document: of a section with one list, whose items are no facts and no periods."""
    for section in document.sections:
        items = [_BOLD.sub(r"\1", item) for item in _outermost_items(section.text) or ()]
        is_keyed = any(True for _ in _keyed(section)) or any(_period_row(item) for item in items)
        if len(items) >= FEWEST_ITEMS and not is_keyed and all(map(_is_plain, items)) and len(set(items)) == len(items):
            yield SectionList(document, section, tuple(items))


def period_series(document: Document) -> Iterator[PeriodSeries]:
    """The series of a document: sections whose list gives three or more periods of one unit without a gap, in either order."""
    for section in document.sections:
        read = [row for item in _outermost_items(section.text) or () if (row := _period_row(item))]
        rows = sorted(((period, figure) for period, figure in read if _is_plain(figure)), key=lambda row: row[0].number)
        if len(rows) < FEWEST_ITEMS or len(rows) != len(read) or len({period.form for period, _ in rows}) != 1:
            continue
        first = rows[0][0].number
        if [period.number for period, _ in rows] == list(range(first, first + len(rows))):
            yield PeriodSeries(document, section, tuple(rows))


def paragraphs(document: Document) -> Iterator[Paragraph]:
    """The sections of a document that are plain paragraphs, of `LONGEST_PARAGRAPH` characters at most."""
    for section in document.sections:
        text = " ".join(section.text.split())
        lines = section.text.splitlines()
        is_text = not any(_MARK.match(line) or _OTHER_BLOCK.match(line) or _FENCE.match(line) for line in lines)
        if text and is_text and not _MARKUP.search(text) and len(text) <= LONGEST_PARAGRAPH:
            yield Paragraph(document, section, text)


def _keyed(section: DocumentSection) -> Iterator[tuple[str, str]]:
    for _, _, item in _marked_items(section.text):
        if match := _KEYED.fullmatch(item):
            yield " ".join(match["key"].split()), match["value"].strip()


def _period_row(item: str) -> tuple[Period, str] | None:
    """The period and the figure of an item such as `**Q1 2026:** 1,240 orders` or `Q1 2026: 1,240 orders`."""
    name, separator, figure = _BOLD.sub(r"\1", item).partition(":")
    period = read_period(name)
    return (period, figure.strip()) if separator and period and figure.strip() else None


def _is_plain(text: str) -> bool:
    return len(text) <= LONGEST_VALUE and not _MARKUP.search(text) and any(sign.isalnum() for sign in text)


def _outermost_items(text: str) -> list[str] | None:
    """The items of the outermost level of the text's list; None where the text has several lists, with a paragraph between."""
    marked = _marked_items(text)
    if len({block for block, _, _ in marked}) != 1:
        return None
    outermost = min(indent for _, indent, _ in marked)
    return [item for _, indent, item in marked if indent == outermost]


def _marked_items(text: str) -> list[tuple[int, int, str]]:
    """Each list item as (number of its list, width of its indent, text). Lines that go on with an item are joined to it."""
    items: list[tuple[int, int, str]] = []
    block, is_open, is_code = 0, False, False
    for line in text.splitlines():
        if _FENCE.match(line):
            is_code, is_open = not is_code, False
            block += 1
        elif is_code or not line.strip():
            continue
        elif match := _MARK.fullmatch(line):
            items.append((block, len(match["indent"].expandtabs(4)), match["text"].strip()))
            is_open = True
        elif is_open and line[:1].isspace():
            number, indent, item = items[-1]
            items[-1] = (number, indent, f"{item} {line.strip()}")
        else:
            block, is_open = block + 1, False
    return items
