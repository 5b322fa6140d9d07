"""A large table in parts: each is written when its rows are done, and in the end all are joined in order.

So memory is bounded by a row group, a resumed run skips complete parts, and the joined file has the same bytes however
often the run was interrupted: a part has exactly the row groups it was given. A file beside each part has the hash of its
bytes: a changed part is done again.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from ragpipe.core.digest import sha256_file
from ragpipe.core.errors import DataError, Problem
from ragpipe.store.files import (
    Hashing,
    atomic_open,
    atomic_write,
    open_unless_same,
    output_error,
    sweep_temporaries,
    sync_folder,
)

PARTS = ".parts"
"""Folder with the parts of several tables; removed with the last of them."""
_NAME = re.compile(r"part-(\d{6,})\.parquet")
_FORMAT: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True}


class Parts:
    """The parts of one table, in their own folder. `notices` says which broken ones were removed.

    All methods read or write files: where an event loop runs, call them from another thread.
    """

    def __init__(self, folder: Path, schema: pa.Schema):
        self.folder, self.schema = Path(folder), schema
        self.notices: list[str] = []
        self._joined = self.folder.with_name(self.folder.name + ".joined")
        try:
            if self._joined.is_dir():  # a process died while it removed joined parts
                shutil.rmtree(self._joined)
        except OSError as error:
            raise output_error(self._joined, error, "remove") from error
        sweep_temporaries(self.folder)

    def path(self, index: int) -> Path:
        return self.folder / f"part-{index:06d}.parquet"

    def write(self, index: int, table: pa.Table) -> None:
        """Write part number `index` (from 0) of one row group. Raises ValueError for a table of another schema, OutputError."""
        self.write_groups(index, [table])

    def write_groups(self, index: int, groups: Iterable[pa.Table]) -> None:
        """Write part number `index` (from 0) with one row group per table.

        Raises as `write`, and OutputError when the folder above was removed.
        """
        try:
            for folder in (self.folder.parent, self.folder):
                folder.mkdir(exist_ok=True)  # not the folders above: what was deleted during a run stays deleted
        except OSError as error:
            raise output_error(self.folder, error, "create the folder") from error
        self._sum(index).unlink(missing_ok=True)
        with atomic_open(self.path(index)) as file:
            hashing = Hashing(file)
            with parquet_writer(cast(BinaryIO, hashing), self.schema, **_FORMAT) as writer:
                for table in groups:
                    if not table.schema.equals(self.schema):
                        raise ValueError(f"part {index} of {self.folder}: columns {table.schema} are not {self.schema}")
                    _write(writer, table)
        atomic_write(self._sum(index), hashing.digest.hexdigest())

    def _sum(self, index: int) -> Path:
        return self.path(index).with_suffix(".sha256")

    def done(self) -> set[int]:
        """The numbers of the complete parts. A broken part is removed, with a notice."""
        complete = set()
        for index, path in sorted(self._present().items()):
            if fault := self._fault(index, path):
                self.discard(index)
                self.notices.append(f"{path}: a broken part was removed ({fault}); its cases are done again")
            else:
                complete.add(index)
        return complete

    def intact(self) -> set[int]:
        """The numbers of the complete parts. Nothing is removed."""
        return {index for index, path in self._present().items() if self._fault(index, path) is None}

    def discard(self, index: int) -> None:
        """Remove a part, if it exists."""
        try:
            self._sum(index).unlink(missing_ok=True)
            self.path(index).unlink(missing_ok=True)
        except OSError as error:
            raise output_error(self.path(index), error, "remove") from error

    def join(self, target: Path) -> None:
        """Write all parts in order into one file, then remove them. A target with the same content is left alone.

        Without any part the file has no rows. Raises ValueError when a number is missing, DataError for a broken part,
        OutputError. A process that dies meanwhile leaves either all parts or a complete target.
        """
        present = self._present()
        if missing := sorted(set(range(len(present))) - set(present)):
            raise ValueError(f"{self.folder}: part {missing[0]} of {max(present) + 1} is not done")
        with open_unless_same(Path(target)) as file, parquet_writer(file, self.schema, **_FORMAT) as writer:
            for index in range(len(present)):
                self._copy(present[index], writer)
        self._remove()

    def _copy(self, path: Path, writer: pq.ParquetWriter) -> None:
        with _reading(path):
            part = pq.ParquetFile(path, page_checksum_verification=True)
        with part:
            for group in range(part.num_row_groups):
                with _reading(path):
                    table = part.read_row_group(group)
                _write(writer, table)

    def _fault(self, index: int, path: Path) -> str | None:
        try:
            if path.is_symlink():
                return "a symbolic link"
            written = self._sum(index)
            if written.is_symlink() or not written.is_file():
                return "the hash of its bytes is missing"
            if written.read_bytes().decode("ascii", "replace") != sha256_file(path):
                return "its bytes are not what was written"
            with pq.ParquetFile(path) as part:
                return None if part.schema_arrow.equals(self.schema) else "other columns"
        except (pa.ArrowException, OSError) as error:
            return str(error).split("\n")[0][:200]

    def _remove(self) -> None:
        """Remove all parts at once, by a rename: some of them would look like an unfinished table."""
        with suppress(FileNotFoundError):
            try:
                os.rename(self.folder, self._joined)
                sync_folder(self.folder.parent)
                shutil.rmtree(self._joined)
                if self.folder.parent.name == PARTS and not os.listdir(self.folder.parent):
                    os.rmdir(self.folder.parent)
            except FileNotFoundError:
                raise
            except OSError as error:
                raise output_error(self.folder, error, "remove") from error

    def _present(self) -> dict[int, Path]:
        try:
            entries = ((_NAME.fullmatch(entry.name), entry) for entry in os.scandir(self.folder))
            return {int(match[1]): Path(entry.path) for match, entry in entries if match}
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise output_error(self.folder, error, "read") from error


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        fix = "remove it and start again: its cases are done again from the call store"
        raise DataError("a part is broken", [Problem(str(path), "file", str(error), "a Parquet part", fix)]) from error


def _write(writer: pq.ParquetWriter, table: pa.Table) -> None:
    if table.num_rows:
        writer.write_table(table.combine_chunks(), row_group_size=table.num_rows)


GROUP_ROWS = 8192
GROUP_BYTES = 16 << 20


class RowGroups:
    """Gathers consecutive tables and writes them as one row group, as soon as they have `GROUP_ROWS` rows or `GROUP_BYTES`. A table
    is never divided."""

    def __init__(self, writer: pq.ParquetWriter):
        self._writer = writer
        self._tables: list[pa.Table] = []
        self._rows = self._bytes = 0

    def add(self, table: pa.Table) -> None:
        """Rows behind those that are there."""
        self._tables.append(table)
        self._rows += table.num_rows
        # without what a buffer holds beside the rows, so that it does not matter who made the table
        self._bytes += sum(map(pa.ipc.get_record_batch_size, table.to_batches()))
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self.write()

    def write(self) -> None:
        """Write what was gathered: to be called after the last table."""
        if self._rows:
            self._writer.write_table(pa.concat_tables(self._tables).combine_chunks(), row_group_size=self._rows)
        self._tables, self._rows, self._bytes = [], 0, 0


@contextmanager
def parquet_writer(file: BinaryIO, schema: pa.Schema, **options: Any) -> Iterator[pq.ParquetWriter]:
    """A writer that is closed for good when its block ends: pyarrow's own, unable to close on a full disk, tries again when
    it is collected, and prints a traceback."""
    writer = pq.ParquetWriter(file, schema, **options)
    try:
        yield writer
        writer.close()
    finally:
        if writer.is_open:
            with suppress(Exception):  # what went wrong before is on its way up
                writer.close()
            writer.is_open = False
