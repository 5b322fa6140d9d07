"""What is known of each provider's rate limits: its headers, their units, and which tokens its limit counts.

From the providers' documentation as of November 2026. A server that is not in the table is believed less: see `LimitRules`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Counted = Literal["max_tokens", "used"]
Style = Literal["openai", "anthropic", "mistral", "plain", "any"]


@dataclass(frozen=True, slots=True)
class LimitRules:
    """The limits of one provider.

    `style` names its headers (`limit_headers.py`). `trusts_limits`: its `limit` headers mean requests or tokens per minute
    and set the pace; otherwise only what is used up holds requests back. `requests_per_day`: its limit of requests is one
    of a day, which sets no pace. `counts` says whether the limit of tokens counts `max_tokens` when a request arrives, or
    what was used; `counts_cached`: cached tokens of a prompt count too. `is_per_model`: each model has limits of its own under
    one key.
    """

    style: Style = "any"
    trusts_limits: bool = False
    requests_per_day: bool = False
    counts: Counted = "max_tokens"
    counts_cached: bool = True
    is_per_model: bool = True


_TABLE = {
    "openai": LimitRules("openai", trusts_limits=True),
    "azure": LimitRules("openai", trusts_limits=True),
    "groq": LimitRules("openai", trusts_limits=True, requests_per_day=True),
    "anthropic": LimitRules("anthropic", trusts_limits=True, counts="used", counts_cached=False),
    "mistral": LimitRules("mistral", trusts_limits=True, counts="used"),
    "gemini": LimitRules(counts="used"),
    "openrouter": LimitRules("plain", counts="used", is_per_model=False),
}
_OWN_SERVER = LimitRules(is_per_model=False)
_OTHER = LimitRules()


def limit_rules(provider: str, *, own_address: bool) -> LimitRules:
    """The rules of a provider. A server at an address of the user's own (`own_address`) may be anything that speaks the same
    protocol, except that Azure's always are: of its headers only what is used up is believed."""
    if own_address and provider != "azure":
        return _OWN_SERVER
    return _TABLE.get(provider, _OTHER)
