"""The limits of the local server, shaped like those of real providers: buckets of requests and tokens that fill up evenly, and
a number of requests at once.

Written `option=value,...`:

- `rps` (requests per second), `burst` (requests in reserve, default 5), `then` and `at_s` (another `rps` from so many seconds
  after the first request on);
- `tps` (tokens per second), `reserve_s` (seconds of them in reserve, default 2), `counts` (`max_tokens`: the prompt and the
  longest reply that is asked for; `used`: the prompt and the real reply);
- `width` (requests at once), `status` (of a refusal for that: 503, 529 or 429);
- `retry_after` (seconds that a refusal for the rate asks to wait; without it the refusal does not say);
- `headers` (`openai`: what is left of the limits of requests and tokens per minute; `plain`: of requests alone, under names
  without a unit; without it none).

Requests are admitted or refused when they arrive, before the server's latency.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from ragpipe.testing.openai_faults import FakeResponse

_NAMES = frozenset(
    {"rps", "burst", "then", "at_s", "tps", "reserve_s", "counts", "width", "status", "retry_after", "headers"}
)


@dataclass
class _Bucket:
    """So many units per second, `most` in reserve."""

    per_second: float
    most: float
    left: float = field(init=False)
    at: float = field(init=False)

    def __post_init__(self) -> None:
        self.left, self.at = self.most, time.monotonic()

    def fill(self, now: float) -> None:
        self.left, self.at = min(self.most, self.left + (now - self.at) * self.per_second), now


class ServerLimits:
    """The limits of one server. `admit` each request when it arrives, `release` it when it is done."""

    def __init__(self, text: str):
        options = dict(part.split("=", 1) for part in text.split(",") if part)
        if unknown := set(options) - _NAMES:
            raise ValueError(f"unknown limits {sorted(unknown)}; known: {', '.join(sorted(_NAMES))}")
        self._options = options
        self._requests = self._tokens = None
        if "rps" in options:
            self._requests = _Bucket(float(options["rps"]), float(options.get("burst", 5)))
        if "tps" in options:
            per_second = float(options["tps"])
            self._tokens = _Bucket(per_second, per_second * float(options.get("reserve_s", 2)))
        self._width = int(options["width"]) if "width" in options else None
        self._began: float | None = None
        self.in_flight = 0

    def admit(self, body: dict[str, Any], usage: dict[str, int]) -> FakeResponse | None:
        """The refusal of a request that arrives now; None where it is taken. `usage` is that of its good answer."""
        now = time.monotonic()
        self._fill(now)
        if self._width is not None and self.in_flight >= self._width:
            return self._too_many_at_once()
        counted = self._counted(body, usage)
        if self._requests is not None and self._requests.left < 1:
            return self._refusal("requests per min (RPM)", self._requests, 1)
        if self._tokens is not None and self._tokens.left < counted:
            return self._refusal("tokens per min (TPM)", self._tokens, counted)
        if self._requests is not None:
            self._requests.left -= 1
        if self._tokens is not None:
            self._tokens.left -= counted
        self.in_flight += 1
        return None

    def release(self) -> None:
        """An admitted request is done."""
        self.in_flight -= 1

    def _fill(self, now: float) -> None:
        self._began = now if self._began is None else self._began
        if self._requests is not None:
            self._requests.fill(now)
            if "then" in self._options and now - self._began >= float(self._options["at_s"]):
                self._requests.per_second = float(self._options["then"])
        if self._tokens is not None:
            self._tokens.fill(now)

    def _counted(self, body: dict[str, Any], usage: dict[str, int]) -> int:
        if self._options.get("counts", "max_tokens") == "used":
            return usage["total_tokens"]
        longest = body.get("max_tokens") or body.get("max_completion_tokens") or usage["completion_tokens"]
        return usage["prompt_tokens"] + int(longest)

    def _refusal(self, unit: str, bucket: _Bucket, wanted: float) -> FakeResponse:
        limit = bucket.per_second * 60
        message = f"Rate limit reached for test-model on {unit}: Limit {limit:.0f}, Requested {wanted:.0f}."
        headers = self.headers()
        if "retry_after" in self._options:
            headers["retry-after"] = self._options["retry_after"]
        error = {"message": message, "type": "requests", "param": None, "code": "rate_limit_exceeded"}
        return FakeResponse(429, {"error": error}, headers)

    def _too_many_at_once(self) -> FakeResponse:
        status = int(self._options.get("status", 503))
        message = "Too many concurrent requests" if status == 429 else "Overloaded"
        return FakeResponse(status, {"error": {"message": message, "type": "overloaded_error", "code": None}})

    def headers(self) -> dict[str, str]:
        """What a response says of the limits now."""
        form = self._options.get("headers")
        if form == "plain" and self._requests is not None:
            missing = max(0.0, 1 - self._requests.left) / self._requests.per_second
            return {
                "x-ratelimit-limit": f"{self._requests.most:.0f}",
                "x-ratelimit-remaining": f"{int(self._requests.left)}",
                "x-ratelimit-reset": f"{(time.time() + missing) * 1000:.0f}",
            }
        found = {}
        if form == "openai":
            for unit, bucket in (("requests", self._requests), ("tokens", self._tokens)):
                if bucket is None:
                    continue
                # the reserve here is smaller than a minute's: what is left of a minute is stated, as providers do
                used = bucket.most - bucket.left
                found[f"x-ratelimit-limit-{unit}"] = f"{bucket.per_second * 60:.0f}"
                found[f"x-ratelimit-remaining-{unit}"] = f"{max(0, int(bucket.per_second * 60 - used))}"
                found[f"x-ratelimit-reset-{unit}"] = f"{1000 * used / bucket.per_second:.0f}ms"
        return found
