"""The `report` section: what is printed and written. No number depends on it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ragpipe.schema.settings import Settings

ReportFormat = Literal["terminal", "markdown", "html", "junit", "csv", "json"]


class ReportSettings(Settings):
    """`formats` are the reports to make. `percent` names 0..1 scores that tables print times 100. `worst_cases` is how
    many of the lowest cases report.md shows, `text_chars` how much of each of their texts. `html_cases` is how many cases
    report.html holds in full.
    """

    formats: list[ReportFormat] = Field(
        default=["terminal", "markdown", "html"],
        description=(
            "Reports to make: terminal prints tables, markdown and html write a page, junit a file for CI, csv "
            "and json all tables."
        ),
    )
    percent: list[str] = Field(
        default_factory=list,
        description="Scores of the scale 0 to 1 that tables print times 100. Files always hold 0 to 1. Default: none.",
    )
    worst_cases: int = Field(default=10, ge=0, le=1000, description="Number of lowest cases in report.md, 0 to 1,000.")
    text_chars: int = Field(
        default=600, ge=40, le=100_000, description="Characters shown of each text of these cases, 40 to 100,000."
    )
    html_cases: int = Field(
        default=150,
        ge=0,
        le=5000,
        description=(
            "Number of cases that report.html holds in full, 0 to 5,000: the worst first, then a sample of the others."
        ),
    )
