"""The thread that owns the call store's connection.

It takes requests from a queue in groups: one transaction per group, and one wake-up of the event loop per group. So the
event loop never waits for the database, and all who wait for a commit share its price.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from ragpipe.core.call import Payment
from ragpipe.core.errors import DataError, OutputError, RagpipeError
from ragpipe.store.call_rows import key_bytes, unpacked
from ragpipe.store.ledger import (
    AbortRequest,
    ClaimResult,
    GetOrClaimRequest,
    OpenTable,
    PutRequest,
    ReleaseRequest,
    StopRequest,
    StoreLost,
    StoreRequest,
    payment_mark,
)
from ragpipe.store.transfer import LastResortFile

GROUP = 512  # requests per transaction
PACE_S = 0.005  # between two turns: what comes meanwhile shares a transaction, and a wake-up of the event loop
SYNC_S = 2.0
PAID_ALONE_S = 0.5
LAST_POLL_S = 0.5


class RequestOutcome(NamedTuple):
    """What a request came to: a result, or the error to raise."""

    request: StoreRequest
    result: Any = None
    error: BaseException | None = None


def _broken(error: DataError) -> StoreLost:
    """The error of a store that could be read when it was opened, and cannot any more: replies were paid for since."""
    found = error.problems[0]
    return StoreLost(f"the call store {found.where} broke while this start used it: {found.found}. To fix: {found.fix}")


class CallWorker(threading.Thread):
    """The thread. `broken` is the error that ended it. `open_table` is called in it; `say` is called in the event loop of whoever
    waits. After `patience_s` of waiting for another process it is told. `last_resort` keeps what was paid for and cannot be stored."""

    def __init__(
        self,
        open_table: Callable[[], OpenTable],
        *,
        beat_s: float,
        patience_s: float,
        say: Callable[[str], None],
        last_resort: LastResortFile,
    ):
        super().__init__(name="ragpipe-calls", daemon=True)  # a forgotten store must not keep the process alive
        self._open, self._beat_s, self._patience_s, self._say = open_table, beat_s, patience_s, say
        self._last_resort = last_resort
        self._unpaid: list[tuple[float, Payment]] = []  # since when, payments that are not committed yet
        self._announced: set[str] = set()  # owners that the user knows to be waited for
        self._queue: queue.SimpleQueue[StoreRequest] = queue.SimpleQueue()
        self._is_opened = threading.Event()
        self._waiting: list[GetOrClaimRequest] = []  # another store holds the claim on their key
        self._granted: dict[str, asyncio.AbstractEventLoop] = {}  # by key, the loop of the task that has the claim
        self._group: list[StoreRequest] = []  # what this turn works on
        self._next_beat = self._next_sync = self._next_turn = 0.0
        self._abort_reason: BaseException | None = None
        self._end_lock = threading.RLock()  # a signal may make the thread that sends send again
        self._has_ended = False  # nothing is taken from the queue any more
        self.broken: BaseException | None = None
        self.table: OpenTable

    def open(self) -> None:
        """Start the thread, and raise here what opening the store raised there."""
        self.start()
        self._is_opened.wait()
        if self.broken:
            self.join()
            raise self.broken

    def pay(self, payment: Payment, *, alone: bool) -> None:
        """Write a payment: at once where it stands `alone`, else in one transaction with the call that it was for. Where that does not come
        in `PAID_ALONE_S`, the next turn of the thread writes it, `SYNC_S` later at most. After the thread's end it is kept elsewhere."""
        with self._end_lock:
            if not self._has_ended:
                self._unpaid.append((0.0 if alone else time.monotonic(), payment))
                if alone:
                    self._queue.put(StoreRequest())  # which wakes the thread
                return
        self._last_resort.add_payment(payment)

    def send(self, request: StoreRequest) -> None:
        """Queue a request. It does not wait. After the end of the thread the request fails."""
        with self._end_lock:  # a request that came after the last look at the queue would be answered by nobody
            if not self._has_ended:
                self._queue.put(request)
                return
        self._fail([request])

    def stop(self) -> None:
        """Finish what was sent before, free the claims, close the file. Raises the error that ended the thread."""
        self.send(StopRequest())
        self.join()
        if self.broken:
            raise self.broken

    def run(self) -> None:
        """The body of the thread."""
        try:
            self.table = self._open()
        except BaseException as error:
            self.broken = error
            return
        finally:
            self._is_opened.set()
        try:
            while self._turn():
                pass
        except BaseException as error:  # no task may wait for ever for a thread that has ended
            self.broken = self._rescue(error)
        self._end()

    def _turn(self) -> bool:
        """Work on one group; False after the last one."""
        group = self._next_group()
        due = self._due_requests()
        self._group = [*group, *due]
        outcomes = self._write(
            [request for request in group if isinstance(request, PutRequest)],
            [request for request in group if isinstance(request, ReleaseRequest)],
        )
        outcomes += self._get_or_claim([request for request in self._group if isinstance(request, GetOrClaimRequest)])
        for request in group:
            if isinstance(request, AbortRequest):
                self._abort_reason = request.reason
                outcomes += [RequestOutcome(waiting, error=request.reason) for waiting in self._waiting]
                self._waiting = []
        _deliver(outcomes, self)
        self._group = []
        self._maintain()
        return not any(isinstance(request, StopRequest) for request in group)

    def _next_group(self) -> list[StoreRequest]:
        """The next requests of the queue; none when it is time for something else."""
        wake = min([self._next_beat, self._next_sync, *(request.due for request in self._waiting)])
        group: list[StoreRequest] = []
        with suppress(queue.Empty):
            group.append(self._queue.get(timeout=max(0.0, wake - time.monotonic())))
            time.sleep(max(0.0, self._next_turn - time.monotonic()))
            while len(group) < GROUP and not isinstance(group[-1], StopRequest):
                group.append(self._queue.get_nowait())
        self._next_turn = time.monotonic() + PACE_S
        return group

    def _write(self, puts: Sequence[PutRequest], releases: Sequence[ReleaseRequest]) -> list[RequestOutcome]:
        freed = {*(put.key for put in puts), *(release.key for release in releases)}
        marks, long_ago = {payment_mark(key_bytes(key)) for key in freed}, time.monotonic() - PAID_ALONE_S
        paid = [(since, payment) for since, payment in self._unpaid if payment.mark in marks or since <= long_ago]
        if not freed and not paid:
            return []
        try:
            rows, payments = [put.row for put in puts], [payment for _, payment in paid]
            stored = self.table.write(rows, [release.key for release in releases], payments)
        except StoreLost:
            raise
        except DataError as error:
            raise _broken(error) from error
        except RagpipeError as error:  # payments are written with the next group
            return [RequestOutcome(request, error=error) for request in (*puts, *releases)]
        for entry in paid:
            self._unpaid.remove(entry)  # one may have come meanwhile
        for key in freed:
            self._granted.pop(key, None)
        for waiting in self._waiting:
            if waiting.key in freed:
                waiting.due = 0.0
        return [*map(RequestOutcome, puts, stored), *map(RequestOutcome, releases)]

    def _due_requests(self) -> list[GetOrClaimRequest]:
        """The waiting requests whose time has come, without those that were cancelled."""
        now = time.monotonic()
        due = [request for request in self._waiting if request.due <= now]
        self._waiting = [request for request in self._waiting if request.due > now]
        return [request for request in due if request.future and not request.future.cancelled()]

    def _get_or_claim(self, requests: Sequence[GetOrClaimRequest]) -> list[RequestOutcome]:
        """Read first and without a lock (a replay never writes), then claim what was not found."""
        if not requests:
            return []
        outcomes: list[RequestOutcome] = []
        try:
            calls = self.table.find([request.lookup for request in requests])
            outcomes += [RequestOutcome(request, call) for request, call in zip(requests, calls, strict=True) if call]
            if missing := [request for request, call in zip(requests, calls, strict=True) if not call]:
                outcomes += self._claim(missing)
        except StoreLost:
            raise
        except DataError as error:
            raise _broken(error) from error
        except RagpipeError as error:
            answered = {id(outcome.request) for outcome in outcomes}
            outcomes += [RequestOutcome(request, error=error) for request in requests if id(request) not in answered]
        return outcomes

    def _claim(self, requests: Sequence[GetOrClaimRequest]) -> list[RequestOutcome]:
        """Claim the keys. Requests for a key that another store holds wait, or fail after an abort."""
        outcomes: list[RequestOutcome] = []
        self._free_claims_of_closed_loops([request.key for request in requests])
        results = self.table.find_or_claim([request.lookup for request in requests])
        for request, result in zip(requests, results, strict=True):
            if result is not ClaimResult.HELD:
                outcomes.append(RequestOutcome(request, result))
                if result is ClaimResult.GRANTED and request.future is not None:
                    self._granted[request.key] = request.future.get_loop()
            elif self._abort_reason is not None:
                outcomes.append(RequestOutcome(request, error=self._abort_reason))
            else:
                self._wait(request)
        return outcomes

    def _free_claims_of_closed_loops(self, keys: Sequence[str]) -> None:
        """Free the claims on these keys of tasks whose event loop was closed: none is left to give them back."""
        lost = [key for key in keys if (loop := self._granted.get(key)) is not None and loop.is_closed()]
        if lost:
            self.table.write([], lost)
            for key in lost:
                del self._granted[key]

    def _wait(self, request: GetOrClaimRequest) -> None:
        """Try again later, each time after twice the delay."""
        now = time.monotonic()
        if request.waiting_since is None:
            request.waiting_since = now
        if now - request.waiting_since >= self._patience_s:
            request.waiting_since = now  # looked up once, not at every poll
            self._announce_holder(request)
        request.due = now + request.delay_s
        request.delay_s = min(2 * request.delay_s, LAST_POLL_S)
        self._waiting.append(request)

    def _announce_holder(self, request: GetOrClaimRequest) -> None:
        """Tell the user for whom a request waits: once per holder."""
        if request.future is None:
            return
        holder = self.table.holder(request.key)
        if holder and holder not in self._announced:
            self._announced.add(holder)
            message = f"waiting for {holder}, which is asking the same question"
            with suppress(RuntimeError):  # the loop was closed
                request.future.get_loop().call_soon_threadsafe(self._say, message)

    def _maintain(self) -> None:
        """Give a sign of life and bring what was committed to the disk, each when it is time."""
        now = time.monotonic()
        if now >= self._next_beat:
            try:
                self.table.beat()
            except StoreLost:
                raise
            except RagpipeError:  # whoever waits for a reply hears of a full disk
                pass
            self._next_beat = now + self._beat_s
        if now >= self._next_sync:
            try:
                self.table.sync()
            except StoreLost:  # whatever is stored from now on would be lost: this ends the thread
                raise
            except RagpipeError:
                pass
            self._next_sync = now + SYNC_S

    def _end(self) -> None:
        """Answer the requests that are left, write what is left to pay, close the file."""
        with self._end_lock:
            requests = [*self._group, *self._waiting, *self._empty_queue()]
            self._has_ended = True
        self._fail(requests)
        # a full disk fails the first step and must not leave the file open
        for step in (self._write_payments, self.table.sync, self.table.close):
            try:
                step()
            except BaseException as error:
                self.broken = self.broken or self._rescue(error)
        if isinstance(self.broken, OutputError | DataError):
            self.broken = self._last_resort.with_location(self.broken)

    def _fail(self, requests: Sequence[StoreRequest]) -> None:
        """Fail requests that the thread will not answer any more."""
        closed = self.broken or RagpipeError("the call store was closed while a task waited for it")
        left = [request for request in requests if not self._keep_unclaimed(request)]
        _deliver([RequestOutcome(request, error=closed) for request in left], self)

    def _keep_unclaimed(self, request: StoreRequest) -> bool:
        """Keep a reply that cannot be stored elsewhere, where its task was cancelled and does not do so; whether that was the case."""
        if not isinstance(request, PutRequest) or request.future is None or not request.future.done():
            return False
        self.keep(request)
        return True

    def keep(self, request: PutRequest) -> None:
        """Keep a reply that cannot be stored in the file of last resort."""
        self._last_resort.add_call(unpacked(request.row))

    def _empty_queue(self) -> list[StoreRequest]:
        requests: list[StoreRequest] = []
        with suppress(queue.Empty):
            while True:
                requests.append(self._queue.get_nowait())
        return requests

    def _write_payments(self) -> None:
        if self._unpaid and not self.broken:
            self.table.write([], [], [payment for _, payment in self._unpaid])
            self._unpaid = []
        self._rescue_payments()

    def _rescue(self, error: BaseException) -> BaseException:
        """The error that ends this thread, after what it would lose was kept elsewhere."""
        with suppress(Exception):
            if isinstance(error, StoreLost):
                calls, payments = self.table.stored_here()
                for call in calls:
                    self._last_resort.add_call(call)
                for payment in payments:
                    self._last_resort.add_payment(payment)
        self._rescue_payments()
        return self._last_resort.with_location(error) if isinstance(error, OutputError | DataError) else error

    def _rescue_payments(self) -> None:
        while self._unpaid:  # one may come meanwhile
            self._last_resort.add_payment(self._unpaid.pop(0)[1])


def _deliver(outcomes: Sequence[RequestOutcome], worker: CallWorker) -> None:
    """Hand outcomes to their event loops, one wake-up per loop."""
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[RequestOutcome]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.request.future is not None:
            by_loop[outcome.request.future.get_loop()].append(outcome)
    for loop, of_loop in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, of_loop, worker)
        except RuntimeError:  # the loop was closed meanwhile: no task is left to use what was claimed
            for outcome in of_loop:
                _clean_up(outcome, worker)


def _resolve(outcomes: Sequence[RequestOutcome], worker: CallWorker) -> None:
    for outcome in outcomes:
        future = outcome.request.future
        if future is None or future.done():  # cancelled while it waited
            _clean_up(outcome, worker)
        elif outcome.error is not None:
            future.set_exception(outcome.error)
        else:
            future.set_result(outcome.result)


def _clean_up(outcome: RequestOutcome, worker: CallWorker) -> None:
    """For a task which is no more: keep its reply that could not be stored, give back the claim that was granted to it."""
    if isinstance(outcome.request, PutRequest) and outcome.error is not None:
        worker.keep(outcome.request)
    if isinstance(outcome.request, GetOrClaimRequest) and outcome.result is ClaimResult.GRANTED:
        worker.send(ReleaseRequest(outcome.request.key))
