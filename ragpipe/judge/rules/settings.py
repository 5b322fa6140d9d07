"""The `judge` section of the rules judge (`judge=rules`)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from ragpipe.core.score import RULES
from ragpipe.core.settings import NotInIdentity
from ragpipe.judge.question import AnyJudge

WINDOW = 3
"""Sentences in a row of one passage that a claim is compared with."""
CONTRADICTS_FROM = 0.33
"""Mean overlap from which a claim with an objection counts as contradicted and not only as unsupported. Apart from the threshold, so
that a stricter one turns no contradiction into mere lack of support, which would raise grades."""


class RulesSettings(AnyJudge):
    """The rules judge: no key, no network, no weights. Every setting can change a verdict, so all are identity.

    `threshold`: mean overlap (0..1) from which a claim counts as supported. A claim with a number, name or quotation that no source has, or with the opposite negation of its twin sentence, is
    not supported whatever the overlap.
    """

    implementation: ClassVar[str] = "ragpipe.judge.rules.rules_judge:RulesJudge"
    keeps_replies: ClassVar[bool] = False
    rules: ClassVar[str] = RULES

    kind: Annotated[Literal["rules"], NotInIdentity] = Field(
        default="rules", description="The rules judge: compares words, numbers, names and quotations with the passages."
    )
    threshold: float = Field(
        default=0.33,
        gt=0,
        le=1,
        allow_inf_nan=False,
        description="Mean overlap, above 0 to 1, from which a claim counts as supported. Higher is stricter.",
    )

    def identity(self) -> dict[str, Any]:
        """What can change a verdict."""
        return {**super().identity(), "rules": self.rules, "window": WINDOW, "contradicts_from": CONTRADICTS_FROM}

    @property
    def label(self) -> str:
        """Short printable name."""
        return self.rules

    @property
    def title(self) -> str:
        return "the rules judge"

    def identity_of_judge(self) -> dict[str, Any]:
        """What an answer depends on besides the question: part of every question's key."""
        return self.identity()
