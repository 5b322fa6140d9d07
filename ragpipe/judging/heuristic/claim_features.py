"""What can be seen of one claim beside its sources: overlaps, numbers, names, negations and quotes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from ragpipe.judging.heuristic.claim_splitting import without_citations
from ragpipe.judging.heuristic.tokenized_text import Sentence, TokenizedText, tokenize

_QUOTE_MATCH = 95.0  # rapidfuzz partial ratio from which a quotation counts as literal (a changed comma, not a word)
_MANY = 100  # sentences with a word of the claim; up to so many every run is tried
_SMALL_POOL = 20_000  # characters; few larger pools are kept
_TWIN = 0.8  # share of the claim's content words from which a sentence counts as saying the same thing
_CLOSE = 0.5  # share of the sentence's own content words that are in the claim
_SHORTEST_QUOTE = 3  # words; shorter quotation marks are scare quotes and titles


@dataclass(frozen=True, slots=True)
class ClaimFeatures:
    """All shares are 0..1, and 1 where there is nothing to look for.

    recall: content words of the claim found anywhere in the sources; window: in the best run of a few sentences;
    bigrams: neighbouring content words found side by side; lcs: longest common subsequence with the best window over
    the claim's length; numbers, names: share of them found; negated: the claim says no and the best sentence does not,
    or the other way round; quotes: every quotation in the claim
    stands in a source. `evidence` is the best stretch of a source, literally.
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


class Pool:
    """The sources of one question, read and indexed once."""

    def __init__(self, texts: tuple[str, ...]):
        self.readings = tuple(tokenize(text) for text in texts)
        self.sentences: list[tuple[int, Sentence]] = []
        self.where: dict[str, list[int]] = defaultdict(list)
        for source, reading in enumerate(self.readings):
            for sentence in reading.sentences:
                for word in sentence.stems:
                    self.where[word].append(len(self.sentences))
                self.sentences.append((source, sentence))
        self.stems = frozenset().union(*(r.stems | r.acronyms for r in self.readings))
        self.capitals = frozenset(t.text.lower() for r in self.readings for t in r.tokens if t.text.isupper())
        self.bigrams = frozenset(pair for r in self.readings for pair in pairwise(r.content))
        self.units: dict[str, set[str | None]] = defaultdict(set)
        for number in (n for r in self.readings for n in r.numbers):
            self.units[number.value].add(number.unit)
        self.starts = {word[:5] for word in self.stems if len(word) >= 5}

    def best_window(self, stems: frozenset[str], size: int) -> tuple[int, int]:
        """First and last sentence of the run of at most `size` sentences of one source that holds most of the stems.

        Of equal runs the shortest, then the earliest. (0, -1) when no word is found anywhere. Where very many sentences
        hold a word of the claim, only runs around its rarest words are tried.
        """
        best, found = (0, 0, 0), (0, -1)
        for first in self._starts(stems, size):
            covered: frozenset[str] = frozenset()
            for last in range(first, min(first + size, len(self.sentences))):
                source, sentence = self.sentences[last]
                if source != self.sentences[first][0]:
                    break
                covered |= stems & sentence.stems
                rank = (len(covered), first - last, -first)
                if covered and rank > best:
                    best, found = rank, (first, last)
        return found

    def _starts(self, stems: frozenset[str], size: int) -> list[int]:
        places: set[int] = set()
        for word in sorted(stems & self.where.keys(), key=lambda w: (len(self.where[w]), w)):
            more = self.where[word][:_MANY]
            if places and len(places.union(more)) > _MANY:
                return sorted({max(0, place - before) for place in places for before in range(size)})
            places.update(more)
        return sorted(places)

    def text(self, first: int, last: int) -> str:
        """The literal stretch of a source from one sentence to another."""
        if last < first:
            return ""
        source, opening = self.sentences[first]
        return self.readings[source].text[opening.start : self.sentences[last][1].end].strip()


def pool_of(texts: tuple[str, ...]) -> Pool:
    """The indexed sources; the same case asks about them several times."""
    return _small_pool(texts) if sum(map(len, texts)) <= _SMALL_POOL else _large_pool(texts)


_small_pool = lru_cache(maxsize=128)(Pool)
_large_pool = lru_cache(maxsize=8)(Pool)


def extract_features(claim: str, pool: Pool, window: int) -> ClaimFeatures:
    """All signals of one claim. Pure; never fails."""
    reading = tokenize(without_citations(claim))
    stems = frozenset(reading.content)
    first, last = pool.best_window(stems, window)
    run = [sentence for _, sentence in pool.sentences[first : last + 1]]
    near = [word for sentence in run for word in sentence.content]
    missing_numbers = _missing_numbers(reading, pool)
    missing_names = _missing_names(reading, pool)
    numbers = [n for n in reading.numbers if _counts(n.value, n.word, n.month)]
    pairs = list(pairwise(reading.content))
    return ClaimFeatures(
        recall=_share(len(stems & pool.stems), len(stems)),
        window=_share(len(stems.intersection(near)), len(stems)),
        bigrams=_share(sum(pair in pool.bigrams for pair in pairs), len(pairs))
        if pairs
        else float(bool(stems) and stems <= pool.stems),
        lcs=_share(_in_order(reading.content, near), len(reading.content)),
        numbers=1 - len(missing_numbers) / len(numbers) if numbers else 1.0,
        names=1 - len(missing_names) / len(reading.names) if reading.names else 1.0,
        negated=_negation_differs(reading, run, stems),
        quotes=all(_quoted(quote, pool) for quote in reading.quotes),
        missing_numbers=missing_numbers,
        missing_names=missing_names,
        evidence=pool.text(first, last),
    )


def _in_order(claim: Sequence[str], source: Sequence[str]) -> int:
    """Length of the longest common subsequence."""
    from rapidfuzz.distance import LCSseq  # 40 ms, which `--help` and reports need not pay

    return LCSseq.similarity(claim, source)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _counts(value: str, word: bool, month: bool) -> bool:
    """Whether a number must be found: the word `one` is mostly a pronoun, a month's name is looked for as a name."""
    return not month and not (word and value in ("0", "1"))


def _missing_numbers(reading: TokenizedText, pool: Pool) -> tuple[str, ...]:
    """Numbers that no source has, or that every source has only with another known unit."""
    missing = []
    for number in reading.numbers:
        if not _counts(number.value, number.word, number.month):
            continue
        units = pool.units.get(number.value)
        if not units or (number.unit and number.unit not in units and None not in units):
            missing.append(number.value + (f" {number.unit}" if number.unit else ""))
    return tuple(dict.fromkeys(missing))


def _missing_names(reading: TokenizedText, pool: Pool) -> tuple[str, ...]:
    """Names that no source has: not as a word, not as initials, not in a derived form (America, American)."""
    written_out = "".join(initials for initials in reading.acronyms & pool.capitals if len(initials) >= 3)
    return tuple(
        name
        for name in reading.names
        if not (name in pool.stems or (len(name) >= 6 and name[:5] in pool.starts) or name[0] in written_out)
    )


def _negation_differs(reading: TokenizedText, run: list[Sentence], stems: frozenset[str]) -> bool:
    """Compared only with a sentence that says the same otherwise: most words of the claim, and little beside them.

    A long sentence negates something else too often.
    """
    twins = [s for s in run if len(s.stems & stems) >= _TWIN * max(len(stems), 2)]
    close = [s for s in twins if len(s.stems & stems) >= _CLOSE * len(s.stems)]
    return bool(close) and all(s.negated != reading.negated for s in close)


def _quoted(quote: str, pool: Pool) -> bool:
    from rapidfuzz import fuzz

    words = tokenize(quote).plain.strip()
    if len(words.split()) < _SHORTEST_QUOTE or quote.rstrip().endswith("?"):  # a quoted question is the user's
        return True
    return any(words in r.plain or fuzz.partial_ratio(words, r.plain) >= _QUOTE_MATCH for r in pool.readings)
