"""Row groups of Parquet files, kept in memory while they are used."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import pyarrow.parquet as pq

Content = TypeVar("Content")


class RowGroupCache(Generic[Content]):
    """Least recently used row groups of some files are dropped first.

    Args:
        files: open Parquet files; the cache does not close them.
        read: reads one row group of a file, in the form that is kept.
        max_groups: how many groups are kept.
        max_bytes: with it, groups are kept up to this sum of uncompressed bytes, but always `max_groups` of them.
    """

    def __init__(
        self,
        files: Sequence[pq.ParquetFile],
        read: Callable[[pq.ParquetFile, int], Content],
        *,
        max_groups: int,
        max_bytes: int = 0,
    ):
        self._files, self._read = files, read
        self._max_groups, self._max_bytes = max_groups, max_bytes
        self._groups: OrderedDict[tuple[int, int], Content] = OrderedDict()

    def group(self, group: int, file: int = 0) -> Content:
        """One row group of the file with this number, from memory where it is kept. Raises the errors of `read`."""
        key = (file, group)
        if key not in self._groups:
            self._make_room(self._bytes_of(key))
            self._groups[key] = self._read(self._files[file], group)
        self._groups.move_to_end(key)
        return self._groups[key]

    def clear(self) -> None:
        """Drop all groups."""
        self._groups.clear()

    def _make_room(self, size: int) -> None:
        """Drop groups until one more of `size` bytes may be kept."""
        while len(self._groups) >= self._max_groups and size + sum(map(self._bytes_of, self._groups)) > self._max_bytes:
            self._groups.popitem(last=False)

    def _bytes_of(self, key: tuple[int, int]) -> int:
        file, group = key
        return int(self._files[file].metadata.row_group(group).total_byte_size)
