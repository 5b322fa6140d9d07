"""The one thread that owns the call store's connection.

It drains a queue of operations in groups: one transaction a group, and one wake-up of the event loop a group. So the
loop never waits on SQLite, and the price of a commit is shared by all who wait for it.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

from ragpipe.core.errors import DataError, OutputError, RagpipeError
from ragpipe.store.calls.call_table import CallTable, GoneFile
from ragpipe.store.calls.last_resort import LastResortFile
from ragpipe.store.calls.spend import PaymentEntry

GROUP = 512
SYNC_S = 2.0
POLL_FIRST_S, POLL_LAST_S = 0.02, 0.5

Kind = Literal["take", "put", "pay", "release", "give_up", "stop"]


class StoreRequest:
    """One thing asked of the thread. `future` belongs to `loop`; both are None when nobody waits for the outcome."""

    __slots__ = ("argument", "delay", "due", "future", "key", "kind", "loop", "since")

    def __init__(self, kind: Kind, key: str = "", argument: Any = None, loop: asyncio.AbstractEventLoop | None = None):
        self.kind, self.key, self.argument, self.loop = kind, key, argument, loop
        self.future: asyncio.Future[Any] | None = loop.create_future() if loop else None
        self.due = 0.0
        self.delay = POLL_FIRST_S
        self.since: float | None = None  # when it began to wait for another


Outcome = tuple[StoreRequest, Any, BaseException | None]


class Worker(threading.Thread):
    """Runs until `stop`. The outcome of a take is a Call or True (claimed), of a put None or the reply that stands."""

    def __init__(
        self,
        open_table: Callable[[], CallTable],
        *,
        beat_s: float,
        patience_s: float,
        say: Callable[[str], None],
        kept: LastResortFile,
    ):
        super().__init__(name="ragpipe-calls", daemon=True)  # a forgotten store must not keep the process alive
        self._open, self._beat_s, self._patience_s, self._say = open_table, beat_s, patience_s, say
        self._kept = kept
        self._owed: list[PaymentEntry] = []  # payments that are not committed yet
        self._named: set[str] = set()  # owners that were said to be waited for
        self._queue: queue.SimpleQueue[StoreRequest] = queue.SimpleQueue()
        self._ready = threading.Event()
        self._waiting: list[StoreRequest] = []  # takes whose key another store is asking for
        self._group: list[StoreRequest] = []  # what this turn works on
        self._next_beat = self._next_sync = 0.0
        self._gave_up: BaseException | None = None  # raised by takes that would have to wait
        self.broken: BaseException | None = None
        self.table: CallTable

    def open(self) -> None:
        """Start, and raise here what opening the file raised there."""
        self.start()
        self._ready.wait()
        if self.broken:
            self.join()
            raise self.broken

    def send(self, operation: StoreRequest) -> None:
        self._queue.put(operation)

    def stop(self) -> None:
        """Finish what was sent before, free the claims, close the file. Raises what the last of it raised."""
        self.send(StoreRequest("stop"))
        self.join()
        if self.broken:
            raise self.broken

    def run(self) -> None:
        try:
            self.table = self._open()
        except BaseException as error:
            self.broken = error
            return
        finally:
            self._ready.set()
        try:
            while self._turn():
                pass
        except BaseException as error:  # nobody may wait for ever for a thread that is no more
            self.broken = self._saved(error)
        self._end()

    def _end(self) -> None:
        left = [*self._group, *self._waiting, *self._drained()]
        self._owe(left)
        closed = self.broken or RagpipeError(f"the call store {self.table.path} was closed while a task waited for it")
        _deliver([(operation, None, closed) for operation in left], self)
        # a full disk fails the first and must not leave the file open
        for last in (self._pay_the_rest, self.table.sync, self.table.close):
            try:
                last()
            except BaseException as error:
                self.broken = self.broken or self._saved(error)

    def _owe(self, group: list[StoreRequest]) -> None:
        self._owed += [operation.argument for operation in group if operation.kind == "pay"]

    def _pay_the_rest(self) -> None:
        if self._owed and not self.broken:
            self.table.write([], [], self._owed)
            self._owed = []
        for one in self._owed:
            self._kept.payment(one)
        self._owed = []

    def _saved(self, error: BaseException) -> BaseException:
        """The error that ends this thread, after what it would lose was kept elsewhere."""
        with suppress(Exception):
            if isinstance(error, GoneFile):
                calls, payments = self.table.stored_here()
                for call in calls:
                    self._kept.call(call)
                for payment in payments:
                    self._kept.payment(payment)
        for one in self._owed:
            self._kept.payment(one)
        self._owed = []
        return self._kept.told(error) if isinstance(error, OutputError | DataError) else error

    def _drained(self) -> list[StoreRequest]:
        left = []
        with suppress(queue.Empty):
            while True:
                left.append(self._queue.get_nowait())
        return left

    def _turn(self) -> bool:
        group = self._next_group()
        self._owe(group)
        group = self._group = [operation for operation in group if operation.kind != "pay"]
        stopped = any(operation.kind == "stop" for operation in group)
        outcomes = self._write([o for o in group if o.kind in ("put", "release")])
        outcomes += self._take([*(o for o in group if o.kind == "take"), *self._due()])
        for operation in group:
            if operation.kind == "give_up":
                self._gave_up = operation.argument
                outcomes += [(waiting, None, self._gave_up) for waiting in self._waiting]
                self._waiting = []
        _deliver(outcomes, self)
        self._group = []
        self._housekeep()
        return not stopped

    def _next_group(self) -> list[StoreRequest]:
        wake = min([self._next_beat, self._next_sync, *(operation.due for operation in self._waiting)])
        group: list[StoreRequest] = []
        with suppress(queue.Empty):
            group.append(self._queue.get(timeout=max(0.0, wake - time.monotonic())))
            while len(group) < GROUP and group[-1].kind != "stop":
                group.append(self._queue.get_nowait())
        return group

    def _write(self, group: list[StoreRequest]) -> list[Outcome]:
        if not group and not self._owed:
            return []
        puts = [o for o in group if o.kind == "put"]
        releases = [o for o in group if o.kind == "release"]
        try:
            stands = self.table.write([o.argument for o in puts], [o.key for o in releases], self._owed)
        except RagpipeError as error:  # what is owed is written with the next group
            return [(operation, None, error) for operation in group]
        self._owed = []
        freed = {operation.key for operation in group}
        for operation in self._waiting:
            if operation.key in freed:
                operation.due = 0.0
        return [
            *((o, found, None) for o, found in zip(puts, stands, strict=True)),
            *((o, None, None) for o in releases),
        ]

    def _due(self) -> list[StoreRequest]:
        now = time.monotonic()
        due = [operation for operation in self._waiting if operation.due <= now]
        self._waiting = [o for o in self._waiting if o.due > now]
        return [operation for operation in due if operation.future and not operation.future.cancelled()]

    def _take(self, takes: list[StoreRequest]) -> list[Outcome]:
        """Read first and without a lock (a replay never writes), then claim what was not found."""
        if not takes:
            return []
        outcomes: list[Outcome] = []
        missing: list[StoreRequest] = []
        readable = [o for o in takes if o.argument != "all"]
        try:
            found = self.table.find([(o.key, not o.argument) for o in readable])
            for operation, call in zip(readable, found, strict=True):
                if call and call != operation.argument:
                    outcomes.append((operation, call, None))
                else:
                    missing.append(operation)
            missing += [o for o in takes if o.argument == "all"]
            if missing:
                outcomes += self._claim(missing)
        except RagpipeError as error:
            answered = {id(operation) for operation, _, _ in outcomes}
            outcomes += [(operation, None, error) for operation in takes if id(operation) not in answered]
        return outcomes

    def _claim(self, missing: list[StoreRequest]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        found = self.table.find_or_claim([(o.key, not o.argument, o.argument) for o in missing])
        for operation, call in zip(missing, found, strict=True):
            if call is False and self._gave_up:
                outcomes.append((operation, None, self._gave_up))
            elif call is False:
                self._say_whom(operation)
                operation.due = time.monotonic() + operation.delay
                operation.delay = min(2 * operation.delay, POLL_LAST_S)
                self._waiting.append(operation)
            else:
                outcomes.append((operation, call, None))
        return outcomes

    def _say_whom(self, waiting: StoreRequest) -> None:
        """After a while, whom a take waits for: once for each of them."""
        now = time.monotonic()
        waiting.since = waiting.since or now
        if now - waiting.since < self._patience_s or waiting.loop is None:
            return
        waiting.since = now  # once looked up, not at every poll
        if (holder := self.table.holder(waiting.key)) and holder not in self._named:
            self._named.add(holder)
            with suppress(RuntimeError):  # the loop was closed
                waiting.loop.call_soon_threadsafe(self._say, f"waiting for {holder}, which is asking the same question")

    def _housekeep(self) -> None:
        now = time.monotonic()
        if now >= self._next_beat:
            with suppress(RagpipeError):  # whoever waits for a reply hears of a full disk
                self.table.beat()
            self._next_beat = now + self._beat_s
        if now >= self._next_sync:
            try:
                self.table.sync()
            except GoneFile:  # whatever is stored from now on would be lost: this ends the thread, and says so to all
                raise
            except RagpipeError:
                pass
            self._next_sync = now + SYNC_S


def _deliver(outcomes: list[Outcome], worker: Worker) -> None:
    """Hand outcomes to their event loops, one wake-up a loop."""
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        if loop := outcome[0].loop:
            by_loop[loop].append(outcome)
    for loop, some in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, some, worker)
        except RuntimeError:  # the loop was closed meanwhile: nobody is left to use what was claimed
            for operation, outcome, _ in some:
                if operation.kind == "take" and outcome is True:
                    worker.send(StoreRequest("release", operation.key))


def _resolve(outcomes: list[Outcome], worker: Worker) -> None:
    for operation, outcome, error in outcomes:
        future = operation.future
        if future is None or future.done():  # cancelled while it waited
            if operation.kind == "take" and outcome is True:
                worker.send(StoreRequest("release", operation.key))
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(outcome)
