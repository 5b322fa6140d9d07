"""The PostgreSQL side of the call store: each method is one transaction."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from ragpipe.core.call import Call, Payment
from ragpipe.extras.postgres.connection import PostgresConnection, PostgresLink, PostgresPlace
from ragpipe.store.call_rows import COLUMNS, DamagedRow, PackedCall, SharedValues, call_of, digest_of, key_bytes, unpacked
from ragpipe.store.ledger import ClaimResult, Freshness, Lookup, add_payments, shared_values_of
from ragpipe.store.owners import Owner
from ragpipe.store.processes import is_alive, this_process

_NAMES = (*COLUMNS, "failed_in")
FIND = (
    f"SELECT {', '.join(_NAMES)} FROM calls WHERE key = ANY(?::bytea[]) "
    "AND failed_in IN (0, (SELECT id FROM runs WHERE digest = ?)) ORDER BY failed_in DESC"
)
"""Finds what is stored under some keys: the failure in the run with this digest first, the reply last. A row ends with `failed_in`, 0 for a
reply."""
_ADD = f"INSERT INTO calls ({', '.join(_NAMES)}) VALUES ({', '.join('?' * len(_NAMES))}) ON CONFLICT (key, failed_in) DO "
_REPLACE = f"{_ADD}UPDATE SET {', '.join(f'{name} = EXCLUDED.{name}' for name in COLUMNS if name != 'key')}"
_ADD_FIRST = f"{_ADD}NOTHING"
_FROZEN = "15s"  # under the 30 s after which a silent owner counts as dead

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
    WHERE claims.owner <> EXCLUDED.owner
    AND EXISTS (SELECT 1 FROM owners AS holder WHERE holder.id = claims.owner AND {_SILENT.format("holder")})
    RETURNING key"""
_LOCK = "SELECT key, owner FROM claims WHERE key = ANY(?::bytea[]) ORDER BY key FOR UPDATE"
_BURY_EVERY_S = 1.0


class PostgresTable:
    """One connection to the database, used by one thread. As `OpenTable`.

    Raises OutputError where the database cannot be used, DataError where the schema has no call store, FormatMismatch for one of
    another version.
    """

    def __init__(self, place: PostgresPlace, run_id: str, silent_after_s: float):
        self.place, self.run_id = place, run_id
        self.notices: list[str] = []
        self.damaged: set[str] = set()
        self._run_digest = digest_of((run_id,))
        self._owners = PostgresOwners(run_id, silent_after_s)
        self._link = PostgresLink(place, self._begin)
        self._link.run(self._owners.bury_silent)
        self._link.run(self._owners.bury_ended)

    def find(self, lookups: Sequence[Lookup]) -> list[Call | None]:
        return self._link.read(lambda db: self._look_up(db, lookups))

    def find_or_claim(self, lookups: Sequence[Lookup]) -> list[Call | ClaimResult]:
        """Claim first, then look again, in a second statement: a reply may have been stored between the look-up and the claim."""

        def work(db: PostgresConnection) -> list[Call | ClaimResult]:
            keys = [key_bytes(lookup.key) for lookup in lookups]
            free = self._owners.take(db, list(dict.fromkeys(keys)))
            if len(free) < len(set(keys)):
                self._owners.bury_ended(db)
            places = [place for place, key in enumerate(keys) if key in free]
            calls = dict(zip(places, self._look_up(db, [lookups[place] for place in places]), strict=True))
            results: list[Call | ClaimResult] = []
            granted: set[bytes] = set()
            for place, key in enumerate(keys):
                call = calls.get(place)
                is_granted = call is None and key in free and key not in granted
                granted |= {key} if is_granted else set()
                results.append(call or (ClaimResult.GRANTED if is_granted else ClaimResult.HELD))
            if unused := free - granted:
                self._owners.release(db, sorted(unused))
            return results

        return self._link.run(work)

    def holder(self, key: str) -> str:
        owner = self._link.read(lambda db: self._owners.holder(db, key_bytes(key)))
        return str(owner) if owner is not None and owner.id != self._owners.me else ""

    def write(
        self, puts: Sequence[PackedCall], released: Iterable[str] = (), paid: Sequence[Payment] = ()
    ) -> list[Call | None]:
        freed = sorted(map(key_bytes, released))
        numbers = self._link.read(lambda db: self._number_shared(puts, paid))

        def work(db: PostgresConnection) -> list[Call | None]:
            add_payments(db, self._shared, paid)
            if not puts and not freed:
                return []
            results, ended = self._put(db, puts, numbers, freed)
            self._owners.release(db, sorted(ended))
            return results

        return self._link.run(work)

    def beat(self) -> None:
        self._link.run(self._owners.beat)

    def sync(self) -> None:
        """Nothing: what is committed is on the server's disk."""

    def stored_here(self) -> tuple[list[Call], list[Payment]]:
        """Nothing: what is committed is not lost with the connection."""
        return [], []

    def close(self) -> None:
        try:
            self._link.run(self._owners.leave)
        finally:
            self._link.close()

    def _begin(self, db: PostgresConnection) -> None:
        """What every connection of this store starts with: no timeouts of the role's, and a sign of life."""
        self._shared = SharedValues(db)
        # statements wait for locks as long as these are held: a timeout of the role would end the wait for another process. One that
        # is frozen in a transaction would let all others wait for its locks: the server ends its session
        for name, value in (("statement", "0"), ("lock", "0"), ("idle_in_transaction_session", _FROZEN)):
            db.execute(f"SET {name}_timeout = '{value}'")
        self._owners.beat(db)

    def _look_up(self, db: PostgresConnection, lookups: Sequence[Lookup]) -> list[Call | None]:
        asked = [key_bytes(lookup.key) for lookup in lookups if lookup.freshness != Freshness.NONE]
        rows = self._rows(db, asked)
        return [self._looked_up(lookup, rows.get(lookup.key)) for lookup in lookups]

    def _rows(self, db: PostgresConnection, keys: Sequence[bytes]) -> dict[str, tuple[Any, ...]]:
        """By key the row that this run may use: the reply where there is one, else its own failure."""
        return {} if not keys else {row[0].hex(): row for row in db.execute(FIND, (list(keys), self._run_digest))}

    def _looked_up(self, lookup: Lookup, row: tuple[Any, ...] | None) -> Call | None:
        if row is None or lookup.freshness == Freshness.NONE or (row[-1] and not lookup.freshness.has_failures):
            return None
        call = self._call(row)
        return None if call is None or call == lookup.rejected or not lookup.freshness.accepts(call) else call

    def _call(self, row: tuple[Any, ...]) -> Call | None:
        try:
            return call_of(row[:-1], self._shared)
        except DamagedRow:
            self.damaged.add(row[0].hex())
            return None

    def _number_shared(self, puts: Sequence[PackedCall], paid: Sequence[Payment]) -> list[list[int]]:
        """The numbers of the runs, judges and served models of calls."""
        tables = ("runs", "judges", "served")
        values = {(table, cells) for put in puts for table, cells in zip(tables, put.shared, strict=True)}
        for entry in paid:
            run, model = shared_values_of(entry)
            values |= {("runs", run), ("models", model)}
        # each by itself and in order, before the transaction that needs them: two processes wait for each other in no circle
        for table, cells in sorted(values, key=lambda value: (value[0], digest_of(value[1]))):
            self._shared.number(table, cells)
        return [[self._shared.number(*of_one) for of_one in zip(tables, put.shared, strict=True)] for put in puts]

    def _put(
        self, db: PostgresConnection, puts: Sequence[PackedCall], numbers: Sequence[list[int]], released: Sequence[bytes]
    ) -> tuple[list[Call | None], set[bytes]]:
        """Store calls; for each the reply that stands instead, and the keys whose claims end."""
        mine, others = self._owners.lock(db, [*(put.key for put in puts), *released])
        doubtful = [put.key for put in puts if not (put.key in mine and put.status == "ok")]
        standing = {key: row for key, row in self._rows(db, doubtful).items() if row[-1] == 0}
        results: list[Call | None] = []
        rows, ended, first = list[tuple[Any, ...]](), mine, dict[bytes, Call]()
        for put, (run, judge, served) in zip(puts, numbers, strict=True):
            is_ok = put.status == "ok"
            stands = self._call(standing[put.key.hex()]) if put.key.hex() in standing else None
            row = (put.key, run, judge, served, *put.cells, put.digest, 0 if is_ok else run)
            if (stands := stands or first.get(put.key)) is not None:
                results.append(stands if is_ok else None)
            elif is_ok and put.key not in mine and put.key.hex() not in standing:
                # stopped for so long that another took over its claim, which ends: two runs must not rest on different replies
                results.append(self._add_first(db, row))
                ended = ended | ({put.key} & others)
            else:
                results.append(None)
                rows.append(row)
            if is_ok and results[-1] is None:
                first[put.key] = unpacked(put)
        self._add(db, rows)
        return results, ended

    def _add_first(self, db: PostgresConnection, row: tuple[Any, ...]) -> Call | None:
        """Store a reply unless another process does at this moment; its reply then."""
        if db.execute(_ADD_FIRST, row).rowcount:
            self._forget_failures(db, [row[0]])
            return None
        stands = self._rows(db, [row[0]]).get(row[0].hex())
        return self._call(stands) if stands else None

    def _add(self, db: PostgresConnection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Store rows in the order of their keys. Of two with one key the last one stands."""
        replies = {row[0] for row in rows if row[-1] == 0}
        last = {(row[0], row[-1]): row for row in rows if row[-1] == 0 or row[0] not in replies}
        if last:
            self._forget_failures(db, sorted(replies))
            db.executemany(_REPLACE, [last[place] for place in sorted(last)])

    def _forget_failures(self, db: PostgresConnection, keys: Sequence[bytes]) -> None:
        """A reply replaces the failures of all runs."""
        db.execute("DELETE FROM calls WHERE key = ANY(?::bytea[]) AND failed_in <> 0", (list(keys),))


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
            f"DELETE FROM owners WHERE id <> ? AND {_SILENT.format('owners')} RETURNING id", (self.me, self.silent_after_s)
        )
        self._remove_claims(db, [row[0] for row in gone])

    def bury_ended(self, db: PostgresConnection) -> None:
        """Remove the owners whose process on this host has ended, with their claims; once in a second at most."""
        if time.monotonic() - self._buried_at < _BURY_EVERY_S:
            return
        self._buried_at = time.monotonic()
        here = [Owner(*row) for row in db.execute(f"SELECT {_COLUMNS} FROM owners WHERE host = ?", (self._entry[1],))]
        if ended := [owner.id for owner in here if owner.id != self.me and is_alive(owner.process) is False]:
            db.execute("DELETE FROM owners WHERE id = ANY(?::text[])", (ended,))
            self._remove_claims(db, ended)

    def take(self, db: PostgresConnection, keys: Sequence[bytes]) -> set[bytes]:
        """Claim keys, also those of owners that were silent for too long; those that were granted."""
        values = (*self._entry, list(keys), self.silent_after_s)
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
        return Owner(*row) if row else None

    def _remove_claims(self, db: PostgresConnection, owners: Sequence[str]) -> None:
        if not owners:
            return
        statement = "SELECT key FROM claims WHERE owner = ANY(?::text[]) ORDER BY key FOR UPDATE"
        keys = [row[0] for row in db.execute(statement, (list(owners),)).fetchall()]
        db.execute("DELETE FROM claims WHERE key = ANY(?::bytea[]) AND owner = ANY(?::text[])", (keys, list(owners)))


def living_owners(db: PostgresConnection, silent_after_s: float) -> list[Owner]:
    """The owners that gave a sign of life in the last `silent_after_s` seconds, by the database's clock."""
    rows = db.execute(f"SELECT {_COLUMNS} FROM owners WHERE NOT {_SILENT.format('owners')}", (silent_after_s,))
    return [Owner(*row) for row in rows]
