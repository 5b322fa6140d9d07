"""How fast and how wide a server may be asked.

What holds an attempt back, most trusted first: the provider asked to wait (Retry-After); a header says that a limit is used up;
a limit is known, by `rpm` and `tpm` or by a header of a provider whose headers are known; refusals have taught a pace.

An outage: a provider that has answered before stops answering. All questions wait behind one probe.

Five consecutive attempts without an answer, of any calls, begin an outage, and so do refusals by a rate limit while nothing else is
under way. Then one attempt at a time is sent, after 1, 2, 4 ... 60 seconds, for each waiting question in turn. The first answer ends
it. Attempts during an outage that more than one question has met are attributed to it and to no call: a question that the provider
cannot take must not look like an outage.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ragpipe.judge.client import AttemptError

_CUT_TO = 0.87  # of the rate that was refused
_BACK_S, _BACK_STARTS, _LONGEST_BACK_S = 6.0, 71.25, 300.0  # at least, or so many starts, until that rate again
_SEARCH, _MOST_SEARCH = 0.15, 1.05  # growth per second where no limit is known; and at most so many times per answer
_LOWEST = 1 / 30  # starts per second
_LONE, _REPEATED = 0.08, 4  # share of the starts since a cut up to which refusals are lone ones, and so many always are
_DEEPEST = 0.35  # of the rate, in one cut
_IN_VAIN = 4  # cuts for repeated refusals, after which a slower pace is seen not to help
_ROW, _ROW_S = 5, 5.0  # refusals in a row, and seconds, that are an outage


class LearnedPace:
    """The starts per second that refusals have taught, without knowing the limit. Times are seconds of a clock that only grows.

    A refusal cuts the rate to 0.87 of the one that was refused; that is the proven rate. It grows back in a straight line of real
    time, in about 70 starts (6 s at least), and after twice as long by 15 % per second, while it holds attempts back. In the first
    half of the way back no limit refuses anything unless it has fallen: refusals of up to 8 % of the starts are lone ones there and
    cut nothing; where more are refused, the rate goes down to what is answered. Where four such cuts have not helped, it is the
    one before them again, and grows until a clearly larger share is refused. Refusals in a row without any answer are one outage,
    and the proven rate follows it too.
    """

    def __init__(self) -> None:
        self.rate: float | None = None
        """Starts per second; None where nothing was learned."""
        self.free_from = 0.0
        """When the next attempt may start."""
        # the step: its growth per second, for twice `_back` seconds; 0: no limit is known
        self._proven = self._step = self._back = 0.0
        self._last_cut, self._last_event = float("-inf"), 0.0
        self._starts = self._refusals = self._early = 0  # since the cut; early: in the first half of the way back
        self._in_vain, self._tolerated = 0, _LONE
        self._row, self._row_began = 0, 0.0  # refusals without an answer between them
        self._answers: deque[float] = deque(maxlen=16)
        self._is_held = False

    def record_start(self, now: float) -> None:
        self._starts += 1
        if self.rate is not None:
            self._is_held = now < self.free_from + 0.5 / self.rate
            self.free_from = max(self.free_from, now) + 1 / self.rate

    def record_answer(self, now: float) -> None:
        """An attempt was not refused."""
        if self.rate is not None:
            if self._row >= _ROW and now - self._row_began >= _ROW_S:
                self._set(max(self.rate, self._proven), now)
            elif self._is_held:
                self._grow(self.rate, now)
        self._row, self._last_event = 0, now
        self._answers.append(now)

    def _grow(self, rate: float, now: float) -> None:
        seconds = now - self._last_event
        if self._step and now - self._last_cut <= 2 * self._back:
            self.rate = rate + self._step * seconds
        elif len(self._answers) < 16 or rate < 32 / max(0.01, now - self._answers[0]):  # twice the answers
            self.rate = rate * min(_MOST_SEARCH, 1 + _SEARCH * seconds)

    def record_refusal(self, started: float, now: float) -> None:
        """An attempt that began at `started` was refused by a limit of the rate."""
        if self._row == 0:
            self._row_began = now
        self._row, self._last_event = self._row + 1, now
        if started > self._last_cut and self._row < _ROW:  # else it was in flight then, or nothing is answered
            self._learn(now)
        if self.rate is not None:
            self.free_from = max(self.free_from, now + 1 / self.rate)

    def _learn(self, now: float) -> None:
        if self.rate is None:
            self._begin(now)
            return
        is_early = now - self._last_cut < self._back / 2
        self._refusals, self._early = self._refusals + 1, self._early + is_early
        share = self._refusals / max(1, self._starts)
        if not is_early and self._early < 2:
            self._in_vain, self._proven = 0, _CUT_TO * self.rate
            self._set(self._proven, now)
        elif self._refusals >= _REPEATED and share > self._tolerated:
            self._proven = max(self._proven, self.rate)  # four cuts later it is the rate again
            self._in_vain, self._tolerated = self._in_vain + 1, _LONE
            if self._in_vain <= _IN_VAIN:
                lower = self.rate * min(_CUT_TO, max(_DEEPEST, 0.9 * (1 - share)))
                self._set(lower, now, max(lower / _CUT_TO, _CUT_TO * self.rate))
            else:
                self._in_vain, self._tolerated = 0, min(0.7, 1.2 * share + 0.15)
                self._set(max(self.rate, self._proven), now)
                self._step = 0.0

    def _begin(self, now: float) -> None:
        """The first refusal: go down to what was answered in the last seconds. No limit is known yet."""
        recent = [time for time in self._answers if time > now - 2.0]
        if len(recent) < 8:
            recent = [time for time in list(self._answers)[-8:] if time > now - 60.0]
        if len(recent) >= 3:
            self._proven = _CUT_TO * len(recent) / max(0.25, now - recent[0])
            self._set(self._proven, now)
            self._step = 0.0

    def _set(self, rate: float, now: float, back_to: float = 0.0) -> None:
        """Go to this rate, and from there up to the one that was refused."""
        self.rate, self._last_cut = max(_LOWEST, rate), now
        back_to = back_to or self.rate / _CUT_TO
        self._back = min(_LONGEST_BACK_S, max(_BACK_S, _BACK_STARTS / back_to))
        self._step = (back_to - self.rate) / self._back
        self._starts = self._refusals = self._early = 0


class LearnedWidth:
    """How many requests a server takes at once, by its refusals: 0.8 of those in flight after one, and one more after three rounds
    of answers, each as many as the width. It belongs to no event loop."""

    def __init__(self) -> None:
        self.limit: float | None = None
        """Requests in flight; None where nothing was learned."""
        self._last_cut = float("-inf")

    def record_refusal(self, started: float, in_flight: int, now: float) -> None:
        """An attempt that began at `started` was refused while so many were in flight, because they were too many."""
        if started <= self._last_cut:
            return  # it was in flight when the width was cut
        self._last_cut = now
        self.limit = max(1.0, 0.8 * min(in_flight, int(self.limit or in_flight)))

    def record_answer(self) -> None:
        """An attempt was not refused although the width held others back."""
        if self.limit is not None:
            self.limit += 1 / (3 * self.limit)


class Slots:
    """Slots for questions or requests in flight: at most `most`, and no more than the server was learned to take (`width`). `async
    with` takes one, in order of arrival. Of one event loop."""

    def __init__(self, most: int, width: LearnedWidth | None = None):
        self.most, self.width = most, width or LearnedWidth()
        self.taken = 0
        self._turn, self._freed = asyncio.Lock(), asyncio.Event()

    @property
    def limit(self) -> int:
        """How many may be taken now."""
        return self.most if self.width.limit is None else min(self.most, int(self.width.limit))

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody waits for a slot."""
        return self._turn.locked()

    @property
    def is_narrowed(self) -> bool:
        """Whether somebody waits because the server takes no more at once."""
        return self.is_waited_for and self.limit < self.most

    async def acquire(self) -> None:
        async with self._turn:
            while self.taken >= self.limit:
                self._freed.clear()
                await self._freed.wait()
            self.taken += 1

    def release(self) -> None:
        self.taken -= 1
        self.admit()

    def admit(self) -> None:
        """Let those go that wait, where there is room: a slot was given back, or there are more of them."""
        self._freed.set()

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *_: object) -> None:
        self.release()


Counted = Literal["max_tokens", "used"]
Style = Literal["openai", "groq", "anthropic", "mistral", "any"]


@dataclass(frozen=True, slots=True)
class LimitRules:
    """The limits of one provider, and the `style` of its headers.

    Limits are of a minute and set the pace; with the style `any` only what is used up holds requests back. `counts`: whether the
    limit of tokens counts `max_tokens` when a request arrives, or what was used, and `counts_cached`, cached tokens of a prompt too.
    `is_per_model`: each model has limits of its own under one key.
    """

    style: Style = "any"
    counts: Counted = "max_tokens"
    counts_cached: bool = True
    is_per_model: bool = True


_TABLE = {
    "openai": LimitRules("openai"),
    "azure": LimitRules("openai"),
    "groq": LimitRules("groq"),
    "anthropic": LimitRules("anthropic", counts="used", counts_cached=False),
    "mistral": LimitRules("mistral", counts="used"),
    "gemini": LimitRules(counts="used"),
    "openrouter": LimitRules(counts="used", is_per_model=False),
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
_OPENAI: list[tuple[Unit, str]] = [("requests", "x-ratelimit-{}-requests"), ("tokens", "x-ratelimit-{}-tokens")]
_NAMES: dict[Style, list[tuple[Unit, str]]] = {
    "openai": _OPENAI,
    "groq": _OPENAI[1:],  # its limit of requests is one of a day
    "anthropic": [
        ("requests", "anthropic-ratelimit-requests-{}"),
        ("input", "anthropic-ratelimit-input-tokens-{}"),
        ("output", "anthropic-ratelimit-output-tokens-{}"),
    ],
    "mistral": [("requests", "x-ratelimit-{}-req-minute"), ("tokens", "x-ratelimit-{}-tokens-minute")],
    "any": [*_OPENAI, ("requests", "x-ratelimit-{}")],
}
"""By style, for each unit: the headers with the limit, with what remains, and with the time of the reset."""


@dataclass(frozen=True, slots=True)
class LimitState:
    """One limit as a response describes it, None for what it does not say: `reset_s` are seconds until nothing of it is used."""

    unit: Unit
    limit: float | None
    remaining: float | None
    reset_s: float | None


def read_limits(headers: Mapping[str, str], style: Style, now: float | None = None) -> list[LimitState]:
    """The limits that the headers describe, whose names are in lower case. `now` is in seconds of `time.time`. Values that are no
    numbers count as not said."""
    found = []
    for unit, name in _NAMES[style]:
        limit, remaining, reset = (headers.get(name.format(part)) for part in ("limit", "remaining", "reset"))
        if limit is not None or remaining is not None:
            found.append(LimitState(unit, _number(limit), _number(remaining), _seconds_until(reset, now)))
    return found


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "nan")
    except ValueError:
        return None
    return number if 0 <= number < 1e15 else None


def _seconds_until(text: str | None, now: float | None) -> float | None:
    """From `6m0s`, `120ms`, seconds, an RFC 3339 time, or an epoch in seconds or milliseconds."""
    now = time.time() if now is None else now
    if (number := _number(text)) is not None:
        return max(0.0, number / 1000 - now if number > 1e11 else number - now if number > 1e9 else number)
    parts = _DURATION.findall(text or "")
    if parts and "".join(map("".join, parts)) == text:
        return sum(float(value) * _SECONDS[unit] for value, unit in parts)
    try:
        return max(0.0, datetime.fromisoformat(text or "").timestamp() - now)
    except ValueError:
        return None


_BELOW_LIMIT = 1.04  # times slower than a header's limit: at the limit itself, jitter of the network causes refusals
_MINUTE = 60.0
_LONGEST_RESET = 120.0  # seconds; a header whose limit is used up for longer is left to the refusal that follows
_BYTES_PER_TOKEN = 3.5  # before the first reply: too many tokens rather than too few
_FIRST_OUTPUT = 256.0  # tokens of a reply, before the first one
_WEIGHT = 0.05  # of the newest reply in the means
_OF_MESSAGE = 8.0  # bytes that a message counts besides its text: its role and its ends


class RateLimiter:
    """The limits of one server under one key. It belongs to no event loop.

    Wait until `next_start` before each attempt, and `take` it; after it tell `pace` and `width` what became of it, `observe` the
    headers of its response, and `settle` its usage. All times are seconds of the monotonic clock. `rpm` and `tpm` are requests and
    tokens per minute by the user, None for no such limit; `rules` what is known of the provider's limits.
    """

    def __init__(self, rpm: float | None = None, tpm: float | None = None, rules: LimitRules | None = None):
        self.rules, self.pace, self.width = rules or LimitRules(), LearnedPace(), LearnedWidth()
        self.paused_until = 0.0
        """Until when the provider asked to wait."""
        self._used_up_until = 0.0
        self._buckets: dict[tuple[Unit, str], Bucket] = {}  # by unit, and by whose limit it is
        self.configure(rpm, tpm)

    def configure(self, rpm: float | None, tpm: float | None) -> None:
        """Take over the limits of one more judge under the same key: the lowest hold."""
        limits: dict[tuple[Unit, str], float | None] = {("requests", "rpm"): rpm, ("tokens", "tpm"): tpm}
        for name, limit in limits.items():
            known = self._buckets.get(name)
            if limit is not None and (known is None or limit / _MINUTE < known.per_second):
                self._buckets[name] = Bucket(limit / _MINUTE)

    @property
    def counts_tokens(self) -> bool:
        """Whether attempts are held by a limit of tokens: `take` then needs their demand."""
        return any(unit != "requests" for unit, _ in self._buckets)

    def next_start(self, now: float) -> tuple[float, str]:
        """When the next attempt may start, and what holds it back (empty: nothing)."""
        holds = [(bucket.free_from, why) for (_, why), bucket in self._buckets.items()]
        holds += [(self._used_up_until, "limit used up"), (self.paused_until, "429"), (self.pace.free_from, "429")]
        return max(((start, why) for start, why in holds if start > now), default=(now, ""))

    def take(self, now: float, demand: Demand | None = None) -> None:
        """An attempt starts."""
        self.pace.record_start(now)
        taken = {"requests": 1.0, **(demand.tokens if demand is not None else {})}
        for (unit, _), bucket in self._buckets.items():
            bucket.take(taken.get(unit, 0.0), now)

    def pause(self, seconds: float) -> None:
        """Hold all attempts back: the provider asked to wait."""
        self.paused_until = max(self.paused_until, time.monotonic() + seconds)

    def settle(self, excess: Mapping[Unit, float]) -> None:
        """The server counted so many tokens more than an attempt's demand (negative: fewer)."""
        for (unit, _), bucket in self._buckets.items():
            bucket.settle(excess.get(unit, 0.0))

    def observe(self, headers: Mapping[str, str]) -> None:
        """Take over what the headers of a response say of the provider's limits."""
        for limit in read_limits(headers, self.rules.style):
            wait = limit.reset_s
            if self.rules.style != "any" and limit.limit:
                per_second = limit.limit / _MINUTE / _BELOW_LIMIT
                name = limit.unit, "request limit" if limit.unit == "requests" else "token limit"
                self._buckets.setdefault(name, Bucket(per_second)).per_second = per_second
                wait = 1 / per_second
            if limit.remaining is not None and limit.remaining < 1 and wait is not None and wait <= _LONGEST_RESET:
                self._used_up_until = max(self._used_up_until, time.monotonic() + wait)

    def per_minute(self, *units: Unit) -> float | None:
        """The lowest limit of these units per minute, by the user or by headers; None where there is none."""
        rates = (bucket.per_second * _MINUTE for (unit, _), bucket in self._buckets.items() if unit in units)
        return min(rates, default=None)


class Bucket:
    """A known limit of so many units (requests or tokens) per second, spaced evenly: what is taken delays what comes next.

    What the server counted less than was taken is credit for the next attempts, up to 2 s of it.
    """

    def __init__(self, per_second: float):
        self.per_second = per_second
        self.free_from = self._credit = 0.0

    def take(self, amount: float, now: float) -> None:
        """An attempt of so many units starts."""
        from_credit = min(self._credit, amount)
        self._credit -= from_credit
        self.free_from = max(self.free_from, now) + (amount - from_credit) / self.per_second

    def settle(self, amount: float) -> None:
        """The server counted so many units more (negative: fewer) than were taken."""
        self._credit = min(self._credit - amount, 2.0 * self.per_second)


@dataclass(slots=True)
class Demand:
    """What one request was taken to need: bytes of its messages, and tokens by unit of a limit."""

    size: float
    tokens: dict[Unit, float]


class TokenDemand:
    """The demands of the requests to one server by one judge: `counts` says whether its limit counts `max_tokens` when a request
    arrives, or what was `used`, as it does where no `max_tokens` is named."""

    def __init__(self, counts: Counted, max_tokens: int | None):
        self._longest = max_tokens if counts == "max_tokens" else None
        self._per_byte: float | None = None
        self._output: float | None = None

    def of(self, messages: Iterable[Mapping[str, str]]) -> Demand:
        """The demand of a request with these messages."""
        size = sum(_OF_MESSAGE + len(message["content"].encode("utf-8", "replace")) for message in messages)
        tokens_in = size * (self._per_byte or 1 / _BYTES_PER_TOKEN)
        return Demand(size, self._tokens(tokens_in, self._output or _FIRST_OUTPUT))

    def record(self, demand: Demand, tokens_in: int, tokens_out: int) -> dict[Unit, float]:
        """A request was answered with this usage. By how many tokens it took more than its demand (negative: fewer)."""
        self._per_byte = _mean(self._per_byte, tokens_in / demand.size)
        self._output = _mean(self._output, tokens_out)
        real = self._tokens(tokens_in, tokens_out)
        return {unit: real[unit] - taken for unit, taken in demand.tokens.items()}

    def _tokens(self, tokens_in: float, tokens_out: float) -> dict[Unit, float]:
        counted = tokens_out if self._longest is None else self._longest
        return {"tokens": tokens_in + counted, "input": tokens_in, "output": tokens_out}


def _mean(mean: float | None, value: float) -> float:
    return value if mean is None else mean + _WEIGHT * (value - mean)


SILENT = frozenset({"network", "server_error", "deadline"})
"""Kinds of error that tell of no answer at all, or of an error of the server."""
REACHED = frozenset({"server_error", "deadline"})
"""Kinds of error that the server may have for one question alone."""
_CONSECUTIVE = 5  # failed attempts that begin an outage
_FIRST, _LONGEST = 1.0, 60.0  # seconds before the first probe, and at most
_REPORTED_FROM = 8.0  # seconds before the next probe; failed probes with a shorter wait are not reported


class OutageGate:
    """Holds back the attempts of one transport during an outage. It belongs to one event loop.

    Await `acquire` before each attempt, then call `record_answer` or `record_failure`. `active` says whether an outage is on, `reason`
    why in a word or two. `next_probe` is when the next probe is sent, in monotonic seconds, or was sent. An outage may last `limit`
    seconds. One more of `questions` is let in meanwhile, so that another can be the probe. `tell` gets notices for the user.
    """

    def __init__(self, limit: float, questions: Slots, tell: Callable[[str], None]):
        self._limit, self._questions, self._tell = limit, questions, tell
        self.active, self.reason, self.next_probe = False, "", 0.0
        self._failures = 0  # consecutive
        self._failed_keys: set[str] = set()  # questions that failed since the last answer
        self._is_of_questions = False  # what failed since the last answer was not the server, but the questions
        self._silent_since = 0.0  # the first of these failures
        self._wait = _FIRST  # before the next probe
        self._probe, self._over = asyncio.Lock(), asyncio.Event()  # the lock is held by whoever is the next probe

    @property
    def seconds(self) -> float:
        """Seconds since the first failure after the last answer."""
        return time.monotonic() - self._silent_since if self._failed_keys else 0.0

    async def acquire(self, taken: ExitStack) -> bool:
        if not self.active:
            return False
        await self._probe.acquire()
        taken.callback(self._probe.release)
        while self.active and (wait := self.next_probe - time.monotonic()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._over.wait()
        if not self.active:
            taken.close()
        return self.active

    def record_answer(self) -> None:
        """An attempt was answered: that ends the outage."""
        if self.active and self._wait >= _REPORTED_FROM:  # then its silence was told too
            self._tell(f"answering again after {self.seconds:.0f} s")
        self.release()
        self._failures, self._is_of_questions = 0, False
        self._failed_keys.clear()

    def blame_questions(self, left: Set[str], error: AttemptError) -> bool:
        """Whether an outage that lasted too long is rather a fault of all questions that are `left`: each has failed, no other waits to
        be the probe, and the server was reached. Their failures are then their own until another is answered."""
        if error.kind not in REACHED or self._questions.is_waited_for or not left <= self._failed_keys:
            return False
        self._tell(f"no answer for {self.seconds:.0f} s, the last: {error.message}; the {len(left):,} left to ask are given up")
        self._is_of_questions = True
        self.release()
        return True

    def record_failure(self, error: AttemptError, key: str, *, probe: bool) -> bool:
        """An attempt for `key` got no answer. Whether the failure is attributed to an outage, and not to its call."""
        now = time.monotonic()
        if not self._failed_keys:
            self._silent_since = now
        self._failed_keys.add(key)
        self.reason = "429" if error.kind == "rate_limit" else "no answer"
        left = max(0.0, self._limit - self.seconds)
        if probe:
            self._wait = min(2 * self._wait, _LONGEST)
            self.next_probe = now + min(self._wait, left)
            if self._wait >= _REPORTED_FROM:
                self._tell(
                    f"no answer for {self.seconds:.0f} s, the last: {error.message}; next probe in {self.next_probe - now:.0f} s, "
                    f"the run ends after {self._limit:g} s of it"
                )
        else:
            self._failures += 1
            if not self.active and not self._is_of_questions and self._failures >= _CONSECUTIVE:
                self.active, self._wait = True, _FIRST
                self.next_probe = now + min(_FIRST, left)
                self._over.clear()
                self._questions.most += 1
                self._questions.admit()
        return self.active and len(self._failed_keys) > 1

    def release(self) -> None:
        if self.active:
            self.active = False
            self._over.set()
            self._questions.most -= 1
