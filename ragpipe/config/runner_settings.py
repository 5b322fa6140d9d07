"""The `runner` section: which processes measure the cases of a run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ragpipe.schema.settings import Settings


class RunnerSettings(Settings):
    """Which processes measure the cases. No figure depends on it."""

    kind: Literal["local", "processes"] = Field(
        default="local",
        description=(
            "local: one process does everything. processes: several on this machine measure the cases, where no model is asked."
        ),
    )
    workers: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Processes. null: one per core that this process may use."
    )
    slice: int = Field(
        default=250, ge=1, description="The most cases that a process gets at once, and does again if it dies."
    )
