"""The key `budget` of a section: how much its calls may cost over all starts of a run."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ragpipe.schema.amount import PARTS
from ragpipe.schema.settings import Settings


class BudgetSettings(Settings):
    """Limits that no start of the run goes beyond: money, tokens and requests, each null for no limit.

    Retries and repairs count, and requests that timed out or broke off count as if they were answered in full.
    """

    usd: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None, description="US dollars that all starts of a run may spend together, above 0. null: no limit."
    )
    tokens: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="Tokens, in and out, of all starts of a run together, 1 or more. null: no limit.",
    )
    calls: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description=(
            "Requests, retries included, that all starts of a run may send and have answered, 1 or more. null: no limit."
        ),
    )

    @property
    def is_set(self) -> bool:
        """Whether there is any limit."""
        return any(getattr(self, part) is not None for part in PARTS)
