"""Systems that are asked while the run goes on: what each of them does, and what its answers may cost."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from ragpipe.core.errors import ConfigError, FailureKind, Incomplete, Problem, ProviderUnusable, RagpipeError, user_place
from ragpipe.core.sample import Sample
from ragpipe.core.usage import Amount
from ragpipe.data.system_settings import LiveSystem, System
from ragpipe.judge.attempts import RETRY_AFTER_CAP_S, AttemptRunner, ServerState, Tally
from ragpipe.judge.budget import Budget
from ragpipe.judge.client import AttemptError
from ragpipe.judge.limits import RateLimiter

MARGIN = 1.25
"""A request holds the largest answer so far times this."""

Answer = Mapping[str, Any]


class AnswerCosts:
    """The requests of one method within the budget of the system.

    What an answer will cost is not known before it: nothing bounds what a system does for it. So a request holds a quarter
    more than the dearest answer so far, and the first one, which is alone, nothing but itself. `calls` is exact; money and tokens
    can be exceeded by what the answers under way cost beyond that. All methods share the budget; `cost_of` is what an answer costs
    by the usage that it names, None where it names none.
    """

    def __init__(self, budget: Budget, cost_of: Callable[[Answer], Amount | None]):
        self._budget, self._cost_of = budget, cost_of
        self._largest: Amount | None = None

    def note_usage(self, usage: Mapping[str, float]) -> None:
        """Learn from the usage of an answer that an earlier start got."""
        if (cost := self._cost_of({"usage": usage})) is not None:
            self._note(cost)

    def _note(self, cost: Amount) -> None:
        self._largest = cost if self._largest is None else self._largest.at_least(cost)

    async def send(self, answer: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        """Ask once it is admitted, and book it. Raises BudgetUsedUp, ConfigError for a first answer without the usage that the
        budget needs, and what `answer` raises.

        A request that was refused costs nothing; one that failed otherwise is assumed to have cost its hold.
        """
        largest = self._largest or Amount()
        hold = await self._budget.reserve(Amount(MARGIN * largest.usd, math.ceil(MARGIN * largest.tokens), 1))
        try:
            result = await answer()
        except BaseException as error:
            is_refused = isinstance(error, AttemptError) and error.unbilled
            self._budget.settle(hold, Amount() if is_refused else None)
            raise
        cost = self._cost_of(result)
        self._budget.settle(hold, hold.amount if cost is None else cost)
        if cost is not None:
            self._note(cost)
        elif self._largest is None and (problem := self._without_usage()):
            raise ConfigError("the first answer of the system under test does not say what it cost", [problem])
        return result

    def _without_usage(self) -> Problem | None:
        """What is wrong with an answer that names no usage; None where requests alone are limited."""
        limits = self._budget.limits
        if limits.usd is None and limits.tokens is None:
            return None
        name = "usd" if limits.usd is not None else "tokens"
        usage = "usage with input and output tokens" + (" and system.prices, or with cost_usd" if name == "usd" else "")
        fix = "let the system name its usage (system.fields: {usage: PATH}), or limit system.budget.calls"
        return Problem("the first answer", f"system.budget.{name}", "no usage that can be read", usage, fix)


@dataclass(frozen=True)
class LiveMethod:
    """A method that is asked: its settings, the system that answers, and what its answers may cost (None: no limit)."""

    settings: LiveSystem
    system: System
    costs: AnswerCosts | None = None


def open_methods(settings: LiveSystem, plugins: Sequence[str]) -> list[LiveMethod]:
    """Every method that the section names, ready to be asked. Raises ConfigError when one cannot be had."""
    return [LiveMethod(method, method.opened(plugins)) for method in settings.each_method()]


_LIMITS = ("concurrency", "rpm", "timeout_s", "retries", "outage_s")


@dataclass(slots=True)
class AskTally(Tally):
    """The requests for one answer. `latency_ms` is the time of the last one alone, `waited_ms` that of everything before it:
    failed requests, waits between them, the rate limit, an outage."""

    waited_ms: float = 0.0
    began: float = field(default_factory=time.monotonic)


class AddressLimits:
    """The limits of one address, which all methods behind it share: slots, rate, retries, outages. It belongs to one event
    loop. `tell` gets notices for the user."""

    def __init__(self, settings: LiveSystem, tell: Callable[[str], None]):
        self._settings = settings
        self.place = settings.place
        self.attempts = AttemptRunner(
            settings,
            ServerState(RateLimiter(settings.rpm)),
            give_up=self._end_of_outage,
            tell=lambda text: tell(f"system at {self.place}: {text}"),
        )

    def respect_wait(self, failure: SystemFailure, seconds: float) -> None:
        """Hold all requests back for as long as a rate limit asks. Raises Incomplete where any failure asks for longer
        than RETRY_AFTER_CAP_S."""
        if seconds > RETRY_AFTER_CAP_S:
            back = datetime.now().astimezone() + timedelta(seconds=seconds)
            raise Incomplete(
                f"the system at {self.place} asks to wait {seconds:,.0f} s, more than {RETRY_AFTER_CAP_S:g} s: come "
                f"back after {back:%Y-%m-%d %H:%M:%S %Z} and start the same command again; what it answered is kept"
            )
        if failure.kind == "rate_limit":
            self.attempts.state.rate_limiter.pause(seconds)

    def _end_of_outage(self, seconds: float, message: str) -> RagpipeError:
        return ProviderUnusable(
            f"the system at {self.place}: no answer for {seconds:.0f} s (system.outage_s={self._settings.outage_s:g}), the "
            f"last: {message}. What it answered is kept: the same command goes on from here"
        )


def shared_limits(methods: Iterable[LiveMethod], tell: Callable[[str], None]) -> list[AddressLimits]:
    """The limits of each method: one object for all methods of one address whose settings have the same limits."""
    limits: dict[tuple[Any, ...], AddressLimits] = {}
    found = []
    for method in methods:
        settings = method.settings
        key = (settings.kind, settings.place, *(getattr(settings, name) for name in _LIMITS))
        if key not in limits:
            limits[key] = AddressLimits(settings, tell)
        found.append(limits[key])
    return found


async def ask(method: LiveMethod, limits: AddressLimits, sample: Sample, key: str, tally: AskTally) -> Mapping[str, Any]:
    """The raw answer of one method to one sample, after as many requests as the settings allow. Hold a slot of the method's limits
    meanwhile. `key` names the answer among all that are under way, `tally` counts the requests and their times.

    Raises SystemFailure, with what the last request met; Incomplete or ProviderUnusable where nothing more is to be asked.
    """
    return await limits.attempts.run(key, partial(_send, method, limits, sample, tally), tally)


async def _send(
    method: LiveMethod, limits: AddressLimits, sample: Sample, tally: AskTally, seconds: float
) -> Mapping[str, Any]:
    """One request, with its own time limit in seconds."""
    start = time.monotonic()
    tally.waited_ms = round((start - tally.began) * 1000, 3)
    try:
        if method.costs is None:
            return await limits.attempts.traffic.count(_answer(method, sample, seconds))
        return await method.costs.send(lambda: limits.attempts.traffic.count(_answer(method, sample, seconds)))
    except SystemFailure as failure:
        if failure.retry_after is not None:
            limits.respect_wait(failure, failure.retry_after)
        if failure.no_connection and not limits.attempts.state.answered:
            failure.permanent = True
        raise
    finally:
        tally.latency_ms = round((time.monotonic() - start) * 1000, 3)


async def _answer(method: LiveMethod, sample: Sample, seconds: float) -> Mapping[str, Any]:
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await method.system.answer(sample)
    except SystemFailure:
        raise
    except (Exception, asyncio.CancelledError) as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
            raise  # this collection is given up; without that, the system has raised it
        if limit.expired() and isinstance(error, TimeoutError):  # the system may raise one of its own
            # to ask again what goes on would let two answers to one question be under way
            kind: FailureKind = "bad_request" if method.settings.goes_on else "deadline"
            raise SystemFailure(kind, f"timeout after {seconds:g} s") from None
        if isinstance(error, RagpipeError):
            raise SystemFailure("bad_request", str(error)[:500]) from error
        raise failure_of_exception(error) from error


PASSING_STATUSES = frozenset({408, 425, 429})
"""Client errors of HTTP that another request may not meet; with them all server errors but `_NEVER_PASSING`."""
_NEVER_PASSING = frozenset({501, 505})
_TRANSPORT_ERRORS = {"APIConnectionError", "ClientConnectionError", "ConnectionError", "Timeout", "TransportError"}
"""Names of classes, one of which is among the bases of the connection errors of the customary HTTP libraries: openai and anthropic,
aiohttp, requests (both), httpx."""


class SystemFailure(AttemptError):
    """One request to the system gave no usable answer.

    `problem` is what must be changed where every question would fail alike: a wrong shape, a refused key, a redirect. None
    where the failure may be this question's own.
    """

    def __init__(self, kind: FailureKind, message: str, *, problem: Problem | None = None, **more: Any):
        super().__init__(kind, message, **more)
        self.problem = problem


def failure_of_attempt(error: AttemptError) -> SystemFailure:
    """A failure of the HTTP layer as one of the system."""
    if isinstance(error, SystemFailure):
        return error
    names = ("retry_after", "no_connection", "permanent", "unbilled")
    failure = SystemFailure(error.kind, error.message, **{name: getattr(error, name) for name in names})
    failure.overload = error.overload
    return failure


def kind_of_status(status: int) -> FailureKind:
    """The kind of failure behind an HTTP status other than success. Only `rate_limit` and `server_error` may pass."""
    if status == 429:
        return "rate_limit"
    if status in PASSING_STATUSES or (status >= 500 and status not in _NEVER_PASSING):
        return "server_error"
    if status == 401:
        return "auth"
    return "unreachable" if 300 <= status < 400 else "bad_request"


def failure_of_exception(error: BaseException) -> SystemFailure:
    """What an exception of a Python system means. It may pass, and the callable is called again, for a ConnectionError, a
    TimeoutError, the connection errors of the customary HTTP libraries, a passing HTTP status in `status_code` (of the
    exception or its `response`), and any exception with a number of seconds in `retry_after`. Any other is permanent."""
    message = f"{type(error).__name__}: {error}"[:500]
    status, wait = _status_of(error), _retry_after_of(error)
    if status is not None:
        kind = kind_of_status(status)
        return SystemFailure("bad_request" if kind in ("auth", "unreachable") else kind, message, retry_after=wait)
    if wait is not None:
        return SystemFailure("rate_limit", message, retry_after=wait)
    names = {base.__name__ for base in type(error).__mro__}
    if isinstance(error, ConnectionError | TimeoutError) or names & _TRANSPORT_ERRORS:
        return SystemFailure("network", message)
    place = user_place(error)
    return SystemFailure("bad_request", f"{message} ({place})" if place else message)


def _status_of(error: BaseException) -> int | None:
    for holder in (error, getattr(error, "response", None)):
        status = getattr(holder, "status_code", None)
        if isinstance(status, int) and not isinstance(status, bool) and 300 <= status < 600:
            return status
    return None


def _retry_after_of(error: BaseException) -> float | None:
    seconds = getattr(error, "retry_after", None)
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds < 1e9:
        return float(seconds)
    headers = getattr(getattr(error, "response", None), "headers", None)
    if headers is None or not hasattr(headers, "items"):
        return None
    from ragpipe.judge.http_responses import retry_after

    return retry_after({str(name).lower(): str(value) for name, value in headers.items()})


ANSWER_NAMES = ("answer", "result", "response", "output_text", "output", "text", "content", "message", "reply", "generation")
CONTEXT_NAMES = (
    "contexts", "context", "source_documents", "documents", "docs", "sources", "source_nodes", "hits", "chunks", "passages",
    "retrieved_contexts", "retrieved_documents", "references", "results",
)  # fmt: skip
TEXT_NAMES = ("text", "content", "page_content", "body", "passage", "chunk", "snippet", "document")
_ID_NAMES = ("id", "chunk_id", "doc_id", "url")
_NAME, _PATH = r"[A-Za-z_]\w*", r"[\w.]+"
_DEPTH, _LISTED = 3, 12


def answer_keys(value: Any) -> str:
    """The keys of an answer with the types of their values: `data.text: text, data.hits: list of 3 objects (id, body)`."""
    if not isinstance(value, Mapping):
        return _type_name(value)
    parts = [f"{path}: {_type_name(item)}" for path, item in _leaves(value, "", _DEPTH)]
    more = f", and {len(parts) - _LISTED} more" if len(parts) > _LISTED else ""
    return ", ".join(parts[:_LISTED]) + more if parts else "an empty object"


def suggested_fields(value: Any) -> dict[str, str]:
    """Paths to what looks like an answer and contexts: a value for `system.fields`; empty where nothing does."""
    if not isinstance(value, Mapping):
        return {}
    leaves = list(_leaves(value, "", _DEPTH))
    fields = {}
    if path := _first_named(leaves, ANSWER_NAMES, str):
        fields["answer"] = path
    if path := _first_named(leaves, CONTEXT_NAMES, list):
        items = next(item for name, item in leaves if name == path)
        fields["contexts"] = path + _element_path(items)
    return fields


def yaml_line(fields: Mapping[str, str]) -> str:
    """The line of YAML that reads an output by these paths."""
    inner = ", ".join(f"{name}: {_key(path, _PATH)}" for name, path in fields.items())
    return f"fields: {{{inner}}}"


def _leaves(value: Mapping[str, Any], prefix: str, depth: int) -> Iterator[tuple[str, Any]]:
    for name, item in value.items():
        path = f"{prefix}{_key(str(name))}"
        if isinstance(item, Mapping) and item and depth > 1:
            yield from _leaves(item, f"{path}.", depth - 1)
        else:
            yield path, item


def _first_named(leaves: list[tuple[str, Any]], names: tuple[str, ...], kind: type) -> str | None:
    for name in names:
        for path, item in leaves:
            if path.rpartition(".")[2] == name and isinstance(item, kind):
                return path
    return None


def _element_path(items: list[Any]) -> str:
    """What to add to the path of a list so that each element is a text or a chunk."""
    first = items[0] if items else None
    if not isinstance(first, Mapping):
        return ""
    text, name = (next((name for name in names if isinstance(first.get(name), str)), None) for names in (TEXT_NAMES, _ID_NAMES))
    if text is None:
        return ""
    return f"[].{{id: {_key(name)}, text: {_key(text)}}}" if name else f"[].{_key(text)}"


def _type_name(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"an object ({', '.join(map(str, list(value)[:6]))})" if value else "an empty object"
    if isinstance(value, list):
        if not value:
            return "an empty list"
        inner = value[0]
        names = f" ({', '.join(map(str, list(inner)[:6]))})" if isinstance(inner, Mapping) else ""
        kind = "objects" if isinstance(inner, Mapping) else "texts" if isinstance(inner, str) else "values"
        return f"list of {len(value)} {kind}{names}"
    names_of_types = {str: "text", bool: "true/false", int: "number", float: "number", type(None): "null"}
    return names_of_types.get(type(value), type(value).__name__)


def _key(name: str, plain: str = _NAME) -> str:
    """A name in double quotes, unless it is a plain one."""
    return name if re.fullmatch(plain, name) else '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
