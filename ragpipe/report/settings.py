"""The `report` section: what is printed and written. No number depends on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from ragpipe.core.digest import sha256
from ragpipe.core.score import judge_name
from ragpipe.core.settings import Settings
from ragpipe.core.text import on_one_line

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
            "with too few cases to tell; drop: a score that is worse, or a failure mode that is more frequent, than in the run of `against`, beyond chance."
        ),
    )
    against: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="Run that scores are compared with: a run id, a name or a folder. null, or `latest`: the previous run, of the same name.",
    )


class ReportSettings(Settings):
    """`formats` are the reports to make. `percent` names 0..1 scores that tables print times 100."""

    formats: list[ReportFormat] = Field(
        default=["terminal", "markdown", "html"],
        description=(
            "Reports to make: terminal prints the verdict and what matters most, markdown and html write a page, junit a file for CI, csv "
            "and json all tables."
        ),
    )
    percent: list[str] = Field(
        default_factory=list,
        description="Scores of the scale 0 to 1 that tables print times 100. Files always hold 0 to 1. Default: none.",
    )
    page_cases: Annotated[int, Field(ge=1)] | None = Field(
        default=2000,
        description=("Cases that report.html holds in full, the worst first; its list and charts are of all. null: all."),
    )
    alerts: AlertSettings = Field(
        default_factory=AlertSettings, description="The file that an evaluation appends what needs a look to."
    )


def run_signature(
    *,
    version: str,
    dataset: str,
    dataset_digest: str,
    judge: str,
    calibration: str,
    metrics: Mapping[str, str],
    scoring: Mapping[str, Any],
    n: int,
    iteration: int,
    versions: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """`ragpipe 0.1.0 | data demo@1a2b3c4d | judge openai/m (uncalibrated) | faithfulness(extract:v1 verify:v1) ...`.

    `version` is that of ragpipe, `judge` the judge's label, `calibration` what to say of its calibration against human labels,
    empty where every score has passed one; `metrics` has the signature of each (version and prompts), which may be empty;
    `scoring` is `ScoringSettings.identity()`, `n` the number of cases. `versions` are those that the outputs of each method
    name; where there are any, a part `system naive v1, graph v2` says so.
    """
    systems = [f"{method} {'+'.join(names)}" for method, names in (versions or {}).items()]
    parts = (
        f"ragpipe {version}",
        f"data {dataset}@{dataset_digest[:8]}",
        *([f"system {', '.join(systems)}"] if systems else []),
        f"judge {judge_name(judge)}" + (f" ({calibration})" if calibration else ""),
        " ".join(f"{name}({version})" if version else name for name, version in metrics.items()) or "no metrics",
        f"scoring {sha256(dict(scoring))[:8]}",
        f"n={n}",
        f"iteration {iteration}",
    )
    return " | ".join(on_one_line(part.replace("|", "/"), 2000) for part in parts)
