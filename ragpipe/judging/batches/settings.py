"""The settings of `transport=batch`: when a round is sent, how large a batch may be, how often it is looked after."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from ragpipe.judging.settings import Price
from ragpipe.schema.settings import Settings


class BatchSettings(Settings):
    """How questions become batches. Nothing of it changes a reply, so it is in no key and no identity."""

    quiet_s: float = Field(
        default=1.0,
        gt=0,
        le=600,
        allow_inf_nan=False,
        description="Seconds without a new question after which those that wait are sent, above 0 to 600.",
    )
    max_requests: int = Field(
        default=10_000,
        ge=1,
        le=100_000,
        description=(
            "Questions in one batch, and cases that are open at once, 1 to 100,000. OpenAI takes 50,000, Anthropic 100,000."
        ),
    )
    max_bytes: int = Field(
        default=100_000_000,
        ge=10_000,
        le=250_000_000,
        description="Bytes of one batch, 10,000 to 250,000,000. OpenAI takes 200 MB, Anthropic 256 MB.",
    )
    poll_s: float = Field(
        default=10.0,
        gt=0,
        le=3600,
        allow_inf_nan=False,
        description="Seconds before a batch is looked after for the first time; each later wait is half as long again.",
    )
    longest_poll_s: float = Field(
        default=60.0,
        gt=0,
        le=3600,
        allow_inf_nan=False,
        description="Longest wait in seconds between two looks, at least `poll_s`, to 3,600.",
    )
    grace_s: float = Field(
        default=600.0,
        ge=0,
        le=86_400,
        allow_inf_nan=False,
        description="Seconds after a batch has expired before it is cancelled and collected, 0 to 86,400.",
    )
    prices: Annotated[Price | None, Field()] = Field(
        default=None,
        description=(
            "Prices of replies that come by batch. null: the batch prices of litellm's table; without one they stay unknown."
        ),
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.longest_poll_s < self.poll_s:
            raise ValueError(
                f"longest_poll_s is {self.longest_poll_s:g} and poll_s {self.poll_s:g}: it cannot be shorter"
            )
        return self
