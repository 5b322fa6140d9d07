"""The citations of an answer, each with the chunk it points to and the passage of the answer that it stands for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ragpipe.patterns.sentences import sentences
from ragpipe.schema.sample import Case, Chunk, Citation

_MARK = re.compile(r"\[\s*\^?(\d{1,4}(?:\s*(?:[,;]|-|–)\s*\d{1,4})*)\s*\](?!\()")
_SPACED_MARK = re.compile(rf"(?:(?<!\s)\s+)?{_MARK.pattern}")  # one start a run of blanks: time linear in the text
_PART = re.compile(r"(\d+)\s*[-–]\s*(\d+)|(\d+)")
_WIDEST = 50  # numbers that one `[1-9]` may stand for


@dataclass(frozen=True, slots=True)
class Cited:
    """One citation. `chunk` is None for a dangling one: it names no retrieved chunk.

    Where several retrieved chunks have the id that it names (the id is that of their document), `chunk` is the first of
    them with the texts of all, in rank order.
    """

    marker: str | None
    named: str | None
    chunk: Chunk | None
    text: str

    @property
    def label(self) -> str:
        """What stands for it in tables."""
        return self.marker or self.named or "?"


def citations_of(case: Case, *, markers: bool) -> list[Cited] | None:
    """The recorded citations; without any record and with `markers` those of `[n]` marks in the answer, else None.

    A mark `[n]` means the chunk of rank n; one that stands for several (`[1, 3]`, `[2-4]`) is several citations. The
    passage of a citation is its recorded `text`, else the sentences of the answer that hold its marker, else the answer.
    """
    if case.output.citations is not None:
        chunks = _by_id(case.contexts)
        return [_recorded(one, chunks, case.answer) for one in case.output.citations]
    return list(_marked(case)) if markers else None


def _by_id(contexts: Sequence[Chunk]) -> dict[str, Chunk]:
    same: dict[str, list[Chunk]] = {}
    for chunk in contexts:
        same.setdefault(chunk.id, []).append(chunk)
    return {
        name: some[0] if len(some) == 1 else some[0].model_copy(update={"text": "\n\n".join(c.text for c in some)})
        for name, some in same.items()
    }


def _recorded(citation: Citation, chunks: dict[str, Chunk], answer: str) -> Cited:
    text = (citation.text or "").strip() or _sentences_with(citation.marker, answer) or answer
    return Cited(citation.marker, citation.chunk_id, chunks.get(citation.chunk_id or ""), text)


def _sentences_with(marker: str | None, answer: str) -> str:
    """The sentences that carry a marker, without their marks; a number is found in `[1, 3]` too."""
    marker = (marker or "").strip()
    if not marker:
        return ""
    own = _MARK.fullmatch(marker) or _MARK.fullmatch(f"[{marker}]")
    wanted = set(_numbers(own[1])) if own else set()
    written = as_written(marker)
    holding = (piece for piece in _joined(answer) if written.search(piece) or wanted & set(_all_numbers(piece)))
    return " ".join(written.sub("", _SPACED_MARK.sub("", piece)).strip() for piece in holding)


def as_written(marker: str) -> re.Pattern[str]:
    """What stands for the marker in an answer.

    Bare numbers and a bare word (`1`, `1-3`, `a`) are only a mark in brackets: without them they are any in the text.
    Another marker is looked for as it is, where no letter or digit touches an end of it that is one itself: `doc-1` is
    not in `doc-12`.
    """
    text = re.escape(marker)
    if all(map(_is_sign, marker)) or _MARK.fullmatch(f"[{marker}]"):
        return re.compile(rf"\[\s*\^?{text}\s*\](?!\()|\({text}\)")
    before = r"(?<![^\W_])" if _is_sign(marker[0]) else ""
    after = r"(?![^\W_])" if _is_sign(marker[-1]) else ""
    return re.compile(f"{before}{text}{after}")


def _is_sign(character: str) -> bool:
    """A letter or an ordinary digit. A superscript one is neither: it stands right behind the word that it marks."""
    return character.isalpha() or character.isdecimal()


def _marked(case: Case) -> Iterator[Cited]:
    ranks = {chunk.rank: chunk for chunk in case.contexts}
    for piece in _joined(case.answer):
        for number in dict.fromkeys(_all_numbers(piece)):
            chunk = ranks.get(number)
            yield Cited(f"[{number}]", chunk.id if chunk else None, chunk, _SPACED_MARK.sub("", piece).strip())


def _all_numbers(text: str) -> Iterator[int]:
    return (number for mark in _MARK.finditer(text) for number in _numbers(mark[1]))


def _numbers(text: str) -> Iterator[int]:
    for part in _PART.finditer(text):
        if part[3]:
            yield int(part[3])
        else:
            first, last = int(part[1]), int(part[2])
            yield from range(first, min(last, first + _WIDEST) + 1)


def _joined(answer: str) -> list[str]:
    """Sentences, each with the marks that stand behind its full stop: `It rained. [1] Then ...`."""
    pieces: list[str] = []
    for piece in sentences(answer):
        lead = re.match(rf"(?:{_MARK.pattern}\s*)+", piece)
        if lead and pieces:
            pieces[-1] = f"{pieces[-1]} {lead[0].strip()}"
            piece = piece[lead.end() :]
        if any(c.isalnum() for c in piece):
            pieces.append(piece)
    return pieces
