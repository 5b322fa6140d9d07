"""What a text is made of: words, numbers with units, names, quotes and sentences, each with its place in the text.

Nothing here knows of claims or verdicts. A text is read once (`read` keeps the last few hundred readings), because the
same passages are asked about many times in one case. Written for English; other languages lose the stemming, the stop
words and the number words, and scripts without spaces (Chinese, Japanese) are read character by character.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from ragpipe.judging.heuristic.lexicon import MONTHS, NEGATIONS, STOP
from ragpipe.judging.heuristic.numbers import Number, find_numbers

_TOKEN = re.compile(
    r"(?P<cjk>[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])"
    r"|(?P<number>\d+(?:[.,]\d+)*)|(?P<word>[^\W\d_]+(?:['’][^\W\d_]+)*)"
)
_ISO_DATE = re.compile(r"(?<!\d)\d{4}-(\d{2})-\d{2}(?!\d)")
_SENTENCE_END = re.compile(r"[.!?][\"'”’)\]]*\s+|\n\s*|[。！？؟]|;\s+")
_QUOTE = re.compile(r"“([^“”\n]{3,400})”|\"([^\"\n]{3,400})\"|«([^«»\n]{3,400})»")
_SHORT = 5_000  # characters; few longer texts are kept
_LONGEST_SENTENCE = 600  # characters; a text without any full stop is cut here, so that a window stays a passage

_SMALL_LINKS = frozenset(("of", "and", "the", "for", "in", "&"))


class Token(NamedTuple):
    """A word or a number in its place; `stem` is its comparable form, `content` says that it carries meaning."""

    stem: str
    text: str
    start: int
    end: int
    content: bool


@dataclass(frozen=True, slots=True)
class Sentence:
    """A stretch of the text with the content stems that are in it, in order and as a set."""

    start: int
    end: int
    content: tuple[str, ...]
    stems: frozenset[str]
    negated: bool


@dataclass(frozen=True, slots=True)
class TokenizedText:
    """All that the judge looks at in one text."""

    text: str
    tokens: tuple[Token, ...]
    content: tuple[str, ...]
    stems: frozenset[str]
    numbers: tuple[Number, ...]
    names: tuple[str, ...]
    acronyms: frozenset[str]
    quotes: tuple[str, ...]
    sentences: tuple[Sentence, ...]
    negated: bool
    plain: str


def plain(word: str) -> str:
    """Case, accents and typographic apostrophes taken away."""
    if word.isascii():
        return word.lower()
    folded = unicodedata.normalize("NFKD", word.replace("’", "'")).casefold()
    return "".join(c for c in folded if not unicodedata.combining(c)) or word


def stem(word: str) -> str:
    """A light English stem: `passing`, `passed` and `passes` are one word, `proposal` and `proposed` are not."""
    if word.endswith("'s"):
        word = word[:-2]
    if len(word) <= 3 or not word.isascii():
        return word
    for ending, instead in (
        ("ies", "y"),
        ("ied", "y"),
        ("ings", ""),
        ("ing", ""),
        ("edly", ""),
        ("ed", ""),
        ("ly", ""),
    ):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)] + instead
            break
    else:
        if word.endswith(("sses", "shes", "ches", "xes", "zes")):
            word = word[:-2]
        elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
            word = word[:-1]
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiousl":
        word = word[:-1]
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


@lru_cache(maxsize=20_000)
def _forms(word: str) -> tuple[str, bool]:
    """Stem and whether the word carries meaning."""
    low = plain(word)
    return stem(low), low not in STOP and low not in NEGATIONS and len(low) > 1


def tokenize(text: str) -> TokenizedText:
    """Read one text. Never fails; a text without a word gives an empty reading."""
    return _read_short(text) if len(text) <= _SHORT else _read_long(text)


def _read(text: str) -> TokenizedText:
    numbers = find_numbers(text)
    tokens = _tokens(text, numbers)
    content = tuple(t.stem for t in tokens if t.content)
    stems = frozenset(t.stem for t in tokens) | frozenset(content)
    stems |= {MONTHS[int(m)] for m in _ISO_DATE.findall(text) if 1 <= int(m) <= 12}
    sentences = tuple(_sentences(text, tokens))
    quotes = tuple(next(g for g in found.groups() if g) for found in _QUOTE.finditer(text))
    return TokenizedText(
        text=text,
        tokens=tokens,
        content=content,
        stems=stems,
        numbers=numbers,
        names=_names(text, tokens),
        acronyms=_acronyms(tokens),
        quotes=quotes,
        sentences=sentences,
        negated=any(is_negation(t.text) for t in tokens),
        plain=f" {' '.join(plain(t.text) for t in tokens)} ",
    )


_read_short = lru_cache(maxsize=2048)(_read)
_read_long = lru_cache(maxsize=16)(_read)  # a reading takes some 50 times the memory of its text


def is_negation(word: str) -> bool:
    return plain(word) in NEGATIONS


def _tokens(text: str, numbers: tuple[Number, ...]) -> tuple[Token, ...]:
    values = {n.start: n.value for n in numbers}
    months = {n.start: MONTHS[int(n.value)] for n in numbers if n.month}
    found = []
    for match in _TOKEN.finditer(text):
        word, start, end = match[0], match.start(), match.end()
        if match["number"]:
            found.append(Token(values.get(start, word), word, start, end, True))
        elif match["cjk"]:
            found.append(Token(word, word, start, end, True))
        elif start in months:
            found.append(Token(months[start], word, start, end, True))
        elif start in values:
            found.append(Token(values[start], word, start, end, values[start] != "1"))
        else:
            form, content = _forms(word)
            found.append(Token(form, word, start, end, content or (word.isupper() and len(word) > 1 and form != "us")))
    return tuple(found)


def _sentences(text: str, tokens: tuple[Token, ...]) -> list[Sentence]:
    edges = [m.end() for m in _SENTENCE_END.finditer(text)] + [len(text)]
    found, start, at = [], 0, 0
    for edge in edges:
        while start < edge:
            end = edge
            if edge - start > _LONGEST_SENTENCE:
                space = text.rfind(" ", start + 1, start + _LONGEST_SENTENCE)
                end = space + 1 if space > start else start + _LONGEST_SENTENCE
            content, negated = [], False
            while at < len(tokens) and tokens[at].start < end:
                if tokens[at].content:
                    content.append(tokens[at].stem)
                negated = negated or is_negation(tokens[at].text)
                at += 1
            if content or negated:
                found.append(Sentence(start, end, tuple(content), frozenset(content), negated))
            start = end
    return found


def _names(text: str, tokens: tuple[Token, ...]) -> tuple[str, ...]:
    """Stems of capitalised words that are names by their place: not at the start, unless another follows at once."""
    words = [t for t in tokens if t.text[0].isalpha()]
    capital = [t.text[0].isupper() for t in words]
    if len(words) > 3 and sum(capital) > 0.6 * len(words):
        return ()  # a title or shouting: capitals say nothing
    found = []
    for place, (token, upper) in enumerate(zip(words, capital, strict=True)):
        if not upper or not token.content or len(token.text) < 2:
            continue
        before = text[max(0, token.start - 20) : token.start].rstrip(" \t\"'“‘(*_")[-1:]
        opens = place == 0 or before in ".!?:\n" or before == ""
        follows = (
            place + 1 < len(words)
            and capital[place + 1]
            and words[place + 1].content
            and not any(c in ".:!?\n" for c in text[token.end : words[place + 1].start])
        )
        if not opens or token.text[1:].lower() != token.text[1:] or follows:
            found.append(token.stem)
    return tuple(dict.fromkeys(found))


def _acronyms(tokens: tuple[Token, ...]) -> frozenset[str]:
    """Initials of runs of capitalised words (Bureau of Labor Statistics: `bls`)."""
    found: set[str] = set()
    initials = ""
    for token in tokens:
        if token.text[0].isupper():
            initials = (initials + token.text[0].lower())[-6:]
            found.update(initials[i:] for i in range(len(initials) - 1))
        elif token.text.lower() not in _SMALL_LINKS:
            initials = ""
    return frozenset(found)
