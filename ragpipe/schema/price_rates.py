"""The prices of a model: US dollars per million tokens, and what replies cost by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KINDS = ("input", "output", "cached_input", "reasoning", "written_input")
NO_USAGE = "the reply names no usage that can be believed"
_MILLION = 1e6


@dataclass(frozen=True, slots=True)
class Tier:
    """US dollars per million tokens of prompts with more than `above` tokens. `cached_input`, `written_input` and `reasoning`
    are what the part of the input that was found in the cache, the part that was written to it and the reasoning part of the output cost: as
    much as the rest where nothing else is said."""

    above: int
    input: float
    output: float
    cached_input: float
    reasoning: float
    written_input: float


@dataclass(frozen=True, slots=True)
class Rates:
    """The prices of one model. `source` says where they come from; without `tiers` they are unknown, `reason` says why."""

    model: str
    source: str
    tiers: tuple[Tier, ...] = ()
    reason: str = ""

    def usd(
        self,
        tokens_in: float | None,
        tokens_out: float | None,
        cached: float | None = None,
        reasoning: float | None = None,
        written: float | None = None,
    ) -> float | None:
        """Dollars for one reply, None where its tokens or the price are unknown. What was cached, thought or written may be unknown.

        Args: as of `usd_of`, for one reply.
        """
        if tokens_in is None or tokens_out is None or not self.tiers:
            return None
        tier = next(t for t in reversed(self.tiers) if tokens_in > t.above or t is self.tiers[0])
        return float(dollars(tokens_in, tokens_out, cached or 0, reasoning or 0, written or 0, tier))

    def most_usd(self, tokens_in: int, tokens_out: int) -> float | None:
        """Dollars that a reply with at most so many tokens can cost: at the dearest price of any kind of token and any length of
        prompt up to there. None where the price is unknown."""
        reached = [tier for tier in self.tiers if tier is self.tiers[0] or tokens_in > tier.above]
        prices_in = [max(tier.input, tier.cached_input, tier.written_input) for tier in reached]
        prices_out = [max(tier.output, tier.reasoning) for tier in reached]
        return (tokens_in * max(prices_in) + tokens_out * max(prices_out)) / _MILLION if reached else None

    def usd_of(self, tokens_in: Any, tokens_out: Any, cached: Any, reasoning: Any, written: Any) -> Any:
        """The same for arrays of many replies: NaN where it is unknown, also among the tokens.

        Args:
            tokens_in: prompt tokens of each reply.
            tokens_out: completion tokens.
            cached: the part of `tokens_in` that was found in the cache.
            reasoning: the part of `tokens_out` spent on reasoning.
            written: the part of `tokens_in` that was written to the cache.
        """
        import numpy as np

        dollars_by_reply = np.full(len(tokens_in), np.nan)
        for tier in self.tiers:
            here = tokens_in > tier.above if tier is not self.tiers[0] else np.ones(len(tokens_in), dtype=np.bool_)
            parts = (np.nan_to_num(part[here]) for part in (cached, reasoning, written))
            dollars_by_reply[here] = dollars(tokens_in[here], tokens_out[here], *parts, tier)  # type: ignore[call-arg]
        return dollars_by_reply

    def document(self) -> dict[str, Any]:
        """As it is written to `cost.json`."""
        head = {"model": self.model, "source": self.source}
        if not self.tiers:
            return {**head, "unknown": self.reason}
        names = ("above", *KINDS)
        return {**head, "usd_per_million": [{name: getattr(tier, name) for name in names} for tier in self.tiers]}

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> Rates:
        """What `document` gave."""
        tiers = tuple(Tier(**tier) for tier in document.get("usd_per_million", ()))
        return cls(document["model"], document["source"], tiers, document.get("unknown", ""))


def dollars(tokens_in: Any, tokens_out: Any, cached: Any, reasoning: Any, written: Any, tier: Tier) -> Any:
    """US dollars by the prices of one tier, for numbers or arrays.

    Args:
        tokens_in: prompt tokens.
        tokens_out: completion tokens.
        cached: the part of `tokens_in` that the provider had cached.
        reasoning: the part of `tokens_out` spent on reasoning.
        written: the part of `tokens_in` that the provider wrote to its cache.
        tier: the prices, in US dollars per million tokens.
    """
    into = (tokens_in - cached - written) * tier.input + cached * tier.cached_input + written * tier.written_input
    return (into + (tokens_out - reasoning) * tier.output + reasoning * tier.reasoning) / _MILLION
