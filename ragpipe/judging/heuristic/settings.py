"""The `judge` section of the heuristic judge (`judge=evidence`)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from ragpipe.judging.any_judge import AnyJudge
from ragpipe.schema.settings import NotInIdentity

CONTRADICTS_FROM = 0.33
"""Mean overlap from which a claim with an objection counts as contradicted and not only as unsupported. Apart from the threshold, so
that a stricter one turns no contradiction into mere lack of support, which would raise grades."""


class HeuristicSettings(AnyJudge):
    """The heuristic judge: no key, no network, no weights. Every setting can change a verdict, so all are identity.

    `threshold`: mean overlap (0..1) from which a claim counts as supported; `window`: sentences in a row that are compared with
    a claim. A claim with a number, name or quotation that no source has, or with the opposite negation of its twin sentence, is
    not supported whatever the overlap.
    """

    implementation: ClassVar[str] = "ragpipe.judging.heuristic.heuristic_judge:HeuristicJudge"
    keeps_replies: ClassVar[bool] = False

    kind: Annotated[Literal["evidence"], NotInIdentity] = Field(
        default="evidence",
        description="The embedded judge: compares words, numbers, names and quotations with the passages.",
    )
    rules: Literal["evidence-v1"] = Field(default="evidence-v1", description="Version of the rules.")
    threshold: float = Field(
        default=0.33,
        gt=0,
        le=1,
        allow_inf_nan=False,
        description="Mean overlap, above 0 to 1, from which a claim counts as supported. Higher is stricter.",
    )
    window: int = Field(
        default=3, ge=1, le=20, description="Sentences in a row of one passage that a claim is compared with, 1 to 20."
    )

    def identity(self) -> dict[str, Any]:
        """What can change a verdict."""
        return {**super().identity(), "contradicts_from": CONTRADICTS_FROM}

    @property
    def label(self) -> str:
        """Short printable name."""
        return self.rules

    @property
    def title(self) -> str:
        return "the embedded judge"

    def identity_of_judge(self) -> dict[str, Any]:
        """What an answer depends on besides the question: part of every question's key."""
        return self.identity()
