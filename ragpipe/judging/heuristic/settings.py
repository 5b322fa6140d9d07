"""The `judge` section of the heuristic judge (`judge=evidence`)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from ragpipe.judging.any_judge import AnyJudge
from ragpipe.schema.settings import NotInIdentity, Settings


class OverlapWeights(Settings):
    """How much each of the four overlaps counts in the mean that is compared with the threshold. They are divided by their sum."""

    recall: float = Field(
        ge=0, allow_inf_nan=False, description="Weight of the words that are anywhere in the sources."
    )
    window: float = Field(ge=0, allow_inf_nan=False, description="Weight of the words in the best window of sentences.")
    bigrams: float = Field(ge=0, allow_inf_nan=False, description="Weight of the adjacent pairs of words.")
    lcs: float = Field(
        ge=0, allow_inf_nan=False, description="Weight of the longest common order of words with that window."
    )

    @model_validator(mode="after")
    def _some_weight(self) -> OverlapWeights:
        if not self.recall + self.window + self.bigrams + self.lcs > 0:
            raise ValueError("weights that are not all 0")
        return self


class HeuristicSettings(AnyJudge):
    """The heuristic judge: no key, no network, no weights. Every setting can change a verdict, so all are identity.

    `threshold`: mean overlap (0..1) from which a claim counts as supported; `overlap_weights`: weights of that mean (`task=calibrate
    calibrate.fit=true` fits both to labels of your own); `window`: sentences in a row that are
    compared with a claim; `contradicts_from`: overlap from which a claim with such an objection counts as contradicted and
    not only as unsupported (apart from the threshold, so that a stricter one never raises a grade). A claim with a number,
    name or quotation that no source has, or with the opposite negation of its twin sentence, is not supported whatever the overlap.
    """

    implementation: ClassVar[str] = "ragpipe.judging.heuristic.heuristic_judge:HeuristicJudge"
    keeps_replies: ClassVar[bool] = False

    kind: Annotated[Literal["evidence"], NotInIdentity] = Field(
        default="evidence",
        description="The embedded judge: compares words, numbers, names and quotations with the passages.",
    )
    rules: Literal["evidence-v1"] = Field(default="evidence-v1", description="Version of the rules.")
    overlap_weights: OverlapWeights | None = Field(
        default=None, description="Weights of the four overlaps in their mean. null: all count alike."
    )
    threshold: float = Field(
        default=0.33,
        gt=0,
        le=1,
        allow_inf_nan=False,
        description="Mean overlap, above 0 to 1, from which a claim counts as supported. Higher is stricter.",
    )
    contradicts_from: float = Field(
        default=0.33,
        gt=0,
        le=1,
        allow_inf_nan=False,
        description=(
            "Mean overlap, above 0 to 1, from which a claim with an objection counts as contradicted and not only "
            "as unsupported."
        ),
    )
    window: int = Field(
        default=3, ge=1, le=20, description="Sentences in a row of one passage that a claim is compared with, 1 to 20."
    )

    def identity(self) -> dict[str, Any]:
        """What can change a verdict. Weights that are not set are left out: with them this is another judge, without them it is
        the one that it was."""
        fields = super().identity()
        return {name: value for name, value in fields.items() if name != "overlap_weights" or value is not None}

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
