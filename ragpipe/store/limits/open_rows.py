"""The rows of limits beside a call store, by its place."""

from __future__ import annotations

from threading import Event

from ragpipe.store.calls.store_place import PostgresPlace, StorePlace
from ragpipe.store.limits.limit_rows import LimitRows
from ragpipe.store.limits.postgres_limits import PostgresLimits
from ragpipe.store.limits.sqlite_limits import FILE_NAME, SqliteLimits


def limit_rows(place: StorePlace, hurry: Event) -> LimitRows:
    """Open the rows: in the same database, or in a file beside that of the store. `hurry` is set when nobody wants to wait long for a
    database any more. Raises OutputError, DataError."""
    return PostgresLimits(place, hurry) if isinstance(place, PostgresPlace) else SqliteLimits(place.parent / FILE_NAME)
