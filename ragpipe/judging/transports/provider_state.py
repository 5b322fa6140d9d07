"""What this process has learned about each provider. All iterations share it, so nothing is paid for twice."""

from __future__ import annotations

from dataclasses import dataclass, field

from ragpipe.core.digest import sha256
from ragpipe.judging.limits.limit_headers import limit_rules
from ragpipe.judging.limits.rate_limit import RateLimiter, TokenDemand
from ragpipe.judging.limits.retries import CircuitBreaker
from ragpipe.judging.limits.width import LearnedWidth
from ragpipe.judging.settings import JudgeSettings
from ragpipe.judging.transports.context_window import ContextWindow
from ragpipe.judging.transports.output_modes import OutputModeFallback


@dataclass(slots=True)
class ProviderLimits:
    """How fast and how wide one account at a provider may be asked."""

    rate_limiter: RateLimiter
    width: LearnedWidth


@dataclass(slots=True)
class ProviderState:
    """What is known about one provider under one set of settings. It belongs to no event loop.

    `asked` counts questions. `proven_forms` are the answer schemas and forms that a call came back in
    (`OutputModeFallback.unproven`); until then one question goes alone. `responded`: any HTTP response came. `answered`: one from a model, or about the question.
    `announced` are the schemas and modes that the user was told are refused. `rate_limiter` and `width` are those of the
    server and key, which several settings may share.
    """

    limits: ProviderLimits
    token_demand: TokenDemand
    output_modes: OutputModeFallback
    window: ContextWindow
    asked: int = 0
    proven_forms: set[str] = field(default_factory=set)
    responded: bool = False
    answered: bool = False
    circuit_breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    announced: set[tuple[str, str]] = field(default_factory=set)

    @property
    def rate_limiter(self) -> RateLimiter:
        """How fast the server may be asked."""
        return self.limits.rate_limiter

    @property
    def width(self) -> LearnedWidth:
        """How many requests it takes at once."""
        return self.limits.width


class ProviderRegistry:
    """The states of all providers that a start of a run asks."""

    def __init__(self) -> None:
        self._states: dict[str, ProviderState] = {}
        self._limits: dict[tuple[str, ...], ProviderLimits] = {}

    def state(self, settings: JudgeSettings) -> ProviderState:
        """The state under these settings; a new one where there is none yet."""
        name = f"{settings.section} {settings.model_dump_json()}"
        limits = self._limits_of(settings)
        if name not in self._states:
            demand = TokenDemand(settings.tokens_counted or limits.rate_limiter.rules.counts, settings.max_tokens)
            self._states[name] = ProviderState(limits, demand, OutputModeFallback(settings), ContextWindow(settings))
        return self._states[name]

    def _limits_of(self, settings: JudgeSettings) -> ProviderLimits:
        """The limits of a server under one key, and of one model where each has its own there."""
        rules = limit_rules(settings.provider, own_address=settings.api_base is not None)
        server = (settings.api_base or settings.provider, sha256(settings.api_key()))
        account = (*server, settings.name) if rules.is_per_model else server
        known = self._limits.setdefault(account, ProviderLimits(RateLimiter(rules=rules), LearnedWidth()))
        known.rate_limiter.configure(settings.rpm, settings.tpm)
        return known
