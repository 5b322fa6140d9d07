"""Refusals, decided by the whole answer: a refusal phrase in an answer that then answers is no refusal.

The answer is split into clauses. Each is one of: declining, an excuse by the end of the training data, an aside (a
question, an offer, advice to ask elsewhere, what the sources cover instead), or content. An answer is a refusal when a
clause declines and no clause is content. That is for English; an answer in another language is read by phrases of its own
(`languages`), and where they leave a doubt it is not `covered`.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationInfo, field_validator, model_validator

from ragpipe.core.languages import Declining, read_declining
from ragpipe.core.patterns import Search, check_length, compile_timed, read_patterns
from ragpipe.core.settings import Settings
from ragpipe.core.text import WORD, sentences, words_of

M = TypeVar("M", bound=Settings)
Kind = Literal["declines", "training_cutoff", "aside", "content"]

_SHIPPED = {"shipped": True}
"""Context of a validation: the expressions are those of a shipped file. The tests of this package compile every one of them; a
start compiles those that it searches for, since all together take 80 ms."""

_PIECE = re.compile(r"\{([a-z_]+)\}")
_QUOTATION = re.compile(r"“[^“”]{0,400}”|\"[^\"\n]{0,400}\"")
_CITATION_MARK = re.compile(r"\[[^\[\]\n]{1,20}\]|【[^】]{1,40}】")
_BLANKS = re.compile(r"[^\S\n]+")
_CLAUSE_END = re.compile(  # for text with single blanks: `\s*` before a sign takes a second for 5,000 of them
    r"; | ?[—–] |: (?=\S)"
    r"|, (?:but|although|though|yet|however)\b,? ?"
    r"| but (?=(?:i|it|its|the|they|this|that|these|we|he|she|you|in|here|there|according|based)\b)",
    re.I,
)
_CONJUNCTION = re.compile(
    r"(?:but|however|although|though|yet|and|so|therefore|thus|nevertheless|still|also|as such)\b,?\s*", re.I
)


class RefusalPatterns(Settings):
    """Regular expressions of refusals. They ignore case, and `{name}` in them stands for the text `pieces.name`.

    `leads` are openings without a meaning of their own; they are removed from a clause first. A clause that begins with
    `opens` may have more than `words_before` words before it declines. A clause of `answers` is content, whatever follows.
    `reasons` are expressions by the reason that a refusal gives. `non_answers` are whole answers that decline ("n/a"),
    apart from punctuation.
    """

    version: str = Field(default="own", description="Name of this set of patterns. It is part of a run's identity.")
    pieces: dict[str, str] = Field(
        default_factory=dict,
        description="Parts of regular expressions that `{name}` stands for in all other patterns. Default: none.",
    )
    leads: list[str] = Field(
        default_factory=list,
        description="Openings that say nothing by themselves and are removed from a clause first. Default: none.",
    )
    opens: str = Field(
        default="(?!)",
        description=(
            "Regular expression of words with which a clause may begin at length before it declines. Default: matches nothing."
        ),
    )
    words_before: int = Field(
        default=8,
        ge=0,
        description="Largest number of words before an expression that declines, unless the clause begins with `opens`.",
    )
    declines: list[str] = Field(min_length=1, description="Regular expressions of a clause that declines to answer.")
    answers: list[str] = Field(
        default_factory=list, description="Regular expressions of a clause that is content, whatever follows. Default: none."
    )
    training_cutoff: list[str] = Field(
        default_factory=list, description="Regular expressions of an excuse by the end of the training data. Default: none."
    )
    asides: list[str] = Field(
        default_factory=list,
        description=("Regular expressions of a clause that is neither content nor refusal, such as an offer. Default: none."),
    )
    reasons: dict[str, list[str]] = Field(
        default_factory=dict, description="Regular expressions by the reason of a refusal that they show. Default: none."
    )
    non_answers: list[str] = Field(
        default_factory=list, description='Whole answers that decline, apart from punctuation, such as "n/a". Default: none.'
    )
    languages: dict[str, Declining] = Field(
        default_factory=dict,
        description="How answers in other languages decline, by language code. Default: none, so that they get no verdict.",
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_pieces(cls, values: Any) -> Any:
        """Put the pieces in place, so that a run's identity holds the expressions that are searched for."""
        if not isinstance(values, dict) or not isinstance(values.get("pieces"), dict):
            return values
        pieces = values["pieces"]

        def fill(value: Any) -> Any:
            if isinstance(value, str):
                return _PIECE.sub(lambda match: pieces.get(match[1], match[0]), value)
            if isinstance(value, list):
                return [fill(item) for item in value]
            return {name: fill(item) for name, item in value.items()} if isinstance(value, dict) else value

        return {**{name: fill(value) for name, value in values.items()}, "pieces": {}}

    @field_validator("declines", "answers", "training_cutoff", "asides", "leads", "opens", "reasons")
    @classmethod
    def _check_patterns(cls, value: Any, validation: ValidationInfo) -> Any:
        lists = value.values() if isinstance(value, dict) else [[value] if isinstance(value, str) else value]
        for pattern in chain(*lists) if validation.context is not _SHIPPED else ():
            compile_timed(pattern)
            if validation.field_name in ("leads", "opens"):
                compile_timed(_at_start(pattern))
        return value


@dataclass(frozen=True, slots=True)
class RefusalReading:
    """How an answer was read.

    `refused`: the answer as a whole declines. `training_cutoff`: it mentions the end of its training data, refused or not.
    `clauses`: each clause with its kind. `reasons`: names of the reasons that a refusal gives. `covered`: the patterns can read
    the language of the answer; without that nothing else holds.
    """

    refused: bool
    training_cutoff: bool
    clauses: tuple[tuple[Kind, str], ...]
    reasons: tuple[str, ...]
    covered: bool = True


@lru_cache(maxsize=32)
def _shipped(model: type[M], name: str) -> M:
    return model.model_validate(read_patterns(name), context=_SHIPPED)


def load_refusals(patterns: RefusalPatterns | str) -> RefusalPatterns:
    """The patterns of a shipped file by name, or the patterns themselves. Raises ValueError for an unknown name."""
    return _shipped(RefusalPatterns, patterns) if isinstance(patterns, str) else patterns


def read_refusal(answer: str, patterns: RefusalPatterns) -> RefusalReading:
    """Read one answer. Runs of blanks count as one.

    Raises JudgeError when a pattern takes too long (`slow_pattern`), and for a text that is too long for patterns
    (`too_long`).
    """
    check_length(answer)
    text = _clean(answer)
    if words_of(text) in set(map(words_of, patterns.non_answers)):
        return RefusalReading(True, False, (("declines", text),), ())
    cutoff, search = False, Search()
    told = read_declining(text, patterns.languages, search)
    if told == "declines":
        return RefusalReading(True, False, (("declines", text),), ())
    clauses: list[tuple[Kind, str]] = []
    for clause in (part for sentence in sentences(text) for part in _clauses(sentence)):
        kind = _kind(clause, patterns, search)
        cutoff = cutoff or kind == "training_cutoff" or _mentions_cutoff(clause, patterns, search)
        clauses.append((kind, clause))
    kinds = {kind for kind, _ in clauses}
    refused = bool(kinds & {"declines", "training_cutoff"}) and "content" not in kinds
    reasons = _reasons(text, patterns, search) if refused else ()
    return RefusalReading(refused, cutoff, tuple(clauses), reasons, covered=refused or told != "unknown")


async def read_refusal_async(answer: str, patterns: RefusalPatterns | str) -> RefusalReading:
    """`read_refusal` in a thread: a user's pattern may take its whole second, and other cases must not wait for it."""
    return await asyncio.to_thread(read_refusal, answer, load_refusals(patterns))


def _clean(answer: str) -> str:
    """The answer without quotation marks around it, without citation marks, with quotations emptied and single blanks."""
    text = answer.strip()
    if text[:1] in '"“' and text[-1:] in '"”' and not any(c in text[1:-1] for c in '"“”'):
        text = text[1:-1]
    text = _QUOTATION.sub('""', text.replace("’", "'"))
    return _BLANKS.sub(" ", _CITATION_MARK.sub("", text))


def _clauses(sentence: str) -> list[str]:
    """The parts of a sentence that could be sentences. The sign that ends the sentence stays with its last part."""
    parts, start = [], 0
    for end in _CLAUSE_END.finditer(sentence):
        parts.append(sentence[start : end.start()] + (":" if end[0].startswith(":") else ""))
        start = end.end()
    return [part for part in (*parts, sentence[start:]) if any(c.isalnum() for c in part)]


def _kind(clause: str, patterns: RefusalPatterns, search: Search) -> Kind:
    rest = _without_opening(clause.strip(), patterns, search)
    if not any(c.isalnum() for c in rest):
        return "training_cutoff" if _mentions_cutoff(clause, patterns, search) else "aside"
    if rest.endswith(("?", ":")):
        return "aside"
    if _matches_any(patterns.answers, rest, "answers", search):
        return "content"
    if _declines(patterns.declines, rest, "declines", patterns, search):
        return "declines"
    if _declines(patterns.training_cutoff, rest, "training_cutoff", patterns, search):
        return "training_cutoff"
    return "aside" if _matches_any(patterns.asides, rest, "asides", search) else "content"


def _without_opening(clause: str, patterns: RefusalPatterns, search: Search) -> str:
    """The clause without a conjunction and the `leads` at its start."""
    rest = _CONJUNCTION.sub("", clause, count=1) if _CONJUNCTION.match(clause) else clause
    for lead in patterns.leads:
        if match := search(_at_start(lead), rest, "leads"):
            rest = rest[match.end() :].lstrip(" ,")
    return rest


def _declines(expressions: list[str], text: str, name: str, patterns: RefusalPatterns, search: Search) -> bool:
    """Whether an expression matches, and what comes before it is no statement of its own."""
    matches = (search(expression, text, name) for expression in expressions)
    return any(match and not _is_statement(text[: match.start()], patterns, search) for match in matches)


def _is_statement(text: str, patterns: RefusalPatterns, search: Search) -> bool:
    """Whether the words before a refusal make a statement of their own: `PSA over 10 means risk, so I cannot ...`."""
    return len(text.split()) > patterns.words_before and not search(_at_start(patterns.opens), text, "opens")


def _mentions_cutoff(text: str, patterns: RefusalPatterns, search: Search) -> bool:
    return _matches_any(patterns.training_cutoff, text, "training_cutoff", search)


def _reasons(text: str, patterns: RefusalPatterns, search: Search) -> tuple[str, ...]:
    return tuple(
        name for name, expressions in patterns.reasons.items() if _matches_any(expressions, text, f"reasons.{name}", search)
    )


def _at_start(pattern: str) -> str:
    return f"^(?:{pattern})"


def _matches_any(expressions: list[str], text: str, name: str, search: Search) -> bool:
    return any(search(expression, text, name) for expression in expressions)


_NEXT_WORD = re.compile(r"\s+([^\W_]+)")
_END_OF_CLAUSE = re.compile(r"[,;:]?\s+(?:but|however|although|though|yet|nevertheless)\b,?\s*|;\s+", re.I)


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
    phrases: list[str] = Field(min_length=1, description="Phrases of not knowing. They ignore case and match whole words.")
    followed_by: list[str] = Field(
        default_factory=list, description="Words with which a clause may go on after a phrase that counts. Default: none."
    )
    goes_on: dict[str, list[str]] = Field(
        default_factory=dict,
        description="Phrases that may only go on with one of the listed openings, by phrase. Default: none.",
    )
    states: list[str] = Field(
        default_factory=list,
        description=(
            "Openings after a phrase that make the clause a statement, so that the phrase does not count. Default: none."
        ),
    )
    non_answers: list[str] = Field(default_factory=list, description="Whole answers that count as not knowing. Default: none.")
    languages: dict[str, Declining] = Field(
        default_factory=dict, description="How answers in other languages decline, by language code. Default: none."
    )
    short: list[str] = Field(
        default_factory=list,
        description=("Phrases that count only in answers below `short_below` characters, with `literal: true`. Default: none."),
    )
    short_below: int = Field(default=10, ge=0, description="Length in characters below which the phrases of `short` count.")
    words_before: int = Field(default=6, ge=0, description="Largest number of words in a clause before a phrase that counts.")
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


def load_phrases(phrases: DontKnowPhrases | str) -> DontKnowPhrases:
    """The phrases of a shipped file by name, or the phrases themselves. Raises ValueError for an unknown name."""
    return _shipped(DontKnowPhrases, phrases) if isinstance(phrases, str) else phrases


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
        short = phrases.short if len(text) < phrases.short_below else []
        return next((phrase for phrase in (*phrases.phrases, *short) if _plain(phrase) in text), None)
    words = words_of(text)
    if words in set(map(words_of, phrases.non_answers)):
        return words
    if phrases.languages and read_declining(answer, phrases.languages) == "declines":
        return text[:200]
    clauses = [
        _Clause(number, len(WORD.findall(clause)), _phrase_in(clause, phrases))
        for number, sentence in enumerate(sentences(text))
        for clause in _END_OF_CLAUSE.split(sentence)
        if WORD.search(clause)
    ]
    return _opening_phrase(clauses) or _dominating_phrase(clauses, phrases.dominates)


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


def _plain(text: str) -> str:
    return " ".join(text.replace("\u2019", "'").casefold().split())


def _phrase_in(clause: str, phrases: DontKnowPhrases) -> str | None:
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
