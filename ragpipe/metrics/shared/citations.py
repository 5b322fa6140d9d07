"""Citations of an answer, each with the chunk that it names and the passage of the answer that it supports."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

from pydantic import Field

from ragpipe.core.citation_marks import cites_otherwise, find_marks, mark_numbers, marked_sentences
from ragpipe.core.sample import Case, Chunk, Citation
from ragpipe.core.text import without_invisible

QuoteWords = Annotated[
    int,
    Field(
        ge=2,
        description=(
            "Words in a row, 2 or more, from which a passage of the answer that is also in a chunk counts as a "
            "quote without quotation marks."
        ),
    ),
]
NAME_NO_CHUNK = "citations_name_no_chunk"


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
    """The recorded citations; where none are recorded and with `markers`, those of the marks in the answer, else None.

    A mark `[n]`, in any form of `citation_marks`, is the chunk of rank n, or n + 1 where the answer counts from 0: it has a
    mark 0, and all its marks fit. A number beyond the ranks that is a chunk's id, and an id in brackets, name that chunk;
    `[1, 3]` and `[2-4]` are several citations. The recorded marker of a citation without a chunk id is read the same way. The
    passage of a citation is its recorded `text`, else the sentences of the answer with its marker, else the answer.
    """
    if case.output.citations is not None:
        chunks = _by_id(case.contexts)
        return [cited for citation in case.output.citations for cited in _recorded(citation, chunks, case)]
    return list(_marked(case)) if markers else None


def names_of(citation: Citation, case: Case) -> list[str | int]:
    """What a recorded citation names: a chunk's id; without one the ranks or ids of its marker; else nothing (unresolved)."""
    if citation.chunk_id:
        return [citation.chunk_id]
    marker = (citation.marker or "").strip()
    if (bare := marker.strip("[]()【】^ ")) and bare in _ids(case) and not bare.isdecimal():
        return [bare]
    recorded = [number for one in case.output.citations or () for number in mark_numbers((one.marker or "").strip())]
    return _names(mark_numbers(marker), recorded, case)


def name_no_chunk(case: Case) -> str | None:
    """The skip reason where recorded citations exist and none names a chunk. None when one does, or when there are none."""
    citations = case.output.citations or []
    return NAME_NO_CHUNK if citations and not any(names_of(citation, case) for citation in citations) else None


def cited_chunks(case: Case) -> list[Chunk]:
    """The retrieved chunks that the recorded citations name, in the order of the citations, each once.

    An id that several retrieved chunks have names all of them; without an id, a marker `[n]` names the chunk of rank n. A
    citation of something that was not retrieved names no chunk: such an id is made up, even if it happens to be a gold one.
    """
    by_name: dict[str | int, list[Chunk]] = {}
    for chunk in case.contexts:
        by_name.setdefault(chunk.id, []).append(chunk)
        by_name.setdefault(chunk.rank, []).append(chunk)
    names = dict.fromkeys(name for citation in case.output.citations or () for name in names_of(citation, case))
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
    names = names_of(citation, case)
    if not names:
        yield Cited(citation.marker, None, None, text, unresolved=True)
    yield from (_named(name, citation.marker, text, chunks, case) for name in names)


def _named(name: str | int, marker: str | None, text: str, chunks: dict[str, Chunk], case: Case) -> Cited:
    """The citation of a chunk by its id, with its marker, or by its rank, whose marker is `[n]`."""
    if isinstance(name, str):
        return Cited(marker, name, chunks.get(name), text)
    chunk = next((chunk for chunk in case.contexts if chunk.rank == name), None)
    return Cited(f"[{name}]", chunk.id if chunk else None, chunk, text)


def _ids(case: Case) -> set[str]:
    return {chunk.id for chunk in case.contexts}


def _names(numbers: Iterable[int], all_numbers: Sequence[int], case: Case) -> list[str | int]:
    """The ranks that numbers of marks stand for among all that are shown; the id where a number beyond the ranks is one."""
    ranks = {chunk.rank for chunk in case.contexts}
    shift = int(0 in all_numbers and all(number + 1 in ranks for number in all_numbers))
    ids = _ids(case)
    read = (n + shift if n + shift in ranks or str(n) not in ids else str(n) for n in numbers)
    return list(dict.fromkeys(read))


def _sentences_with(marker: str | None, answer: str) -> str:
    """The sentences that carry a marker, without their marks; a number is found in `[1, 3]` too."""
    marker = (marker or "").strip()
    if not marker:
        return ""
    numbers, written = set(mark_numbers(marker)), marker_pattern(marker)
    marks = find_marks(answer)
    holding = []
    for sentence, own in marked_sentences(answer, marks):
        with_marks = f"{sentence} {' '.join(answer[mark.start : mark.end] for mark in own)}"
        if written.search(with_marks) or any(numbers & set(mark.numbers) for mark in own):
            holding.append(written.sub("", sentence).strip())
    return " ".join(holding)


def marker_pattern(marker: str) -> re.Pattern[str]:
    """The expression that finds a marker in an answer.

    Bare numbers and a bare word (`1`, `1-3`, `a`) are a mark only in brackets: without them they may be anything in the
    text. Any other marker is searched for as it is, but not where a letter or digit continues it: `doc-1` is not in
    `doc-12`.
    """
    text = re.escape(marker)
    if all(map(_is_sign, marker)) or (marker[0].isdecimal() and mark_numbers(marker)):
        return re.compile(rf"\[\s*\^?{text}\s*\](?!\()|\({text}\)")
    before = r"(?<![^\W_])" if _is_sign(marker[0]) else ""
    after = r"(?![^\W_])" if _is_sign(marker[-1]) else ""
    return re.compile(f"{before}{text}{after}")


def _is_sign(character: str) -> bool:
    """A letter or an ordinary digit. A superscript digit is neither: it directly follows the word that it marks."""
    return character.isalpha() or character.isdecimal()


def _marked(case: Case) -> Iterator[Cited]:
    """The citations of the answer's marks; an unresolved one where the text names sources and no mark names a chunk."""
    marks = find_marks(case.answer, _ids(case))
    numbers = [number for mark in marks for number in mark.numbers]
    if not numbers and not any(mark.ids for mark in marks):
        if marks or cites_otherwise(case.answer):
            yield Cited(None, None, None, case.answer, unresolved=True)
        return
    chunks = _by_id(case.contexts)
    for text, own in marked_sentences(case.answer, marks):
        for name in dict.fromkeys(name for mark in own for name in (*_names(mark.numbers, numbers, case), *mark.ids)):
            yield _named(name, f"[{name}]", text, chunks, case)


_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]|[^\W_\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+"
)
_QUOTATION = re.compile(  # the marks of English, German, French, Polish, Swedish, Japanese ..., and Markdown block quotes
    r"“([^“”]{3,2000})”|\"([^\"]{3,2000})\"|«([^«»]{3,2000})»|‘([^‘’]{3,2000})’(?!\w)"
    r"|„([^„“”\"]{3,2000})[“”\"]|”([^”]{3,2000})”|»([^«»]{3,2000})[«»]|‹([^‹›]{3,2000})›|›([^‹›]{3,2000})‹|‚([^‚‘’]{3,2000})[‘’](?!\w)"
    r"|「([^「」]{3,2000})」|『([^『』]{3,2000})』|《([^《》]{3,2000})》|＂([^＂]{3,2000})＂|(?<!\w)'([^'\n]{3,2000})'(?!\w)"
    r"|^[ \t]*>[ \t]?([^\n]{3,2000}(?:\n[ \t]*>[^\n]{0,2000}){0,20})",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class VerbatimSpan:
    """A span of the answer that occurs in the text.

    `quoted`: some of it is in quotation marks. `exclusive`: some of it would be a span by itself and occurs in no other
    source of the words.
    """

    text: str
    words: int
    quoted: bool
    exclusive: bool


@dataclass(frozen=True, slots=True)
class VerbatimMatch:
    """The verbatim spans of an answer in order, and the number of its words that are in no span."""

    spans: tuple[VerbatimSpan, ...]
    words_left: int


@dataclass(frozen=True, slots=True)
class WordRuns:
    """The words of some texts, indexed to look up runs: all runs of `min_words` words, all pairs of neighbouring words,
    and the words of each text as one line of `joined`."""

    min_words: int
    runs: frozenset[tuple[str, ...]]
    pairs: frozenset[tuple[str, str]]
    joined: str

    @classmethod
    def of(cls, texts: Iterable[str], min_words: int) -> WordRuns:
        """Index some texts."""
        word_lists = [[word for word, _, _ in _words(without_invisible(text))] for text in texts]
        return cls(
            min_words,
            frozenset(run for words in word_lists for run in _runs_of(words, min_words)),
            frozenset(pair for words in word_lists for pair in pairwise(words)),
            "\n".join(f" {' '.join(words)} " for words in word_lists),
        )

    def matching_positions(self, words: Sequence[str]) -> set[int]:
        """The positions of the words that are in a run of `min_words` words which a text contains too."""
        starts = (start for start, run in enumerate(_runs_of(words, self.min_words)) if run in self.runs)
        return {position for start in starts for position in range(start, start + self.min_words)}

    def contain(self, words: Sequence[str]) -> bool:
        """Whether one of the texts contains these words, two or more, as a run. Pairs rule most out without a search."""
        if len(words) < 2 or not all(pair in self.pairs for pair in pairwise(words)):
            return False
        return f" {' '.join(words)} " in self.joined


def find_verbatim(answer: str, text: str, min_words: int, elsewhere: WordRuns | None = None) -> VerbatimMatch:
    """Runs of at least `min_words` words of the answer that occur as a run in the text, and shorter ones of two words or
    more that the answer puts in quotation marks.

    Case, white space, punctuation and typographic signs do not count. Scripts without spaces count characters as words.
    With `elsewhere` (of the same `min_words`), a span is exclusive only by a run of `min_words` words, or a quotation, that
    those texts do not contain.
    """
    answer = without_invisible(answer)
    located = _words(answer)
    words = [word for word, _, _ in located]
    source = WordRuns.of([text], min_words)
    matching = source.matching_positions(words)
    exclusive = matching
    if elsewhere is not None:
        exclusive = _in_long_runs(matching - elsewhere.matching_positions(words), min_words)
    quoted: set[int] = set()
    exclusively_quoted: set[int] = set()
    for quotation in _quotations(answer, located):
        quote = words[quotation.start : quotation.stop]
        if source.contain(quote):
            quoted.update(quotation)
            if elsewhere is None or not elsewhere.contain(quote):
                exclusively_quoted.update(quotation)
    matching, exclusive = matching | quoted, exclusive | exclusively_quoted
    spans = []
    for first, last in _runs(sorted(matching)):
        positions = range(first, last + 1)
        piece = answer[located[first][1] : located[last][2]]
        spans.append(VerbatimSpan(piece, len(positions), not quoted.isdisjoint(positions), not exclusive.isdisjoint(positions)))
    return VerbatimMatch(tuple(spans), len(located) - len(matching))


def _words(composed: str) -> list[tuple[str, int, int]]:
    return [(match[0].casefold(), match.start(), match.end()) for match in _WORD.finditer(composed)]


def _quotations(answer: str, located: list[tuple[str, int, int]]) -> Iterable[range]:
    starts, ends = [start for _, start, _ in located], [end for _, _, end in located]
    for quotation in _QUOTATION.finditer(answer):
        yield range(bisect_right(starts, quotation.start()), bisect_left(ends, quotation.end()))


def _runs_of(words: Sequence[str], length: int) -> Iterable[tuple[str, ...]]:
    return (tuple(words[start : start + length]) for start in range(len(words) - length + 1))


def _in_long_runs(positions: set[int], min_length: int) -> set[int]:
    """The positions that are in a run of at least this length."""
    runs = _runs(sorted(positions))
    return {position for first, last in runs if last - first + 1 >= min_length for position in range(first, last + 1)}


def _runs(positions: list[int]) -> list[tuple[int, int]]:
    """First and last of every run of consecutive positions."""
    runs: list[tuple[int, int]] = []
    for position in positions:
        if runs and runs[-1][1] == position - 1:
            runs[-1] = (runs[-1][0], position)
        else:
            runs.append((position, position))
    return runs
