"""A call as a row of the store: the reply deflated, hashes as bytes, times in whole milliseconds, shared values by number, a digest.

A row whose digest does not match its cells is damaged: it was never stored like this.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Protocol

from pydantic_core import to_json

from ragpipe.core.call import Call, hash_of_parts
from ragpipe.core.digest import DIGEST, sha256
from ragpipe.core.usage import TOKENS

SHARED = {
    "judges": ("label", "parts", "output_mode", "sent"),
    "served": ("model", "fingerprint"),
    "runs": ("run_id",),
    "models": ("model",),
}
"""Tables of the values that many rows share, with their columns: each value is there once, with its own digest."""
PLAIN = (*("iteration", "status", "message", "finish_reason", *TOKENS), *("paid_usd", "latency_ms", "attempts", "answers"))
COLUMNS = ("key", "run", "judge", "served", *PLAIN, "text", "wire_hash", "messages", "created_at", "digest")
"""The columns of `calls` beside `failed_in`."""
DIGEST_BYTES = 16
_REAL = frozenset({"paid_usd", "latency_ms"})
_COUNTS = frozenset({"iteration", "attempts", "answers"})
_NO_HASH = bytes(33)  # before the text of a wire hash that is none: longer than a hash
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode

Cells = tuple[str | None, ...]


class DamagedRow(Exception):
    """The content of a row is not what was stored."""


@dataclass(frozen=True, slots=True)
class PackedCall:
    """A call ready to be stored: shared values by content, the rest as cells, and the digest of both."""

    key: bytes
    status: str
    shared: tuple[Cells, Cells, Cells]  # run, judge, served
    cells: tuple[Any, ...]  # PLAIN, text, wire_hash, messages, created_at
    digest: bytes


class SharedValues:
    """Shared values and their numbers, cached for one connection."""

    def __init__(self, db: StoreConnection):
        self._db = db
        self.forget()

    def forget(self) -> None:
        """Empty the cache, after a failed transaction: its numbers may be given to other values."""
        self._numbers: dict[tuple[str, Cells], int] = {}
        self._cells: dict[tuple[str, int], Cells] = {}
        self._of_calls: dict[tuple[Any, Any, Any], tuple[tuple[Cells, Cells, Cells], bytes]] = {}

    def number(self, table: str, cells: Cells) -> int:
        """The number of this content; a new one where it has none. Call it in a write transaction."""
        known = self._numbers.get((table, cells))
        if known is None:
            known = self._numbers[table, cells] = self._stored(table, cells)
        return known

    def known(self, table: str, cells: Cells) -> int | None:
        """The number of this content, None where it has none. Nothing is written."""
        if (table, cells) in self._numbers:
            return self._numbers[table, cells]
        row = self._db.execute(f"SELECT id FROM {table} WHERE digest = ?", (digest_of(cells),)).fetchone()
        return int(row[0]) if row else None

    def cells(self, table: str, number: Any) -> Cells:
        """The content with this number. Raises DamagedRow where it is missing, or not what was stored."""
        cells = self._cells.get((table, number))
        if cells is None:
            columns = ", ".join(SHARED[table])
            row = fetched(self._db, f"SELECT {columns}, digest FROM {table} WHERE id = ?", (number,))
            if row is None or not all(cell is None or type(cell) is str for cell in row[:-1]):
                raise DamagedRow
            cells = tuple(row[:-1])
            if digest_of(cells) != row[-1]:
                raise DamagedRow
            self._cells[table, number] = cells
        return cells

    def of_call(self, run: Any, judge: Any, served: Any) -> tuple[tuple[Cells, Cells, Cells], bytes]:
        """The shared values of a call, and their digests. Raises DamagedRow."""
        values = self._of_calls.get((run, judge, served))
        if values is None:
            content = (self.cells("runs", run), self.cells("judges", judge), self.cells("served", served))
            values = self._of_calls[run, judge, served] = content, _joined(content)
        return values

    def _stored(self, table: str, cells: Cells) -> int:
        names, digest = SHARED[table], digest_of(cells)
        number = self.known(table, cells)
        if number is None:
            marks = ", ".join("?" * (len(names) + 1))
            statement = f"INSERT INTO {table} ({', '.join(names)}, digest) VALUES ({marks}) ON CONFLICT DO NOTHING"
            self._db.execute(statement, (*cells, digest))  # another process may be quicker
            number = self.known(table, cells)
            if number is None:
                raise DamagedRow
            return number
        try:
            self.cells(table, number)
        except DamagedRow:  # the digest identifies what was here: rows that refer to it can be read again
            assignments = ", ".join(f"{name} = ?" for name in names)
            self._db.execute(f"UPDATE {table} SET {assignments} WHERE id = ?", (*cells, number))
        return number


def fetched(db: StoreConnection, statement: str, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The first row, None where there is none. Raises DamagedRow for text that is not UTF-8."""
    try:
        row: tuple[Any, ...] | None = db.execute(statement, values).fetchone()
        return row
    except sqlite3.OperationalError as error:
        if hasattr(error, "sqlite_errorcode"):
            raise
        raise DamagedRow from None


@lru_cache(maxsize=4096)
def digest_of(cells: Cells) -> bytes:
    """The digest by which rows share these cells: equal cells have the same."""
    return blake2b(_encode(cells).encode("ascii"), digest_size=DIGEST_BYTES).digest()


def key_bytes(key: str) -> bytes:
    """The key as it is stored. Raises ValueError for what is not the hash of a question."""
    if not DIGEST.fullmatch(key):
        raise ValueError(f"{key!r} is not the key of a question: 64 hex digits")
    return bytes.fromhex(key)


def packed(call: Call, run_id: str) -> PackedCall:
    """A call as it will be stored, `run_id` filled in where it names none, lone surrogates replaced.

    Raises ValueError for NaN, for numbers that a store cannot hold, and for a key that is no hash.
    """
    parts: dict[str, str | None] = dict(call.fields)
    messages = None
    if DIGEST.fullmatch(parts.get("messages") or ""):
        messages, parts["messages"] = bytes.fromhex(parts["messages"] or ""), None
    if parts.get("iteration") == _hashed(call.iteration):
        parts["iteration"] = None
    run: Cells = (storable_value(call.run_id or run_id),)
    asked = to_json(dict(sorted(parts.items()))).decode("utf-8")
    judge = (storable_value(call.judge), asked, storable_value(call.output_mode), _encode(call.sent))
    served = (storable_value(call.model), storable_value(call.fingerprint))
    plain = (_plain_cell(name, getattr(call, name)) for name in PLAIN)
    cells = (*plain, _text_cell(call.text), _wire_cell(call.wire_hash), messages, milliseconds(call.created_at))
    key = key_bytes(call.key)
    shared = (run, judge, served)
    return PackedCall(key, call.status, shared, cells, _digest(key, _joined(shared), cells))


def _plain_cell(name: str, value: Any) -> Any:
    if name in _COUNTS and not -(2**31) <= value < 2**31:
        raise ValueError(f"a call cannot hold {name} {value}: more than 32 bits")
    return real(value) if name in _REAL else storable_value(value)


_WINDOW = -12  # 4 KiB of a raw stream: most replies are shorter, and a larger window takes longer to set up than to use


def _text_cell(text: str | None) -> bytes | None:
    if text is None:
        return None
    stream = zlib.compressobj(wbits=_WINDOW, memLevel=5)
    return stream.compress(text.encode("utf-8", "replace")) + stream.flush()


def _wire_cell(wire_hash: str | None) -> bytes | None:
    """A hash as its 32 bytes; any other text is longer than that."""
    if wire_hash is None:
        return None
    return bytes.fromhex(wire_hash) if DIGEST.fullmatch(wire_hash) else _NO_HASH + wire_hash.encode("utf-8", "replace")


def wire_hash_of(cell: Any) -> str | None:
    """The hash of the request body by its cell."""
    if type(cell) is not bytes:
        return None
    return cell.hex() if len(cell) < len(_NO_HASH) else cell.removeprefix(_NO_HASH).decode("utf-8", "replace")


def unpacked(row: PackedCall) -> Call:
    return _call(row.key, row.shared, row.cells)


def call_of(row: tuple[Any, ...], shared: SharedValues) -> Call:
    """A row with `COLUMNS` as a call. Raises DamagedRow where its cells or its shared values are not what was stored."""
    key, run, judge, served, *cells, digest = row
    content, joined = shared.of_call(run, judge, served)
    try:
        if _digest(key, joined, tuple(cells)) != digest:
            raise DamagedRow
        return _call(key, content, tuple(cells))
    except (TypeError, ValueError, AttributeError, OverflowError, RecursionError, zlib.error):
        raise DamagedRow from None


def storable_value(value: Any) -> Any:
    """A value as a cell holds it, lone surrogates of a text replaced. Raises ValueError for a whole number of more than 64 bits."""
    kind = type(value)
    if kind is str:
        # UTF-8 has no lone surrogates
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if kind is int and not -(2**63) <= value < 2**63:
        raise ValueError(f"a call cannot hold {value}: more than 64 bits")
    return value


def real(value: Any) -> Any:
    """A number as it is stored where it may have decimals."""
    return float(value) if type(value) is int else value


def milliseconds(time: str) -> int | None:
    """A time in ISO 8601 as whole milliseconds since 1970; no time is None. Raises ValueError."""
    if not time:
        return None
    parsed = datetime.fromisoformat(time)
    return (parsed.replace(tzinfo=parsed.tzinfo or UTC) - _EPOCH) // timedelta(milliseconds=1)


def time_of(count: int | None) -> str:
    """The time in ISO 8601 of milliseconds since 1970, in UTC; empty for None. The inverse of `milliseconds`."""
    return "" if count is None else (_EPOCH + timedelta(milliseconds=count)).isoformat(timespec="milliseconds")


def key_parts_of(judge: Cells, messages: Any, iteration: int) -> dict[str, str]:
    """The hashes of the parts of a key. Raises ValueError for what is not a JSON object."""
    parts = dict(_object(judge[1]))
    if "messages" in parts and parts["messages"] is None:
        parts["messages"] = messages.hex()
    if "iteration" in parts and parts["iteration"] is None:
        parts["iteration"] = _hashed(iteration)
    return parts


@lru_cache(maxsize=4096)
def _object(text: str | None) -> dict[str, Any]:
    """A JSON object that many rows share; do not change it. Raises ValueError for what is not one."""
    parsed = json.loads(text or "")
    if not isinstance(parsed, dict):
        raise ValueError("no JSON object")
    return parsed


@lru_cache(maxsize=64)
def _hashed(iteration: int) -> str:
    return sha256(iteration)


def _digest(key: bytes, shared: bytes, cells: tuple[Any, ...]) -> bytes:
    """The digest of the key, the digests of the shared values, and the cells: texts with their length, numbers as written."""
    joined = "\x1f".join([f"{len(cell)}:{cell}" if type(cell) is str else repr(cell) for cell in cells])
    return blake2b(key + shared + joined.encode("utf-8"), digest_size=DIGEST_BYTES).digest()


def _joined(shared: tuple[Cells, Cells, Cells]) -> bytes:
    return b"".join(map(digest_of, shared))


def _call(key: bytes, shared: tuple[Cells, Cells, Cells], cells: tuple[Any, ...]) -> Call:
    (run,), (label, _, mode, sent), (model, fingerprint) = shared
    *plain, text, wire, messages, created = cells
    own = dict(zip(PLAIN, plain, strict=True))
    fields = key_parts_of(shared[1], messages, own["iteration"])
    asked: dict[str, str] = {name: fields[name] for name in ("messages", "schema") if name in fields}
    return Call(
        key=key.hex(),
        payload_id=(hash_of_parts(asked) if asked else ""),
        judge=label or "",
        text=None if text is None else zlib.decompress(text, _WINDOW).decode("utf-8"),
        model=model,
        fingerprint=fingerprint,
        output_mode=mode,
        sent=dict(_object(sent)),
        wire_hash=wire_hash_of(wire),
        fields=fields,
        run_id=run or "",
        created_at=time_of(created),
        **own,
    )


def stored_keys(db: StoreConnection, table: str, keys: Sequence[bytes]) -> set[bytes]:
    """Those of the keys (some hundreds at most) that have a row in a table, in whatever state it is."""
    statement = f"SELECT key FROM {table} WHERE key IN ({', '.join('?' * len(keys))})"
    return {key for (key,) in db.execute(statement, keys)}


_STORE = f"INSERT INTO calls ({', '.join(COLUMNS)}, failed_in) VALUES ({', '.join('?' * (len(COLUMNS) + 1))})"


def store(db: StoreConnection, shared: SharedValues, call: PackedCall) -> None:
    """Write the row of a call, replacing what has its key: a reply replaces the failures of all runs."""
    run, judge, served = (shared.number(t, c) for t, c in zip(("runs", "judges", "served"), call.shared, strict=True))
    if call.status == "ok":
        failed_in = 0
        db.execute("DELETE FROM calls WHERE key = ?", (call.key,))
    else:
        failed_in = run
        db.execute("DELETE FROM calls WHERE key = ? AND failed_in = ?", (call.key, run))
    db.execute(_STORE, (call.key, run, judge, served, *call.cells, call.digest, failed_in))


def every_call(db: StoreConnection, where: str = "TRUE", values: Sequence[object] = ()) -> Iterator[Call | None]:
    """All calls of a store, or those that match a condition in SQL, in the order of time; None for a damaged row."""
    shared = SharedValues(db)
    for row in db.scan("calls", COLUMNS, where, values):
        try:
            yield call_of(row, shared) if row else None
        except DamagedRow:
            yield None


class StoreConnection(Protocol):
    """A connection to a store, for one thread. Statements have `?` for each value; bytes, texts, numbers and None are values."""

    def execute(self, statement: str, values: Sequence[Any] = ..., /) -> Any: ...

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> object: ...

    def stream(self, statement: str, values: Sequence[Any] = ...) -> Iterator[tuple[Any, ...]]:
        """The rows of a query, never all of them in memory."""

    def scan(
        self, table: str, columns: Sequence[str], where: str = ..., values: Sequence[Any] = ...
    ) -> Iterator[tuple[Any, ...] | None]:
        """The rows of `calls` or `payments` that match, in the order of time; None for one that cannot be read."""

    def keep_keys(self, keys: Iterable[bytes]) -> None:
        """Make the table `used` of these keys, which only this connection sees."""

    def close(self) -> None: ...
