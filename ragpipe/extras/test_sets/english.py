"""Small pieces of English that make a filled template read well: articles, plurals, enumerations, lower case."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ragpipe.core.text import WORD
from ragpipe.judge.rules.numbers import STOP_WORDS
from ragpipe.judge.rules.tokenized_text import normalize_word, stem

SLOT = re.compile(r"\{(a )?([A-Za-z_]+)\}")
_SOUNDS_LIKE_AN = re.compile(r"(?:hour|honest|honou?r|heir|8|11\b|18\b)", re.IGNORECASE)
_SOUNDS_LIKE_A = re.compile(r"(?:uni(?!n)|use|usu|eu|one\b|once\b)", re.IGNORECASE)
_SPELLED_OUT = re.compile(r"[A-Z]{2,5}s?\b")
_LETTERS_LIKE_AN = "AEFHILMNORSX"
_SINGULAR = re.compile(r"(?:ss|us|is|news|series|lens)$", re.IGNORECASE)
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def slot_names(template: str) -> list[str]:
    """The names of the slots of a template, in order and without those that stand twice; `{Key}` is the slot `key`."""
    return list(dict.fromkeys(name[0].lower() + name[1:] for _, name in SLOT.findall(template)))


def fill(template: str, slots: Mapping[str, str]) -> str:
    """The template with its slots filled. `{key}` is the value, `{Key}` the value with a capital, `{a key}` the value behind
    "a" or "an". Raises KeyError for a slot without a value."""

    def value(slot: re.Match[str]) -> str:
        article, name = slot.groups()
        text = slots[name[0].lower() + name[1:]]
        if article:
            return with_article(text)
        return capitalised(text) if name[0].isupper() else text

    return capitalised(SLOT.sub(value, template))


def with_article(phrase: str) -> str:
    """The phrase behind "a" or "an", by the sound of its first word: an hour, a unit, an SLA, an 8-hour shift."""
    word = phrase.split(" ", 1)[0]
    if _SPELLED_OUT.match(word):
        is_vowel = word[0] in _LETTERS_LIKE_AN
    elif _SOUNDS_LIKE_AN.match(word):
        is_vowel = True
    else:
        is_vowel = word[:1].lower() in "aeiou" and not _SOUNDS_LIKE_A.match(word)
    return f"{'an' if is_vowel else 'a'} {phrase}"


def is_plural(phrase: str) -> bool:
    """Whether a verb behind this noun phrase is plural: "opening hours", "name and address"; not "status", "notice period"."""
    head = re.split(r" (?:of|for|in|per|from|to|with|by|at|on) ", phrase)[0]
    words = re.sub(r"\([^)]*\)", "", head).split() or [phrase]
    last = words[-1]
    return " and " in f" {head} " or (last.lower().endswith("s") and len(last) > 3 and not _SINGULAR.search(last))


def verb_be(phrase: str) -> str:
    """`are` behind a plural noun phrase, else `is`."""
    return "are" if is_plural(phrase) else "is"


def verb_past(phrase: str) -> str:
    """`were` behind a plural noun phrase, else `was`."""
    return "were" if is_plural(phrase) else "was"


def capitalised(text: str) -> str:
    """The text with a capital at its beginning, where its first letter has one that reads the same in any case; the rest as it is."""
    first = text[:1].upper()
    return first + text[1:] if first.casefold() == text[:1].casefold() else text


def uncapitalised(text: str) -> str:
    """The text with a small letter at its beginning, unless its first word is an abbreviation, holds a digit, or is a name:
    a word with a capital behind its first letter."""
    word = text.split(" ", 1)[0]
    keeps = len(word) > 1 and (any(sign.isupper() or sign.isdigit() for sign in word[1:]))
    return text if keeps else text[:1].lower() + text[1:]


def enumerated(items: Sequence[str]) -> str:
    """The items as one enumeration: `a`, `a and b`, `a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def in_words(number: int) -> str:
    """A whole number from 0 to 12 as a word, others in digits."""
    return _NUMBERS[number] if number < len(_NUMBERS) else str(number)


def as_sentence(text: str) -> str:
    """The text with a full stop, unless it ends with a mark of its own, be it inside a quotation."""
    return text if text.rstrip('"\u201d').endswith((".", "!", "?", ":", "\u2026")) else f"{text}."


def word_set(words: str) -> frozenset[str]:
    """The words of a text that lists them, divided by blanks."""
    return frozenset(words.split())


_FRAME = word_set(
    "ask exact find giv good hello help hi know list look nam need pleas quot read say short show sum tell thank want "
    "wonder word writ"
)
"""Stems of words that only frame a question: two questions that differ in them alone are the same question."""


def meaning_words(text: str) -> frozenset[str]:
    """The stems of the words of a text, without stop words and without words that only frame a question."""
    words = (normalize_word(word) for word in WORD.findall(text))
    return frozenset(stem(word) for word in words if word not in STOP_WORDS and stem(word) not in _FRAME)


Unit = Literal["year", "half", "quarter", "month"]
PER_YEAR: dict[Unit, int] = {"year": 1, "half": 2, "quarter": 4, "month": 12}
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_FORMS: tuple[tuple[Unit, str, re.Pattern[str]], ...] = (
    ("quarter", "Q{part} {year}", re.compile(rf"Q(?P<part>[1-4])[ /-]{_YEAR}")),
    ("quarter", "{year} Q{part}", re.compile(rf"{_YEAR}[ /-]?Q(?P<part>[1-4])")),
    ("half", "H{part} {year}", re.compile(rf"H(?P<part>[12])[ /-]{_YEAR}")),
    ("month", "{month} {year}", re.compile(rf"(?P<month>{'|'.join(MONTHS)}) {_YEAR}")),
    ("month", "{year}-{part:02}", re.compile(rf"{_YEAR}-(?P<part>0[1-9]|1[0-2])")),
    ("year", "{year}", re.compile(_YEAR)),
)


@dataclass(frozen=True, slots=True)
class Period:
    """A period by its unit and its number, counted from the year 0; `form` is how the document writes it."""

    unit: Unit
    number: int
    form: str

    def later(self, steps: int) -> Period:
        """The period that begins `steps` periods later."""
        return Period(self.unit, self.number + steps, self.form)

    def __str__(self) -> str:
        year, part = divmod(self.number, PER_YEAR[self.unit])
        return self.form.format(year=year, part=part + 1, month=MONTHS[part] if self.unit == "month" else "")


def read_period(text: str) -> Period | None:
    """The period that the whole text names (`Q1 2026`, `2026-Q1`, `H1 2026`, `March 2026`, `2026-03`, `2026`); None for any other."""
    for unit, form, pattern in _FORMS:
        if match := pattern.fullmatch(text.strip()):
            parts = match.groupdict()
            part = MONTHS.index(parts["month"]) if "month" in parts else int(parts.get("part") or 1) - 1
            return Period(unit, int(parts["year"]) * PER_YEAR[unit] + part, form)
    return None
