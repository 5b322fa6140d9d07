"""The rows of limits in PostgreSQL, beside the call store: for all processes of all hosts."""

from __future__ import annotations

from collections.abc import Callable, Collection
from threading import Event
from typing import TypeVar

from ragpipe.store.calls.postgres.postgres_connection import PostgresConnection, set_timeouts
from ragpipe.store.calls.postgres.postgres_link import PostgresLink
from ragpipe.store.calls.store_place import PostgresPlace
from ragpipe.store.limits.limit_rows import Moment, Texts

T = TypeVar("T")

_CLOCK = "postgresql"
"""The wall clock of the server, the same after it was started again."""
_ADD = "INSERT INTO limits (name) SELECT unnest(?::text[]) AS name ORDER BY name ON CONFLICT DO NOTHING"
# The time is read row by row, after the lock on it: that of the last row is after all locks.
_LOCK = """WITH locked AS MATERIALIZED (SELECT name, state FROM limits WHERE name = ANY(?::text[]) ORDER BY name FOR UPDATE)
    SELECT name, state, EXTRACT(EPOCH FROM clock_timestamp())::float8 FROM locked"""
_WRITE = "UPDATE limits SET state = ? WHERE name = ?"
_DELETE = "DELETE FROM limits WHERE name = ANY(?::text[])"
_FROZEN_S = 5  # a transaction takes a few milliseconds


class PostgresLimits:
    """The rows of one store. A row has to exist to be locked: one without a text is made for that and deleted in the end. Whoever waited
    for its lock meanwhile makes it anew.

    A database that went away is waited for, as the call store does, and not for long once `hurry` is set. Raises OutputError where it
    does not come back, or refuses.
    """

    def __init__(self, place: PostgresPlace, hurry: Event | None = None):
        self._link = PostgresLink(place, opened=_begin, hurry=hurry)

    def update(self, names: Collection[str], change: Callable[[Texts, Moment], tuple[Texts, T]]) -> T:
        """As in LimitRows."""
        ordered = sorted(set(names))

        def work(db: PostgresConnection) -> T:
            rows = db.execute(_LOCK, (ordered,)).fetchall()
            while len(rows) < len(ordered):
                db.execute(_ADD, (ordered,))
                rows = db.execute(_LOCK, (ordered,)).fetchall()
            now = max((row[2] for row in rows), default=0.0)
            texts = {name: text for name, text, _ in rows}
            written, result = change(texts, Moment(now, _CLOCK))
            after = {**texts, **written}
            for name in sorted(name for name in written if after[name] is not None):
                db.execute(_WRITE, (after[name], name))
            if gone := [name for name in ordered if after[name] is None]:
                db.execute(_DELETE, (gone,))
            return result

        return self._link.run(work)

    def sync(self) -> None:
        """Nothing: what is committed is on the server's disk."""

    def close(self) -> None:
        """Close the connection."""
        self._link.close()


def _begin(db: PostgresConnection) -> None:
    set_timeouts(db, _FROZEN_S)
