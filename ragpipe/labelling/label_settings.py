"""The `label` section: what is drawn for labels, who is asked, and which labelled files come back."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from ragpipe.labelling.population import VERDICT
from ragpipe.schema.label_question import Grades
from ragpipe.schema.settings import Settings
from ragpipe.scoring.dimensions import field_fault

Share = Annotated[float, Field(ge=0, le=1)]


def _known_field(name: str) -> str:
    if name != VERDICT and (fault := field_fault(name)):
        raise ValueError(f"{fault}; or {VERDICT}, that of the score")
    return name


def _distinct(names: list[str]) -> list[str]:
    if len(set(names)) < len(names) or not all(name.strip() == name != "" for name in names):
        raise ValueError("different names, none of them empty and none with blanks around it")
    return names


class LabelSettings(Settings):
    """What to draw, or which files to import."""

    metric: str | None = Field(
        default=None, description="Name of the metric, or of one of its scores, that is labelled."
    )
    n: int = Field(
        default=60, ge=1, le=100_000, description="How many cases are drawn. A draw that has more keeps them."
    )
    more: int = Field(default=0, ge=0, le=100_000, description="How many cases are added to the draw that there is.")
    draw: Literal["random", "stratified", "threshold", "disagreement", "queue"] = Field(
        default="random",
        description=(
            "random; stratified: shares by `field`; threshold: cases close to it; disagreement: cases that `rejudged` judged "
            "otherwise; queue: all cases with a verdict given on report.html. All but random and queue begin with a random part."
        ),
    )
    random_share: Share = Field(
        default=0.5,
        description="Share of the random part of a stratified or targeted draw, 0 to 1. Agreement goes by it alone.",
    )
    field: Annotated[str, AfterValidator(_known_field)] = Field(
        default="category",
        description="stratified: the field of a case as `scoring.slices` names it, or `verdict`: that of the score.",
    )
    allocation: Literal["proportional", "equal"] = Field(
        default="proportional", description="stratified: shares by the cases of a stratum, or the same for each."
    )
    near: Share = Field(default=0.15, description="threshold: how far from it is close, as a share of the scale.")
    rejudged: str | None = Field(
        default=None, description="disagreement: folder of the run that task=rejudge made of this one."
    )
    seed: int = Field(default=0, ge=0, le=2**32 - 1, description="Seed of the draw. Another seed is another draw.")
    annotators: Annotated[list[str], AfterValidator(_distinct)] = Field(
        default_factory=list,
        description="Names of those who label, who divide the cases among them. Default: anyone, and everyone labels all.",
    )
    shared: Share = Field(default=0.2, description="Share of the cases that all annotators label, 0 to 1.")
    again: Share = Field(
        default=0.05, description="Share of the cases that an annotator is asked again, after 20 others."
    )
    question: str | None = Field(
        default=None, min_length=1, description="What is asked. null: as the metric's `label` says."
    )
    grades: Grades | None = Field(
        default=None,
        description="Grades by name, with their values. null: as the metric's `label` says, else by its scale.",
    )
    files: list[str] = Field(
        default_factory=list,
        alias="import",
        description="Files to read: labels.jsonl of the page, sheets as .csv or .jsonl, verdicts.jsonl of report.html.",
    )
