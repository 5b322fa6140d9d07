"""A call store by its place: the one module that knows which databases there are."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from ragpipe.schema.call import Call
from ragpipe.store.calls.open_table import OpenedFor, OpenTable
from ragpipe.store.calls.postgres.postgres_database import PostgresDatabase
from ragpipe.store.calls.sqlite_database import SqliteDatabase
from ragpipe.store.calls.store_connection import StoreConnection
from ragpipe.store.calls.store_place import PostgresPlace, StorePlace


class StoredReader(Protocol):
    """Reads calls without claims. `damaged` are the keys of the damaged rows that it met."""

    damaged: set[str]

    def call(self, key: str, run_id: str | None) -> Call | None:
        """The call of this key that `run_id` may use; None where there is none."""
        ...

    def calls(self, keys: list[str], run_id: str | None) -> dict[str, Call]:
        """Those of the keys that have a call."""
        ...

    def close(self) -> None: ...


class CallDatabase(Protocol):
    """The database of a call store. All raise OutputError where it cannot be used, DataError where it holds no call store, and
    FormatMismatch for one of another format."""

    @property
    def setting(self) -> str:
        """The word of the command line that names the store, empty for a file: its folder says where it is."""
        ...

    def exists(self) -> bool:
        """Whether there is something to read."""
        ...

    def check(self) -> None:
        """Raises FormatMismatch for a store of another format; nothing is changed or made."""
        ...

    def make(self) -> str:
        """Make a new store, or bring an older one to this format. Returns what was done, in words."""
        ...

    def open_table(self, opened: OpenedFor) -> OpenTable:
        """The store for a run, made where there is none."""
        ...

    def reader(self) -> StoredReader:
        """The store to look calls up in."""
        ...

    def reading(self) -> AbstractContextManager[StoreConnection]:
        """One consistent view. Raises DataError where there is no store."""
        ...

    def changing(self, *, silent_after_s: float = ...) -> AbstractContextManager[StoreConnection]:
        """A store open to be changed, made where there is none. Raises FolderLocked while another process uses it."""
        ...

    def transaction(self, db: StoreConnection) -> AbstractContextManager[None]:
        """A transaction of a connection that `changing` gave."""
        ...

    def delete_calls(self, db: StoreConnection, where: str, values: list[Any], *, silent_after_s: float) -> None:
        """Delete the calls that match a condition in SQL, and give their room back. Raises FolderLocked."""
        ...

    def claims(self, db: StoreConnection) -> dict[str, int]:
        """The number of claimed keys by the state of their owners: `alive`, `dead`, or `unknown` (on another host)."""
        ...

    def size(self, db: StoreConnection) -> int:
        """Bytes on the disk, indexes included."""
        ...


def call_database(place: StorePlace) -> CallDatabase:
    """The database of a place. Nothing is opened yet."""
    return PostgresDatabase(place) if isinstance(place, PostgresPlace) else SqliteDatabase(place)
