"""The call store: judge replies by the hash of their question, shared by all runs and processes.

`ok` replies are served to every run, permanent failures only to the run that paid for them, transient ones are never
stored. A key is claimed before it is asked, so that two processes do not ask the same question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from ragpipe.core.call import Call, Payment
from ragpipe.core.errors import FATAL, TRANSIENT, DataError, OutputError, RagpipeError
from ragpipe.core.usage import Usage, UsageSum
from ragpipe.core.version import FORMAT
from ragpipe.store.call_database import StoredReader, StorePlace, call_database
from ragpipe.store.call_rows import SharedValues, StoreConnection, every_call, key_bytes, milliseconds, packed, unpacked
from ragpipe.store.call_worker import CallWorker
from ragpipe.store.ledger import (
    SILENT_AFTER_S,
    AbortRequest,
    ClaimResult,
    Freshness,
    GetOrClaimRequest,
    Lookup,
    PutRequest,
    ReleaseRequest,
    StoreRequest,
    ledger_payment,
    payment_mark,
    payments_in,
)
from ragpipe.store.transfer import LastResortFile


class ReplyStore:
    """Where replies are looked up and stored by key; `CallStore` documents the methods. A store that is only read overrides
    `at_hand` and `close`: it claims, stores and waits for nothing."""

    def at_hand(self, key: str, freshness: Freshness) -> Call | None:
        """The stored call, where it can be given at once and without a claim; None where `get_or_claim` has to be asked."""
        return None

    async def get_or_claim(
        self, key: str, *, freshness: Freshness = Freshness.ANY, rejected: Call | None = None
    ) -> Call | None:
        return self.at_hand(key, freshness)

    async def put(self, call: Call) -> Call:
        return call

    def record_payment(self, key: str, iteration: int, payment: Payment, *, alone: bool = False) -> None: ...

    async def release_claim(self, key: str) -> None: ...

    def abort(self, reason: RagpipeError) -> None: ...

    def close(self) -> None: ...


class CallStore(ReplyStore):
    """Replies by key, for one run.

    A store belongs to no event loop: it may be used from one loop after another. `notices` says what the user should know
    (no write-ahead log on this file system). Raises OutputError when the place cannot be used, DataError when it is damaged,
    foreign or of another format; a store is never replaced.

    The permanent failures of `run_id` are served. It gives a sign of life every `beat_s` seconds; the claims of another process are
    taken over after `silent_after_s` without one. `say` takes messages for the user, also after `patience_s` of waiting for another
    process.
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
    ):
        database = call_database(place)
        self.place, self.run_id = place, run_id
        self._closed = False
        self._last_resort = LastResortFile(database.setting)
        self._worker = CallWorker(
            lambda: database.open_table(run_id, silent_after_s),
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
        return stored or (call if call.run_id else unpacked(row))  # what a run has recorded is as it is stored

    def record_payment(self, key: str, iteration: int, payment: Payment, *, alone: bool = False) -> None:
        """Enter what one answered attempt cost this run into the ledger, without waiting: it is committed with its call, or
        kept in the `LastResortFile`."""
        paid = ledger_payment(key, self.run_id, iteration, payment)
        if self._closed or self._worker.broken:
            self._last_resort.add_payment(paid)
        else:
            self._worker.pay(paid, alone=alone)

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


class StoredCalls(ReplyStore):
    """A call store that is only read, without claims; a missing one holds nothing. Gives `ok` replies and, with `run_id`,
    that run's permanent failures, however old. Raises as `CallStore`."""

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

    def at_hand(self, key: str, freshness: Freshness) -> Call | None:
        return None if self._reader is None else self._reader.call(key, self.run_id)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def read_calls(place: StorePlace, keys: Iterable[str], *, run_id: str | None = None) -> dict[str, Call]:
    """The stored calls among `keys`, as `StoredCalls` gives them."""
    with closing(StoredCalls(place, run_id=run_id)) as stored:
        return stored.read(keys)


class WrappedStore(ReplyStore):
    """A store in front of another one: what it does not do itself is done by that one."""

    def __init__(self, store: ReplyStore):
        self._store = store

    async def put(self, call: Call) -> Call:
        return await self._store.put(call)

    def record_payment(self, key: str, iteration: int, payment: Payment, *, alone: bool = False) -> None:
        self._store.record_payment(key, iteration, payment, alone=alone)

    async def release_claim(self, key: str) -> None:
        await self._store.release_claim(key)

    def abort(self, reason: RagpipeError) -> None:
        self._store.abort(reason)

    def close(self) -> None:
        self._store.close()


class AcceptedReplies(WrappedStore):
    """The calls of a store for which `is_rejected` is false; everything else is the store's own."""

    def __init__(self, store: ReplyStore, is_rejected: Callable[[Call], bool]):
        super().__init__(store)
        self._is_rejected = is_rejected

    async def get_or_claim(
        self, key: str, *, freshness: Freshness = Freshness.ANY, rejected: Call | None = None
    ) -> Call | None:
        """As `CallStore.get_or_claim`. A rejected reply is passed over, and its key is claimed."""
        call = await self._store.get_or_claim(key, freshness=freshness, rejected=rejected)
        while call is not None and self._is_rejected(call):
            previous = call  # another process may store a reply meanwhile
            call = await self._store.get_or_claim(key, freshness=Freshness.NO_FAILURES, rejected=previous)
            if call == previous:  # a store that is only read
                return None
        return call


def paid_by(place: StorePlace, run_id: str, iteration: int | None = None) -> Usage:
    """What one iteration of a run (None: all of it) has paid, over all its processes; zero where there is no store.

    Raises OutputError and DataError as `CallStore`.
    """
    spend, database = UsageSum(), call_database(place)
    if database.exists():
        with database.reading() as db:
            for entry in payments_in(db, SharedValues(db), run_id=run_id, iteration=iteration):
                spend.pay(entry)
    return spend.total()


def census(place: StorePlace, runs: Collection[str]) -> dict[str, Any]:
    """All counts of a store; `runs` are the ids of the runs that have a folder. Every row is checked."""
    database = call_database(place)
    damaged = 0
    by_status, by_judge = dict[str, Usage](), dict[str, Usage]()
    times: list[str] = []
    with database.reading() as db:
        for call in every_call(db):
            if call is None:
                damaged += 1
                continue
            usage = Usage.of_call(call)
            by_status[call.status] = by_status.get(call.status, Usage()) + usage
            by_judge[call.judge] = by_judge.get(call.judge, Usage()) + usage
            if call.created_at:
                times = [min([*times[:1], call.created_at]), max([*times[1:], call.created_at])]
        paid, by_run = _spend(db)
        claim_counts, size = database.claims(db), database.size(db)
    oldest, newest = times or (None, None)
    failures = Usage.sum(usage for status, usage in by_status.items() if status != "ok")
    return {
        "format": FORMAT,
        "file": str(database),
        "bytes": size,
        "oldest": oldest,
        "newest": newest,
        "replies": _counts(by_status.get("ok", Usage())),
        "failures": _counts(failures),
        "damaged": damaged,
        "by_status": _by_count(by_status),
        "by_judge": _by_count(by_judge),
        "paid": paid.as_json(),
        "paid_by_run": {
            run: {**usage.as_json(), "folder": run in runs}
            for run, usage in sorted(by_run.items(), key=lambda item: (-item[1].replies, item[0]))
        },
        "claims": claim_counts,
    }


def _spend(db: StoreConnection) -> tuple[Usage, dict[str, Usage]]:
    """What was paid in all, and by each run."""
    total, by_run = UsageSum(), dict[str, UsageSum]()
    for entry in payments_in(db, SharedValues(db)):
        total.pay(entry)
        if entry is not None:
            by_run.setdefault(entry.run_id, UsageSum()).pay(entry)
    return total.total(), {run: run_spend.total() for run, run_spend in by_run.items()}


def _by_count(usages: Mapping[str, Usage]) -> dict[str, dict[str, Any]]:
    return {name: _counts(usage) for name, usage in sorted(usages.items(), key=lambda item: (-item[1].calls, item[0]))}


def _counts(usage: Usage) -> dict[str, Any]:
    """Calls and tokens, without money: only the ledger knows what was paid."""
    return {"calls": usage.calls, **usage.token_counts(), "without_usage": usage.without_usage}


@dataclass(frozen=True)
class Choice:
    """Which calls: those that match every setting. With `used`, the keys that some run refers to are kept."""

    older_than_days: float | None = None
    run_id: str | None = None
    used: Iterable[str] | None = None

    def where(self, db: StoreConnection, now: datetime) -> tuple[str, list[Any]]:
        """The condition in SQL. A call without a date is never too old."""
        parts, values = ["TRUE"], list[Any]()
        if self.older_than_days is not None:
            parts.append("created_at < ?")
            values.append(milliseconds((now - timedelta(days=self.older_than_days)).isoformat()))
        if self.run_id is not None:
            parts.append("run IN (SELECT id FROM runs WHERE run_id = ?)")
            values.append(self.run_id)
        if self.used is not None:
            db.keep_keys(map(key_bytes, self.used))
            parts.append("NOT EXISTS (SELECT 1 FROM used WHERE used.key = calls.key)")
        return " AND ".join(parts), values


def prunable(place: StorePlace, choice: Choice, *, now: datetime | None = None) -> dict[str, Any]:
    """What would be deleted: `calls`, and `paid`, their cost: about what it would cost to ask again."""
    with call_database(place).reading() as db:
        return _size(db, *choice.where(db, now or datetime.now(UTC)))


def prune(
    place: StorePlace, choice: Choice, *, now: datetime | None = None, silent_after_s: float = SILENT_AFTER_S
) -> dict[str, Any]:
    """Delete the calls and shrink the store; returns what was deleted. What runs paid for them stays in the ledger. Raises
    FolderLocked while another process uses this store, also when it starts to in the middle."""
    database = call_database(place)
    with database.changing(silent_after_s=silent_after_s) as db:
        where, values = choice.where(db, now or datetime.now(UTC))
        deleted = _size(db, where, values)
        database.delete_calls(db, where, values, silent_after_s=silent_after_s)
        return deleted


def _size(db: StoreConnection, where: str, values: list[Any]) -> dict[str, Any]:
    keys = [row[0] for row in db.stream(f"SELECT key FROM calls WHERE {where}", values)]
    marks, spend = {payment_mark(key) for key in keys if type(key) is bytes}, UsageSum()
    for payment in payments_in(db, SharedValues(db)):
        if payment is not None and payment.mark in marks:
            spend.pay(payment)
    return {"calls": len(keys), "paid": spend.total().as_json()}
