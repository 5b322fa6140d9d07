"""Citations of the answer are taken away, or point to something else."""

from __future__ import annotations

import random
import re

from ragpipe.extras.checks.case_text import CaseText, content_words, share_of_words
from ragpipe.extras.checks.mutant import Donors, Edit
from ragpipe.metrics.shared.citation_parsing import citations_of, marker_pattern, names_of
from ragpipe.schema.sample import Case, Chunk, Citation

MARK = re.compile(r"\[\s*(?P<caret>\^?)(?P<numbers>\d{1,4}(?:\s*[,;]\s*\d{1,4})*)\s*\](?!\()")
_FORGED_ABOVE = 90  # ranks: a number that no retriever returns by accident
_FAR = 0.3


def strip_citations(case: Case, text: CaseText, donors: Donors, rng: random.Random) -> Edit | None:
    """The case without any citation: neither in the record nor as a mark in the answer. None where it has none."""
    citations = case.output.citations
    answer = re.sub(rf"\s*{MARK.pattern}", "", text.answer)
    for citation in citations or ():
        if (citation.marker or "").strip():
            answer = re.sub(rf"\s*(?:{marker_pattern((citation.marker or '').strip()).pattern})", "", answer)
    if not citations and answer == text.answer:
        return None
    if not any(c.isalnum() for c in answer):
        return None
    output = case.output.model_copy(update={"answer": answer, "citations": None if citations is None else []})
    return Edit(output, text.answer, answer)


def forge_citation(case: Case, text: CaseText, donors: Donors, rng: random.Random) -> Edit | None:
    """The case with one citation that names a chunk which was not retrieved. None where no mark `[n]` names a retrieved one."""
    marks = _single_marks(case)
    if not marks:
        return None
    forged = max(chunk.rank for chunk in case.contexts) + _FORGED_ABOVE
    return _pointing_to(case, rng.choice(marks), forged, None)


def misplace_citation(case: Case, text: CaseText, donors: Donors, rng: random.Random) -> Edit | None:
    """The case with one citation that names a retrieved chunk which says something else.

    The other chunk has less than a third of the citing passage's content words, and less than half of what the cited one has.
    None where no citation has such a chunk beside it.
    """
    candidates = []
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
    return _pointing_to(case, number, chunk.rank, chunk)


def _single_marks(case: Case) -> list[int]:
    """The numbers that stand alone in a mark, once in the answer, and name a retrieved chunk. Where citations are recorded,
    exactly one of them has the number as its marker and names that chunk."""
    ranks = {chunk.rank: chunk for chunk in case.contexts}
    numbers = [match["numbers"] for match in MARK.finditer(case.answer)]
    all_numbers = [int(number) for group in numbers for number in re.findall(r"\d+", group)]
    singles = [int(group) for group in numbers if group.isdigit()]
    marks = [number for number in singles if number in ranks and all_numbers.count(number) == 1]
    if case.output.citations is None:
        return marks
    return [number for number in marks if _recorded(case, number, ranks[number])]


def _recorded(case: Case, number: int, chunk: Chunk) -> bool:
    citations = case.output.citations or ()
    same = [citation for citation in citations if (citation.marker or "").strip("[]^ ") == str(number)]
    return len(same) == 1 and bool({chunk.id, number} & set(names_of(same[0], case)))


def _pointing_to(case: Case, number: int, other: int, chunk: Chunk | None) -> Edit:
    """The case with the mark of one number turned into that of another, in the answer and in the record."""

    def turned(passage: str) -> str:
        return MARK.sub(
            lambda match: f"[{match['caret']}{other}]" if match["numbers"] == str(number) else match[0], passage
        )

    citations = None
    if case.output.citations is not None:
        citations = []
        for citation in case.output.citations:
            if (citation.marker or "").strip("[]^ ") == str(number):
                chunk_id = None
                if citation.chunk_id is not None:
                    chunk_id = chunk.id if chunk is not None else f"{citation.chunk_id}-forged"
                citation = Citation(
                    marker=f"[{other}]", chunk_id=chunk_id, text=turned(citation.text) if citation.text else None
                )
            citations.append(citation)
    answer = turned(case.answer)
    return Edit(case.output.model_copy(update={"answer": answer, "citations": citations}), case.answer, answer)
