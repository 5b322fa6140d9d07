"""The account of a run as one process uses it: holds and questions that wait for their turn in the row."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Any

from ragpipe.core.errors import DataError, Problem, RagpipeError
from ragpipe.schema.amount import Amount
from ragpipe.store.limits.account_row import AccountRow, Answer, HeldAmount, Limits
from ragpipe.store.limits.limit_rows import Moment, Texts
from ragpipe.store.limits.limit_worker import LimitWorker
from ragpipe.store.limits.row_owners import RowOwner

_POLL_S = 0.05  # until a hold that has no room yet is tried again: other processes tell nothing
_BEAT_S = 2.0  # between two signs of life while requests are under way
_KEPT_S = 0.25  # questions that were taken ahead are given back after that
_GROUP = 256  # holds of one transaction at most; what ends or asks always goes in the next one

Step = Callable[[AccountRow, dict[str, Amount | None]], Any]
"""Something to do in the row. The second argument are the named holds of this turn, by name."""


@dataclass(slots=True, eq=False)
class _Errand:
    """Something to do in the row, and who waits for what comes of it; nobody, where `future` is None. `is_hold`: it may have to wait, and
    the holds after it too. `undo` takes back what came of it, where nobody waits any more. `leaves`: it is the last of its process."""

    do: Step
    future: Future[Any] | None
    name: str = ""
    is_hold: bool = False
    undo: Callable[[Any], None] = lambda _: None
    leaves: bool = False


@dataclass(frozen=True, slots=True)
class AccountFigures:
    """What the account said when this process last saw it: `spent` in all starts, `assumed` of it without an answer, `held` by all
    processes for their requests under way."""

    spent: Amount
    assumed: Amount
    held: Amount


class RunAccount:
    """The account of one run. Methods may be called from any thread; what waits belongs to an event loop.

    Args:
        name: the run.
        start: the start of it that asks: all its processes give the same. It may be set later, before anything is asked.
        me: this process.
        worker: has the rows open.
    """

    def __init__(self, name: str, start: str, me: RowOwner, worker: LimitWorker):
        self.start, self._me, self._worker = start, me, worker
        self._name = f"account {name}"
        self._lock = Lock()
        self._errands: deque[_Errand] = deque()
        self._turn: list[_Errand] = []
        self._kept: dict[str, int] = {}  # by judge, of the questions that were taken those not asked yet
        self._returned: dict[str, int] = {}
        self._was_used = False
        self.due = math.inf
        self.figures = AccountFigures(Amount(), Amount(), Amount())
        worker.add(self)

    # --- what a process asks of its account ---

    def balance(self, ledger: Amount) -> None:
        """Go on from what the ledger of payments says. Waits for it. Raises OutputError, DataError."""
        self._do_now(lambda row, _: row.balance(ledger))

    def refresh(self) -> None:
        """Bring `figures` up to date. Raises OutputError, DataError."""
        self._do_now(lambda row, _: None)

    async def hold(self, hold: HeldAmount, limits: Limits) -> bool:
        """Hold what a request may cost, once it fits. False: it does not, and nothing is under way. Raises OutputError, DataError."""

        def undo(answer: Answer) -> None:
            if answer == "held":
                self.settle(hold, Amount())

        return bool(
            await self._wait_for(_Errand(self._holding(hold, limits), Future(), hold.name, True, undo)) == "held"
        )

    def hold_now(self, hold: HeldAmount, limits: Limits) -> Answer:
        """As `hold`, at once."""
        answer: Answer = self._do_now(self._holding(hold, limits), hold.name)
        return answer

    def settle(self, hold: HeldAmount, cost: Amount | None) -> None:
        """A request has ended: what it has cost; None: nobody knows."""

        def settle(row: AccountRow, named: dict[str, Amount | None]) -> None:
            if not hold.name or named[hold.name] is not None:
                row.settle(hold, cost)
            if hold.name:
                named[hold.name] = None

        self._send(_Errand(settle, None, hold.name))

    def drop(self, name: str) -> None:
        """The request of an earlier start was never sent: its hold costs nothing. Nothing where there is none of this name."""

        def drop(row: AccountRow, named: dict[str, Amount | None]) -> None:
            if (before := named[name]) is not None:
                row.drop(before)
                named[name] = None

        self._do_now(drop, name)

    async def may_ask(self, judge: str, most: int) -> bool:
        """Whether one more question may be asked of a judge that may be asked so many in this start. Raises OutputError, DataError."""
        while True:
            with self._lock:
                if self._kept.get(judge, 0) > 0:
                    self._kept[judge] -= 1
                    return True
            ask = _Errand(lambda row, _: row.questions(self.start, judge, most, 1), Future())
            ask.undo = lambda taken: self._keep(judge, taken or 0)
            taken = await self._wait_for(ask)
            if taken == 0:
                return False
            if taken is not None:
                self._keep(judge, taken - 1)
                return True
            await asyncio.sleep(_KEPT_S / 2)

    def close(self) -> None:
        """Leave the account: what this process still holds counts as spent."""
        if self._was_used:
            future: Future[Any] = Future()
            self._send(_Errand(lambda row, _: None, future, leaves=True))
            with suppress(RagpipeError):  # what it held counts as spent when its process has ended
                future.result()
        self._worker.remove(self)

    # --- how it gets there ---

    def _holding(self, hold: HeldAmount, limits: Limits) -> Step:
        def step(row: AccountRow, named: dict[str, Amount | None]) -> Answer:
            before = named.get(hold.name) if hold.name else None
            answer = row.hold(hold, before, limits, self.start)
            if answer == "held" and hold.name:
                named[hold.name] = hold.amount
            return answer

        return step

    def _send(self, errand: _Errand) -> None:
        with self._lock:
            self._was_used = True
            self._errands.append(errand)
            self.due = 0.0
        self._worker.wake()

    def _do_now(self, do: Step, name: str = "") -> Any:
        future: Future[Any] = Future()
        self._send(_Errand(do, future, name))
        return future.result()

    async def _wait_for(self, errand: _Errand) -> Any:
        """What came of an errand; undone where its task was cancelled in the same moment."""
        assert errand.future is not None
        self._send(errand)
        try:
            return await asyncio.wrap_future(errand.future)
        except asyncio.CancelledError:
            if not errand.future.cancel() and not errand.future.cancelled() and errand.future.exception() is None:
                errand.undo(errand.future.result())
            self.due = 0.0  # the row says for whom others wait
            self._worker.wake()
            raise

    def _keep(self, judge: str, taken: int) -> None:
        with self._lock:
            self._kept[judge] = self._kept.get(judge, 0) + taken
            is_earlier = self.due == math.inf
            if is_earlier:
                self.due = time.monotonic() + _KEPT_S
        if is_earlier:
            self._worker.wake()

    # --- the worker's side ---

    def names(self) -> Collection[str]:
        """The row, and those of the named holds of this turn: all that has ended, which makes room, then holds in their order."""
        with self._lock:
            self._errands = deque(e for e in self._errands if e.future is None or not e.future.cancelled())
            holds = [errand for errand in self._errands if errand.is_hold]
            self._turn = [errand for errand in self._errands if not errand.is_hold] + holds[:_GROUP]
            self._returned, self._kept = self._kept, {}
            self.due = math.inf
        return {self._name, *(self._row_of(errand.name) for errand in self._turn if errand.name)}

    def _row_of(self, hold: str) -> str:
        return f"{self._name} hold {hold}"

    def step(self, texts: Texts, moment: Moment) -> tuple[Texts, Any]:
        """Do what was sent: what has ended and what asks, then the holds, each in their order."""
        try:
            row = AccountRow.read(texts[self._name], self._me, moment)
            holds = {errand.name for errand in self._turn if errand.name}
            named = {name: _amount(texts[self._row_of(name)]) for name in holds}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            fix = (
                "end all runs over this store, then remove its limits.sqlite files, or with store.url delete all rows of the table "
                "limits of its schema: what was paid is in its ledger"
            )
            problem = Problem(self._name, "limits", f"a row that cannot be read ({error!r})", "an account", fix)
            raise DataError("the account of the run is damaged", [problem]) from error
        row.enter()
        for judge, kept in self._returned.items():
            row.give_back(self.start, judge, kept)
        results: dict[int, Any] = {}
        is_waiting = False
        for errand in self._turn:
            result = "wait" if is_waiting and errand.is_hold else errand.do(row, named)
            is_waiting = is_waiting or (errand.is_hold and result == "wait")
            results[id(errand)] = result
        if not is_waiting:
            row.wait_no_more(self._me.id)
        requests = row.enter().requests
        if any(errand.leaves for errand in self._turn):
            row.end(self._me.id)
        texts = {
            self._row_of(name): None if left is None else json.dumps(left.as_json()) for name, left in named.items()
        }
        return {self._name: row.text, **texts}, (
            results,
            requests,
            AccountFigures(row.spent, row.assumed, row.held),
        )

    def done(self, result: Any) -> None:
        """Hand the results out; holds that must wait are tried again soon."""
        results, requests, self.figures = result
        finished = {id(e) for e in self._turn if not (e.is_hold and results[id(e)] == "wait")}
        with self._lock:
            self._errands = deque(errand for errand in self._errands if id(errand) not in finished)
            waiting = len(self._turn) - len(finished)
            later = ([_POLL_S] if waiting else []) + ([_BEAT_S] if requests else [])
            is_fresh = any(not errand.is_hold for errand in self._errands) if waiting else bool(self._errands)
            self.due = min(self.due, 0.0 if is_fresh else time.monotonic() + min(later, default=math.inf))
        for errand in self._turn:
            if id(errand) in finished and errand.future is not None:
                if errand.future.set_running_or_notify_cancel():
                    errand.future.set_result(results[id(errand)])
                else:
                    errand.undo(results[id(errand)])

    def failed(self, error: RagpipeError) -> None:
        """The rows cannot be used: nothing may be sent that nobody counts. What has ended is told again later."""
        with self._lock:
            for judge, kept in self._returned.items():
                self._kept[judge] = self._kept.get(judge, 0) + kept
            gone = {id(errand) for errand in self._turn if errand.future is not None}
            self._errands = deque(errand for errand in self._errands if id(errand) not in gone)
            self.due = time.monotonic() + _BEAT_S if self._errands else math.inf
        for errand in self._turn:
            if errand.future is not None and errand.future.set_running_or_notify_cancel():
                errand.future.set_exception(error)


def _amount(text: str | None) -> Amount | None:
    return None if text is None else Amount.from_json(json.loads(text))
