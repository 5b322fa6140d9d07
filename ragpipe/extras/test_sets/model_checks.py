"""What is checked by rule in the questions of a language model: one that does not hold is dropped and counted, never kept."""

from __future__ import annotations

import re

from ragpipe.core.text_match import normalise, occurs
from ragpipe.extras.test_sets.meaningful_words import word_set
from ragpipe.schema.judge_answers.synthesis_answers import SectionQuestion

LONGEST_QUESTION = 400
FEWEST_QUOTED_WORDS = 3
_NUMBER_WORDS = word_set("two three four five six seven eight nine ten eleven twelve")
_TOKEN = re.compile(r"\d+(?:[.,:]\d+)*|[^\W\d_][\w'\u2019-]*")
_QUOTED = re.compile(r'"([^"]+)"')
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_SPEAKS_OF_THE_TEXT = re.compile(
    r"\b(?:this|the|that|given|following|above) (?:section|passage|text|excerpt|paragraph|document|material)s?\b",
    re.IGNORECASE,
)


def rephrasing_fault(before: str, after: str) -> str | None:
    """Why a rewording cannot take the place of a question; None where it can.

    `not_one_line` (blank, too long or of several lines), `unchanged`, `name_lost` or `number_lost` (a name, a number or a text in quotation marks
    is gone), `number_added`.
    """
    if not after.strip() or "\n" in after.strip() or len(after) > LONGEST_QUESTION:
        return "not_one_line"
    old, new = normalise(before), normalise(after)
    if old == new:
        return "unchanged"
    if any(normalise(text) not in new for text in _QUOTED.findall(before)):
        return "name_lost"
    words = set(_TOKEN.findall(new))
    if not {normalise(name) for name in _names(before)} <= words:
        return "name_lost"
    old_numbers, new_numbers = (_numbers(text) for text in (old, new))
    if not old_numbers <= new_numbers:
        return "number_lost"
    return "number_added" if new_numbers - old_numbers else None


def section_question_fault(question: SectionQuestion, section: str) -> str | None:
    """Why a question about a section cannot be used; None where it can.

    `not_one_line`, `no_answer`, `speaks_of_the_text` (it needs the section beside it), `quote_too_short`, `quote_not_found` (the quote does not
    stand in the section), `number_not_in_section` (the answer has a number that the section has not).
    """
    text = question.question.strip()
    if not text or "\n" in text or len(text) > LONGEST_QUESTION:
        return "not_one_line"
    if not any(sign.isalnum() for sign in question.answer):
        return "no_answer"
    if _SPEAKS_OF_THE_TEXT.search(text):
        return "speaks_of_the_text"
    if len(_TOKEN.findall(question.quote)) < FEWEST_QUOTED_WORDS:
        return "quote_too_short"
    if "..." in question.quote or "\u2026" in question.quote or not occurs(question.quote, [normalise(section)]):
        return "quote_not_found"
    if not set(_NUMBER.findall(question.answer)) <= set(_NUMBER.findall(f"{section} {text}")):
        return "number_not_in_section"
    return None


def _names(question: str) -> list[str]:
    """The words with a capital that do not begin a sentence, and those with a digit beside letters."""
    tokens = [(match.start(), match[0]) for match in _TOKEN.finditer(question)]
    begins = {0, *(match.end() for match in re.finditer(r"[.!?:] +\"?|^\"", question))}
    return [word for start, word in tokens if word[0].isupper() and word != "I" and start not in begins]


def _numbers(text: str) -> set[str]:
    words = {word for word in re.findall(r"[a-z]+", text) if word in _NUMBER_WORDS}
    return set(_NUMBER.findall(text)) | words
