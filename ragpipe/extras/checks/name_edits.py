"""A name of the answer that the chunks support becomes a name from another question."""

from __future__ import annotations

import random
import re

from ragpipe.extras.checks.case_text import CaseText, free_matches, has_phrase, is_month
from ragpipe.extras.checks.mutant import NAME, Donors, Edit, edited_answer
from ragpipe.judging.heuristic.lexicon import STOP_WORDS
from ragpipe.schema.sample import Case

_WEEKDAYS = frozenset(["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"])


def change_name(case: Case, text: CaseText, donors: Donors, rng: random.Random) -> Edit | None:
    """The case with one name of its answer replaced by one of as many words from another question's chunks.

    A name is a run of capitalised words; a single word that begins a sentence, or that the chunks also write small, is none. None where no name of the answer is
    in the chunks, or no name of its form is to be had. The new name stands nowhere in the case. Names that the question does
    not use come first: they are what it asks for.
    """
    names = [
        span
        for span in _names(text.answer)
        if text.says_of(text.answer[slice(*span)]) and donors.is_name(text.answer[slice(*span)])
    ]
    rng.shuffle(names)
    for span in sorted(names, key=lambda span: has_phrase(case.question, text.answer[slice(*span)])):
        name = text.answer[slice(*span)]
        others = [
            other for other in map(_core, donors.names) if _fits(name, other) and not has_phrase(text.known, other)
        ]
        if others:
            in_reference = has_phrase(text.references, name)
            return edited_answer(case, span, rng.choice(others), in_reference=in_reference)
    return None


def _names(answer: str) -> list[tuple[int, int]]:
    """Start and end of the names of an answer."""
    spans = []
    for match in free_matches(NAME, answer):
        name = _core(match[0])
        start = match.start() + match[0].find(name) if name else match.start()
        begins_sentence = not answer[:start].rstrip()[-1:].isalnum() and answer[:start].rstrip()[-1:] not in tuple(
            ",;("
        )
        is_single = " " not in name
        follows_initial = re.search(r"\b[A-Z]\.\s\Z", answer[max(0, start - 4) : start]) is not None
        if name and _is_name(name) and not (is_single and begins_sentence) and not follows_initial:
            spans.append((start, start + len(name)))
    return spans


def _core(name: str) -> str:
    """A name without an article or another stop word at its beginning (`The Arbitrum Foundation`)."""
    words = name.split()
    while words and words[0].casefold() in STOP_WORDS:
        words.pop(0)
    return name[name.find(words[0]) :] if words else ""


def _is_name(name: str) -> bool:
    words = name.casefold().split()
    return len(name) > 2 and not any(is_month(word) or word in _WEEKDAYS for word in words)


def _fits(name: str, other: str) -> bool:
    """Whether one name can stand for the other: as many words, and an acronym for an acronym."""
    same_length = len(name.split()) == len(other.split())
    return bool(other) and same_length and name.isupper() == other.isupper() and _is_name(other)
