"""The call store: judge replies by the hash of their question, shared by all runs and processes.

`ok` replies are served to every run, permanent failures only to the run that paid for them, transient ones are never
stored. A key is claimed before it is asked, so that two processes do not ask the same question.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Self

from ragpipe.core.errors import FATAL, TRANSIENT, DataError, OutputError, RagpipeError
from ragpipe.schema.call import Call, Payment
from ragpipe.store.calls.call_rows import packed, unpacked
from ragpipe.store.calls.call_table import CallReader, CallTable
from ragpipe.store.calls.call_worker import CallWorker
from ragpipe.store.calls.last_resort import LastResortFile
from ragpipe.store.calls.read_only import open_to_read
from ragpipe.store.calls.spend import payment_entry
from ragpipe.store.calls.sqlite_errors import sqlite_errors
from ragpipe.store.calls.store_requests import (
    AbortRequest,
    ClaimResult,
    Freshness,
    GetOrClaimRequest,
    Lookup,
    PaymentRequest,
    PutRequest,
    ReleaseRequest,
    StoreRequest,
)
from ragpipe.store.files.atomic import output_error


class CallStore:
    """Replies by key, for one run.

    A store belongs to no event loop: it may be used from one loop after another. `notices` says what the user should know
    (no write-ahead log on this file system). Raises OutputError when the file cannot be used, DataError when it is damaged,
    foreign or of another format; a file is never replaced.

    Args:
        path: the store's file; made where there is none.
        run_id: the run whose permanent failures are served.
        beat_s: seconds between two signs of life in the file.
        silent_after_s: after how many seconds without one the claims of another process are taken over.
        patience_s: after how many seconds of waiting for another process `say` is told.
        say: takes messages for the user that come up later.
    """

    def __init__(
        self,
        path: Path,
        *,
        run_id: str,
        beat_s: float = 5.0,
        silent_after_s: float = 30.0,
        patience_s: float = 10.0,
        say: Callable[[str], None] = lambda _: None,
    ):
        path = Path(path).absolute()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise output_error(path.parent, error, "create the folder") from error
        self.path, self.run_id = path, run_id
        self._closed = False
        self._last_resort = LastResortFile()
        self._worker = CallWorker(
            lambda: CallTable(path, run_id=run_id, silent_after_s=silent_after_s),
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
        else:
            self._worker.send(PaymentRequest(entry))

    async def release_claim(self, key: str) -> None:
        """Give a claim back without an answer."""
        await self._result_of(ReleaseRequest(key))

    def abort(self, reason: RagpipeError) -> None:
        """Wait no longer for other processes: every `get_or_claim` that would have to wait raises `reason`."""
        if not self._closed:
            self._worker.send(AbortRequest(reason))

    def close(self) -> None:
        """Commit what was sent, free the claims of this store, end its thread. A second time does nothing."""
        if not self._closed:
            self._closed = True
            self._worker.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _result_of(self, request: StoreRequest) -> Any:
        if isinstance(self._worker.broken, OutputError):
            raise self._worker.broken
        if self._closed or self._worker.broken:
            raise RagpipeError(f"the call store {self.path} is closed") from self._worker.broken
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
    """A call store that is only read, without claims: what a plan looks into. A missing file holds nothing.

    Gives `ok` replies and, with `run_id`, that run's permanent failures. Raises OutputError and DataError as `CallStore`.
    """

    def __init__(self, path: Path, *, run_id: str | None = None):
        self.path, self.run_id = Path(path).absolute(), run_id
        self._db: sqlite3.Connection | None = None
        self._reader: CallReader | None = None
        if self.path.exists():
            self._db = open_to_read(self.path)
            self._reader = CallReader(self._db)

    def read(self, keys: Iterable[str]) -> dict[str, Call]:
        """The stored calls among `keys`."""
        return {key: call for key in keys if (call := self.at_hand(key, Freshness.ANY))}

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
        if self._db is None or self._reader is None:
            return None
        with sqlite_errors(self.path):
            return self._reader.call(key, self.run_id)

    async def put(self, call: Call) -> Call:
        """Nothing is stored."""
        return call

    def record_payment(self, key: str, iteration: int, payment: Payment) -> None:
        """Nothing is stored."""

    async def release_claim(self, key: str) -> None:
        """Nothing was claimed."""

    def abort(self, reason: RagpipeError) -> None:
        """Nothing is waited for."""

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None


def read_calls(path: Path, keys: Iterable[str], *, run_id: str | None = None) -> dict[str, Call]:
    """The stored calls among `keys`, as `StoredCalls` gives them."""
    with closing(StoredCalls(path, run_id=run_id)) as stored:
        return stored.read(keys)
