"""Policies: what an answer must not say, as patterns, each policy with its rule in words for a judge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from ragpipe.core.patterns import Search, check_length, compile_timed, read_patterns
from ragpipe.core.refusals import RefusalPatterns, load_refusals
from ragpipe.core.settings import Settings, accepted_by
from ragpipe.core.text import sentences

Severity = Literal["high", "medium", "low"]


class Pattern(Settings):
    """A regular expression that ignores case. A match does not count in a sentence that `unless` matches too."""

    name: str = Field(min_length=1, description="Name of the pattern, for the details of a score.")
    pattern: Annotated[str, Field(min_length=1), accepted_by(compile_timed)] = Field(
        description="Regular expression that finds a violation in a sentence. It ignores case."
    )
    unless: Annotated[str, accepted_by(compile_timed)] | None = Field(
        default=None, description="Regular expression that excuses the sentence it matches. null: no exception."
    )


class Policy(Settings):
    """A policy: its name, how bad a violation is, the rule in words (shown to a judge), and its patterns."""

    policy: str = Field(pattern=r"^[a-z][a-z0-9_]*$", description="Name of the policy: lower-case letters, digits and '_'.")
    version: str = Field(default="own", description="Name of this version of the policy. It is part of a run's identity.")
    severity: Severity = Field(default="high", description="How bad a violation is.")
    rule: str = Field(min_length=1, description="The rule in words, as the judge sees it.")
    patterns: list[Pattern] = Field(
        default_factory=list, description="Patterns that find violations without a judge. Default: none."
    )


def load_policy(policy: Policy | str) -> Policy:
    """The policy of a shipped file by name, or the policy itself. Raises ValueError for an unknown name."""
    return Policy.model_validate(read_patterns(policy)) if isinstance(policy, str) else policy


def find_violations(text: str, policies: list[Policy]) -> Iterator[dict[str, Any]]:
    """Every pattern that matches, in the order of the policies, with the first sentence that it matches as evidence.

    Raises JudgeError naming the policy and the pattern that took too long (`slow_pattern`), and for a text that is too long
    for patterns (`too_long`).
    """
    check_length(text)
    pieces, search = sentences(text), Search()
    for policy in policies:
        for pattern in policy.patterns:
            name = f"{policy.policy}.{pattern.name}"
            for piece in pieces:
                if not search(pattern.pattern, piece, name):
                    continue
                if pattern.unless and search(pattern.unless, piece, f"{name} (unless)"):
                    continue
                yield {
                    "policy": policy.policy,
                    "severity": policy.severity,
                    "detection": "pattern",
                    "pattern": pattern.name,
                    "evidence": piece,
                }
                break


def _form(value: Any) -> str:
    return "name" if isinstance(value, str) else "written_out"


# The discriminator decides first, so that an error is reported once and not for each member of the union.
Policies = Annotated[
    Annotated[str, Tag("name")] | Annotated[Policy, Tag("written_out")], Discriminator(_form), accepted_by(load_policy)
]
Refusals = Annotated[
    Annotated[str, Tag("name")] | Annotated[RefusalPatterns, Tag("written_out")],
    Discriminator(_form),
    accepted_by(load_refusals),
]
