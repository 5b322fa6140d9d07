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


Unit = Literal["requests", "tokens", "input", "output"]
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86_400.0
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": _MINUTE, "h": _HOUR, "d": _DAY}


@dataclass(frozen=True, slots=True)
class LimitState:
    """One limit as a response describes it.

    `limit` is what it allows per window and `remaining` what is left of it (None: not said). `reset_s` are the seconds until
    nothing of it is used any more. `window_s` is the window of a limit of requests in seconds, as far as it can be told; a minute
    otherwise, as for all limits of tokens.
    """

    unit: Unit
    limit: float | None
    remaining: float | None
    reset_s: float | None
    window_s: float = _MINUTE


def _names(unit: Unit, pattern: str) -> tuple[Unit, str, str, str]:
    """The headers of one unit, from a pattern with a place for the part."""
    limit, remaining, reset = (pattern.format(part) for part in ("limit", "remaining", "reset"))
    return unit, limit, remaining, reset


_NAMES: dict[Style, tuple[tuple[Unit, str, str, str], ...]] = {
    "openai": (_names("requests", "x-ratelimit-{}-requests"), _names("tokens", "x-ratelimit-{}-tokens")),
    "anthropic": (
        _names("requests", "anthropic-ratelimit-requests-{}"),
        _names("input", "anthropic-ratelimit-input-tokens-{}"),
        _names("output", "anthropic-ratelimit-output-tokens-{}"),
    ),
    "mistral": (_names("requests", "x-ratelimit-{}-req-minute"), _names("tokens", "x-ratelimit-{}-tokens-minute")),
    "plain": (_names("requests", "x-ratelimit-{}"),),
}
_NAMES["any"] = _NAMES["openai"] + _NAMES["plain"]
"""By style, for each unit: the names of the headers with the limit, with what remains, and with the time of the reset."""


def read_limits(headers: Mapping[str, str], style: Style, now: float | None = None) -> list[LimitState]:
    """The limits that the headers describe; names are read in lower case. `now` is in seconds of `time.time`.

    Values that are no numbers count as not said.
    """
    found = []
    for unit, limit_name, remaining_name, reset_name in _NAMES[style]:
        remaining_text = headers.get(remaining_name)
        limit_text = headers.get(limit_name)
        if remaining_text is None and limit_text is None:
            continue
        limit, remaining = _number(limit_text), _number(remaining_text)
        reset = _seconds_until(headers.get(reset_name), now)
        window = _window(limit, remaining, reset) if unit == "requests" else _MINUTE
        found.append(LimitState(unit, limit, remaining, reset, window))
    return found


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text is not None else -1.0
    except ValueError:
        return None
    return number if 0 <= number < 1e15 else None


def _window(limit: float | None, remaining: float | None, reset: float | None) -> float:
    """The window of a limit that fills up evenly: what is used of it is back when it is reset."""
    if not limit or remaining is None or reset is None or remaining >= limit:
        return _MINUTE
    window = reset * limit / (limit - remaining)
    return _DAY if window > 6 * _HOUR else _HOUR if window > 8 * _MINUTE else _MINUTE


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
