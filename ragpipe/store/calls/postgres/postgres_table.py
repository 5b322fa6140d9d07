"""The PostgreSQL side of the call store: each method is one transaction, and may be repeated after a lost connection."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ragpipe.schema.call import Call
from ragpipe.store.calls.call_rows import (
    COLUMNS,
    DamagedRow,
    PackedCall,
    SharedValues,
    call_of,
    digest_of,
    key_bytes,
    unpacked,
)
from ragpipe.store.calls.ledger_rows import PaymentEntry, add_payments, shared_values_of
from ragpipe.store.calls.open_table import OpenedFor
from ragpipe.store.calls.postgres.postgres_connection import PostgresConnection, set_timeouts
from ragpipe.store.calls.postgres.postgres_link import PostgresLink
from ragpipe.store.calls.postgres.postgres_owners import PostgresOwners
from ragpipe.store.calls.store_place import PostgresPlace
from ragpipe.store.calls.store_requests import FREED_DIGITS, ClaimResult, Freshness, Lookup

CHANNEL = "ragpipe_calls"
_NAMES = (*COLUMNS, "failed_in")
FIND = (
    f"SELECT {', '.join(_NAMES)} FROM calls WHERE key = ANY(?::bytea[]) "
    "AND failed_in IN (0, (SELECT id FROM runs WHERE digest = ?)) ORDER BY failed_in DESC"
)
"""Finds what is stored under some keys: the failure in the run with this digest first, the reply last. A row ends with `failed_in`, 0 for a
reply."""
_ADD = (
    f"INSERT INTO calls ({', '.join(_NAMES)}) VALUES ({', '.join('?' * len(_NAMES))}) ON CONFLICT (key, failed_in) DO "
)
_REPLACE = f"{_ADD}UPDATE SET {', '.join(f'{name} = EXCLUDED.{name}' for name in COLUMNS if name != 'key')}"
_ADD_FIRST = f"{_ADD}NOTHING"
_PAYLOAD = 7900  # bytes of one notification
_FROZEN_S = 15  # under the 30 s after which a silent owner counts as dead


class PostgresTable:
    """One connection to the database, used by one thread. As `OpenTable`.

    Raises OutputError where the database cannot be used, DataError where the schema has no call store, FormatMismatch for one of
    another version.
    """

    def __init__(self, place: PostgresPlace, opened: OpenedFor):
        self.place, self.run_id = place, opened.run_id
        self.notices: list[str] = []
        self.damaged: set[str] = set()
        self.first_poll_s, self.listens = 0.5, True
        self._run_digest = digest_of((opened.run_id,))
        self._freed: set[str] = set()
        self._owners = PostgresOwners(opened.run_id, opened.silent_after_s)
        self._link = PostgresLink(
            place,
            opened=self._begin,
            tell=opened.tell,
            patience_s=opened.patience_s,
            hurry=opened.hurry,
            is_known=opened.is_known,
        )
        if self._may_judge_silence():
            self._link.run(self._owners.bury_silent)
        self._link.run(self._owners.bury_ended)
        self._link.remove_old_marks()

    def find(self, lookups: Sequence[Lookup]) -> list[Call | None]:
        return self._link.read(lambda db: self._look_up(db, lookups))

    def find_or_claim(self, lookups: Sequence[Lookup]) -> list[Call | ClaimResult]:
        """Claim first, then look again, in a second statement: a reply may have been stored between the look-up and the claim."""

        def work(db: PostgresConnection) -> list[Call | ClaimResult]:
            keys = [key_bytes(lookup.key) for lookup in lookups]
            free = self._owners.take(db, list(dict.fromkeys(keys)), from_silent=self._may_judge_silence())
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
        self, puts: Sequence[PackedCall], released: Iterable[str] = (), paid: Sequence[PaymentEntry] = ()
    ) -> list[Call | None]:
        freed = sorted(map(key_bytes, released))
        numbers = self._link.read(lambda db: self._number_shared(puts, paid))

        def work(db: PostgresConnection) -> list[Call | None]:
            add_payments(db, self._shared, paid)
            if not puts and not freed:
                return []
            results, ended = self._put(db, puts, numbers, freed)
            self._owners.release(db, sorted(ended))
            self._notify(db, ended)
            return results

        return self._link.run(work)

    def freed(self) -> set[str]:
        """What the server has sent by now: no statement is needed for it."""
        raw = self._link.connection.raw.pgconn
        try:
            raw.consume_input()
            while (notice := raw.notifies()) is not None:
                self._note(notice.extra.decode())
        except Exception:  # the next statement says what became of the connection
            return set()
        freed, self._freed = self._freed, set()
        return freed

    def beat(self) -> None:
        self._link.run(self._owners.beat)

    def sync(self) -> None:
        """Nothing: what is committed is on the server's disk."""

    def stored_here(self) -> tuple[list[Call], list[PaymentEntry]]:
        """Nothing: what is committed is not lost with the connection."""
        return [], []

    def close(self) -> None:
        try:
            self._link.run(self._owners.leave)
        finally:
            self._link.close()

    def _begin(self, db: PostgresConnection) -> None:
        """What every connection of this store starts with: it listens, and gives a sign of life."""
        self._shared = SharedValues(db)
        set_timeouts(db, _FROZEN_S)
        db.execute(f"LISTEN {CHANNEL}")
        self._owners.beat(db)
        db.raw.add_notify_handler(lambda notice: self._note(notice.payload))

    def _may_judge_silence(self) -> bool:
        """Whether who is silent is dead. After an outage that this process met, not before the others had time to show that they live."""
        return not self._link.was_away(self._owners.silent_after_s)

    def _note(self, payload: str) -> None:
        self._freed.update(payload.split())

    def _look_up(self, db: PostgresConnection, lookups: Sequence[Lookup]) -> list[Call | None]:
        asked = [key_bytes(lookup.key) for lookup in lookups if lookup.freshness != Freshness.NONE]
        rows = self._rows(db, asked)
        return [self._looked_up(lookup, rows.get(lookup.key)) for lookup in lookups]

    def _rows(self, db: PostgresConnection, keys: Sequence[bytes]) -> dict[str, tuple[Any, ...]]:
        """By key the row that this run may use: the reply where there is one, else its own failure."""
        if not keys:
            return {}
        return {row[0].hex(): row for row in db.execute(FIND, (list(keys), self._run_digest))}

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

    def _number_shared(self, puts: Sequence[PackedCall], paid: Sequence[PaymentEntry]) -> list[tuple[int, int, int]]:
        """The numbers of the runs, judges and served models of calls. New values are written here, each by itself and in their order,
        before the transaction that needs them: those of two processes wait for each other in no circle."""
        tables = ("runs", "judges", "served")
        values = {(table, cells) for put in puts for table, cells in zip(tables, put.shared, strict=True)}
        for entry in paid:
            run, model = shared_values_of(entry)
            values |= {("runs", run), ("models", model)}
        for table, cells in sorted(values, key=lambda value: (value[0], digest_of(value[1]))):
            self._shared.number(table, cells)
        return [
            (
                self._shared.number("runs", put.shared[0]),
                self._shared.number("judges", put.shared[1]),
                self._shared.number("served", put.shared[2]),
            )
            for put in puts
        ]

    def _put(
        self,
        db: PostgresConnection,
        puts: Sequence[PackedCall],
        numbers: Sequence[tuple[int, int, int]],
        released: Sequence[bytes],
    ) -> tuple[list[Call | None], set[bytes]]:
        """Store calls; for each the reply that stands instead, and the keys whose claims end.

        A reply without a claim (its process was stopped for so long that another one took over) is the first where none stands yet,
        and ends the other's claim: two runs must not rest on different replies to one question.
        """
        mine, others = self._owners.lock(db, [*(put.key for put in puts), *released])
        doubtful = [put.key for put in puts if not (put.key in mine and put.status == "ok")]
        standing = {key: row for key, row in self._rows(db, doubtful).items() if row[-1] == 0}
        results: list[Call | None] = []
        rows, ended, first = list[tuple[Any, ...]](), mine, dict[bytes, Call]()
        for put, (run, judge, served) in zip(puts, numbers, strict=True):
            is_ok = put.status == "ok"
            stands = self._call(standing[put.key.hex()]) if put.key.hex() in standing else None
            failed_in = 0 if is_ok else run
            row = (put.key, run, judge, served, *put.cells, put.digest, failed_in)
            if (stands := stands or first.get(put.key)) is not None:
                results.append(stands if is_ok else None)
            elif is_ok and put.key not in mine and put.key.hex() not in standing:
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

    def _notify(self, db: PostgresConnection, keys: Iterable[bytes]) -> None:
        digits = sorted({key.hex()[:FREED_DIGITS] for key in keys})
        at_once = _PAYLOAD // (FREED_DIGITS + 1)
        for start in range(0, len(digits), at_once):
            db.execute("SELECT pg_notify(?, ?)", (CHANNEL, " ".join(digits[start : start + at_once])))
