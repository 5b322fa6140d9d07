"""Why a live system gave no usable answer, and what can be done about it."""

from __future__ import annotations

from ragpipe.core.errors import FailureKind, Problem
from ragpipe.judging.clients.client import AttemptError

PASSING_STATUSES = frozenset({408, 425, 429})
"""Client errors of HTTP that another request may not meet; with them all server errors but `_NEVER_PASSING`."""
_NEVER_PASSING = frozenset({501, 505})
_TRANSPORT_ERRORS = frozenset(
    {
        "APIConnectionError",  # openai, anthropic
        "ClientConnectionError",  # aiohttp
        "ConnectionError",  # requests has one of its own
        "Timeout",  # requests
        "TransportError",  # httpx
    }
)
"""Names of classes, one of which is among the bases of the connection errors of the customary HTTP libraries."""


class SystemFailure(AttemptError):
    """One request to the system gave no usable answer.

    `problem` is what must be changed where every question would fail alike: a wrong shape, a refused key, a redirect. None
    where the failure may be this question's own.
    """

    def __init__(
        self,
        kind: FailureKind,
        message: str,
        *,
        retry_after: float | None = None,
        no_connection: bool = False,
        permanent: bool = False,
        unbilled: bool = False,
        problem: Problem | None = None,
    ):
        super().__init__(
            kind,
            message,
            retry_after=retry_after,
            no_connection=no_connection,
            permanent=permanent,
            unbilled=unbilled,
        )
        self.problem = problem


def failure_of_attempt(error: AttemptError) -> SystemFailure:
    """A failure of the HTTP layer as one of the system."""
    if isinstance(error, SystemFailure):
        return error
    failure = SystemFailure(
        error.kind,
        error.message,
        retry_after=error.retry_after,
        no_connection=error.no_connection,
        permanent=error.permanent,
        unbilled=error.unbilled,
    )
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
    return SystemFailure("bad_request", message)


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
    from ragpipe.judging.clients.http_responses import retry_after

    return retry_after({str(name).lower(): str(value) for name, value in headers.items()})
