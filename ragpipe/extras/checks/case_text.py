"""What a mutation reads of a text: the parts that it must not touch, and the words and numbers that the case has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

from ragpipe.judging.heuristic.lexicon import MONTH_NUMBER, STOP_WORDS
from ragpipe.judging.heuristic.numbers import find_numbers
from ragpipe.schema.sample import Case

_UNTOUCHED = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`"  # code
    r"|\[[^\[\]\n]{1,60}\](?:\([^()\s]*\))?|【[^】\n]{1,60}】"  # citation marks and links
    r"|\b(?:https?://|www\.)\S+|\S+@\S+\.\w+"  # addresses
    r"|“[^“”\n]*”|\"[^\"\n]*\""  # a quotation is somebody else's text
    r"|^[ \t]*\(?\d{1,3}[.)](?=\s)|(?<=[.:;!?])\s+\(?\d{1,2}[.)](?=\s)",  # numbers of list items
    re.DOTALL | re.MULTILINE,
)
_WORD = re.compile(r"[^\W\d_]{3,}")
_ENGLISH = frozenset(
    re.findall(r"\w+", "the of and to in is was were that for with by on as from are has have it its an be")
)
ENGLISH_SHARE = 0.15


def untouched_spans(text: str) -> list[tuple[int, int]]:
    """Start and end of every part that no mutation edits: citation marks, links, addresses, code, quotations, list numbers."""
    return [match.span() for match in _UNTOUCHED.finditer(text)]


def free_matches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """The matches that touch no untouched part, in order."""
    spans = untouched_spans(text)
    for match in pattern.finditer(text):
        if not any(match.start() < end and start < match.end() for start, end in spans):
            yield match


def content_words(text: str) -> frozenset[str]:
    """The words of three or more letters that are no English stop words, without regard to case."""
    return frozenset(word for word in _WORD.findall(text.casefold()) if word not in STOP_WORDS)


def share_of_words(text: str, words: frozenset[str]) -> float:
    """The share of a text's content words that are among `words`, 0 to 1; 0 for a text without any."""
    own_words = content_words(text)
    return len(own_words & words) / len(own_words) if own_words else 0.0


def is_english(text: str) -> bool:
    """Whether enough of the words are common English ones: a rule for English grammar applies only then."""
    words = re.findall(r"[^\W\d_]+", text.casefold())
    common = [word for word in words if word in _ENGLISH]
    return len(set(common)) >= 2 and len(common) >= ENGLISH_SHARE * len(words)


def numbers_in(text: str) -> frozenset[str]:
    """The numbers of a text in normal form: `1,000`, `1000` and `one thousand` are one."""
    return frozenset(number.value for number in find_numbers(text))


def is_month(word: str) -> bool:
    """Whether an English word is the name of a month, in full or as `Mar`."""
    return word.casefold().rstrip(".") in MONTH_NUMBER


class CaseText:
    """The texts of one case, read once: `contexts` is what the chunks say, `known` all that the case says anywhere."""

    def __init__(self, case: Case):
        self.answer = case.answer
        self.contexts = "\n".join(chunk.text for chunk in case.contexts)
        self.references = "\n".join(case.references)
        turns = [turn.text for turn in case.sample.history]
        self.known = "\n".join([self.contexts, self.references, self.answer, case.question, *turns])

    @cached_property
    def context_words(self) -> frozenset[str]:
        """The content words of the chunks."""
        return content_words(self.contexts)

    @cached_property
    def context_numbers(self) -> frozenset[str]:
        """The numbers of the chunks."""
        return numbers_in(self.contexts)

    @cached_property
    def known_numbers(self) -> frozenset[str]:
        """The numbers of the whole case."""
        return numbers_in(self.known)

    def says_of(self, phrase: str) -> bool:
        """Whether the chunks have these words, one after another."""
        return has_phrase(self.contexts, phrase)


def has_phrase(text: str, phrase: str) -> bool:
    """Whether a text has a phrase as whole words, without regard to case and to line breaks."""
    pattern = r"\s+".join(map(re.escape, phrase.split()))
    return re.search(rf"(?<!\w){pattern}(?!\w)", text, re.IGNORECASE) is not None
