"""Answers that say that the system does not know. A phrase must open the answer or dominate it, not merely occur in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from pydantic import Field, model_validator

from ragpipe.patterns.languages import Declining, read_declining
from ragpipe.patterns.pattern_files import read_patterns
from ragpipe.patterns.sentences import WORD, sentences, words_of
from ragpipe.patterns.timed_regex import check_length
from ragpipe.schema.settings import Settings

_NEXT_WORD = re.compile(r"\s+([^\W_]+)")
_CLAUSE_END = re.compile(r"[,;:]?\s+(?:but|however|although|though|yet|nevertheless)\b,?\s*|;\s+", re.I)


class DontKnowPhrases(Settings):
    """Phrases of not knowing. They ignore case and match whole words.

    A phrase counts when at most `words_before` words of its clause come before it, and the clause then ends or continues
    with punctuation or a word of `followed_by`: "the author is unknown in the sources", not "the Unknown Soldier". A phrase
    in `goes_on` may only continue with an opening listed there ("not available in the sources", not "in Europe"). No phrase
    may continue with one of `states`: "no data to suggest that it harms" is a statement. A clause with a phrase that counts
    is a clause of not knowing. When such clauses have at least the share `dominates` of the answer's words, the answer does
    not know, whatever it begins with. `non_answers` are whole answers.
    """

    version: str = Field(default="own", description="Name of this set of phrases. It is part of a run's identity.")
    phrases: list[str] = Field(
        min_length=1, description="Phrases of not knowing. They ignore case and match whole words."
    )
    followed_by: list[str] = Field(
        default_factory=list,
        description="Words with which a clause may go on after a phrase that counts. Default: none.",
    )
    goes_on: dict[str, list[str]] = Field(
        default_factory=dict,
        description="Phrases that may only go on with one of the listed openings, by phrase. Default: none.",
    )
    states: list[str] = Field(
        default_factory=list,
        description=(
            "Openings after a phrase that make the clause a statement, so that the phrase does not count. "
            "Default: none."
        ),
    )
    non_answers: list[str] = Field(
        default_factory=list, description="Whole answers that count as not knowing. Default: none."
    )
    languages: dict[str, Declining] = Field(
        default_factory=dict, description="How answers in other languages decline, by language code. Default: none."
    )
    short: list[str] = Field(
        default_factory=list,
        description=(
            "Phrases that count only in answers below `short_below` characters, with `literal: true`. Default: none."
        ),
    )
    short_below: int = Field(
        default=10, ge=0, description="Length in characters below which the phrases of `short` count."
    )
    words_before: int = Field(
        default=6, ge=0, description="Largest number of words in a clause before a phrase that counts."
    )
    dominates: float = Field(
        default=0.8,
        gt=0,
        le=1,
        description=(
            "Share of the answer's words, above 0 to 1, in clauses of not knowing from which the answer does not know."
        ),
    )

    @model_validator(mode="after")
    def _check_goes_on(self) -> DontKnowPhrases:
        if unknown := sorted(set(self.goes_on) - set(self.phrases)):
            raise ValueError(f"goes_on for phrases of the list; {', '.join(unknown)} is none of them")
        return self


@dataclass(frozen=True, slots=True)
class _Clause:
    """A clause of an answer: the number of its sentence from 0, its number of words, and the phrase of not knowing in it."""

    sentence: int
    words: int
    phrase: str | None


@lru_cache(maxsize=16)
def _load_shipped(name: str) -> DontKnowPhrases:
    return DontKnowPhrases.model_validate(read_patterns(name), context={"shipped": True})


def load_phrases(phrases: DontKnowPhrases | str) -> DontKnowPhrases:
    """The phrases of a shipped file by name, or the phrases themselves. Raises ValueError for an unknown name."""
    return _load_shipped(phrases) if isinstance(phrases, str) else phrases


def dont_know_phrase(answer: str, phrases: DontKnowPhrases, *, literal: bool = False) -> str | None:
    """The phrase by which the answer says that it does not know; None for a real answer.

    It does not know when it is one of the non-answers; when all clauses of its first sentence say so ("I'm not sure, but it
    is Paris" answers); or when clauses of not knowing dominate it. With `literal`, any phrase anywhere counts, even inside a
    word, and so does one of `short` in an answer of less than `short_below` characters. Raises JudgeError (`too_long`) for a
    text that is too long for patterns.
    """
    check_length(answer)
    text = _plain(answer)
    if literal:
        return _literal_phrase(text, phrases)
    words = words_of(text)
    if words in set(map(words_of, phrases.non_answers)):
        return words
    if phrases.languages and read_declining(answer, phrases.languages) == "declines":
        return text[:200]
    clauses = _clauses(text, phrases)
    return _opening_phrase(clauses) or _dominating_phrase(clauses, phrases.dominates)


def _literal_phrase(text: str, phrases: DontKnowPhrases) -> str | None:
    short = phrases.short if len(text) < phrases.short_below else []
    return next((phrase for phrase in (*phrases.phrases, *short) if _plain(phrase) in text), None)


def _opening_phrase(clauses: list[_Clause]) -> str | None:
    """The first phrase of the first sentence, where every clause of that sentence has one."""
    first_sentence = [clause.phrase for clause in clauses if clause.sentence == 0]
    return first_sentence[0] if first_sentence and all(first_sentence) else None


def _dominating_phrase(clauses: list[_Clause], share: float) -> str | None:
    """The first phrase, where the clauses with a phrase have at least this share of the words."""
    admitting = [clause for clause in clauses if clause.phrase]
    words = sum(clause.words for clause in admitting)
    if admitting and words >= share * sum(clause.words for clause in clauses):
        return admitting[0].phrase
    return None


def _clauses(text: str, phrases: DontKnowPhrases) -> list[_Clause]:
    return [
        _Clause(number, len(WORD.findall(clause)), _phrase_in(clause, phrases))
        for number, sentence in enumerate(sentences(text))
        for clause in _CLAUSE_END.split(sentence)
        if WORD.search(clause)
    ]


def _plain(text: str) -> str:
    return " ".join(text.replace("\u2019", "'").casefold().split())


def _phrase_in(clause: str, phrases: DontKnowPhrases) -> str | None:
    """The first phrase that counts in this clause."""
    for phrase in phrases.phrases:
        for match in _compile(_plain(phrase)).finditer(clause):
            before = islice(WORD.finditer(clause, 0, match.start()), phrases.words_before + 1)
            if sum(1 for _ in before) > phrases.words_before:
                break  # the next match has even more words before it
            if _counts(phrase, clause[match.end() :], phrases):
                return phrase
    return None


def _counts(phrase: str, rest: str, phrases: DontKnowPhrases) -> bool:
    """Whether a phrase counts with this rest of its clause behind it."""
    next_word = _NEXT_WORD.match(rest)
    if next_word is None:
        return True
    if _opens_with(rest, phrases.states):
        return False
    openings = phrases.goes_on.get(phrase)
    return next_word[1] in phrases.followed_by if openings is None else _opens_with(rest, openings)


def _opens_with(rest: str, openings: list[str]) -> bool:
    """Whether the text begins with one of these, as whole words."""
    return any(_compile(_plain(opening)).match(rest, 1) for opening in openings)


@lru_cache(maxsize=1024)
def _compile(phrase: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w'-]){re.escape(phrase)}(?![\w'-])")
