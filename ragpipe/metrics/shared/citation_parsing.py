"""Citations of an answer, each with the chunk that it names and the passage of the answer that it supports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ragpipe.patterns.sentences import sentences
from ragpipe.schema.sample import Case, Chunk, Citation

_MARK = re.compile(r"\[\s*\^?(\d{1,4}(?:\s*(?:[,;]|-|–)\s*\d{1,4})*)\s*\](?!\()")
_SPACED_MARK = re.compile(rf"(?:(?<!\s)\s+)?{_MARK.pattern}")  # one start a run of blanks: time linear in the text
_PART = re.compile(r"(\d+)\s*[-–]\s*(\d+)|(\d+)")
_WIDEST_RANGE = 50  # numbers that one `[1-9]` may stand for


@dataclass(frozen=True, slots=True)
class Cited:
    """One citation. `chunk` is None for a dangling one, which names a chunk that was not retrieved, and for an
    unresolved one, which has neither a chunk id nor a mark `[n]`.

    Where several retrieved chunks have the id that it names (it is the id of their document), `chunk` is the first of
    them with the texts of all, in rank order.
    """

    marker: str | None
    named: str | None
    chunk: Chunk | None
    text: str
    unresolved: bool = False

    @property
    def label(self) -> str:
        """How tables show the citation."""
        return self.marker or self.named or "?"


def citations_of(case: Case, *, markers: bool) -> list[Cited] | None:
    """The recorded citations; where none are recorded and with `markers`, those of the marks `[n]` in the answer, else
    None.

    A mark `[n]` is the chunk of rank n; `[1, 3]` and `[2-4]` are several citations. The recorded marker of a citation
    without a chunk id is read the same way. The passage of a citation is its recorded `text`, else the sentences of
    the answer with its marker, else the answer.
    """
    if case.output.citations is not None:
        chunks = _by_id(case.contexts)
        return [cited for citation in case.output.citations for cited in _recorded(citation, chunks, case)]
    return list(_marked(case)) if markers else None


def names_of(citation: Citation) -> list[str | int]:
    """What a recorded citation names: a chunk's id; without one the ranks of its marker `[n]`; else nothing (unresolved)."""
    if citation.chunk_id:
        return [citation.chunk_id]
    mark = _mark_of((citation.marker or "").strip())
    return list(dict.fromkeys(_numbers(mark[1]))) if mark else []


def name_no_chunk(case: Case) -> str | None:
    """The skip reason where recorded citations exist and none names a chunk. None when one does, or when there are
    none.
    """
    citations = case.output.citations or []
    return "citations_name_no_chunk" if citations and not any(map(names_of, citations)) else None


def cited_chunks(case: Case) -> list[Chunk]:
    """The retrieved chunks that the recorded citations name, in the order of the citations, each once.

    An id that several retrieved chunks have names all of them; without an id, a marker `[n]` names the chunk of rank n. A
    citation of something that was not retrieved names no chunk: such an id is made up, even if it happens to be a gold one.
    """
    by_name: dict[str | int, list[Chunk]] = {}
    for chunk in case.contexts:
        by_name.setdefault(chunk.id, []).append(chunk)
        by_name.setdefault(chunk.rank, []).append(chunk)
    names = dict.fromkeys(name for citation in case.output.citations or () for name in names_of(citation))
    chunks = {(chunk.rank, chunk.id): chunk for name in names for chunk in by_name.get(name, ())}
    return list(chunks.values())


def _by_id(contexts: Sequence[Chunk]) -> dict[str, Chunk]:
    same: dict[str, list[Chunk]] = {}
    for chunk in contexts:
        same.setdefault(chunk.id, []).append(chunk)
    texts = {name: dict.fromkeys(chunk.text for chunk in some) for name, some in same.items()}
    return {
        name: some[0].model_copy(update={"text": "\n\n".join(texts[name])}) if len(some) > 1 else some[0]
        for name, some in same.items()
    }


def _recorded(citation: Citation, chunks: dict[str, Chunk], case: Case) -> Iterator[Cited]:
    text = (citation.text or "").strip() or _sentences_with(citation.marker, case.answer) or case.answer
    names = names_of(citation)
    if not names:
        yield Cited(citation.marker, None, None, text, unresolved=True)
    for name in names:
        if isinstance(name, int):
            yield _ranked(name, case, text)
        else:
            yield Cited(citation.marker, name, chunks.get(name), text)


def _ranked(number: int, case: Case, text: str) -> Cited:
    """The citation `[n]` of the chunk of rank n."""
    chunk = next((chunk for chunk in case.contexts if chunk.rank == number), None)
    return Cited(f"[{number}]", chunk.id if chunk else None, chunk, text)


def _mark_of(marker: str) -> re.Match[str] | None:
    """The mark that a recorded marker is, with or without its brackets."""
    return _MARK.fullmatch(marker) or _MARK.fullmatch(f"[{marker}]")


def _sentences_with(marker: str | None, answer: str) -> str:
    """The sentences that carry a marker, without their marks; a number is found in `[1, 3]` too."""
    marker = (marker or "").strip()
    if not marker:
        return ""
    mark = _mark_of(marker)
    numbers = set(_numbers(mark[1])) if mark else set()
    written = marker_pattern(marker)
    holding = (piece for piece in _joined(answer) if written.search(piece) or numbers & set(_all_numbers(piece)))
    return " ".join(written.sub("", _SPACED_MARK.sub("", piece)).strip() for piece in holding)


def marker_pattern(marker: str) -> re.Pattern[str]:
    """The expression that finds a marker in an answer.

    Bare numbers and a bare word (`1`, `1-3`, `a`) are a mark only in brackets: without them they may be anything in the
    text. Any other marker is searched for as it is, but not where a letter or digit continues it: `doc-1` is not in
    `doc-12`.
    """
    text = re.escape(marker)
    if all(map(_is_sign, marker)) or _MARK.fullmatch(f"[{marker}]"):
        return re.compile(rf"\[\s*\^?{text}\s*\](?!\()|\({text}\)")
    before = r"(?<![^\W_])" if _is_sign(marker[0]) else ""
    after = r"(?![^\W_])" if _is_sign(marker[-1]) else ""
    return re.compile(f"{before}{text}{after}")


def _is_sign(character: str) -> bool:
    """A letter or an ordinary digit. A superscript digit is neither: it directly follows the word that it marks."""
    return character.isalpha() or character.isdecimal()


def _marked(case: Case) -> Iterator[Cited]:
    for piece in _joined(case.answer):
        for number in dict.fromkeys(_all_numbers(piece)):
            yield _ranked(number, case, _SPACED_MARK.sub("", piece).strip())


def _all_numbers(text: str) -> Iterator[int]:
    return (number for mark in _MARK.finditer(text) for number in _numbers(mark[1]))


def _numbers(text: str) -> Iterator[int]:
    for part in _PART.finditer(text):
        if part[3]:
            yield int(part[3])
        else:
            first, last = int(part[1]), int(part[2])
            yield from range(first, min(last, first + _WIDEST_RANGE) + 1)


def _joined(answer: str) -> list[str]:
    """Sentences, each with the marks after its full stop: `It rained. [1] Then ...`."""
    pieces: list[str] = []
    for piece in sentences(answer):
        lead = re.match(rf"(?:{_MARK.pattern}\s*)+", piece)
        if lead and pieces:
            pieces[-1] = f"{pieces[-1]} {lead[0].strip()}"
            piece = piece[lead.end() :]
        if any(c.isalnum() for c in piece):
            pieces.append(piece)
    return pieces
