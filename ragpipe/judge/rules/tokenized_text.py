"""Tokenizes a text: words, numbers with units, names, quotes and sentences, each with its position.

Tokenized texts are cached, because the same passages are asked about many times in one case. Written for English; other languages lose the stemming, the stop
words and the number words, and scripts without spaces (Chinese, Japanese) are read character by character.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from ragpipe.core.languages import is_english
from ragpipe.judge.rules.numbers import (
    EXCEPT,
    INCLUDING,
    MONTHS,
    NEGATED_SIGNS,
    NEGATIONS,
    OTHER_NEGATIONS,
    STOP_WORDS,
    Number,
    find_numbers,
)

_TOKEN = re.compile(
    r"(?P<cjk>[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])"
    r"|(?P<number>\d+(?:[.,]\d+)*)|(?P<word>[^\W\d_]+(?:['’][^\W\d_]+)*)"
)
_ISO_DATE = re.compile(r"(?<!\d)\d{4}-(\d{2})-\d{2}(?!\d)")
_SENTENCE_END = re.compile(r"[.!?][\"'”’)\]]*\s+|\n\s*|[。！？؟।]|;\s+")
_QUOTE = re.compile(
    r"“([^“”\n]{3,400})”|\"([^\"\n]{3,400})\"|«([^«»\n]{3,400})»|„([^„“”\n]{3,400})[“”]|「([^「」\n]{3,400})」|『([^『』\n]{3,400})』"
)
_SHORT = 2_000  # characters; of longer texts only those of the last cases are cached
_LONGEST_SENTENCE = 600  # characters; a longer sentence is split, so that a window remains a passage

_LINKING_WORDS = frozenset(("of", "and", "the", "for", "in", "&"))


class Token(NamedTuple):
    """A word or a number and where it is. `stem` is its comparable form; `content`: it is no stop word."""

    stem: str
    text: str
    start: int
    end: int
    content: bool


@dataclass(frozen=True, slots=True)
class Sentence:
    """A part of the text with its content stems, in order and as a set."""

    start: int
    end: int
    content: tuple[str, ...]
    stems: frozenset[str]
    negated: bool
    words: frozenset[str] = frozenset()
    """Those of `except` and `including` that it has."""


@dataclass(frozen=True, slots=True)
class TokenizedText:
    """Everything that the judge compares of one text.

    `content` are the stems of content words in order, `stems` all stems. `names` are stems of capitalised names, `acronyms`
    the initials of capitalised word groups. `plain` is the normalized text with a space at both ends.
    """

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


_SUFFIXES = (("ies", "y"), ("ied", "y"), ("ings", ""), ("ing", ""), ("edly", ""), ("ed", ""), ("ly", ""))
"""Endings that a stem loses, with what replaces them; the first that fits is removed."""


def normalize_word(word: str) -> str:
    """The word without case, accents and typographic apostrophes."""
    if word.isascii():
        return word.lower()
    folded = unicodedata.normalize("NFKD", word.replace("’", "'")).casefold()
    return "".join(c for c in folded if not unicodedata.combining(c)) or word


def stem(word: str) -> str:
    """A light English stem: `passing`, `passed` and `passes` are one word, `proposal` and `proposed` are not."""
    word = word.removesuffix("'s")
    if len(word) <= 3 or not word.isascii():
        return word
    word = _without_suffix(word)
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiousl":
        word = word[:-1]
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


def _without_suffix(word: str) -> str:
    for suffix, replacement in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            return word[: -len(suffix)] + replacement
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


@lru_cache(maxsize=20_000)
def _stem_and_content(word: str) -> tuple[str, bool]:
    normal = normalize_word(word)
    return stem(normal), normal not in STOP_WORDS and normal not in NEGATIONS and len(normal) > 1


def tokenize(text: str) -> TokenizedText:
    """Tokenize one text. Never fails; a text without a word has no tokens."""
    return _tokenize_short(text) if len(text) <= _SHORT else _tokenize_long(text)


def _tokenize(text: str) -> TokenizedText:
    numbers = find_numbers(text)
    tokens = _tokens(text, numbers)
    denies = is_negation if is_english(text) else _negates_elsewhere
    content = tuple(token.stem for token in tokens if token.content)
    stems = frozenset(token.stem for token in tokens) | frozenset(content)
    stems |= {MONTHS[int(month)] for month in _ISO_DATE.findall(text) if 1 <= int(month) <= 12}
    return TokenizedText(
        text=text,
        tokens=tokens,
        content=content,
        stems=stems,
        numbers=numbers,
        names=_names(text, tokens),
        acronyms=_acronyms(tokens),
        quotes=tuple(next(group for group in match.groups() if group) for match in _QUOTE.finditer(text)),
        sentences=tuple(_sentences(text, tokens, denies)),
        negated=any(denies(token.text) for token in tokens),
        plain=f" {' '.join(normalize_word(token.text) for token in tokens)} ",
    )


# A tokenized text takes some 50 times the memory of its text, and the metrics of one case ask about the same ones.
_tokenize_short = lru_cache(maxsize=512)(_tokenize)
_tokenize_long = lru_cache(maxsize=32)(_tokenize)


def is_negation(word: str) -> bool:
    """Whether the word negates its sentence (`not`, `never`, `without`)."""
    return normalize_word(word) in NEGATIONS


def _negates_elsewhere(word: str) -> bool:
    return word.casefold() in OTHER_NEGATIONS or word in NEGATED_SIGNS or word.casefold().startswith("n'")


def _tokens(text: str, numbers: tuple[Number, ...]) -> tuple[Token, ...]:
    values = {number.start: MONTHS[int(number.value)] if number.month else number.value for number in numbers}
    months = {number.start for number in numbers if number.month}
    return tuple(_token(match, values, months) for match in _TOKEN.finditer(text))


def _token(match: re.Match[str], values: Mapping[int, str], months: Set[int]) -> Token:
    word, start, end = match[0], match.start(), match.end()
    if match["number"]:
        return Token(values.get(start, word), word, start, end, True)
    if match["cjk"]:
        return Token(word, word, start, end, True)
    if start in values:
        return Token(values[start], word, start, end, start in months or values[start] != "1")
    form, content = _stem_and_content(word)
    is_acronym = word.isupper() and len(word) > 1 and form != "us"
    return Token(form, word, start, end, content or is_acronym)


def _sentences(text: str, tokens: tuple[Token, ...], denies: Callable[[str], bool]) -> list[Sentence]:
    sentences: list[Sentence] = []
    at = 0
    for start, end in _sentence_spans(text):
        first = at
        while at < len(tokens) and tokens[at].start < end:
            at += 1
        content = tuple(token.stem for token in tokens[first:at] if token.content)
        negated = any(denies(token.text) for token in tokens[first:at])
        if content or negated:
            limits = {token.text.casefold() for token in tokens[first:at]} & (EXCEPT | INCLUDING)
            sentences.append(Sentence(start, end, content, frozenset(content), negated, frozenset(limits)))
    return sentences


def _sentence_spans(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of each sentence; a very long one is split, at a space where it has one."""
    start = 0
    for edge in [*(match.end() for match in _SENTENCE_END.finditer(text)), len(text)]:
        while start < edge:
            end = edge
            if edge - start > _LONGEST_SENTENCE:
                space = text.rfind(" ", start + 1, start + _LONGEST_SENTENCE)
                end = space + 1 if space > start else start + _LONGEST_SENTENCE
            yield start, end
            start = end


def _names(text: str, tokens: tuple[Token, ...]) -> tuple[str, ...]:
    """Stems of capitalised words that are names: within a sentence, or at its start before another such word."""
    words = [token for token in tokens if token.text[0].isalpha()]
    capitalised = sum(token.text[0].isupper() for token in words)
    if len(words) > 3 and capitalised > 0.6 * len(words):
        return ()  # a title, or all capitals: capitals say nothing
    names = []
    for position, token in enumerate(words):
        if not token.text[0].isupper() or not token.content or len(token.text) < 2:
            continue
        has_inner_capital = token.text[1:].lower() != token.text[1:]
        follower = words[position + 1] if position + 1 < len(words) else None
        if has_inner_capital or not _opens_sentence(text, token, position) or _continues_name(text, token, follower):
            names.append(token.stem)
    return tuple(dict.fromkeys(names))


def _opens_sentence(text: str, token: Token, position: int) -> bool:
    before = text[max(0, token.start - 20) : token.start].rstrip(" \t\"'“‘(*_")[-1:]
    return position == 0 or before in ".!?:\n" or before == ""


def _continues_name(text: str, token: Token, follower: Token | None) -> bool:
    """Whether the next word is capitalised too and belongs to the same sentence."""
    if follower is None or not follower.text[0].isupper() or not follower.content:
        return False
    return not any(c in ".:!?\n" for c in text[token.end : follower.start])


def _acronyms(tokens: tuple[Token, ...]) -> frozenset[str]:
    """Initials of groups of capitalised words (Bureau of Labor Statistics: `bls`)."""
    acronyms: set[str] = set()
    initials = ""
    for token in tokens:
        if token.text[0].isupper():
            initials = (initials + token.text[0].lower())[-6:]
            acronyms.update(initials[i:] for i in range(len(initials) - 1))
        elif token.text.lower() not in _LINKING_WORDS:
            initials = ""
    return frozenset(acronyms)
