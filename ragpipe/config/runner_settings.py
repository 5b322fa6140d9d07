"""The `runner` section: which processes measure the cases of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from ragpipe.schema.settings import Settings


class AnyRunner(Settings):
    """The base of the settings of every runner, one class per `kind` (`core/registry.py`). No figure depends on it."""

    implementation: ClassVar[str] = ""
    """The `module:function` that opens it, called with a `WorkerStart` (engine/chosen_runner.py), these settings and what warns the user: an
    asynchronous context manager that gives a `SliceRunner`. Empty: the run's own process measures the cases."""

    if TYPE_CHECKING:
        kind: str  # each class declares its own, in its place among the keys

    def missing(self) -> Iterator[tuple[str, str, str, str]]:
        """What this start lacks for it: key, what was found, what was expected, how to fix it."""
        yield from ()

    def stays_here(self, *, computes: bool, shares_store: bool) -> str | None:
        """Why the run's own process measures the cases all the same; None where this runner does.

        Args:
            computes: whether a model computes in the process that measures.
            shares_store: whether other machines reach the call store.
        """
        return None


class LocalRunner(AnyRunner):
    """The run's own process."""

    kind: Literal["local"] = Field(default="local", description="The run's own process measures the cases.")
