"""The `drift` section: with which questions `task=drift` checks a judge."""

from __future__ import annotations

from pydantic import Field

from ragpipe.schema.settings import Settings

SHIPPED_CANARIES = "package:canaries.v1.yaml"


class DriftSettings(Settings):
    """With which questions a judge is checked for drift. No figure of a run depends on it."""

    canaries: str = Field(
        default=SHIPPED_CANARIES,
        min_length=1,
        description="YAML file of the canary set; `package:` names a file of ragpipe.",
    )
