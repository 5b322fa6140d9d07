"""What this process has learned about each provider. All iterations share it, so nothing is paid for twice."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from ragpipe.core.digest import sha256
from ragpipe.judging.limits.limit_headers import limit_rules
from ragpipe.judging.limits.rate_limit import RateLimiter, TokenDemand
from ragpipe.judging.limits.retries import CircuitBreaker
from ragpipe.judging.limits.width import LearnedWidth
from ragpipe.judging.settings import JudgeSettings
from ragpipe.judging.token_count import count_tokens, how_counted
from ragpipe.judging.transports.output_modes import OutputModeFallback
from ragpipe.schema.call import Message

_TOKENS_PER_MESSAGE = 8  # what a chat template adds
_MARGIN = 1.2  # before replies have shown how the server counts
_OBSERVED = 5  # replies of a script after which the largest ratio seen is used
_WINDOW = re.compile(
    r"(?:maximum (?:context|model) length|context (?:length|window|size)|maximum number of tokens)\D{0,40}?(\d[\d,]{2,9})"
    r"|(\d[\d,]{2,9}) (?:tokens? )?maximum",
    re.I,
)
_WIDE = re.compile("[\u2e80-\u9fff\uac00-\ud7ff\uf900-\ufaff]")
_ASCII = re.compile("[\x00-\x7f]")
_SAMPLE = 2_000  # characters by which the script of a text is told


class ContextWindow:
    """The window of one judge, and how its server counts, by script.

    The server's tokens for a prompt are its own affair; `usage` tells them afterwards. Their largest ratio to our count is
    the estimate for further prompts in the same script.
    """

    def __init__(self, settings: JudgeSettings):
        self._model, self._reply = settings.model, settings.max_tokens or 0
        self.tokens: int | None = settings.supported.context_tokens
        self._given = self.tokens is not None
        self._ratios: dict[str, list[float]] = {}

    def excess(self, messages: Iterable[Message]) -> str | None:
        """Why these messages do not fit, in words; None where they may be sent."""
        if self.tokens is None:
            return None
        messages, room = list(messages), self.tokens - self._reply
        overhead = _TOKENS_PER_MESSAGE * len(messages)
        if sum(len(m["content"].encode("utf-8", "replace")) for m in messages) + overhead <= room:
            return None  # no tokenizer makes more tokens than there are bytes
        text = "\n".join(m["content"] for m in messages)
        needed = round(count_tokens(text, self._model) * self._ratio(text)) + overhead
        if needed <= room:
            return None
        source = "judge.capabilities.context_tokens" if self._given else "learned from the provider's refusal"
        return (
            f"about {needed:,} tokens by our own count and {self._reply:,} for the reply (judge.max_tokens) do not fit into the "
            f"model's context window of {self.tokens:,} ({source}); it was not sent"
        )

    def observe(self, messages: Iterable[Message], tokens_in: int | None) -> None:
        """Compare the server's count of a prompt that it answered with ours."""
        if self.tokens is None or not tokens_in:
            return
        text = "\n".join(m["content"] for m in messages)
        ratios = self._ratios.setdefault(_script(text), [])
        if len(ratios) < _OBSERVED and (own := count_tokens(text, self._model)):
            ratios.append(tokens_in / own)

    def learn(self, refusal: str) -> None:
        """Take the window from the words of a refusal, where it is not given and they name it."""
        named = _WINDOW.search(refusal)
        if not self._given and named:
            self.tokens = int((named[1] or named[2]).replace(",", ""))

    def _ratio(self, text: str) -> float:
        """The server's tokens per token of ours: as observed, else with a margin where the window was given."""
        ratios = self._ratios.get(_script(text), [])
        if len(ratios) >= _OBSERVED:
            return max(ratios)
        is_estimate = self._given and how_counted(self._model).startswith("estimated")
        return _MARGIN if is_estimate else 1.0


def _script(text: str) -> str:
    """Tokenizers differ by script: `ascii`, `wide` (Chinese, Japanese, Korean) or `other`."""
    sample = text[-_SAMPLE:]
    if len(_WIDE.findall(sample)) > len(sample) / 10:
        return "wide"
    return "ascii" if len(_ASCII.findall(sample)) > 0.95 * len(sample) else "other"


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
            demand = TokenDemand(limits.rate_limiter.rules.counts, settings.max_tokens)
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
