"""What is known of a server's limits: by its rate-limit headers, in one form for all providers, and by the provider's documentation
as of November 2026."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Counted = Literal["max_tokens", "used"]
Style = Literal["openai", "anthropic", "mistral", "plain", "any"]


@dataclass(frozen=True, slots=True)
class LimitRules:
    """The limits of one provider.

    `style` names its headers. `trusts_limits`: its `limit` headers mean requests or tokens per minute
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


def limit_rules(provider: str, *, own_address: bool) -> LimitRules:
    """The rules of a provider. A server at an address of the user's own (`own_address`) may be anything that speaks the same
    protocol, except that Azure's always are: of its headers only what is used up is believed."""
    if own_address and provider != "azure":
        return LimitRules(is_per_model=False)
    return _TABLE.get(provider, LimitRules())


Unit = Literal["requests", "tokens", "input", "output"]
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_NAMES: dict[Style, dict[Unit, str]] = {
    "openai": {"requests": "x-ratelimit-{}-requests", "tokens": "x-ratelimit-{}-tokens"},
    "anthropic": {
        "requests": "anthropic-ratelimit-requests-{}",
        "input": "anthropic-ratelimit-input-tokens-{}",
        "output": "anthropic-ratelimit-output-tokens-{}",
    },
    "mistral": {"requests": "x-ratelimit-{}-req-minute", "tokens": "x-ratelimit-{}-tokens-minute"},
    "plain": {"requests": "x-ratelimit-{}"},
}
"""By style, for each unit: the headers with the limit, with what remains, and with the time of the reset."""


@dataclass(frozen=True, slots=True)
class LimitState:
    """One limit as a response describes it, each part None where it is not said: what it allows, what remains of that, and the seconds
    until nothing of it is used any more."""

    unit: Unit
    limit: float | None
    remaining: float | None
    reset_s: float | None


def read_limits(headers: Mapping[str, str], style: Style, now: float | None = None) -> list[LimitState]:
    """The limits that the headers describe; names are read in lower case. `now` is in seconds of `time.time`.

    Values that are no numbers count as not said. The style `any` reads those of `openai` and `plain`.
    """
    found = []
    for one in ("openai", "plain") if style == "any" else (style,):
        for unit, name in _NAMES[one].items():
            limit, remaining, reset = (headers.get(name.format(part)) for part in ("limit", "remaining", "reset"))
            if limit is not None or remaining is not None:
                found.append(LimitState(unit, _number(limit), _number(remaining), _seconds_until(reset, now)))
    return found


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text is not None else -1.0
    except ValueError:
        return None
    return number if 0 <= number < 1e15 else None


def _seconds_until(text: str | None, now: float | None) -> float | None:
    """Seconds until a time in any of the forms in use: `6m0s`, `120ms`, seconds, an RFC 3339 time, an epoch in seconds or
    milliseconds."""
    if not text:
        return None
    text = text.strip()
    now = time.time() if now is None else now
    number = _number(text)
    if number is not None:
        until = number / 1000 - now if number > 1e11 else number - now if number > 1e9 else number
        return max(0.0, until)
    parts = _DURATION.findall(text)
    if parts and "".join(map("".join, parts)) == text:
        return sum(float(value) * _SECONDS[unit] for value, unit in parts)
    try:
        return max(0.0, datetime.fromisoformat(text).timestamp() - now)
    except ValueError:
        return None
