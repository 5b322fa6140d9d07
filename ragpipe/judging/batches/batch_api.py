"""The protocol of a provider's Batch API, and what it says of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ragpipe.judging.clients.client import ApiResponse, AttemptError


@dataclass(frozen=True, slots=True)
class BatchStatus:
    """A batch as its provider describes it.

    `ended`: no further reply will come. `refused`: it ended without any, because its input was not accepted; `message` says
    why. `done` of the `total` requests have an outcome. `created_at` and `expires_at` are in epoch seconds, None where they
    are not named. `files` are the names of its results, in any number.
    """

    id: str
    state: str
    ended: bool
    refused: bool = False
    done: int = 0
    total: int = 0
    created_at: float | None = None
    expires_at: float | None = None
    files: tuple[str, ...] = ()
    message: str = ""


@dataclass(frozen=True, slots=True)
class BatchLine:
    """The outcome of one request: the response that a live request would have got, or why there is none."""

    key: str
    response: ApiResponse | AttemptError


class BatchApi(Protocol):
    """Makes batches at one provider, and reads them. Every method asks once; each raises AttemptError as a client does.

    Used within one event loop, and closed in it.
    """

    carries_token: bool
    """Whether the provider shows a batch's token, by which it is found again; where not, its results tell."""

    def encode(self, key: str, body: dict[str, Any]) -> bytes:
        """One request of a batch, from the body of a live one without the model's name."""
        ...

    def join(self, requests: Sequence[bytes]) -> bytes:
        """The body of a batch from its requests."""
        ...

    async def upload(self, body: bytes) -> str | None:
        """Upload the body and return its name; None where it goes with `create`."""
        ...

    async def create(self, token: str, upload: str | None, body: bytes) -> BatchStatus:
        """Make a batch. After an error it may exist all the same."""
        ...

    async def batches_since(self, since: float) -> list[tuple[str | None, BatchStatus]]:
        """The batches that were made since then (epoch seconds), each with its token where the provider shows one."""
        ...

    async def status(self, batch: str) -> BatchStatus:
        """The batch now."""
        ...

    async def cancel(self, batch: str) -> None:
        """Ask for its end; replies that are there are kept."""
        ...

    async def results(self, file: str) -> bytes:
        """The bytes of one of its `files`: JSON lines in any order."""
        ...

    def line(self, data: dict[str, Any]) -> BatchLine | None:
        """The outcome in one line of a result; None where it names no request."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...
