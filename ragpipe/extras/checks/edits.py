"""What changes a case: the case as an edit reads it, what it may borrow from other questions, and what the edit makes of it. Here are the
edits of chunks and of what cites them."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ragpipe.core.sample import Case, Chunk, Citation, Output
from ragpipe.judge.rules.numbers import STOP_WORDS, find_numbers
from ragpipe.metrics.shared.citations import citations_of, marker_pattern, names_of
from ragpipe.metrics.shared.ranking import matches_anchor

NAME = re.compile(r"[A-ZÀ-ÖØ-Þ][\w-]*(?:\s(?:(?:of|de|van|von)\s)?[A-ZÀ-ÖØ-Þ][\w-]*)*")
_UNTOUCHED = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`"  # code
    r"|\[[^\[\]\n]{1,60}\](?:\([^()\s]*\))?|【[^】\n]{1,60}】"  # citation marks and links
    r"|\b(?:https?://|www\.)\S+|\S+@\S+\.\w+"  # addresses
    r"|“[^“”\n]*”|\"[^\"\n]*\""  # a quotation is somebody else's text
    r"|^[ \t]*\(?\d{1,3}[.)](?=\s)|(?<=[.:;!?])\s+\(?\d{1,2}[.)](?=\s)",  # numbers of list items
    re.DOTALL | re.MULTILINE,
)
_MARK = re.compile(r"\[\s*(?P<caret>\^?)(?P<numbers>\d{1,4}(?:\s*[,;]\s*\d{1,4})*)\s*\](?!\()")
_FORGED_ABOVE = 90  # ranks: a number that no retriever returns by accident
_FAR = 0.3  # share of a passage's content words below which a chunk says something else
_UNRELATED = 0.2  # share of the question's content words in a chunk up to which it is taken to be irrelevant


@dataclass(frozen=True, slots=True)
class Edit:
    """What was made of an output. `before` and `after` are the texts that differ, for people to read.

    `in_reference`: what was changed in the answer stands in a reference answer too, so that what compares the two must see it.
    """

    output: Output
    before: str
    after: str
    in_reference: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """One way to change a case, and what it says of itself. `edit` gives None where it does not apply. `against` is the change that it is
    compared with; None: the case as it is."""

    name: str
    what: str
    edit: Callable[[Subject, random.Random], Edit | None]
    against: str | None = None


class Donors:
    """The chunks of other questions, from which an edit takes what does not belong to a case."""

    def __init__(self, cases: Sequence[Case]):
        self._chunks = [(case.sample.id, chunk) for case in cases for chunk in case.contexts]

    def chunks(self, case: Case, rng: random.Random) -> list[Chunk]:
        """Chunks of other questions, in random order, without those of documents that the case retrieved or knows as relevant.

        One whose id the case uses for something else (`c1` in every case) gets another id.
        """
        sample, own = case.sample, case.contexts
        own_ids = {*(chunk.id for chunk in own), *(sample.relevant_chunks or ()), *(sample.gains or ())}
        own_docs = {*(chunk.doc_id for chunk in own), *(sample.relevant_docs or ()), *(sample.gains or ())} - {None, ""}
        own_paths = {place.rel_path for place in (*own, *(sample.anchors or ()))} - {None, ""}
        own_texts = {chunk.text for chunk in own}
        strangers = {
            chunk.text: chunk.model_copy(update={"id": f"{chunk.id}-of-{sample_id}"}) if chunk.id in own_ids else chunk
            for sample_id, chunk in self._chunks
            if sample_id != sample.id
            and chunk.text not in own_texts
            and chunk.doc_id not in own_docs
            and chunk.rel_path not in own_paths
            and chunk.policy == "summarize"
            and chunk.text.strip()
        }
        return rng.sample(list(strangers.values()), len(strangers))

    @cached_property
    def _common_words(self) -> frozenset[str]:
        return frozenset(word for _, chunk in self._chunks for word in re.findall(r"\b[a-zà-öø-ÿ]+\b", chunk.text))

    def is_name(self, name: str) -> bool:
        """Whether some word of a capitalised phrase is written small nowhere: `Form` and `Finally` are no names."""
        return any(word.casefold() not in self._common_words for word in name.split())

    @cached_property
    def names(self) -> list[str]:
        """The names in all chunks that begin no sentence, each once, in order of appearance."""
        names: dict[str, None] = {}
        for _, chunk in self._chunks:
            for match in NAME.finditer(chunk.text):
                if match.start() and chunk.text[: match.start()].rstrip()[-1:].isalnum() and self.is_name(match[0]):
                    names[match[0]] = None
        return list(names)


class Subject:
    """A case to be changed, with its texts: `sources` is what the chunks say, `known` all that the case says anywhere."""

    def __init__(self, case: Case, donors: Donors):
        self.case, self.donors, self.answer = case, donors, case.answer
        self.sources = "\n".join(chunk.text for chunk in case.contexts)
        self.references = "\n".join(case.references)
        turns = [turn.text for turn in case.sample.history]
        self.known = "\n".join([self.sources, self.references, self.answer, case.question, *turns])

    @cached_property
    def source_words(self) -> frozenset[str]:
        """The content words of the chunks."""
        return content_words(self.sources)

    @cached_property
    def source_numbers(self) -> frozenset[str]:
        """The numbers of the chunks."""
        return numbers_in(self.sources)

    @cached_property
    def known_numbers(self) -> frozenset[str]:
        """The numbers of the whole case."""
        return numbers_in(self.known)

    def changed(self, before: str, after: str, **fields: Any) -> Edit:
        """The case with these fields of its output replaced."""
        return Edit(self.case.output.model_copy(update=fields), before, after)

    def edited(self, span: tuple[int, int], text: str, *, in_reference: bool = False, **fields: Any) -> Edit:
        """The case with one part of its answer replaced, in the recorded passages of its citations that have it too, and further fields of
        the output. `before` and `after` are the lines of the answer around the change."""
        (start, end), answer = span, self.answer
        mutated = answer[:start] + text + answer[end:]
        left, right = answer.rfind("\n", 0, start) + 1, answer.find("\n", end)
        right = len(answer) if right < 0 else right

        def with_edit(citation: Citation) -> Citation:
            passage = citation.text or ""
            at = answer.find(passage)
            if not passage or not 0 <= at <= start or end > at + len(passage):
                return citation
            return citation.model_copy(update={"text": mutated[at : at + len(passage) + len(mutated) - len(answer)]})

        citations = self.case.output.citations
        passages = None if citations is None else [with_edit(citation) for citation in citations]
        update = {"answer": mutated, "citations": passages, **fields}
        after = mutated[left : right + len(mutated) - len(answer)]
        return Edit(self.case.output.model_copy(update=update), answer[left:right], after, in_reference)


def free_matches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """The matches that touch no part which edits leave alone: citation marks, links, addresses, code, quotations, list numbers."""
    spans = [match.span() for match in _UNTOUCHED.finditer(text)]
    for match in pattern.finditer(text):
        if not any(match.start() < end and start < match.end() for start, end in spans):
            yield match


def content_words(text: str) -> frozenset[str]:
    """The words of three or more letters that are no English stop words, without regard to case."""
    return frozenset(word for word in re.findall(r"[^\W\d_]{3,}", text.casefold()) if word not in STOP_WORDS)


def share_of_words(text: str, words: frozenset[str]) -> float:
    """The share of a text's content words that are among `words`, 0 to 1; 0 for a text without any."""
    own_words = content_words(text)
    return len(own_words & words) / len(own_words) if own_words else 0.0


def numbers_in(text: str) -> frozenset[str]:
    """The numbers of a text in normal form: `1,000`, `1000` and `one thousand` are one."""
    return frozenset(number.value for number in find_numbers(text))


def has_phrase(text: str, phrase: str) -> bool:
    """Whether a text has a phrase as whole words, without regard to case and to line breaks."""
    pattern = r"\s+".join(map(re.escape, phrase.split()))
    return re.search(rf"(?<!\w){pattern}(?!\w)", text, re.IGNORECASE) is not None


def strip_citations(subject: Subject, rng: random.Random) -> Edit | None:
    """No citation is left, neither in the record nor as a mark in the answer."""
    citations, answer = subject.case.output.citations, re.sub(rf"\s*{_MARK.pattern}", "", subject.answer)
    for marker in ((citation.marker or "").strip() for citation in citations or ()):
        if marker:
            answer = re.sub(rf"\s*(?:{marker_pattern(marker).pattern})", "", answer)
    if (not citations and answer == subject.answer) or not any(c.isalnum() for c in answer):
        return None
    return subject.changed(subject.answer, answer, answer=answer, citations=None if citations is None else [])


def forge_citation(subject: Subject, rng: random.Random) -> Edit | None:
    """One mark `[n]` that names a retrieved chunk names one that was not retrieved."""
    if not (marks := _single_marks(subject.case)):
        return None
    forged = max(chunk.rank for chunk in subject.case.contexts) + _FORGED_ABOVE
    return _pointing_to(subject, rng.choice(marks), forged, None)


def misplace_citation(subject: Subject, rng: random.Random) -> Edit | None:
    """One mark names a retrieved chunk which says something else: it has less than a third of the citing passage's content words, and
    less than half of what the cited one has."""
    case, candidates = subject.case, []
    passages = {cited.label: cited for cited in citations_of(case, markers=True) or ()}
    for number in _single_marks(case):
        cited = passages.get(f"[{number}]")
        if cited is None or cited.chunk is None:
            continue
        near = share_of_words(cited.text, content_words(cited.chunk.text))
        shares = [(share_of_words(cited.text, content_words(chunk.text)), chunk.rank, chunk) for chunk in case.contexts]
        share, _, chunk = min(shares, key=lambda item: item[:2])
        if share < _FAR and share < near / 2:
            candidates.append((number, chunk))
    if not candidates:
        return None
    number, chunk = rng.choice(candidates)
    return _pointing_to(subject, number, chunk.rank, chunk)


def _single_marks(case: Case) -> list[int]:
    """The numbers that stand alone in a mark, once in the answer, and name a retrieved chunk, also by a recorded citation."""
    ranks = {chunk.rank: chunk for chunk in case.contexts}
    numbers = [match["numbers"] for match in _MARK.finditer(case.answer)]
    all_numbers = [int(number) for group in numbers for number in re.findall(r"\d+", group)]
    marks = [int(group) for group in numbers if group.isdigit() and all_numbers.count(int(group)) == 1]
    return [number for number in marks if number in ranks and _is_recorded(case, ranks[number], number)]


def _is_recorded(case: Case, chunk: Chunk, number: int) -> bool:
    if case.output.citations is None:
        return True
    same = [citation for citation in case.output.citations if _has_marker(citation, number)]
    return len(same) == 1 and bool({chunk.id, number} & set(names_of(same[0], case)))


def _has_marker(citation: Citation, number: int) -> bool:
    return (citation.marker or "").strip("[]^ ") == str(number)


def _pointing_to(subject: Subject, number: int, other: int, chunk: Chunk | None) -> Edit:
    """The mark of one number is turned into that of another, in the answer and in the record."""

    def turned(passage: str) -> str:
        return _with_numbers(passage, lambda numbers: str(other) if numbers == str(number) else None)

    def turned_citation(citation: Citation) -> Citation:
        if not _has_marker(citation, number):
            return citation
        name = None if citation.chunk_id is None else chunk.id if chunk is not None else f"{citation.chunk_id}-forged"
        return Citation(marker=f"[{other}]", chunk_id=name, text=turned(citation.text) if citation.text else None)

    citations, answer = subject.case.output.citations, turned(subject.answer)
    new = None if citations is None else [turned_citation(citation) for citation in citations]
    return subject.changed(subject.answer, answer, answer=answer, citations=new)


def _with_numbers(text: str, other: Callable[[str], str | None]) -> str:
    """A text with other numbers in its marks; None leaves a mark as it is."""

    def replaced(match: re.Match[str]) -> str:
        return match[0] if (new := other(match["numbers"])) is None else f"[{match['caret']}{new}]"

    return _MARK.sub(replaced, text)


def drop_gold_chunks(subject: Subject, rng: random.Random) -> Edit | None:
    """Every retrieved chunk goes that some label of the question calls relevant; the others keep their ranks."""
    case = subject.case
    kept = [chunk for chunk in case.contexts if not _is_gold(case, chunk)]
    if len(kept) == len(case.contexts):
        return None
    return subject.changed(_listed(case.contexts), _listed(kept), chunks=kept)


def _is_gold(case: Case, chunk: Chunk) -> bool:
    """Whether a label of any form names the chunk or its document."""
    sample = case.sample
    labels = [*(sample.relevant_docs or ()), *(sample.relevant_chunks or ()), *(sample.anchors or ())]
    labels += [name for name, gain in (sample.gains or {}).items() if gain > 0]
    labels += [member for group in sample.required_support_groups or () for member in group]
    names = (chunk.id, chunk.doc_id, chunk.rel_path)
    return any(one in names if isinstance(one, str) else matches_anchor(chunk, one) for one in labels)


def shuffle_chunks(subject: Subject, rng: random.Random) -> Edit | None:
    """The chunks come in another order. Marks `[n]` are turned to the new ranks, so that all citations name what they named."""
    chunks, output = subject.case.contexts, subject.case.output
    order = list(range(len(chunks)))
    if len(order) < 2:
        return None
    while order == sorted(order):
        rng.shuffle(order)
    ranks = sorted(chunk.rank for chunk in chunks)
    shuffled = [chunks[old].model_copy(update={"rank": rank}) for rank, old in zip(ranks, order, strict=True)]
    new_ranks = {chunks[old].rank: rank for rank, old in zip(ranks, order, strict=True)}
    citations = None if output.citations is None else [_renumbered(item, new_ranks) for item in output.citations]
    answer = None if output.answer is None else renumbered(subject.answer, new_ranks)
    return subject.changed(_listed(chunks), _listed(shuffled), chunks=shuffled, answer=answer, citations=citations)


def renumbered(text: str, ranks: dict[int, int]) -> str:
    """A text whose marks `[n]` name the new ranks of the chunks that they named; ranges and unknown numbers stay."""

    def rank(number: re.Match[str]) -> str:
        return str(ranks.get(int(number[0]), int(number[0])))

    return _with_numbers(text, lambda numbers: re.sub(r"\d+", rank, numbers))


def _renumbered(citation: Citation, ranks: dict[int, int]) -> Citation:
    marker, text = citation.marker, citation.text
    if marker is not None and marker.strip().isdecimal():  # a number without brackets
        marker = str(ranks.get(int(marker), int(marker)))
    elif marker is not None:
        marker = renumbered(marker, ranks)
    return citation.model_copy(update={"marker": marker, "text": None if text is None else renumbered(text, ranks)})


def add_irrelevant_chunk(subject: Subject, rng: random.Random) -> Edit | None:
    """One more chunk comes at the end, of another question and another document, with few of the question's words."""
    chunks = subject.case.contexts
    if not chunks:
        return None
    last = max(chunks, key=lambda chunk: chunk.rank)
    for chunk in subject.donors.chunks(subject.case, rng):
        if share_of_words(subject.case.question, content_words(chunk.text)) <= _UNRELATED:
            score = None if last.score is None else last.score * 0.9 if last.score > 0 else last.score - 1
            more = [*chunks, chunk.model_copy(update={"rank": last.rank + 1, "score": score})]
            return subject.changed(_listed(chunks), _listed(more), chunks=more)
    return None


def _listed(chunks: list[Chunk]) -> str:
    return ", ".join(f"[{chunk.rank}] {chunk.id}" for chunk in sorted(chunks, key=lambda chunk: chunk.rank)) or "(none)"
