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
from typing import Any, Literal, Self

from ragpipe.core.errors import FATAL, TRANSIENT, DataError, OutputError, RagpipeError
from ragpipe.schema.call import Call, Payment
from ragpipe.store.calls.call_rows import packed, unpacked
from ragpipe.store.calls.call_table import CallTable, select_calls
from ragpipe.store.calls.call_worker import StoreRequest, Worker
from ragpipe.store.calls.last_resort import LastResortFile
from ragpipe.store.calls.read_only import open_to_read
from ragpipe.store.calls.spend import payment_entry
from ragpipe.store.calls.sqlite_errors import sqlite_errors
from ragpipe.store.files.atomic import output_error

Fresh = Literal[True, False, "all"] | Call
"""What of the stored calls is passed over: nothing, failures (True), `all`, or failures and this very reply."""


class CallStore:
    """Replies by key, for one run.

    `run_id` is the run whose permanent failures are served. A store belongs to no event loop: it may be used from one
    loop after another. `notices` says what the user should know (no write-ahead log on this file system), `say` is told
    what comes up later: whom it waits for, after `patience_s`. Raises OutputError when the file cannot be used, DataError
    when it is damaged, foreign or of another format; it is never replaced by itself.
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
        self._worker = Worker(
            lambda: CallTable(path, run_id=run_id, silent_after_s=silent_after_s),
            beat_s=min(beat_s, silent_after_s / 3),
            patience_s=patience_s,
            say=say,
            kept=(kept := LastResortFile()),
        )
        self._kept = kept
        self._worker.open()
        self.notices: list[str] = list(self._worker.table.notices)

    @property
    def damaged(self) -> int:
        """How many of the calls that were looked for stood there damaged: they counted as not there."""
        return len(self._worker.table.damaged)

    async def take(self, key: str, *, fresh: Fresh = False) -> Call | None:
        """The stored call that this run may use, or None: then the caller holds the claim and must `put` or `release`.

        A key that another caller is asking for is waited for; the claim of a dead process is taken over. `fresh=True`
        passes over stored failures (`retry_errors`), `fresh="all"` over stored replies too, and a call over that reply alone.
        """
        operation = self._operation("take", key, fresh)
        try:
            found = await self._done(operation)
        except asyncio.CancelledError:
            future = operation.future
            if (
                future
                and future.done()
                and not future.cancelled()
                and not future.exception()
                and future.result() is True
            ):
                self._worker.send(StoreRequest("release", key))  # claimed in the moment of the cancelling
            raise
        return None if found is True else found

    async def put(self, call: Call) -> Call:
        """Store a call and free the claim on its key; returns once committed (also when cancelled, it is committed).

        Returns the call as it stands in the store, which is what a replay will see: `run_id` filled in, lone surrogates
        replaced, and another one altogether when this process was silent for so long that another took the claim over
        and stored its reply first. A transient or fatal failure only frees the claim.
        """
        if call.status in TRANSIENT or call.status in FATAL:
            await self.release(call.key)
            return call
        row = packed(call, self.run_id)
        try:
            stands: Call | None = await self._done(self._operation("put", call.key, row))
        except (OutputError, DataError) as error:
            self._kept.call(unpacked(row))
            raise self._kept.told(error) from error
        return stands or unpacked(row)

    def pay(self, key: str, iteration: int, payment: Payment) -> None:
        """Enter what one answered try of a question cost this run into the ledger. It does not wait: the row is committed at
        the latest with the next call that is put. Where it cannot be written it is kept beside (`Kept`)."""
        paid = payment_entry(key, self.run_id, iteration, payment)
        if self._closed or self._worker.broken:
            self._kept.payment(paid)
        else:
            self._worker.send(StoreRequest("pay", key, paid))

    async def release(self, key: str) -> None:
        """Give a claim back without an answer."""
        await self._done(self._operation("release", key, None))

    def give_up(self, why: RagpipeError) -> None:
        """Wait no longer for what other processes are asking for: every `take` that would have to wait raises `why`."""
        if not self._closed:
            self._worker.send(StoreRequest("give_up", argument=why))

    def close(self) -> None:
        """Commit what was sent, free the claims of this store, end its thread. A second time does nothing."""
        if not self._closed:
            self._closed = True
            self._worker.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _operation(self, kind: Literal["take", "put", "release"], key: str, argument: Any) -> StoreRequest:
        return StoreRequest(kind, key, argument, asyncio.get_running_loop())

    async def _done(self, operation: StoreRequest) -> Any:
        if isinstance(self._worker.broken, OutputError):
            raise self._worker.broken
        if self._closed or self._worker.broken:
            raise RagpipeError(f"the call store {self.path} is closed") from self._worker.broken
        self._worker.send(operation)
        assert operation.future is not None
        return await operation.future


class StoredCalls:
    """A call store that is only read, without claims: what a plan looks into. A missing file holds nothing.

    Gives `ok` replies and, with `run_id`, that run's permanent failures. Raises OutputError and DataError as `CallStore`.
    """

    def __init__(self, path: Path, *, run_id: str | None = None):
        self.path, self.run_id = Path(path).absolute(), run_id
        self._damaged: set[str] = set()
        self._db: sqlite3.Connection | None = None
        if self.path.exists():
            self._db = open_to_read(self.path)

    def read(self, keys: Iterable[str]) -> dict[str, Call]:
        """The stored calls among `keys`."""
        if self._db is None:
            return {}
        with sqlite_errors(self.path):
            return dict(select_calls(self._db, keys, self.run_id, self._damaged))

    @property
    def damaged(self) -> int:
        """How many of the calls that were looked for stood there damaged: they counted as not there."""
        return len(self._damaged)

    async def take(self, key: str, *, fresh: Fresh = False) -> Call | None:
        """The stored call, None when there is none; nothing is claimed."""
        return self.read([key]).get(key)

    async def put(self, call: Call) -> Call:
        """Nothing is stored."""
        return call

    def pay(self, key: str, iteration: int, payment: Payment) -> None:
        """Nothing is stored."""

    async def release(self, key: str) -> None:
        """Nothing was claimed."""

    def give_up(self, why: RagpipeError) -> None:
        """Nothing is waited for."""

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None


def read_calls(path: Path, keys: Iterable[str], *, run_id: str | None = None) -> dict[str, Call]:
    """The stored calls among `keys`, as `StoredCalls` gives them."""
    with closing(StoredCalls(path, run_id=run_id)) as stored:
        return stored.read(keys)
