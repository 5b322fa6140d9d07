"""The call store as its thread has it open: one connection, and every method one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Protocol

from ragpipe.core.errors import OutputError
from ragpipe.schema.call import Call
from ragpipe.store.calls.call_rows import PackedCall
from ragpipe.store.calls.ledger_rows import PaymentEntry
from ragpipe.store.calls.store_requests import ClaimResult, Lookup

SILENT_AFTER_S = 30.0


class StoreLost(OutputError):
    """The store is no more where it was: whatever would be stored from now on would be lost."""


def _nobody(message: str) -> None:
    """Nobody is told."""


@dataclass(frozen=True)
class OpenedFor:
    """For whom a store is opened.

    `run_id` is the run whose failures count, `silent_after_s` after how many seconds without a sign of life an owner is dead,
    `patience_s` after how many seconds of an outage `tell` says so; `hurry` is set when nobody wants to wait any longer; `is_known`
    says that the database was reached before, be it by another process of the run.
    """

    run_id: str
    silent_after_s: float = SILENT_AFTER_S
    patience_s: float = 10.0
    tell: Callable[[str], None] = _nobody
    hurry: Event = field(default_factory=Event)
    is_known: bool = False


class OpenTable(Protocol):
    """The tables of a store, used by one thread. `damaged` are the keys of damaged rows, which count as missing; `first_poll_s`
    is after how many seconds a claimed key is looked at again."""

    notices: list[str]
    damaged: set[str]
    first_poll_s: float
    listens: bool

    def find(self, lookups: Sequence[Lookup]) -> list[Call | None]:
        """The stored call for each look-up, None where there is none. Nothing is written."""
        ...

    def find_or_claim(self, lookups: Sequence[Lookup]) -> list[Call | ClaimResult]:
        """The stored call for each look-up, or what came of claiming its key."""
        ...

    def holder(self, key: str) -> str:
        """The owner of the claim on a key, in words; empty where there is none, or it is this store."""
        ...

    def write(
        self, puts: Sequence[PackedCall], released: Iterable[str] = ..., paid: Sequence[PaymentEntry] = ...
    ) -> list[Call | None]:
        """Store calls, free this store's claims on their keys and on `released`, and add `paid` to the ledger.

        One result per call: None when it was stored, else the reply that another process stored after taking the claim over.
        """
        ...

    def freed(self) -> set[str]:
        """The first digits of the keys that other processes freed since the last time, where the database tells (`listens`)."""
        ...

    def beat(self) -> None:
        """Show other processes that this store is open."""
        ...

    def sync(self) -> None:
        """Bring committed replies to the disk. Raises StoreLost."""
        ...

    def stored_here(self) -> tuple[list[Call], list[PaymentEntry]]:
        """The calls and payments of this run since the store was opened that are lost with it."""
        ...

    def close(self) -> None:
        """Free what this store claimed and close the connection. Raises OutputError when that cannot be written."""
        ...
