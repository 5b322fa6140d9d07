"""The `label` section: what is drawn for labels, who is asked, and which labelled files come back."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from ragpipe.schema.score import Grades
from ragpipe.schema.settings import Settings


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
        default=60,
        ge=1,
        le=100_000,
        description="How many cases are drawn. A draw that has fewer grows to them; one that has more keeps them.",
    )
    draw: Literal["random", "by_method"] = Field(
        default="random",
        description=(
            "random; by_method: half of the draw at random, then the same number of each method. Agreement goes by the random half."
        ),
    )
    seed: int = Field(default=0, ge=0, le=2**32 - 1, description="Seed of the draw. Another seed is another draw.")
    annotators: Annotated[list[str], AfterValidator(_distinct)] = Field(
        default_factory=list,
        description="Names of those who label, who divide the cases among them, a fifth for all. Default: anyone, and everyone labels all.",
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
        description="Files to read: labels.jsonl of the page, sheets as .csv, verdicts.jsonl of report.html.",
    )
