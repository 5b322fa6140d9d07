"""The limits that all processes over one call store share, as this process has them open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock
from uuid import uuid4

from ragpipe.judging.limits.limit_rules import LimitRules
from ragpipe.judging.limits.shared_provider import SharedProvider
from ragpipe.store.calls.store_place import StorePlace
from ragpipe.store.files.processes import this_process
from ragpipe.store.limits.limit_rows import LimitRows
from ragpipe.store.limits.limit_worker import LimitWorker
from ragpipe.store.limits.open_rows import limit_rows
from ragpipe.store.limits.row_owners import RowOwner
from ragpipe.store.limits.run_account import RunAccount


class SharedLimits:
    """The rows, with a thread that is started when the first of them is needed.

    Args:
        open_rows: opens the rows; called in the thread.
        tell: gets the notice that they cannot be used.
        hurry: set when nobody wants to wait long for a database that went away.
    """

    def __init__(self, open_rows: Callable[[], LimitRows], tell: Callable[[str], None], hurry: Event | None = None):
        self._worker = LimitWorker(open_rows)
        self._hurry = hurry or Event()
        self._me = RowOwner(uuid4().hex, this_process())
        self._tell = tell
        self._providers: dict[str, SharedProvider] = {}
        self._lock = Lock()

    def provider(self, name: str, rules: LimitRules) -> SharedProvider:
        """The row of a provider under one key."""
        with self._lock:
            if name not in self._providers:
                self._providers[name] = SharedProvider(name, rules, self._me, self._worker, self._tell)
            return self._providers[name]

    def account(self, run: str) -> RunAccount:
        """The account of a run, as a start of its own uses it. Close it."""
        return RunAccount(run, uuid4().hex, self._me, self._worker)

    def hurry(self) -> None:
        """From now on, wait no longer than some seconds for a database that went away."""
        self._hurry.set()

    def close(self) -> None:
        """Give back all that this process has."""
        self.hurry()
        for provider in self._providers.values():
            provider.close()
        self._worker.stop()
        self._me.close()


@dataclass(frozen=True, slots=True)
class SharedUse:
    """What a run shares with other processes: the limits of its providers, and its account."""

    limits: SharedLimits
    account: RunAccount


_OPEN: dict[StorePlace, tuple[SharedLimits, int]] = {}
_LOCK = Lock()


@contextmanager
def open_limits(store: StorePlace, tell: Callable[[str], None]) -> Iterator[SharedLimits]:
    """The limits that stand beside a call store: one object for all that have them open in this process."""
    place = store.resolve() if isinstance(store, Path) else store
    with _LOCK:
        hurry = Event()
        limits, users = _OPEN.get(place) or (SharedLimits(lambda: limit_rows(place, hurry), tell, hurry), 0)
        _OPEN[place] = limits, users + 1
    try:
        yield limits
    finally:
        with _LOCK:
            limits, users = _OPEN.pop(place)
            if users > 1:
                _OPEN[place] = limits, users - 1
        if users == 1:
            limits.close()
