"""The `build` section: how a test set is drawn from a log."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from ragpipe.datasets.mapping_settings import PathExpression
from ragpipe.schema.settings import Settings

Draw = Literal["random", "stratified", "low_score", "disagreement"]


class BuildSettings(Settings):
    """How many cases are drawn, how, and what is done with them before they are frozen."""

    dir: str = Field(min_length=1, description="Folder of the frozen set. It must be new or empty.")
    n: Annotated[int, Field(ge=1, le=50_000)] | None = Field(
        default=500, description="Number of cases, 1 to 50,000. null: every distinct question, or the sum of `quotas`."
    )
    draw: Draw = Field(
        default="random",
        description=(
            "random; stratified (by the field `by`); low_score (the lowest values of `score` first); disagreement (the greatest "
            "differences of `score` first)."
        ),
    )
    by: PathExpression | None = Field(
        default=None, description="stratified: path of a field of the mapped case: category, meta.topic."
    )
    quotas: dict[str, Annotated[int, Field(ge=1)]] | None = Field(
        default=None, description="stratified: number of cases by value of the field. null: equal shares of `n`."
    )
    score: str | None = Field(
        default=None,
        min_length=1,
        description="low_score, disagreement: name under `recorded`, or of a score of `run`.",
    )
    run: str | None = Field(
        default=None,
        min_length=1,
        description="Folder of a finished run over these data, for its scores. null: recorded ones.",
    )
    between: Literal["methods", "judges"] = Field(
        default="methods",
        description="disagreement: between the methods of one question, or the recorded verdicts of one output.",
    )
    seed: int | None = Field(default=None, description="Seed of the draw. null: the run's `seed`.")
    pool: int = Field(
        default=10,
        ge=1,
        le=100,
        description="So many times the wanted cases are drawn first, to refill from. 1 to 100.",
    )
    near: Annotated[float, Field(gt=0.5, lt=1)] | None = Field(
        default=0.9,
        description="Likeness of two questions from which the second is a near duplicate, 0.5 to 1. null: they are kept.",
    )
    personal_data: Literal["replace", "drop", "keep"] = Field(
        default="replace",
        description="replace: by <EMAIL> and the like; drop: cases with any are left out; keep: nothing is searched.",
    )
    drop_meta: list[Annotated[str, Field(min_length=1)]] = Field(
        default_factory=list,
        description="Names under `meta` that are left out: [user, session.address]. Default: none.",
    )
    answers: Literal["keep", "drop"] = Field(
        default="keep", description="keep: with the recorded outputs; drop: questions only, for a live system."
    )
    labels: Literal["keep", "blank"] = Field(
        default="keep",
        description="blank: category, answerable, expected and references are written empty where the log has none.",
    )
    faults: Literal["refuse", "skip"] = Field(
        default="refuse",
        description="Records that cannot be used: refuse the data set, or leave them out and count them.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> BuildSettings:
        if (self.draw == "stratified") != (self.by is not None):
            raise ValueError("`draw: stratified` and `by` go together: the field whose values are the strata")
        if self.quotas is not None and self.draw != "stratified":
            raise ValueError("`quotas` are for `draw: stratified`")
        if self.quotas is not None and self.n not in (None, 500, sum(self.quotas.values())):
            raise ValueError(
                f"`quotas` are {sum(self.quotas.values())} cases together: set `n` to that, or leave it out"
            )
        if (self.draw in ("low_score", "disagreement")) != (self.score is not None):
            raise ValueError("`draw: low_score` and `draw: disagreement` need `score`, and no other draw does")
        if self.run is not None and self.score is None:
            raise ValueError("`run` gives the values of `score`: it needs `draw: low_score` or `draw: disagreement`")
        if self.run is not None and self.draw == "disagreement" and self.between == "judges":
            raise ValueError("`between: judges` compares recorded verdicts of one output; a run has one value each")
        if self.draw == "stratified" and self.n is None and self.quotas is None:
            raise ValueError("`draw: stratified` needs `n` or `quotas`: without both, every question is taken")
        return self

    def seeded(self, seed: int) -> BuildSettings:
        """With this seed where it has none of its own."""
        return self if self.seed is not None else self.model_copy(update={"seed": seed})

    @property
    def size(self) -> int | None:
        """The number of cases; None for every distinct question."""
        return sum(self.quotas.values()) if self.quotas is not None else self.n
