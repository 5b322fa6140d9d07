"""The call store: judge replies by the hash of their question, shared by all runs and processes.

`ok` replies are served to every run, permanent failures only to the run that paid for them, transient ones are never
stored. A key is claimed before it is asked, so that two processes do not ask the same question.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any, Self

from ragpipe.core.errors import FATAL, TRANSIENT, DataError, JudgeError, OutputError, RagpipeError
from ragpipe.schema.call import Call, Payment
from ragpipe.store.calls.call_database import StoredReader, StorePlace, call_database
from ragpipe.store.calls.call_rows import packed, unpacked
from ragpipe.store.calls.call_worker import CallWorker
from ragpipe.store.calls.last_resort import LastResortFile
from ragpipe.store.calls.ledger_rows import payment_entry
from ragpipe.store.calls.open_table import SILENT_AFTER_S, OpenedFor
from ragpipe.store.calls.store_requests import (
    AbortRequest,
    ClaimResult,
    EndWaitingRequest,
    Freshness,
    GetOrClaimRequest,
    Lookup,
    PaymentRequest,
    PutRequest,
    ReleaseRequest,
    StoreRequest,
)


class CallStore:
    """Replies by key, for one run.

    A store belongs to no event loop: it may be used from one loop after another. `notices` says what the user should know
    (no write-ahead log on this file system). Raises OutputError when the place cannot be used, DataError when it is damaged,
    foreign or of another format; a store is never replaced.

    Args:
        place: where the store is; made where there is none.
        run_id: the run whose permanent failures are served.
        beat_s: seconds between two signs of life in the store.
        silent_after_s: after how many seconds without one the claims of another process are taken over.
        patience_s: after how many seconds of waiting, for another process or a database that went away, `say` is told.
        say: takes messages for the user that come up later, and during a wait for the database to open; also, once, where paid
            replies are kept that could not be stored.
        is_known: whether the database was reached before, be it by another process of the run: one that went away is waited for
            then. This process knows by itself what it has reached.
    """

    def __init__(
        self,
        place: StorePlace,
        *,
        run_id: str,
        beat_s: float = 5.0,
        silent_after_s: float = SILENT_AFTER_S,
        patience_s: float = 10.0,
        say: Callable[[str], None] = lambda _: None,
        is_known: bool = False,
    ):
        database = call_database(place)
        self.place, self.run_id = place, run_id
        self._hurry = Event()
        self._closed = False
        self._last_resort = LastResortFile(database.setting, host="" if isinstance(place, Path) else platform.node())
        self._worker = CallWorker(
            lambda tell: database.open_table(
                OpenedFor(run_id, silent_after_s, patience_s, tell, self._hurry, is_known)
            ),
            beat_s=min(beat_s, silent_after_s / 3),
            patience_s=patience_s,
            say=say,
            last_resort=self._last_resort,
        )
        self._worker.open()
        self.notices: list[str] = list(self._worker.table.notices)

    @property
    def damaged(self) -> int:
        """How many damaged calls were met. They count as missing."""
        return len(self._worker.table.damaged)

    async def get_or_claim(
        self, key: str, *, freshness: Freshness = Freshness.ANY, rejected: Call | None = None
    ) -> Call | None:
        """The stored call that this run may use, or None: then the caller holds the claim on the key.

        The caller then has to `put` a call or to `release_claim`. A key that another caller has claimed is waited for; the
        claim of a dead process is taken over. `rejected` is a stored call that counts as missing.
        """
        request = GetOrClaimRequest(Lookup(key, freshness, rejected))
        try:
            result = await self._result_of(request)
        except asyncio.CancelledError:
            if _was_granted(request):  # in the moment of the cancelling
                self._worker.send(ReleaseRequest(key))
            raise
        return None if result is ClaimResult.GRANTED else result

    async def put(self, call: Call) -> Call:
        """Store a call and free the claim on its key; returns once committed (also when cancelled, it is committed).

        Returns the call that is in the store now, which is what a replay will see: `run_id` filled in, lone surrogates
        replaced. It is another process's reply when this one was silent for so long that its claim was taken over. A
        transient or fatal failure only frees the claim.
        """
        if call.status in TRANSIENT or call.status in FATAL:
            await self.release_claim(call.key)
            return call
        row = packed(call, self.run_id)
        try:
            stored: Call | None = await self._result_of(PutRequest(call.key, row))
        except (OutputError, DataError) as error:
            self._last_resort.add_call(unpacked(row))
            self._worker.tell_kept()
            raise self._last_resort.with_location(error) from error
        return stored or unpacked(row)

    def record_payment(self, key: str, iteration: int, payment: Payment) -> None:
        """Enter what one answered attempt cost this run into the ledger.

        It does not wait: the row is committed with the next call at the latest. Where it cannot be written, it goes into
        the `LastResortFile`.
        """
        entry = payment_entry(key, self.run_id, iteration, payment)
        if self._closed or self._worker.broken:
            self._last_resort.add_payment(entry)
            self._worker.tell_kept()
        else:
            self._worker.send(PaymentRequest(entry))

    async def release_claim(self, key: str) -> None:
        """Give a claim back without an answer."""
        await self._result_of(ReleaseRequest(key))

    def abort(self, reason: RagpipeError) -> None:
        """Wait no longer for other processes, nor long for a database: every `get_or_claim` that would have to wait raises `reason`."""
        if not self._closed:
            self._hurry.set()
            self._worker.send(AbortRequest(reason))

    def end_waiting(self, reason: JudgeError) -> None:
        """Wait no longer for other processes: every `get_or_claim` that would have to raises `reason`. Stored calls are still
        given, calls in flight of this store are waited for, and so is a database that went away."""
        if not self._closed:
            self._worker.send(EndWaitingRequest(reason))

    def close(self) -> None:
        """Commit what was sent, free the claims of this store, end its thread. A second time does nothing."""
        if not self._closed:
            self._closed = True
            self._hurry.set()
            try:
                self._worker.stop()
            finally:
                self._worker.tell_kept()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _result_of(self, request: StoreRequest) -> Any:
        if isinstance(self._worker.broken, OutputError):
            raise self._worker.broken
        if self._closed or self._worker.broken:
            raise RagpipeError(f"the call store {self.place} is closed") from self._worker.broken
        request.future = asyncio.get_running_loop().create_future()
        self._worker.send(request)
        return await request.future


def _was_granted(request: StoreRequest) -> bool:
    """Whether a claim was granted to a request whose task was cancelled."""
    future = request.future
    if future is None or not future.done() or future.cancelled() or future.exception():
        return False
    return future.result() is ClaimResult.GRANTED


class StoredCalls:
    """A call store that is only read, without claims: what a plan looks into. A missing one holds nothing.

    Gives `ok` replies and, with `run_id`, that run's permanent failures. Raises OutputError and DataError as `CallStore`.
    """

    def __init__(self, place: StorePlace, *, run_id: str | None = None):
        self.place, self.run_id = place, run_id
        self._reader: StoredReader | None = call_database(place).reader()

    def read(self, keys: Iterable[str]) -> dict[str, Call]:
        """The stored calls among `keys`."""
        return {} if self._reader is None else self._reader.calls(list(keys), self.run_id)

    @property
    def damaged(self) -> int:
        """How many of the calls that were looked for stood there damaged: they counted as not there."""
        return len(self._reader.damaged) if self._reader else 0

    async def get_or_claim(
        self, key: str, *, freshness: Freshness = Freshness.ANY, rejected: Call | None = None
    ) -> Call | None:
        """The stored call, None when there is none; nothing is claimed, and every stored call counts."""
        return self.at_hand(key, freshness)

    def at_hand(self, key: str, freshness: Freshness) -> Call | None:
        """As `get_or_claim`, at once."""
        return None if self._reader is None else self._reader.call(key, self.run_id)

    async def put(self, call: Call) -> Call:
        """Nothing is stored."""
        return call

    def record_payment(self, key: str, iteration: int, payment: Payment) -> None:
        """Nothing is stored."""

    async def release_claim(self, key: str) -> None:
        """Nothing was claimed."""

    def abort(self, reason: RagpipeError) -> None:
        """Nothing is waited for."""

    def end_waiting(self, reason: JudgeError) -> None:
        """Nothing is waited for."""

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def read_calls(place: StorePlace, keys: Iterable[str], *, run_id: str | None = None) -> dict[str, Call]:
    """The stored calls among `keys`, as `StoredCalls` gives them."""
    with closing(StoredCalls(place, run_id=run_id)) as stored:
        return stored.read(keys)
