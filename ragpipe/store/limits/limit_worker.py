"""The thread that has the rows of limits open: it works for all that need a row at that moment in one transaction."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Protocol

from ragpipe.core.errors import RagpipeError
from ragpipe.store.limits.limit_rows import LimitRows, Moment, Texts

_SYNC_S = 1.0  # seconds between two times that the disk is waited for
_AGAIN_S = 1.0  # seconds until rows that could not be opened are tried again


class RowUser(Protocol):
    """Something in this process that needs rows, at times that it says itself.

    `due` is the time of its next turn in monotonic seconds. In its turn `names` are the rows; `step` says what becomes of them and what
    comes of that: it may be called again with other texts, so it changes nothing else. Then comes `done` with the result, or
    `failed` where rows cannot be used now. All are called in the worker's thread.
    """

    due: float

    def names(self) -> Collection[str]: ...
    def step(self, texts: Texts, moment: Moment) -> tuple[Texts, Any]: ...
    def done(self, result: Any) -> None: ...
    def failed(self, error: RagpipeError) -> None: ...


class LimitWorker(threading.Thread):
    """The thread. `open_rows` is called in it, again after a failure."""

    def __init__(self, open_rows: Callable[[], LimitRows]):
        super().__init__(name="ragpipe-limits", daemon=True)
        self._open_rows = open_rows
        self._rows: LimitRows | None = None
        self._users: list[RowUser] = []
        self._woken = threading.Event()
        self._lock = threading.Lock()
        self._is_ending = self._was_started = False
        self._next_sync = 0.0
        self._last_failure: tuple[float, RagpipeError] | None = None

    def add(self, user: RowUser) -> None:
        """Work for one more user, from now on."""
        with self._lock:
            self._users = [*self._users, user]

    def remove(self, user: RowUser) -> None:
        """Work for this user no more."""
        with self._lock:
            self._users = [known for known in self._users if known is not user]

    def wake(self) -> None:
        """A user is due earlier than it said before. The first time this starts the thread."""
        if not self._was_started:
            with self._lock:
                if not self._was_started:
                    self._was_started = True
                    self.start()
        self._woken.set()

    def stop(self) -> None:
        """End, after the turns that are due."""
        self._is_ending = True
        self._woken.set()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        """The body of the thread."""
        while True:
            ending = self._is_ending
            self._woken.clear()
            self._turn([user for user in self._users if user.due <= time.monotonic()])
            self._sync(at_once=ending)
            if ending:
                break
            wake = min((user.due for user in self._users), default=float("inf"))
            self._woken.wait(min(60.0, max(0.0, wake - time.monotonic())))
        if self._rows is not None:
            self._rows.close()

    def _turn(self, users: list[RowUser]) -> None:
        """One transaction for these users."""
        if not users:
            return
        names = sorted({name for user in users for name in user.names()})

        def change(texts: Texts, moment: Moment) -> tuple[Texts, list[Any]]:
            current, results = dict(texts), []
            for user in users:
                written, result = user.step(current, moment)
                current |= written
                results.append(result)
            return {name: text for name, text in current.items() if text != texts[name]}, results

        try:
            results = self._opened().update(names, change)
        except Exception as error:  # no task may wait for ever
            reason = error if isinstance(error, RagpipeError) else RagpipeError(f"the limits' thread failed: {error!r}")
            for user in users:
                user.failed(reason)
            return
        for user, result in zip(users, results, strict=True):
            user.done(result)

    def _opened(self) -> LimitRows:
        """The rows; where they could not be opened just now, the same error again."""
        if self._rows is None:
            now = time.monotonic()
            if self._last_failure is not None and now - self._last_failure[0] < _AGAIN_S:
                raise self._last_failure[1]
            try:
                self._rows = self._open_rows()
            except RagpipeError as error:
                self._last_failure = now, error
                raise
        return self._rows

    def _sync(self, *, at_once: bool) -> None:
        now = time.monotonic()
        if self._rows is not None and (at_once or now >= self._next_sync):
            with suppress(RagpipeError):  # whoever needs a row hears of it
                self._rows.sync()
            self._next_sync = now + _SYNC_S
