"""Seals: digests of the files of a finished run, taken when it ended, so that a later change is found and located.

A file's seal is its sha256. A table from which figures are computed has more: a digest of every row and of every column,
so that a changed cell is where a changed row and a changed column meet. Of a table with more than `MOST_DIGESTS` rows several
rows share a digest: a seal stays small, and a change is located to these rows. Row and column digests only locate a change;
the sha256 proves that there is none.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ragpipe.core.digest import sha256, sha256_file
from ragpipe.schema.format_version import FORMAT
from ragpipe.store.files.filesystem import is_regular_file
from ragpipe.store.run.file_difference import named_row

Hashes = NDArray[np.uint64]
MOST_DIGESTS = 100_000
"""A table has so many digests of rows at most: 530 kB of a seal."""
_BATCH = 4096
_BATCH_BYTES = 4 << 20
_SEAL_BYTES = 256 << 20
_SHOWN_ROWS = 3
_NULL = np.uint64(0x9E3779B97F4A7C15)
_JSON = json.JSONEncoder(sort_keys=True)


@dataclass(frozen=True, slots=True)
class CellDigests:
    """The digests of some rows of a table that follow each other.

    Attributes:
        rows: of each row one, made of those of its cells.
        columns: of each column those of its cells, as bytes, eight for each cell.
    """

    rows: Hashes
    columns: Sequence[bytes | memoryview]


def seal_file(path: Path) -> str:
    """sha256 of a file's bytes."""
    return sha256_file(path)


def cell_digests(path: Path) -> Iterator[CellDigests]:
    """The digests of a table, some rows at a time. Raises pyarrow's errors for an unreadable file."""
    with pq.ParquetFile(path) as file:
        for batch in (batch for group in range(file.num_row_groups) for batch in _batches(file, group)):
            rows, columns = np.zeros(batch.num_rows, np.uint64), list[bytes]()
            for column in batch.columns:
                cells = _cells(column)
                columns.append(cells.tobytes())
                rows = _mixed(rows + cells)  # mixed after every column: two swapped cells are a change
            yield CellDigests(rows, columns)


def seal_table(path: Path, known: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """`sha256` of the file, `rows` (four bytes per digest, base64), `rows_per_digest` and `columns` (name -> digest).

    Args:
        path: the table.
        known: an earlier seal, returned when the file still has the same bytes.
    """
    digest = sha256_file(path)
    if known and known.get("sha256") == digest:
        return dict(known)
    rows, columns = _digests(path)
    per_digest = max(1, -(-len(rows) // MOST_DIGESTS))
    joined = base64.b64encode(_joined(rows, per_digest).tobytes()).decode("ascii")
    return {"sha256": digest, "rows": joined, "rows_per_digest": per_digest, "columns": columns}


def changed_cells(path: Path, seal: Mapping[str, Any]) -> tuple[list[range], list[str]]:
    """Rows (from 0) and columns of a table that differ from its seal, in order: rows that share a digest together, of which at
    least one differs.

    Of a table with another number of rows, all rows after the common ones count as changed. Raises pyarrow's errors for an unreadable file.
    """
    totals, columns = _digests(path)
    per_digest = int(seal["rows_per_digest"])
    rows, sealed = _joined(totals, per_digest), np.frombuffer(base64.b64decode(seal["rows"]), dtype=np.uint32)
    common = min(len(rows), len(sealed))
    changed = np.flatnonzero(rows[:common] != sealed[:common]).tolist()
    changed += list(range(common, max(len(rows), len(sealed))))
    changed_rows = [range(number * per_digest, (number + 1) * per_digest) for number in changed]
    names = [name for name in {**seal["columns"], **columns} if seal["columns"].get(name) != columns.get(name)]
    return changed_rows, names


def closed_seal(content: Mapping[str, Any]) -> dict[str, Any]:
    """A seal's content with its own digest, so that a damaged seal is recognised."""
    body = {"format": FORMAT, **content}
    return {**body, "digest": sha256(body)}


def open_seal(path: Path) -> dict[str, Any] | None:
    """The content of a seal file; None when there is none. Raises ValueError when the seal itself was changed."""
    if not is_regular_file(path):
        return None
    if path.stat().st_size > _SEAL_BYTES:
        raise ValueError(f"more than {_SEAL_BYTES:,} bytes")
    try:
        seal = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no readable JSON ({error})") from error
    if not isinstance(seal, dict):
        raise ValueError(f"a JSON {type(seal).__name__}")
    if seal.pop("digest", None) != sha256(seal):
        raise ValueError("its own digest does not fit")
    for part in ("files", "tables"):
        names = seal[part] if isinstance(seal.get(part), dict) else None
        if names is None or not all(map(_is_inside, names)):
            raise ValueError(f"`{part}` names more than files of this folder")
    return seal


_is_checked: ContextVar[bool] = ContextVar("_is_checked", default=True)


@contextmanager
def unchecked() -> Iterator[None]:
    """Inside, files of run folders are read as they are, whatever their seal says: to describe or to repair what changed."""
    token = _is_checked.set(False)
    try:
        yield
    finally:
        _is_checked.reset(token)


def seal_over(root: Path) -> Mapping[str, Any] | None:
    """The seal of a run folder; None without one, and inside `unchecked`. Raises ValueError when the seal itself was changed."""
    path = root / "seal.json"
    if not (_is_checked.get() and is_regular_file(path)):
        return None
    return _opened_seal(path, *_mark(path))


def change_since_sealed(path: Path) -> str | None:
    """What changed in a file since its run was sealed, in words; None where nothing did, and for a file that no seal names or
    that is not there. Raises ValueError when the seal itself was changed."""
    for root in list(path.parents)[:3] if path.name != "manifest.json" else ():  # prompts are two folders deep
        if (seal := seal_over(root)) is None:
            continue
        name = path.relative_to(root).as_posix()
        table = seal["tables"].get(name)
        sealed = table["sha256"] if table else seal["files"].get(name)
        if sealed is None or not is_regular_file(path) or _digest_of(path, *_mark(path)) == sealed:
            return None
        return describe_changes(path, table) if table else "its bytes are not what they were"
    return None


def describe_changes(path: Path, sealed: Mapping[str, Any]) -> str:
    """Which cells of a table changed since it was sealed, in words: columns, rows, and the case of each row."""
    try:
        rows, columns = changed_cells(path, sealed)
        places = ", ".join(_named_rows(path, together) for together in rows[:_SHOWN_ROWS])
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        return f"no readable table any more ({str(error)[:200]})"
    if not rows and not columns:
        return "its bytes are not what they were (every cell still says the same)"
    more = f" and {sum(map(len, rows[_SHOWN_ROWS:])):,} more rows" if len(rows) > _SHOWN_ROWS else ""
    return f"{', '.join(columns)} changed in {places or 'its schema'}{more}"


def _named_rows(path: Path, rows: range) -> str:
    """A row by its number and its case; of several that share a digest the first, and how many come after it."""
    first = named_row(path, rows[0])
    return first if len(rows) == 1 else f"{first} or the {len(rows) - 1} after it"


def _mark(path: Path) -> tuple[int, int, int]:
    """Equal as long as a file is the same: a table is opened often, and its digest is computed once."""
    status = os.stat(path)
    return status.st_mtime_ns, status.st_size, status.st_ino


@lru_cache(maxsize=8192)
def _digest_of(path: Path, *mark: int) -> str:
    return sha256_file(path)


@lru_cache(maxsize=32)
def _opened_seal(path: Path, *mark: int) -> dict[str, Any] | None:
    return open_seal(path)


def _is_inside(name: str) -> bool:
    """Whether a relative path stays in its folder."""
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\0" not in name


def _joined(rows: Hashes, per_digest: int) -> NDArray[np.uint32]:
    """The digests of so many rows each, in four bytes."""
    if per_digest > 1:
        padded = np.zeros(-(-len(rows) // per_digest) * per_digest, np.uint64)
        padded[: len(rows)] = rows
        rows = np.zeros(len(padded) // per_digest, np.uint64)
        for place in range(per_digest):
            rows = _mixed(rows + padded[place::per_digest])  # mixed after every row: two swapped rows are a change
    return (rows >> np.uint64(32)).astype(np.uint32)


def _digests(path: Path) -> tuple[Hashes, dict[str, str]]:
    """Of each row a digest in eight bytes, and of each column one by its name."""
    names = pq.read_schema(path).names
    running = [hashlib.sha256() for _ in names]
    rows = [np.empty(0, np.uint64)]
    for part in cell_digests(path):
        rows.append(part.rows)
        for digest, cells in zip(running, part.columns, strict=True):
            digest.update(cells)
    return np.concatenate(rows), {name: sha.hexdigest()[:16] for name, sha in zip(names, running, strict=True)}


def _batches(file: pq.ParquetFile, group: int) -> Iterator[pa.RecordBatch]:
    """Few rows at a time where they are large: 4,096 long messages may take any number of bytes."""
    size = file.metadata.row_group(group)
    rows = size.num_rows * _BATCH_BYTES // max(1, size.total_byte_size)
    yield from file.iter_batches(batch_size=min(_BATCH, max(1, rows)), row_groups=[group])


def _cells(column: pa.Array) -> Hashes:
    """A 64-bit digest of every cell. Equal texts are hashed once."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count == len(column) and not pa.types.is_nested(column.type):
        return np.full(len(column), _NULL)
    if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        numbers = column.fill_null(False if pa.types.is_boolean(column.type) else 0).cast(pa.int64())
        return _numbers(numbers.to_numpy(zero_copy_only=False), column)
    if pa.types.is_floating(column.type):
        return _numbers(column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False), column)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        encoded = column.dictionary_encode()
        by_index = np.append(_texts(encoded.dictionary.to_pylist()), _NULL)
        hashes: Hashes = by_index[encoded.indices.fill_null(len(by_index) - 1).to_numpy(zero_copy_only=False)]
        return hashes
    values = column.to_pylist()
    if pa.types.is_list(column.type) and pa.types.is_string(column.type.value_type):
        return _lists([None if value is None else tuple(value) for value in values])
    return _texts(map(_JSON.encode, values))


def _lists(lists: Sequence[tuple[str | None, ...] | None]) -> Hashes:
    """The digests of lists of texts. Equal lists are hashed once: most columns of lists are empty or absent throughout."""
    places: dict[tuple[str | None, ...] | None, int] = {}
    indices = [places.setdefault(texts, len(places)) for texts in lists]
    hashes: Hashes = _texts(map(_JSON.encode, places))[indices]
    return hashes


def _texts(texts: Iterable[str]) -> Hashes:
    digests = b"".join(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest() for text in texts)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def _numbers(values: Any, column: pa.Array) -> Hashes:
    hashes = _mixed(np.ascontiguousarray(values).view(np.uint64))
    hashes[~column.is_valid().to_numpy(zero_copy_only=False)] = _NULL
    return hashes


def _mixed(values: Hashes) -> Hashes:
    """The finalizer of splitmix64 (Steele, Lea, Flood 2014): every bit of the input reaches every bit of the output."""
    with np.errstate(over="ignore"):
        mixed = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))
