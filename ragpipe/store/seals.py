"""Seals: digests of the files of a finished run, taken when it ended, so that a later change is found.

A file's seal is its sha256. Where a file can be made again, `first_difference` says which of its values changed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ragpipe.core.digest import sha256, sha256_file
from ragpipe.core.text import shorten
from ragpipe.core.version import FORMAT
from ragpipe.store.files import is_regular_file

CHANGED_BYTES = "its bytes are not what they were"
_SEAL_BYTES = 256 << 20


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
    if not isinstance(seal.get("files"), dict) or not all(map(_is_inside, seal["files"])):
        raise ValueError("`files` names more than files of this folder")
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


def is_changed(path: Path) -> bool:
    """Whether a file was changed since its run was sealed; False for one that no seal names or that is not there. Raises ValueError
    when the seal itself was changed."""
    for root in list(path.parents)[:3] if path.name != "manifest.json" else ():  # prompts are two folders deep
        if (seal := seal_over(root)) is not None:
            sealed = seal["files"].get(path.relative_to(root).as_posix())
            return sealed is not None and is_regular_file(path) and _digest_of(path, *_mark(path)) != sealed
    return False


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


_VALUE_CHARS = 77  # of a value in a message, before `...`
_CONTEXT_CHARS = 20  # before the first character that differs
_BATCH = 4096
_IDENTITY = ("id", "sample_id", "method", "repeat", "iteration", "metric", "score_name", "step")
"""Columns that identify a row for a person, as far as a table has them."""


def first_difference(actual: Path, expected: Path) -> str | None:
    """Where `actual` differs from `expected`; None when their content is equal (their bytes may still differ)."""
    if actual.suffix == ".parquet":
        return _table_difference(actual, expected)
    if actual.suffix == ".json":
        try:
            return _difference(json.loads(actual.read_bytes()), json.loads(expected.read_bytes()), "")
        except (ValueError, RecursionError):
            pass  # no longer JSON: the first line that differs says more
    lines = [path.read_bytes().decode("utf-8", "replace").split("\n") for path in (actual, expected)]
    for number, (left, right) in enumerate(zip(*lines, strict=False), 1):
        if left != right:
            return f"line {number}: {_both(left, right)}"
    left_count, right_count = map(len, lines)
    return None if left_count == right_count else f"{left_count} lines, expected {right_count}"


def _table_difference(actual: Path, expected: Path) -> str | None:
    try:
        with pq.ParquetFile(actual) as left_file, pq.ParquetFile(expected) as right_file:
            if not left_file.schema_arrow.equals(right_file.schema_arrow):
                names = set(left_file.schema_arrow.names) ^ set(right_file.schema_arrow.names)
                return f"columns {sorted(names)}" if names else "the types of its columns"
            if (count := left_file.metadata.num_rows) != right_file.metadata.num_rows:
                return f"{count:,} rows, expected {right_file.metadata.num_rows:,}"
            start = 0
            for left, right in zip(left_file.iter_batches(_BATCH), right_file.iter_batches(_BATCH), strict=True):
                rows = () if left.equals(right) else zip(left.to_pylist(), right.to_pylist(), strict=True)
                for number, (row, wanted) in enumerate(rows, start):
                    if difference := _difference(row, wanted, _named_row(number, row)):
                        return difference
                start += left.num_rows
    except (pa.ArrowException, OSError) as error:
        return f"no readable table ({shorten(repr(str(error)), _VALUE_CHARS)})"
    return None


def _named_row(number: int, row: Mapping[str, Any]) -> str:
    """`row 17 (q1 / bm25 / 1 / faithfulness)`: a row of a table by its number and its identity."""
    known = [(name, row[name]) for name in _IDENTITY if row.get(name) is not None and (name, row[name]) != ("repeat", 1)]
    cells = [f"repeat {cell}" if name == "repeat" else str(cell) for name, cell in known]
    return f"row {number} ({' / '.join(cells)})"


def _difference(actual: Any, expected: Any, place: str) -> str | None:
    """The first place where two values of JSON or of a row differ; two NaN are equal."""
    if isinstance(actual, dict) and isinstance(expected, dict):
        for key in {**expected, **actual}:
            where = f"{place}.{key}" if place else key
            if key not in actual or key not in expected:
                return f"{where}: {'missing' if key not in actual else 'not expected'}"
            if difference := _difference(actual[key], expected[key], where):
                return difference
        return None
    if isinstance(actual, list) and isinstance(expected, list):
        pairs = enumerate(zip(actual, expected, strict=False))
        found = (_difference(left, right, f"{place}[{index}]") for index, (left, right) in pairs)
        count = None if len(actual) == len(expected) else f"{place}: {len(actual)} items, expected {len(expected)}"
        return next(filter(None, found), count)
    is_same = type(actual) is type(expected) and (actual == expected or (actual != actual and expected != expected))
    return None if is_same else f"{place}: {_both(actual, expected)}"


def _both(actual: Any, expected: Any) -> str:
    """Both values; of long ones the part from shortly before the first character that differs."""
    left, right = repr(actual), repr(expected)
    first = next((place for place, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), 0)
    start = first - _CONTEXT_CHARS
    if start > 0 and max(len(left), len(right)) > _VALUE_CHARS + len("..."):
        left, right = "..." + left[start:], "..." + right[start:]
    return f"{shorten(left, _VALUE_CHARS)}, expected {shorten(right, _VALUE_CHARS)}"
