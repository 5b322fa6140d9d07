"""The `report` section: what is printed and written. No number depends on it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ragpipe.schema.settings import Settings

Format = Literal["terminal", "markdown", "html", "junit", "csv", "json"]


class ReportSettings(Settings):
    """`formats` are the reports to make. `percent` names 0..1 scores that tables print times 100. `worst_cases` is how
    many of the lowest cases report.md shows, `text_chars` how much of each of their texts. `html_cases` is how many cases
    report.html holds in full.
    """

    formats: list[Format] = ["terminal", "markdown", "html"]  # noqa: RUF012 - pydantic copies it
    percent: list[str] = Field(default_factory=list)
    worst_cases: int = Field(default=10, ge=0, le=1000)
    text_chars: int = Field(default=600, ge=40, le=100_000)
    html_cases: int = Field(default=150, ge=0, le=5000)
