"""What a comparison of one claim with its sources shows: overlaps, numbers, names, negation and quotes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from ragpipe.core.text_match import without_invisible
from ragpipe.judging.heuristic.lexicon import EXCEPT, INCLUDING, UNITS
from ragpipe.judging.heuristic.notations import Notation, notations
from ragpipe.judging.heuristic.numbers import Number
from ragpipe.judging.heuristic.tokenized_text import Sentence, TokenizedText, tokenize
from ragpipe.judging.heuristic.tokenized_text import stem as stem_of
from ragpipe.patterns.citation_marks import without_marks
from ragpipe.patterns.languages import language_of

_QUOTE_MATCH = 95.0  # rapidfuzz partial ratio from which a quotation counts as literal (a comma may differ, no word)
_MANY = 100  # sentences with a word of the claim, up to which every window is tried
_SMALL = 20_000  # characters; of larger sources only a few indexes are cached
_TWIN = 0.8  # share of the claim's content words from which a sentence says the same thing
_CLOSE = 0.5  # share of the sentence's own content words that are in the claim
_SHORTEST_QUOTE = 3  # words; shorter quotation marks are scare quotes and titles


@dataclass(frozen=True, slots=True)
class ClaimFeatures:
    """Shares are 0..1, and 1 where the claim has nothing of the kind.

    `recall`: content words of the claim that are anywhere in the sources. `window`: those in the best window of a few
    sentences. `bigrams`: pairs of adjacent content words that are adjacent in a source. `lcs`: the longest common
    subsequence with the best window, over the claim's length. `numbers`, `names`: those that are in a source. `negated`:
    the claim is negated and the sentence that says the same is not, or the other way round. `quotes`: every quotation in
    the claim is in a source. `evidence`: the best window, literally.
    """

    recall: float
    window: float
    bigrams: float
    lcs: float
    numbers: float
    names: float
    negated: bool
    quotes: bool
    missing_numbers: tuple[str, ...]
    missing_names: tuple[str, ...]
    evidence: str


class SourceIndex:
    """The sources of one question, tokenized and indexed once."""

    def __init__(self, texts: tuple[str, ...]):
        self.sources = tuple(tokenize(without_invisible(text)) for text in texts)
        self.language = language_of(" ".join(text[:2_000] for text in texts))
        self.sentences: list[tuple[int, Sentence]] = []
        """All sentences in order, each with the position of its source."""
        self.has_tables = any(text.count("|") > 3 for text in texts)
        self.positions: dict[str, list[int]] = defaultdict(list)
        """By stem, the sentences that have it."""
        self._index_sentences()
        self.stems = frozenset().union(*(source.stems | source.acronyms for source in self.sources))
        tokens = [token for source in self.sources for token in source.tokens]
        self.capitals = frozenset(token.text.lower() for token in tokens if token.text.isupper())
        self.bigrams = frozenset(pair for source in self.sources for pair in pairwise(source.content))
        self.units: dict[str, set[str | None]] = defaultdict(set)
        """By number, the units that it has in the sources; None where it has none."""
        for source in self.sources:
            for number in source.numbers:
                self.units[number.value].add(number.unit)
        english = self.language == "en"
        self.notations = [one for source in self.sources for one in notations(source.text, english=english)]
        self.values = frozenset().union(*(notation.values for notation in self.notations))
        """What numbers in the notations of other languages may mean."""
        self.features: dict[tuple[str, int], ClaimFeatures] = {}
        """By claim and window, what was worked out already: several metrics ask about the same claims."""
        self.prefixes = {stem[:5] for stem in self.stems if len(stem) >= 5}

    def _index_sentences(self) -> None:
        for position, source in enumerate(self.sources):
            for sentence in source.sentences:
                for stem in sentence.stems:
                    self.positions[stem].append(len(self.sentences))
                self.sentences.append((position, sentence))

    def best_window(self, stems: frozenset[str], size: int) -> tuple[int, int]:
        """First and last sentence of the window of at most `size` sentences of one source that has most of the stems.

        Of equal windows the shortest, then the earliest. (0, -1) when no stem is found. Where very many sentences have a
        word of the claim, only windows around its rarest words are tried.
        """
        best_rank, best = (0, 0, 0), (0, -1)
        for first in self._window_starts(stems, size):
            covered: frozenset[str] = frozenset()
            for last in range(first, min(first + size, len(self.sentences))):
                source, sentence = self.sentences[last]
                if source != self.sentences[first][0]:
                    break
                covered |= stems & sentence.stems
                rank = (len(covered), first - last, -first)
                if covered and rank > best_rank:
                    best_rank, best = rank, (first, last)
        return best

    def _window_starts(self, stems: frozenset[str], size: int) -> list[int]:
        starts: set[int] = set()
        for stem in sorted(stems & self.positions.keys(), key=lambda s: (len(self.positions[s]), s)):
            more = self.positions[stem][:_MANY]
            if starts and len(starts.union(more)) > _MANY:
                return sorted({max(0, start - before) for start in starts for before in range(size)})
            starts.update(more)
        return sorted(starts)

    def text(self, first: int, last: int) -> str:
        """The literal text of a source from one sentence to another; '' for an empty window."""
        if last < first:
            return ""
        source, opening = self.sentences[first]
        return self.sources[source].text[opening.start : self.sentences[last][1].end].strip()


def index_sources(texts: tuple[str, ...]) -> SourceIndex:
    """The indexed sources, cached: the same case asks about them several times."""
    return _small_index(texts) if sum(map(len, texts)) <= _SMALL else _large_index(texts)


_small_index = lru_cache(maxsize=128)(SourceIndex)
_large_index = lru_cache(maxsize=8)(SourceIndex)


def extract_features(claim: str, index: SourceIndex, window: int) -> ClaimFeatures:
    """All features of one claim, kept with the index. Pure; never fails."""
    known = index.features.get((claim, window))
    if known is None:
        known = index.features[claim, window] = _features_of(claim, index, window)
    return known


def _features_of(claim: str, index: SourceIndex, window: int) -> ClaimFeatures:
    tokenized = tokenize(without_marks(without_invisible(claim)))
    stems = frozenset(tokenized.content)
    first, last = index.best_window(stems, window)
    sentences = [sentence for _, sentence in index.sentences[first : last + 1]]
    nearby = [stem for sentence in sentences for stem in sentence.content]
    missing_numbers = _missing_numbers(tokenized, index)
    missing_names = _missing_names(tokenized, index)
    numbers = [number for number in tokenized.numbers if _must_be_found(number)]
    return ClaimFeatures(
        recall=_share(len(stems & index.stems), len(stems)),
        window=_share(len(stems.intersection(nearby)), len(stems)),
        bigrams=_bigram_share(tokenized, stems, index),
        lcs=_share(_common_subsequence(tokenized.content, nearby), len(tokenized.content)),
        numbers=1 - len(missing_numbers) / len(numbers) if numbers else 1.0,
        names=1 - len(missing_names) / len(tokenized.names) if tokenized.names else 1.0,
        negated=_negation_differs(tokenized, sentences, stems),
        quotes=all(_is_quoted(quote, index) for quote in tokenized.quotes),
        missing_numbers=missing_numbers,
        missing_names=missing_names,
        evidence=index.text(first, last),
    )


def _bigram_share(claim: TokenizedText, stems: frozenset[str], index: SourceIndex) -> float:
    """A claim of one word has no pairs: 1 where the sources have the word."""
    pairs = list(pairwise(claim.content))
    if not pairs:
        return float(bool(stems) and stems <= index.stems)
    return _share(sum(pair in index.bigrams for pair in pairs), len(pairs))


def _common_subsequence(claim: Sequence[str], source: Sequence[str]) -> int:
    """Length of the longest common subsequence."""
    from rapidfuzz.distance import LCSseq  # imported here: it takes 40 ms, which `--help` and reports need not pay

    return LCSseq.similarity(claim, source)


def _share(part: int, total: int) -> float:
    return part / total if total else 0.0


def _must_be_found(number: Number) -> bool:
    """Whether a source must have the number. The word `one` is mostly a pronoun; a month's name is compared as a word."""
    return not number.month and not (number.word and number.value in ("0", "1"))


def _missing_numbers(claim: TokenizedText, index: SourceIndex) -> tuple[str, ...]:
    """Numbers that no source has, or that every source has only with another known unit."""
    missing = []
    written = notations(claim.text, english=index.language == "en")
    for number in claim.numbers:
        if not _must_be_found(number):
            continue
        if (told := _told_by_notation(number, written, index)) is not None:
            if not told:
                missing.append(number.value)
            continue
        units = index.units.get(number.value)
        if (
            not units
            or _of_another_row(number, claim, index)
            or (number.unit and number.unit not in units and None not in units)
        ):
            missing.append(number.value + (f" {number.unit}" if number.unit else ""))
    return tuple(dict.fromkeys(missing))


def _of_another_row(number: Number, claim: TokenizedText, index: SourceIndex) -> bool:
    """Whether the sources have the number in rows of tables alone, none of which has a word of the claim, and another has one."""
    rows = (
        [(sentence, index.text(at, at)) for at, (_, sentence) in enumerate(index.sentences)] if index.has_tables else []
    )
    having = [(sentence, text) for sentence, text in rows if number.value in sentence.stems]
    if not having or not all(text.count("|") > 1 for _, text in having):
        return False
    words = frozenset(claim.content) - {number.value}
    specific = words - frozenset().union(
        *(s.stems for s, text in rows if "|" in text and not any(map(str.isdigit, text))), frozenset()
    )
    others = any(specific & s.stems for s, text in rows if text.count("|") > 1 and number.value not in s.stems)
    return others and not any(specific & s.stems for s, _ in having)


def _told_by_notation(number: Number, written: Sequence[Notation], index: SourceIndex) -> bool | None:
    """Whether a source has the number in a notation of the claim's or of its own; None where plain digits decide."""
    around = [one for one in written if one.start < number.end and number.start < one.end]
    for one in around:
        values = {
            value for value in one.values if value.startswith("v")
        } or one.values  # a version is no decimal number
        if not values.isdisjoint(index.values) or (values == one.values and not values.isdisjoint(index.units)):
            return True
    if any(one.strict and _is_another(one, index) for one in around):
        return False
    if number.value in index.values and number.unit in (None, *index.units.get(number.value, {number.unit})):
        return True
    return None


def _is_another(one: Notation, index: SourceIndex) -> bool:
    """Whether the sources have the other half of the day where this is a time, another version where it is a version."""
    value = max(one.values)
    if value[0] != "t":
        return value[0] == "v" and any(other[0] == "v" for other in index.values)
    hour, _, minute = value[1:].partition(":")
    return f"t{(int(hour) + 12) % 24}:{minute}" in index.values


def _missing_names(claim: TokenizedText, index: SourceIndex) -> tuple[str, ...]:
    """Names that no source has: not as a word, not as initials, not in a derived form (America, American)."""
    in_numbers = {
        stem_of(word)
        for one in notations(claim.text)
        if not one.strict  # the month of a date must be found
        for word in claim.text[one.start : one.end].lower().split()
    }
    written_out = "".join(initials for initials in claim.acronyms & index.capitals if len(initials) >= 3)
    return tuple(
        name
        for name in claim.names
        if not (
            name in index.stems
            or name in in_numbers
            or name in UNITS  # EUR
            or (len(name) >= 6 and name[:5] in index.prefixes)
            or name[0] in written_out
        )
    )


def _negation_differs(claim: TokenizedText, sentences: list[Sentence], stems: frozenset[str]) -> bool:
    """Whether the sentences that say the same have the opposite negation.

    Only sentences with most words of the claim and few others are compared: a long sentence too often negates something
    else.
    """
    twins = [s for s in sentences if len(s.stems & stems) >= _TWIN * max(len(stems), 2)]
    close = [s for s in twins if len(s.stems & stems) >= _CLOSE * len(s.stems)]
    return bool(close) and all(s.negated != claim.negated or _excepts_differ(claim, s) for s in close)


def _excepts_differ(claim: TokenizedText, sentence: Sentence) -> bool:
    """Whether one says `except` where the other says `including`."""
    words = {token.text.casefold() for token in claim.tokens}
    return any(words & here and sentence.words & there for here, there in ((EXCEPT, INCLUDING), (INCLUDING, EXCEPT)))


def _is_quoted(quote: str, index: SourceIndex) -> bool:
    """Whether a source has the quotation. Very short ones are not looked for."""
    from rapidfuzz import fuzz

    words = tokenize(quote).plain.strip()
    if len(words.split()) < _SHORTEST_QUOTE or quote.rstrip().endswith("?"):  # a quoted question is the user's
        return True
    return any(words in s.plain or fuzz.partial_ratio(words, s.plain) >= _QUOTE_MATCH for s in index.sources)
