"""The processes that have a store in PostgreSQL open. Who is dead says the database's clock alone, or the process table of this host.

A start of the server counts as a sign of life of all: else whoever connects first after it would take over the claims of the others.
The server does not see a cut network: whoever lost the way to it judges nobody by silence until the others had time to come back.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

from ragpipe.store.calls.owners import Owner
from ragpipe.store.calls.postgres.postgres_connection import PostgresConnection
from ragpipe.store.files.processes import is_alive, this_process

_COLUMNS = "id, host, pid, mark, (EXTRACT(EPOCH FROM beat_at) * 1000000)::bigint, run_id"
# The time of the statement, not of the row: while a statement waits for a lock, its snapshot grows old, and a living owner in it too.
_SILENT = "GREATEST({0}.beat_at, pg_postmaster_start_time()) < statement_timestamp() - ? * interval '1 second'"
_ENTER = """INSERT INTO owners (id, host, pid, mark, run_id, beat_at) VALUES (?, ?, ?, ?, ?, clock_timestamp())
    ON CONFLICT (id) DO UPDATE SET beat_at = EXCLUDED.beat_at"""
# A claim is a sign of life, in the same statement: no claim is without an owner, even of a process that was thought dead.
# Keys are locked in their order, as everywhere. Who was frozen is silent in its own snapshot: its own claims are not granted to it again. Death is proved by a row that is old; a row that this snapshot lacks proves nothing.
_TAKE = f"""WITH me AS ({_ENTER} RETURNING id)
    INSERT INTO claims (key, owner) SELECT asked.key, me.id FROM me, unnest(?::bytea[]) AS asked (key) ORDER BY asked.key
    ON CONFLICT (key) DO UPDATE SET owner = EXCLUDED.owner
    WHERE claims.owner <> EXCLUDED.owner AND ?::boolean
    AND EXISTS (SELECT 1 FROM owners AS holder WHERE holder.id = claims.owner AND {_SILENT.format("holder")})
    RETURNING key"""
_LOCK = "SELECT key, owner FROM claims WHERE key = ANY(?::bytea[]) ORDER BY key FOR UPDATE"
_BURY_EVERY_S = 1.0


class PostgresOwners:
    """The owners as one connection sees them. Call all methods in a transaction. `me` is the id of this store."""

    def __init__(self, run_id: str, silent_after_s: float):
        here = this_process()
        self.me = uuid.uuid4().hex
        self._entry = (self.me, here.host, here.pid, here.mark, run_id)
        self.silent_after_s = silent_after_s
        self._buried_at = 0.0

    def beat(self, db: PostgresConnection) -> None:
        """Give a sign of life; the first one registers this store."""
        db.execute(_ENTER, self._entry)

    def bury_silent(self, db: PostgresConnection) -> None:
        """Remove the owners that were silent for too long, with their claims."""
        gone = db.execute(
            f"DELETE FROM owners WHERE id <> ? AND {_SILENT.format('owners')} RETURNING id",
            (self.me, self.silent_after_s),
        )
        self._remove_claims(db, [row[0] for row in gone])

    def bury_ended(self, db: PostgresConnection) -> None:
        """Remove the owners whose process on this host has ended, with their claims; once in a second at most."""
        if time.monotonic() - self._buried_at < _BURY_EVERY_S:
            return
        self._buried_at = time.monotonic()
        here = [_owner(row) for row in db.execute(f"SELECT {_COLUMNS} FROM owners WHERE host = ?", (self._entry[1],))]
        ended = [owner.id for owner in here if owner.id != self.me and is_alive(owner.process) is False]
        if ended:
            db.execute("DELETE FROM owners WHERE id = ANY(?::text[])", (ended,))
            self._remove_claims(db, ended)

    def take(self, db: PostgresConnection, keys: Sequence[bytes], *, from_silent: bool) -> set[bytes]:
        """Claim keys, also those of owners that were silent for too long if `from_silent`; those that were granted."""
        values = (*self._entry, list(keys), from_silent, self.silent_after_s)
        return {row[0] for row in db.execute(_TAKE, values)}

    def lock(self, db: PostgresConnection, keys: Sequence[bytes]) -> tuple[set[bytes], set[bytes]]:
        """Lock the claims on some keys until the end of the transaction: those of this store, and those of others."""
        rows = db.execute(_LOCK, (list(keys),)).fetchall()
        mine = {key for key, owner in rows if owner == self.me}
        return mine, {key for key, _ in rows} - mine

    def release(self, db: PostgresConnection, keys: Sequence[bytes]) -> None:
        """End the claims on some keys, which were locked before."""
        db.execute("DELETE FROM claims WHERE key = ANY(?::bytea[])", (list(keys),))

    def leave(self, db: PostgresConnection) -> None:
        """Free all claims of this store, and remove it."""
        self._remove_claims(db, [self.me])
        db.execute("DELETE FROM owners WHERE id = ?", (self.me,))

    def holder(self, db: PostgresConnection, key: bytes) -> Owner | None:
        """Who has claimed a key."""
        statement = f"SELECT {_COLUMNS} FROM owners WHERE id = (SELECT owner FROM claims WHERE key = ?)"
        row = db.execute(statement, (key,)).fetchone()
        return _owner(row) if row else None

    def _remove_claims(self, db: PostgresConnection, owners: Sequence[str]) -> None:
        if not owners:
            return
        statement = "SELECT key FROM claims WHERE owner = ANY(?::text[]) ORDER BY key FOR UPDATE"
        keys = [row[0] for row in db.execute(statement, (list(owners),)).fetchall()]
        db.execute("DELETE FROM claims WHERE key = ANY(?::bytea[]) AND owner = ANY(?::text[])", (keys, list(owners)))


def living_owners(db: PostgresConnection, silent_after_s: float) -> list[Owner]:
    """The owners that gave a sign of life in the last `silent_after_s` seconds, by the database's clock."""
    rows = db.execute(f"SELECT {_COLUMNS} FROM owners WHERE NOT {_SILENT.format('owners')}", (silent_after_s,))
    return [_owner(row) for row in rows]


def _owner(row: tuple[Any, ...]) -> Owner:
    return Owner(*row)
