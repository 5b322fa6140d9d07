"""Edits of chunks and of what cites them: citations are taken away or point to something else, chunks go, move, or come in."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from ragpipe.extras.checks.edits import Edit, Subject, content_words, share_of_words
from ragpipe.metrics.shared.anchor_match import matches_anchor
from ragpipe.metrics.shared.citation_parsing import citations_of, marker_pattern, names_of
from ragpipe.schema.sample import Case, Chunk, Citation

_MARK = re.compile(r"\[\s*(?P<caret>\^?)(?P<numbers>\d{1,4}(?:\s*[,;]\s*\d{1,4})*)\s*\](?!\()")
_FORGED_ABOVE = 90  # ranks: a number that no retriever returns by accident
_FAR = 0.3
_UNRELATED = 0.2
"""Share of the question's content words in a chunk up to which it is taken to be irrelevant."""


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
    """The numbers that stand alone in a mark, once in the answer, and name a retrieved chunk."""
    ranks = {chunk.rank: chunk for chunk in case.contexts}
    numbers = [match["numbers"] for match in _MARK.finditer(case.answer)]
    all_numbers = [int(number) for group in numbers for number in re.findall(r"\d+", group)]
    singles = [int(group) for group in numbers if group.isdigit()]
    marks = [number for number in singles if number in ranks and all_numbers.count(number) == 1]
    recorded = case.output.citations
    return marks if recorded is None else [number for number in marks if _is_recorded(case, ranks[number], number)]


def _is_recorded(case: Case, chunk: Chunk, number: int) -> bool:
    same = [citation for citation in case.output.citations or () if _has_marker(citation, number)]
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
    groups = [member for group in sample.required_support_groups or () for member in group]
    names = {*(sample.relevant_docs or ()), *(sample.relevant_chunks or ())}
    names |= {name for name, gain in (sample.gains or {}).items() if gain > 0}
    names |= {member for member in groups if isinstance(member, str)}
    anchors = [*(sample.anchors or ()), *(member for member in groups if not isinstance(member, str))]
    is_named = bool({chunk.id, chunk.doc_id, chunk.rel_path} & names)
    return is_named or any(matches_anchor(chunk, anchor, require_snippet=False) for anchor in anchors)


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
    if marker is not None and _MARK.search(marker):
        marker = renumbered(marker, ranks)
    elif marker is not None and marker.strip().isdecimal():  # a number without brackets
        marker = str(ranks.get(int(marker), int(marker)))
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
