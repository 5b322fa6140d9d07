"""What one start has learnt of a provider, for all iterations: it is not paid for again by the next one."""

from __future__ import annotations

from dataclasses import dataclass, field

from ragpipe.judging.limits.circuit_breaker import CircuitBreaker
from ragpipe.judging.limits.rate_limit import RateLimiter
from ragpipe.judging.settings import JudgeSettings
from ragpipe.judging.transports.output_modes import OutputModeFallback


@dataclass(slots=True)
class ProviderState:
    """Of one provider under one set of settings. It belongs to no event loop.

    `asked` counts questions. `settled` are the answer forms (json, text) of which a call came back: until then one goes
    alone. `heard`: an HTTP answer came, of whatever kind; `answered`: one that is a model's, or about the question.
    `said` are the schemas and modes that the user knows to be refused.
    """

    pace: RateLimiter
    ladder: OutputModeFallback
    asked: int = 0
    settled: set[str] = field(default_factory=set)
    heard: bool = False
    answered: bool = False
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    said: set[tuple[str, str]] = field(default_factory=set)


class ProviderRegistry:
    """One start of a run: what it knows of each provider that it asks."""

    def __init__(self) -> None:
        self._known: dict[str, ProviderState] = {}

    def of(self, settings: JudgeSettings) -> ProviderState:
        """What is known under these settings, whoever learnt it."""
        name = f"{settings.section} {settings.model_dump_json()}"
        if name not in self._known:
            self._known[name] = ProviderState(RateLimiter(settings.rpm), OutputModeFallback(settings))
        return self._known[name]
