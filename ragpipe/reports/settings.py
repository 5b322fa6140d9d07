"""The `report` section: what is printed and written. No number depends on it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ragpipe.pages.side_files import SINGLE_FILE_MB
from ragpipe.schema.settings import Settings

Detail = Literal["short", "full"]
ReportFormat = Literal["terminal", "markdown", "html", "junit", "csv", "json"]
Alert = Literal["failed", "unmeasured", "inconclusive", "drop"]
ALERTS: list[Alert] = ["failed", "unmeasured", "drop"]


class AlertSettings(Settings):
    """A file of JSON lines to which each evaluation appends what needs a look; `file: null` for none. `kinds` says what, `against` which
    run a score is compared with."""

    file: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="File of JSON lines that alerts are appended to. null: none."
    )
    kinds: list[Alert] = Field(
        default=ALERTS,
        description=(
            "What is an alert. failed: a gate that failed; unmeasured: one that could not be measured or trusted; inconclusive: one "
            "with too few cases to tell; drop: a score that is worse than in the run of `against`, beyond chance."
        ),
    )
    against: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="Run that scores are compared with: a run id, a name or a folder. null, or `latest`: the run before, of the same name.",
    )


class ReportSettings(Settings):
    """`formats` are the reports to make. `detail` says how much the terminal shows. `percent` names 0..1 scores that tables print
    times 100. A page with more than `single_file_mb` megabytes of data has files beside it.
    """

    formats: list[ReportFormat] = Field(
        default=["terminal", "markdown", "html"],
        description=(
            "Reports to make: terminal prints tables, markdown and html write a page, junit a file for CI, csv "
            "and json all tables."
        ),
    )
    detail: Detail = Field(
        default="short",
        description=(
            "How much the terminal shows. short: verdict, main scores, the three largest problems, the path of the report; full: all "
            "tables. Default: short."
        ),
    )
    percent: list[str] = Field(
        default_factory=list,
        description="Scores of the scale 0 to 1 that tables print times 100. Files always hold 0 to 1. Default: none.",
    )
    single_file_mb: float = Field(
        default=SINGLE_FILE_MB,
        ge=0,
        le=500,
        description=(
            "Megabytes of data that report.html and compare.html hold themselves, 0 to 500. Of more, most goes to files beside the "
            "page, in the folder report.data or compare.data, which has to be kept with it."
        ),
    )
    alerts: AlertSettings = Field(
        default_factory=AlertSettings, description="The file that an evaluation appends what needs a look to."
    )
