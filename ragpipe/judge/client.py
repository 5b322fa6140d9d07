"""The client protocol: send one request, return its response. A client never retries, waits, counts or parses answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ragpipe.core.errors import FailureKind
from ragpipe.core.usage import Price

CONNECT_S = 8.0  # seconds to establish a connection; a dead address must show within 10 s


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """An HTTP response. `data` is its JSON (None when it is not JSON). `headers` are found by names in lower case. `text`, its
    beginning, may be empty where the status is 200 and `data` an object: it only explains failures."""

    status: int
    headers: Mapping[str, str]
    data: Any
    text: str = ""


class AttemptError(Exception):
    """One attempt failed. `retry_after`: seconds that the provider asks to wait. `refused_parameter`: that of the request,
    in a field of its own where the response `names_parameter`. `partial`: what could be read all the same (text, model,
    usage), and is paid for. `permanent`: another attempt would end the same way. `overload`: the server takes no more at
    once (status 503 or 529, or a 429 that says so). `unbilled`: the request was refused before any work on it."""

    def __init__(
        self,
        kind: FailureKind,
        message: str,
        *,
        retry_after: float | None = None,
        no_connection: bool = False,
        refused_parameter: str | None = None,
        names_parameter: bool = False,
        partial: Mapping[str, Any] | None = None,
        permanent: bool = False,
        overload: bool = False,
        unbilled: bool = False,
    ):
        self.kind = kind
        self.message = message
        self.retry_after = retry_after
        self.no_connection, self.permanent, self.overload = no_connection, permanent, overload
        self.unbilled = unbilled or no_connection
        self.refused_parameter, self.names_parameter = refused_parameter, names_parameter
        self.partial = partial or {}
        super().__init__(f"{kind}: {message}")


@dataclass(frozen=True, slots=True)
class Completion:
    """The model's text in a response, and what comes with it.

    `notes` say what was replaced in the text; `fingerprint` is the provider's `system_fingerprint`; `usage_reason` says why
    there are no token counts; `usd` is the price that the reply itself names.
    """

    text: str | None
    finish_reason: str | None = None
    model: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    tokens_cached: int | None = None
    tokens_reasoning: int | None = None
    tokens_written: int | None = None
    fingerprint: str | None = None
    usage_reason: str | None = None
    usd: float | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def tokens(self) -> tuple[int | None, int | None, int | None, int | None, int | None]:
        """Counts of prompt, completion, cached, reasoning and written tokens; None where unknown."""
        return self.tokens_in, self.tokens_out, self.tokens_cached, self.tokens_reasoning, self.tokens_written

    def price(self, rates: Price) -> float | None:
        """Dollars: what the provider says, else by these prices; None where neither is known."""
        return rates.usd(*self.tokens) if self.usd is None else self.usd


class Client(Protocol):
    """Sends requests to one provider. Used within one event loop, and closed in it."""

    def prepare(self, body: dict[str, Any]) -> tuple[Any, str]:
        """The request of a body without the model's name, which may be sent several times, and the sha256 of what is sent."""
        ...

    async def send(self, request: Any) -> ApiResponse:
        """Send it once. Raises AttemptError when no HTTP response came."""
        ...

    async def close(self) -> None: ...
