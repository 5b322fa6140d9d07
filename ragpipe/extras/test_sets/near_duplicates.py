"""Near duplicates: the same question with a typing error, a plural or a polite word, found among those that are drawn."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict

from rapidfuzz import fuzz, process
from rapidfuzz.distance import OSA, Levenshtein

_MARKS = re.compile(r"\w*\d\w*|\b\w\b")
"""Words with a digit, and single letters: a question about 2024 or plan B is another one than about 2023 or plan A."""

_EMPTY_WORDS = frozenset(
    [
        "an",
        "the",
        "please",
        "pls",
        "kindly",
        "hi",
        "hello",
        "hey",
        "dear",
        "thanks",
        "thank",
        "you",
        "tell",
        "me",
        "could",
        "would",
        "like",
        "know",
        "do",
        "does",
        "is",
        "are",
    ]
)
"""Words that change no question: articles, auxiliaries, greetings and politeness. No negation, no preposition, no quantifier."""

_ENDS = ".,;:!?\"'“”‘’()"
_TYPO_LETTERS = 5
_PLURAL_LETTERS = 4
_KNOWN_WORD = 2
_NO_ALPHABET = 0x0E00  # from here on scripts without blanks, where one sign is a word


class NearDuplicates:
    """The questions that are kept so far.

    Two texts are near when their likeness is at least the threshold, they have the same words with digits and the same single
    letters, and, word by word, they differ in nothing but typing errors, a plural -s, and words of a short list that change no
    question. A typing error is one edit (a letter more, less or another, or two neighbours exchanged) in words of five letters
    or more that begin alike; another last letter is none (employer, employee), and words that both occur in two or more
    other questions looked at are two words, not one.

    The likeness is rapidfuzz's `ratio` divided by 100: twice the length of the longest common subsequence over the sum
    of both lengths. A text is only compared with kept ones of a length that allows the threshold.
    """

    def __init__(self, threshold: float):
        self._threshold = threshold
        self._texts: dict[tuple[str, ...], list[tuple[int, str]]] = defaultdict(list)
        self._questions_with: Counter[str] = Counter()

    def kept_before(self, text: str) -> str | None:
        """The kept text that this one is near to, the likest first. None where there is none; then it is kept, too."""
        kept = self._texts[tuple(sorted(_MARKS.findall(text)))]
        longest = self._threshold / (2 - self._threshold)  # min(a, b) / max(a, b) of two lengths that allow it
        low = bisect_left(kept, (int(len(text) * longest), ""))
        high = bisect_right(kept, (int(len(text) / longest) + 2, ""))
        near = [other for _, other in kept[low:high]]
        found = process.extract(text, near, scorer=fuzz.ratio, score_cutoff=self._threshold * 100, limit=None)
        words = _words(text)
        before = next((other for other, _, _ in found if self._asks_the_same(words, _words(other))), None)
        self._questions_with.update(set(words))
        if before is None:
            kept.insert(bisect_left(kept, (len(text), text)), (len(text), text))
        return before

    def _asks_the_same(self, words: list[str], others: list[str]) -> bool:
        for step in Levenshtein.editops(words, others):
            word = words[step.src_pos] if step.tag != "insert" else ""
            other = others[step.dest_pos] if step.tag != "delete" else ""
            if not ({word, other} - {""} <= _EMPTY_WORDS or _is_plural(word, other) or self._is_typo(word, other)):
                return False
        return True

    def _is_typo(self, word: str, other: str) -> bool:
        if min(len(word), len(other)) < _TYPO_LETTERS or word[0] != other[0]:
            return False
        if len(word) == len(other) and word[:-1] == other[:-1]:
            return False
        if not (_is_written_in_letters(word) and _is_written_in_letters(other)):
            return False
        # of the other word's questions the kept one is no other question
        is_known = self._questions_with[word] >= _KNOWN_WORD and self._questions_with[other] > _KNOWN_WORD
        return not is_known and OSA.distance(word, other, score_cutoff=1) <= 1


def _words(text: str) -> list[str]:
    return [word.strip(_ENDS) or word for word in text.split()]


def _is_plural(word: str, other: str) -> bool:
    shorter, longer = sorted((word, other), key=len)
    return len(shorter) >= _PLURAL_LETTERS and longer == f"{shorter}s"


def _is_written_in_letters(word: str) -> bool:
    return word.isalpha() and all(ord(sign) < _NO_ALPHABET for sign in word)
