"""Writing that leaves a file with the same content alone: a finished run, started again, rewrites nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from ragpipe.core.digest import sha256_file
from ragpipe.store.files.atomic import atomic_open, atomic_write, json_lines
from ragpipe.store.files.filesystem import is_regular_file


class _Unchanged(Exception):
    """Ends an atomic write without the rename."""


class Hashing:
    """A writable file that hashes what is written."""

    def __init__(self, file: BinaryIO):
        self._file = file
        self.digest = hashlib.sha256()
        self.closed = False

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:  # whoever opened the file closes it
        self.flush()


@contextmanager
def open_unless_same(path: Path) -> Iterator[BinaryIO]:
    """As `atomic_open`, but a file with equal content stays as it is (same inode, same time)."""
    try:
        with atomic_open(path) as file:
            hashing = Hashing(file)
            yield cast(BinaryIO, hashing)
            if is_regular_file(path) and sha256_file(path) == hashing.digest.hexdigest():
                raise _Unchanged
    except _Unchanged:
        pass


def write_unless_same(path: Path, data: bytes | str) -> bool:
    """Write a whole file; True when it had to be written. Raises OutputError."""
    content = data.encode("utf-8", "backslashreplace") if isinstance(data, str) else data
    if is_regular_file(path) and path.stat().st_size == len(content) and path.read_bytes() == content:
        return False
    atomic_write(path, content)
    return True


def json_unless_same(path: Path, value: Any) -> bool:
    """Write plain JSON as `json_lines` says; True when it had to be written. Raises ValueError for NaN, OutputError."""
    return write_unless_same(path, json_lines(value) + b"\n")
