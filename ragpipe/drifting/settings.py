"""The `drift` section: when the judge is checked for drift, and with which questions."""

from __future__ import annotations

from pydantic import Field

from ragpipe.schema.settings import Settings

SHIPPED_CANARIES = "package:canaries.v1.yaml"


class DriftSettings(Settings):
    """When the judge is checked for drift, and with which questions. No figure of a run depends on it."""

    every_run: bool = Field(
        default=False,
        description=(
            "Whether every run that asks a language model asks it the canary set first. task=drift asks it in any case."
        ),
    )
    canaries: str = Field(
        default=SHIPPED_CANARIES,
        min_length=1,
        description="YAML file of the canary set; `package:` names a file of ragpipe.",
    )
    new_baseline: bool = Field(
        default=False, description="Whether this start makes a new baseline, although there is one that holds."
    )
