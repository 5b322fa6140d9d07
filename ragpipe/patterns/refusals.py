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
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from ragpipe.patterns.languages import Declining, read_declining
from ragpipe.patterns.pattern_files import read_patterns
from ragpipe.patterns.sentences import sentences, words_of
from ragpipe.patterns.timed_regex import Search, check_length, compile_timed
from ragpipe.schema.settings import Settings

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
            "Regular expression of words with which a clause may begin at length before it declines. Default: "
            "matches nothing."
        ),
    )
    words_before: int = Field(
        default=8,
        ge=0,
        description="Largest number of words before an expression that declines, unless the clause begins with `opens`.",
    )
    declines: list[str] = Field(min_length=1, description="Regular expressions of a clause that declines to answer.")
    answers: list[str] = Field(
        default_factory=list,
        description="Regular expressions of a clause that is content, whatever follows. Default: none.",
    )
    training_cutoff: list[str] = Field(
        default_factory=list,
        description="Regular expressions of an excuse by the end of the training data. Default: none.",
    )
    asides: list[str] = Field(
        default_factory=list,
        description=(
            "Regular expressions of a clause that is neither content nor refusal, such as an offer. Default: none."
        ),
    )
    reasons: dict[str, list[str]] = Field(
        default_factory=dict,
        description="Regular expressions by the reason of a refusal that they show. Default: none.",
    )
    non_answers: list[str] = Field(
        default_factory=list,
        description='Whole answers that decline, apart from punctuation, such as "n/a". Default: none.',
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

    @field_validator("declines", "answers", "training_cutoff", "asides")
    @classmethod
    def _check_patterns(cls, patterns: list[str], validation: ValidationInfo) -> list[str]:
        if validation.context is not _SHIPPED:
            for pattern in patterns:
                compile_timed(pattern)
        return patterns

    @field_validator("leads", "opens")
    @classmethod
    def _check_openings(cls, patterns: list[str] | str, validation: ValidationInfo) -> list[str] | str:
        if validation.context is not _SHIPPED:
            for pattern in [patterns] if isinstance(patterns, str) else patterns:
                compile_timed(pattern)
                compile_timed(_at_start(pattern))
        return patterns

    @field_validator("reasons")
    @classmethod
    def _check_reasons(cls, reasons: dict[str, list[str]], validation: ValidationInfo) -> dict[str, list[str]]:
        for patterns in reasons.values():
            cls._check_patterns(patterns, validation)
        return reasons


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


@lru_cache(maxsize=16)
def _load_shipped(name: str) -> RefusalPatterns:
    return RefusalPatterns.model_validate(read_patterns(name), context=_SHIPPED)


def load_refusals(patterns: RefusalPatterns | str) -> RefusalPatterns:
    """The patterns of a shipped file by name, or the patterns themselves. Raises ValueError for an unknown name."""
    return _load_shipped(patterns) if isinstance(patterns, str) else patterns


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
        name
        for name, expressions in patterns.reasons.items()
        if _matches_any(expressions, text, f"reasons.{name}", search)
    )


def _at_start(pattern: str) -> str:
    """The pattern at the start of a text."""
    return f"^(?:{pattern})"


def _matches_any(expressions: list[str], text: str, name: str, search: Search) -> bool:
    return any(search(expression, text, name) for expression in expressions)
