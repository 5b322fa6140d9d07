"""Does an answer say that it does not know? A phrase must open the answer or dominate it, not merely occur in it."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice

from pydantic import Field, model_validator

from ragpipe.patterns.pattern_files import read_patterns
from ragpipe.patterns.sentences import sentences
from ragpipe.patterns.timed_regex import check_length
from ragpipe.schema.settings import Settings

_WORD = re.compile(r"[^\W_]+(?:['/][^\W_]+)*")
_FOLLOWING = re.compile(r"\s+([^\W_]+)")
_TURN = re.compile(r"[,;:]?\s+(?:but|however|although|though|yet|nevertheless)\b,?\s*|;\s+", re.I)


class DontKnowPhrases(Settings):
    """Words of not knowing, read without regard to case.

    `phrases` count as whole words when at most `words_before` words of their clause stand before them, and behind them the
    clause ends or goes on with one of the words of `followed_by`, or with punctuation: "the author is unknown in the
    sources", not "the Unknown Soldier". A phrase of `goes_on` may only go on with an opening of its own ("not available in
    the sources", not "in Europe"), and none with one of `states`: "no data to suggest that it harms" says something. A clause
    with a phrase that counts admits. `non_answers` are whole answers. `dominates`: the share of the answer's words in
    admitting clauses from which on it does not know, whatever it begins with.
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
    def _of_its_phrases(self) -> DontKnowPhrases:
        if unknown := sorted(set(self.goes_on) - set(self.phrases)):
            raise ValueError(f"goes_on for phrases of the list; {', '.join(unknown)} is none of them")
        return self


@lru_cache(maxsize=16)
def _shipped(name: str) -> DontKnowPhrases:
    return DontKnowPhrases.model_validate(read_patterns(name))


def named_phrases(given: DontKnowPhrases | str) -> DontKnowPhrases:
    """The phrases of a shipped file, or those written out. Raises ValueError for an unknown name."""
    return _shipped(given) if isinstance(given, str) else given


def is_dont_know(answer: str, given: DontKnowPhrases, *, literal: bool = False) -> str | None:
    """The phrase by which the answer does not know, None when it is a real answer.

    It does not know when it is one of the non-answers; when its first clause admits and the sentence does not turn
    ("I'm not sure, but it is Paris" answers); or when admitting clauses dominate it. `literal`: when any phrase occurs
    anywhere, also inside a word, or one of `short` in an answer of less than `short_below` characters. Raises JudgeError
    (`too_long`) for a text that no pattern is run on.
    """
    check_length(answer)
    text = _plain(answer)
    if literal:
        short = given.short if len(text) < given.short_below else []
        return next((phrase for phrase in (*given.phrases, *short) if _plain(phrase) in text), None)
    words = " ".join(_WORD.findall(text))
    if words in {" ".join(_WORD.findall(_plain(whole))) for whole in given.non_answers}:
        return words
    clauses = [[part for part in _TURN.split(one) if _WORD.search(part)] for one in sentences(text)]
    found = [[_phrase_in(clause, given) for clause in some] for some in clauses]
    if found and found[0] and found[0][0] and all(found[0]):
        return found[0][0]
    flat = [
        (len(_WORD.findall(c)), f)
        for some, fs in zip(clauses, found, strict=True)
        for c, f in zip(some, fs, strict=True)
    ]
    total = sum(count for count, _ in flat)
    admitted = [(count, phrase) for count, phrase in flat if phrase]
    if admitted and sum(count for count, _ in admitted) >= given.dominates * total:
        return admitted[0][1]
    return None


def _plain(text: str) -> str:
    return " ".join(text.replace("\u2019", "'").casefold().split())


def _phrase_in(clause: str, given: DontKnowPhrases) -> str | None:
    """The first phrase that admits in this clause."""
    for phrase in given.phrases:
        for found in _compiled(_plain(phrase)).finditer(clause):
            before = islice(_WORD.finditer(clause, 0, found.start()), given.words_before + 1)
            if sum(1 for _ in before) > given.words_before:
                break  # still more words stand before the next one
            if _ends_or_goes_on(phrase, clause[found.end() :], given):
                return phrase
    return None


def _ends_or_goes_on(phrase: str, rest: str, given: DontKnowPhrases) -> bool:
    """Whether what stands behind a phrase in its clause leaves it an admission."""
    following = _FOLLOWING.match(rest)
    if following is None:
        return True
    if _opens(rest, given.states):
        return False
    own = given.goes_on.get(phrase)
    return following[1] in given.followed_by if own is None else _opens(rest, own)


def _opens(rest: str, openings: list[str]) -> bool:
    """Whether the text begins with one of these, as whole words."""
    return any(_compiled(_plain(one)).match(rest, 1) for one in openings)


@lru_cache(maxsize=1024)
def _compiled(phrase: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w'-]){re.escape(phrase)}(?![\w'-])")
