"""Where a call store is, and what every database of one can do: a SQLite file, or what an extra opens by its address."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ragpipe.core import registry

if TYPE_CHECKING:
    from ragpipe.schema.call import Call
    from ragpipe.store.calls.open_table import OpenedFor, OpenTable
    from ragpipe.store.calls.store_connection import StoreConnection

OUTAGE_S = 600.0


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


StorePlace = Path | CallDatabase
"""A SQLite file, or a database."""


def store_place_of(url: str | None, path: str | None, output_dir: str, outage_s: float = OUTAGE_S) -> StorePlace:
    """The place of a store by its settings: what opens the address `url`, or the file `calls.sqlite` in the folder of `store_folder_of`.

    Raises ValueError for an address that nothing opens: what was expected, without a part of the address.
    """
    if url is None:
        return store_folder_of(path, output_dir) / "calls.sqlite"
    opens = registry.find("store", url.partition(":")[0])
    if opens is None:
        known = " or ".join(f"{name}://" for name in registry.names("store"))
        raise ValueError(
            f"an address that begins with {known}" if known else "null: no extra that opens a database is here"
        )
    database: CallDatabase = opens(url, outage_s)
    return database


def store_folder_of(path: str | None, output_dir: str) -> Path:
    """The folder of what stands beside a call store, on this machine: drift files, budgets, batches."""
    return Path(path or Path(output_dir) / ".store")


def call_database(place: StorePlace) -> CallDatabase:
    """The database of a place. Nothing is opened yet."""
    if not isinstance(place, Path):
        return place
    from ragpipe.store.calls.sqlite_database import SqliteDatabase  # not with the settings, which need only the place

    return SqliteDatabase(place)
