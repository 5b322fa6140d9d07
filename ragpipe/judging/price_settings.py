"""The `prices` of a model, where the table does not know them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ragpipe.schema.price_rates import Tier, dollars
from ragpipe.schema.settings import Settings


class Price(Settings):
    """US dollars per million tokens, for a model whose price the table does not know (or knows wrongly).

    `cached_input` and `written_input` null: cached tokens, and those written to a cache, cost as much as others; `reasoning` null: as much as the rest of the output.
    """

    input: float = Field(ge=0, allow_inf_nan=False, description="US dollars per million input tokens.")
    output: float = Field(ge=0, allow_inf_nan=False, description="US dollars per million output tokens.")
    cached_input: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        default=None, description="US dollars per million cached input tokens. null: as `input`."
    )
    reasoning: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        default=None, description="US dollars per million reasoning tokens. null: as `output`."
    )

    written_input: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        default=None,
        description="US dollars per million input tokens that the provider writes to its cache. null: as `input`.",
    )

    @property
    def tier(self) -> Tier:
        """These prices, for prompts of any length."""
        cached = self.input if self.cached_input is None else self.cached_input
        reasoning = self.output if self.reasoning is None else self.reasoning
        written = self.input if self.written_input is None else self.written_input
        return Tier(0, self.input, self.output, cached, reasoning, written)

    def usd(self, tokens_in: float, tokens_out: float, cached: float = 0.0, reasoning: float = 0.0) -> float:
        """Dollars for these tokens; `cached` of the `tokens_in` were cached, `reasoning` of the `tokens_out` were reasoning."""
        return float(dollars(tokens_in, tokens_out, cached, reasoning, 0, self.tier))
