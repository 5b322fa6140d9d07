"""What a client is: it sends one request and says what came back. It never retries, waits, counts or reads answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ragpipe.core.errors import FailureKind

CONNECT_S = 8.0  # to establish a connection; a dead address must show within 10 s


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request that is built once and may be sent several times. `wire_hash` is the sha256 of its body."""

    content: Any
    wire_hash: str


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """An HTTP answer. `data` is its JSON (None when it is not JSON), `text` its beginning; header names are lower case."""

    status: int
    headers: Mapping[str, str]
    data: Any
    text: str = ""


class AttemptError(Exception):
    """One try failed. `kind` as in `ragpipe.core.errors`; `retry_after` is what the provider asked to wait, in seconds.

    `connect`: no connection could be made at all. `final`: another try would bring the same. `refuses`: the parameter of the request that the provider refuses, as
    its text says; with `named` its error says so by its own field, so that no words of a question can be meant.
    `reply`: what could be read of an answer all the same (text, model, usage), for the record; such a try is paid for.
    """

    def __init__(
        self,
        kind: FailureKind,
        message: str,
        *,
        retry_after: float | None = None,
        connect: bool = False,
        refuses: str | None = None,
        named: bool = False,
        reply: Mapping[str, Any] | None = None,
        final: bool = False,
    ):
        self.kind = kind
        self.message = message
        self.retry_after = retry_after
        self.connect, self.final = connect, final
        self.refuses, self.named = refuses, named
        self.reply = reply or {}
        super().__init__(f"{kind}: {message}")


@dataclass(frozen=True, slots=True)
class Completion:
    """A usable reply: its text and what stands beside it. `notes` say what was replaced in the text, `fingerprint` is the
    provider's `system_fingerprint`."""

    text: str | None
    finish_reason: str | None = None
    model: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    tokens_cached: int | None = None
    tokens_reasoning: int | None = None
    fingerprint: str | None = None
    usage_reason: str | None = None
    notes: tuple[str, ...] = field(default=())


class Client(Protocol):
    """One way to a provider. Used within one event loop, and closed in it."""

    def prepare(self, body: dict[str, Any]) -> PreparedRequest:
        """Build the request from the body without its model."""
        ...

    async def send(self, prepared: PreparedRequest) -> ApiResponse:
        """Send it once. Raises AttemptError when no HTTP answer came."""
        ...

    async def close(self) -> None: ...
