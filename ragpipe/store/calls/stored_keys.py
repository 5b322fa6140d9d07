"""Which of many keys a table of the call store has: asked in a few statements, whatever the number of keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ragpipe.store.calls.store_connection import StoreConnection

MOST_KEYS = 32
"""Keys of one statement."""


def stored_keys(db: StoreConnection, table: str, keys: Sequence[bytes]) -> set[bytes]:
    """Those of the keys that have a row in a table, in whatever state it is."""
    stored: set[bytes] = set()
    for piece in _pieces(keys):
        statement = f"SELECT key FROM {table} WHERE key IN ({', '.join('?' * len(piece))})"
        stored.update(key for (key,) in db.execute(statement, piece))
    return stored


def _pieces(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """The keys in pieces of 32, 16, 8, 4, 2 and 1: a handful of statements, which the connection keeps prepared."""
    start, size = 0, MOST_KEYS
    while start < len(keys):
        while size > len(keys) - start:
            size //= 2
        yield keys[start : start + size]
        start += size
