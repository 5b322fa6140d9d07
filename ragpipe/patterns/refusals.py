"""Does an answer decline? Read off the whole answer: a refusal phrase in an answer that goes on to answer is none.

The answer is cut into clauses. Each is one of: declining, an excuse by the end of the training data, an aside (a
question, an offer, advice to ask elsewhere, what the sources deal with instead), or content. An answer is a refusal when
something in it declines and nothing in it is content. English only.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from ragpipe.patterns.pattern_files import read_patterns
from ragpipe.patterns.sentences import sentences
from ragpipe.patterns.timed_regex import Search, check_length, compile_timed
from ragpipe.schema.settings import Settings

Kind = Literal["declines", "training_cutoff", "aside", "content"]

_WORD = re.compile(r"[^\W_]+(?:['/][^\W_]+)*")
_PIECE = re.compile(r"\{([a-z_]+)\}")
_QUOTED = re.compile(r"“[^“”]{0,400}”|\"[^\"\n]{0,400}\"")
_MARK = re.compile(r"\[[^\[\]\n]{1,20}\]|【[^】]{1,40}】")
_BLANKS = re.compile(r"[^\S\n]+")
_CUT = re.compile(  # for text with single blanks: `\s*` before a sign takes a second for 5,000 of them
    r"; | ?[—–] |: (?=\S)"
    r"|, (?:but|although|though|yet|however)\b,? ?"
    r"| but (?=(?:i|it|its|the|they|this|that|these|we|he|she|you|in|here|there|according|based)\b)",
    re.I,
)
_OPENING = re.compile(
    r"(?:but|however|although|though|yet|and|so|therefore|thus|nevertheless|still|also|as such)\b,?\s*", re.I
)


class RefusalPatterns(Settings):
    """What declines, by lists of expressions without regard to case. `pieces` are texts that `{name}` stands for in all.

    `leads` are openings that say nothing by themselves and are cut off a clause before it is read; `opens` the words
    with which a clause may begin at length before it declines, `answers` clauses that are content whatever follows; `reasons` expressions by the reason of a refusal. `non_answers` are whole answers that decline ("n/a"), punctuation aside.
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

    @model_validator(mode="before")
    @classmethod
    def _filled(cls, given: Any) -> Any:
        """The pieces put in place, so that what a run's identity holds is what is searched for."""
        if not isinstance(given, dict) or not isinstance(given.get("pieces"), dict):
            return given
        pieces = given["pieces"]

        def fill(value: Any) -> Any:
            if isinstance(value, str):
                return _PIECE.sub(lambda m: pieces.get(m[1], m[0]), value)
            if isinstance(value, list):
                return [fill(item) for item in value]
            return {name: fill(item) for name, item in value.items()} if isinstance(value, dict) else value

        return {**{name: fill(value) for name, value in given.items()}, "pieces": {}}

    @field_validator("declines", "answers", "training_cutoff", "asides")
    @classmethod
    def _readable(cls, given: list[str]) -> list[str]:
        for pattern in given:
            compile_timed(pattern)
        return given

    @field_validator("leads", "opens")
    @classmethod
    def _readable_in_front(cls, given: list[str] | str) -> list[str] | str:
        for pattern in [given] if isinstance(given, str) else given:
            compile_timed(pattern)
            compile_timed(_in_front(pattern))
        return given

    @field_validator("reasons")
    @classmethod
    def _readable_reasons(cls, given: dict[str, list[str]]) -> dict[str, list[str]]:
        for patterns in given.values():
            cls._readable(patterns)
        return given


@dataclass(frozen=True, slots=True)
class RefusalReading:
    """`refused`: the answer as a whole declines. `training_cutoff`: it speaks of the end of its training data, refused or
    not. `clauses` says what each part was read as; `reasons` names those that a refusal gives."""

    refused: bool
    training_cutoff: bool
    clauses: tuple[tuple[Kind, str], ...]
    reasons: tuple[str, ...]


@lru_cache(maxsize=16)
def _shipped(name: str) -> RefusalPatterns:
    return RefusalPatterns.model_validate(read_patterns(name))


def named_refusals(given: RefusalPatterns | str) -> RefusalPatterns:
    """The patterns of a shipped file, or those written out. Raises ValueError for an unknown name."""
    return _shipped(given) if isinstance(given, str) else given


def read_refusal(answer: str, patterns: RefusalPatterns) -> RefusalReading:
    """Read one answer. Runs of blanks count as one. Raises JudgeError when a pattern takes too long (`slow_pattern`) and for
    a text that no pattern is run on (`too_long`)."""
    check_length(answer)
    text = answer.strip()
    if text[:1] in '"“' and text[-1:] in '"”' and not any(c in text[1:-1] for c in '"“”'):
        text = text[1:-1]
    text = _BLANKS.sub(" ", _MARK.sub("", _QUOTED.sub('""', text.replace("’", "'"))))
    if words_of(text) in {words_of(whole) for whole in patterns.non_answers}:
        return RefusalReading(True, False, (("declines", text),), ())
    cutoff, search = False, Search()
    clauses: list[tuple[Kind, str]] = []
    for clause in (part for sentence in sentences(text) for part in _clauses(sentence)):
        kind = _kind(clause, patterns, search)
        cutoff = (
            cutoff or kind == "training_cutoff" or _any(patterns.training_cutoff, clause, "training_cutoff", search)
        )
        clauses.append((kind, clause))
    kinds = {kind for kind, _ in clauses}
    refused = bool(kinds & {"declines", "training_cutoff"}) and "content" not in kinds
    reasons = (
        tuple(n for n, some in patterns.reasons.items() if _any(some, text, f"reasons.{n}", search)) if refused else ()
    )
    return RefusalReading(refused, cutoff, tuple(clauses), reasons)


async def read_refusal_async(answer: str, patterns: RefusalPatterns | str) -> RefusalReading:
    """`read_refusal` in a thread: a user's pattern may take its whole second, and other cases must not wait for it."""
    return await asyncio.to_thread(read_refusal, answer, named_refusals(patterns))


def words_of(text: str) -> str:
    """The words of a short text in one form: what two whole answers have in common when they say the same."""
    return " ".join(_WORD.findall(text.replace("\u2019", "'").casefold()))


def _clauses(sentence: str) -> list[str]:
    """The parts of a sentence that could stand alone; the sign that ends the sentence stays with its last part."""
    parts, start = [], 0
    for cut in _CUT.finditer(sentence):
        parts.append(sentence[start : cut.start()] + (":" if cut[0].startswith(":") else ""))
        start = cut.end()
    return [part for part in (*parts, sentence[start:]) if any(c.isalnum() for c in part)]


def _kind(clause: str, patterns: RefusalPatterns, search: Search) -> Kind:
    rest = _OPENING.sub("", clause.strip(), count=1) if _OPENING.match(clause.strip()) else clause.strip()
    for lead in patterns.leads:
        if found := search(_in_front(lead), rest, "leads"):
            rest = rest[found.end() :].lstrip(" ,")
    if not any(c.isalnum() for c in rest):
        return "training_cutoff" if _any(patterns.training_cutoff, clause, "training_cutoff", search) else "aside"
    if rest.endswith(("?", ":")):
        return "aside"
    if _any(patterns.answers, rest, "answers", search):
        return "content"
    for kind, some in (("declines", patterns.declines), ("training_cutoff", patterns.training_cutoff)):
        for pattern in some:
            found = search(pattern, rest, kind)
            if found and not _says_something_before(rest[: found.start()], patterns, search):
                return kind  # type: ignore[return-value]
    return "aside" if _any(patterns.asides, rest, "asides", search) else "content"


def _says_something_before(text: str, patterns: RefusalPatterns, search: Search) -> bool:
    """Whether so much stands before the phrase that it is a statement of its own: `PSA over 10 means risk, so I cannot ...`."""
    return len(text.split()) > patterns.words_before and not search(_in_front(patterns.opens), text, "opens")


def _in_front(pattern: str) -> str:
    """The pattern at the beginning of a text."""
    return f"^(?:{pattern})"


def _any(some: list[str], text: str, name: str, search: Search) -> bool:
    return any(search(pattern, text, name) for pattern in some)
