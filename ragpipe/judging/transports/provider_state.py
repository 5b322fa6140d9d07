"""What this process has learned about each provider. All iterations share it, so nothing is paid for twice."""

from __future__ import annotations

from dataclasses import dataclass, field

from ragpipe.judging.limits.circuit_breaker import CircuitBreaker
from ragpipe.judging.limits.rate_limit import RateLimiter
from ragpipe.judging.settings import JudgeSettings
from ragpipe.judging.transports.output_modes import OutputModeFallback


@dataclass(slots=True)
class ProviderState:
    """What is known about one provider under one set of settings. It belongs to no event loop.

    `asked` counts questions. `proven_forms` are the answer forms (json, text) that a call came back in; until then one
    question goes alone. `responded`: any HTTP response came. `answered`: one from a model, or about the question.
    `announced` are the schemas and modes that the user was told are refused.
    """

    rate_limiter: RateLimiter
    output_modes: OutputModeFallback
    asked: int = 0
    proven_forms: set[str] = field(default_factory=set)
    responded: bool = False
    answered: bool = False
    circuit_breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    announced: set[tuple[str, str]] = field(default_factory=set)


class ProviderRegistry:
    """The states of all providers that one process asks."""

    def __init__(self) -> None:
        self._states: dict[str, ProviderState] = {}

    def state(self, settings: JudgeSettings) -> ProviderState:
        """The state under these settings; a new one where there is none yet."""
        name = f"{settings.section} {settings.model_dump_json()}"
        if name not in self._states:
            self._states[name] = ProviderState(RateLimiter(settings.rpm), OutputModeFallback(settings))
        return self._states[name]
