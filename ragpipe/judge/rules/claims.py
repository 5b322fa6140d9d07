"""What a comparison of one claim with its sources shows: overlaps, numbers, names, negation and quotes."""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

from ragpipe.core.citation_marks import without_marks
from ragpipe.core.languages import is_english, language_of
from ragpipe.core.text import list_mark, sentences, without_invisible, without_letters
from ragpipe.judge.rules.numbers import EXCEPT, INCLUDING, UNITS, Notation, Number, notations
from ragpipe.judge.rules.settings import WINDOW
from ragpipe.judge.rules.tokenized_text import Sentence, TokenizedText, tokenize
from ragpipe.judge.rules.tokenized_text import stem as stem_of

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
        for place, source in enumerate(self.sources):
            for sentence in source.sentences:
                for stem in sentence.stems:
                    self.positions[stem].append(len(self.sentences))
                self.sentences.append((place, sentence))
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
        self.features: dict[str, ClaimFeatures] = {}
        """By claim, what was worked out already: several metrics ask about the same claims."""
        self.prefixes = {stem[:5] for stem in self.stems if len(stem) >= 5}

    def best_window(self, stems: frozenset[str]) -> tuple[int, int]:
        """First and last sentence of the window of at most `WINDOW` sentences of one source that has most of the stems: of
        equal ones the shortest, then the earliest; (0, -1) without any."""
        best_rank, best = (0, 0, 0), (0, -1)
        for first in self._window_starts(stems):
            covered: frozenset[str] = frozenset()
            for last in range(first, min(first + WINDOW, len(self.sentences))):
                source, sentence = self.sentences[last]
                if source != self.sentences[first][0]:
                    break
                covered |= stems & sentence.stems
                rank = (len(covered), first - last, -first)
                if covered and rank > best_rank:
                    best_rank, best = rank, (first, last)
        return best

    def _window_starts(self, stems: frozenset[str]) -> list[int]:
        starts: set[int] = set()
        for stem in sorted(stems & self.positions.keys(), key=lambda s: (len(self.positions[s]), s)):
            more = self.positions[stem][:_MANY]
            if starts and len(starts.union(more)) > _MANY:
                return sorted({max(0, start - before) for start in starts for before in range(WINDOW)})
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


_small_index = lru_cache(maxsize=32)(SourceIndex)
_large_index = lru_cache(maxsize=8)(SourceIndex)


def extract_features(claim: str, index: SourceIndex) -> ClaimFeatures:
    """All features of one claim, kept with the index. Pure; never fails."""
    if claim not in index.features:
        index.features[claim] = _features_of(claim, index)
    return index.features[claim]


def _features_of(claim: str, index: SourceIndex) -> ClaimFeatures:
    from rapidfuzz.distance import LCSseq  # imported here: it takes 40 ms, which `--help` and reports need not pay

    tokenized = tokenize(without_marks(without_invisible(claim)))
    stems = frozenset(tokenized.content)
    first, last = index.best_window(stems)
    sentences = [sentence for _, sentence in index.sentences[first : last + 1]]
    nearby = [stem for sentence in sentences for stem in sentence.content]
    missing_numbers = _missing_numbers(tokenized, index)
    missing_names = _missing_names(tokenized, index)
    numbers = [number for number in tokenized.numbers if _must_be_found(number)]
    return ClaimFeatures(
        recall=_share(len(stems & index.stems), len(stems)),
        window=_share(len(stems.intersection(nearby)), len(stems)),
        bigrams=_bigram_share(tokenized, stems, index),
        lcs=_share(LCSseq.similarity(tokenized.content, nearby), len(tokenized.content)),
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
    rows = [(sentence, index.text(at, at)) for at, (_, sentence) in enumerate(index.sentences)] if index.has_tables else []
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
        values = {value for value in one.values if value.startswith("v")} or one.values  # a version is no decimal number
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
    """Whether the sentences with most words of the claim, and few others, have the opposite negation."""
    twins = [s for s in sentences if len(s.stems & stems) >= _TWIN * max(len(stems), 2)]
    close = [s for s in twins if len(s.stems & stems) >= _CLOSE * len(s.stems)]
    return bool(close) and all(s.negated != claim.negated or _excepts_differ(claim, s) for s in close)


def _excepts_differ(claim: TokenizedText, sentence: Sentence) -> bool:
    words = {token.text.casefold() for token in claim.tokens}
    return any(words & here and sentence.words & there for here, there in ((EXCEPT, INCLUDING), (INCLUDING, EXCEPT)))


def _is_quoted(quote: str, index: SourceIndex) -> bool:
    """Whether a source has the quotation. Very short ones are not looked for."""
    from rapidfuzz import fuzz

    words = tokenize(quote).plain.strip()
    if len(words.split()) < _SHORTEST_QUOTE or quote.rstrip().endswith("?"):  # a quoted question is the user's
        return True
    return any(words in s.plain or fuzz.partial_ratio(words, s.plain) >= _QUOTE_MATCH for s in index.sources)


_SOURCE = r"(?:passages?|contexts?|documents?|sources?|texts?|excerpts?|articles?|information|materials?|chunks?)"
_GIVEN = r"(?:given|provided|available|above|retrieved|following|supplied)"
_STEP = re.compile(r"\s*(?:>\s*|(?:step|option|passage)\s+\d{1,3}\s*[:.)-]\s*)+", re.I)
_HEADING = re.compile(r"\s{0,3}#{1,6}\s")
_MARK = re.compile(r"\*\*|__|(?<!\w)[*_](?=\w)|(?<=\w)[*_](?!\w)|`")
_LEAD = re.compile(
    rf"(?:(?:so|therefore|thus|overall|in summary|in conclusion|hence|however|additionally|yes|no),?\s+)?"
    rf"(?:(?:based (?:solely |only )?on|according to|from|as (?:stated|mentioned|described) in|in)\s+(?:the |these |those |your )?"
    rf"(?:{_GIVEN}\s+)?{_SOURCE}(?:\s+{_GIVEN})?(?:\s*\(?\d+\)?)?(?:\s+and\s+\d+)?,\s*)",
    re.I,
)
_DENIES = r"(?:unable|not able|not possible|impossible|cannot|can't|can not|could not|couldn't|don't|do not)"
_TELLS = r"(?:answer|determine|provide|find|say|tell|confirm|help|assist|know|give|identify|have)"
_REFUSAL = re.compile(
    rf"(?:^|\b(?:i|we)(?: am|'m|’m| are)?|\bit(?: is|'s|’s))\s*{_DENIES}\s+(?:to\s+)?(?:\w+\s+)?{_TELLS}\b"
    rf"|{_DENIES}\s+(?:to\s+)?(?:\w+\s+)?(?:answer|be (?:answered|determined))\b"
    rf"|\b{_SOURCE}\b[^.]{{0,60}}?\b(?:do|does|did)(?:\s+not|n['’]t)\s+(?:\w+\s+){{0,2}}?"
    rf"(?:provide|mention|specify|contain|state|include|give|offer|address|discuss|say|explain|answer|indicate|have)\b"
    rf"|\b(?:there is|there are|i have|i found|{_SOURCE} (?:contains?|provides?|gives?))\s+(?:no|not enough|insufficient)\s+"
    rf"(?:\w+\s+){{0,2}}?(?:information|mention|answer)\b"
    rf"|\bwithout\s+(?:further|more|additional)\s+(?:\w+\s+){{0,2}}?(?:information|context|details?)\b"
    rf"|\bnone of the\b[^.]{{0,30}}\b{_SOURCE}\b"
    rf"|\bnot (?:\w+ )?(?:mentioned|specified|stated|provided|given|addressed|clear) (?:in|by|from) (?:the|any|these)\b[^.]{{0,20}}\b{_SOURCE}\b"
    rf"|\bi(?: am|'m|’m) (?:sorry|afraid)\b",
    re.I,
)
_PLEASANTRY = re.compile(
    r"\s*(?:(?:hi|hello|hey|greetings|good (?:morning|afternoon|evening|day)|welcome|hallo|guten (?:tag|morgen|abend)|bonjour|salut|hola"
    r"|buenos días|ciao|buongiorno|olá|bom dia|merhaba|привет|здравствуйте|مرحبا\w*|नमस्ते|cześć|dzień dobry|goedendag|您好|你好|こんにちは|안녕하세요)"
    r"(?: there| everyone|[,] \w+)?\s*[.!,。！،]?\s*\Z|i(?:'m| am|’m) (?:here|happy|glad) to (?:help|assist)\b|how (?:can|may) i (?:help|assist)\b"
    r"|(?:i )?hope (?:this|that) helps|let me know|feel free|please (?:let me know|feel free|consult|refer)|you're welcome"
    r"|happy to help|sure[,!.]|certainly[,!.]|of course[,!.]|great question|thank(?:s| you)(?:[,!.]| for)|here (?:is|are|'s)\b|in summary\W*\Z)",
    re.I,
)
_STOP = re.compile(r"(?<=[.!?])[\"'”’)\]*]{0,3}\s+|(?<=[。！？؟])")
_PLAIN_STOP = re.compile(r"(?<=\s[a-z]{4})[.!?]\s+(?=[A-Z])|(?<=[a-z]{5})[.!?]\s+(?=[A-Z])")
_DATE = re.compile(r"\d\. (?:Jan|Feb|Mär|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez)")
_LONGEST_LINE = 4_000  # characters per call of the sentence splitter, whose rules are not linear on odd texts


@lru_cache(maxsize=256)
def extract_claims(text: str) -> tuple[str, ...]:
    """The claims of an answer, in order. Empty when it asserts nothing (a refusal, a question, punctuation)."""
    return tuple(cleaned for sentence in split_sentences(text) if (cleaned := _claim(sentence)))


def placed_claims(text: str) -> list[tuple[str, int, int]]:
    """The claims as `extract_claims` gives them, each with the characters of the sentence that it is from."""
    placed = []
    at = 0
    for sentence in split_sentences(text):
        start = text.find(sentence, at)
        start = max(start, at)  # pysbd can change odd punctuation: the claim is then placed where it is looked for
        at = min(start + len(sentence), len(text))
        if cleaned := _claim(sentence):
            placed.append((cleaned, start, at))
    return placed


def split_sentences(text: str) -> list[str]:
    """Sentences and list items, without list marks and headings. Each is a literal part of the text."""
    found: list[str] = []
    lines = without_letters(text).split("\n")
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if "|" in line and "-" in below and not below.strip("|-: \t"):
            continue  # the head of a table
        if _HEADING.match(line) or not any(c.isalnum() for c in line):
            continue
        body = line
        while mark := list_mark(body) or ((step := _STEP.match(body)) and step.end()):
            body = body[mark:]
        for start in range(0, len(body), _LONGEST_LINE):
            found.extend(s for s in _split(body[start : start + _LONGEST_LINE]) if s)
    return found


def _split(line: str) -> list[str]:
    """The sentences of a line; where every stop is plain, without pysbd, which takes a hundred times as long."""
    line = line.strip()
    if not is_english(line) or "।" in line or _DATE.search(line):
        return sentences(line)
    stops = len(_STOP.findall(line))
    if not stops:
        return [line]
    if len(_PLAIN_STOP.findall(line)) == stops:
        edges = [0, *(stop.end() for stop in _PLAIN_STOP.finditer(line)), len(line)]
        return [line[start:end].strip() for start, end in pairwise(edges)]
    try:
        pieces = _segmenter()(language="en", clean=False).segment(line)
    except Exception:  # its regular expressions are built from the text and can fail on odd punctuation
        pieces = _STOP.split(line)
    return [piece.strip() for piece in pieces]


@lru_cache(maxsize=1)
def _segmenter() -> Any:
    with warnings.catch_warnings():  # Python 3.12 warns about its source when compiling it
        warnings.simplefilter("ignore")
        import pysbd
    return pysbd.Segmenter


def _claim(sentence: str) -> str:
    """The sentence as a claim, without markup and without `Based on the passages,`; '' when it asserts nothing."""
    text = _MARK.sub("", sentence).strip()
    if "|" in text:
        text = " ".join(text.replace("|", " ").split())
    text = _LEAD.sub("", text, count=1).strip() if _LEAD.match(text) else text
    if _asks_or_leads(text) or _PLEASANTRY.match(text) or is_refusal(text):
        return ""
    return text if tokenize(without_marks(text)).content else ""


def states_without_words(text: str) -> bool:
    """Whether a text that gives no claim may state something all the same: "No.", "Yes, it is.", "B". What it states is in the
    question, and strings cannot tell it. False for refusals, questions, pleasantries and texts without a word."""
    sentences = [sentence for sentence in split_sentences(text) if any(c.isalnum() for c in without_marks(sentence))]
    if any(is_refusal(sentence) for sentence in sentences):
        return False
    return any(not (_asks_or_leads(sentence) or _PLEASANTRY.match(sentence)) for sentence in sentences)


def _asks_or_leads(text: str) -> bool:
    return text.strip().endswith((":", "?", "：", "？", "؟"))


def is_refusal(sentence: str) -> bool:
    """Whether a sentence says that it cannot answer or that the sources do not say. No source could support that."""
    return bool(_REFUSAL.search(sentence.strip()))
