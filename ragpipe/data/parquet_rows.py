"""Parquet and Arrow, in batches of at most 128 rows: dictionary and large types, lists, structs and maps become plain JSON values.

A date or a time becomes its ISO 8601 text, a decimal a number.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ragpipe.core.strict_json import InvalidJson
from ragpipe.data.faults import Faults, shown_value
from ragpipe.data.text_lines import MAX_LINE, NAN_IS_NULL, DataFile

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

ARROW = (b"ARROW1", b"\xff\xff\xff\xff")
"""The first bytes of an Arrow (Feather) file, and of a stream, as Hugging Face `datasets` writes it."""
_BATCH = 128
_BATCH_BYTES = 16 << 20  # as they are stored without compression


def read_parquet_rows(file: DataFile, faults: Faults) -> Iterator[tuple[int, dict[str, Any]]]:
    """(row number from 1, record). A damaged file is a fault at the first row that cannot be read."""
    import pyarrow as pa

    row = 0
    try:
        with table_batches(file.path) as (schema, batches):
            if not _columns_fit(schema, file, faults):
                return
            # ten times slower: only where it is needed
            maps: Literal["strict"] | None = "strict" if "map<" in str(schema) else None
            for batch in batches(_BATCH):
                if batch.num_rows == 1 and batch.nbytes > MAX_LINE:
                    where, row = f"{file.display_path} row {row + 1}", row + 1
                    faults.add(where, "row", f"more than {MAX_LINE >> 20} MiB", "a record of a sane size")
                    continue
                columns = [_values(column, name, maps) for name, column in zip(batch.schema.names, batch.columns, strict=True)]
                for values in zip(*columns, strict=True):
                    row += 1
                    plain = {}
                    for name, value in zip(batch.schema.names, values, strict=True):
                        try:
                            plain[name] = _plain(value, file.nan_is_null)
                        except InvalidJson as error:
                            where, fix = f"{file.display_path} row {row}", NAN_IS_NULL if "nan (" in str(error) else ""
                            faults.add(where, name, str(error), "a text, a finite number, true or false", fix)
                            break
                    else:
                        yield row, plain
    except _NoJson as error:
        faults.add(f"{file.display_path} row {row + 1} or later", error.column, str(error), error.expected, error.fix)
    except (pa.ArrowException, OSError, KeyError, ValueError, MemoryError) as error:
        message = " ".join(str(error).split())[:200]
        fix = "the file is cut or damaged: write it again"
        faults.add(f"{file.display_path} row {row + 1}", "parquet", message, "a whole Parquet file", fix)


@contextmanager
def table_batches(path: Path) -> Iterator[tuple[pa.Schema, Callable[[int], Iterator[pa.RecordBatch]]]]:
    """The schema of a Parquet or Arrow file, and what gives its rows in batches of at most so many. Raises what pyarrow raises."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open(path, "rb") as stream:
        magic = stream.read(8)
    if not magic.startswith(ARROW):
        with pq.ParquetFile(path, page_checksum_verification=True) as table:
            yield table.schema_arrow, lambda size: _batches(table, size)
        return
    with pa.memory_map(str(path)) as source:
        is_file = magic.startswith(ARROW[0])
        reader = pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)

        def batches(size: int) -> Iterator[pa.RecordBatch]:
            stored = (reader.get_batch(n) for n in range(reader.num_record_batches)) if is_file else reader
            for batch in stored:
                yield from (batch.slice(start, size) for start in range(0, batch.num_rows, size))

        yield reader.schema, batches


def _batches(table: pq.ParquetFile, size: int) -> Iterator[pa.RecordBatch]:
    for group in range(table.num_row_groups):
        stored = table.metadata.row_group(group)
        rows = stored.num_rows * _BATCH_BYTES // max(1, stored.total_byte_size)  # few at a time where they are large
        yield from table.iter_batches(batch_size=max(1, min(size, rows)), row_groups=[group], use_threads=False)


class _NoJson(Exception):
    """A column holds what no JSON value can be made of; what was expected, and how to get it."""

    def __init__(
        self, column: str, text: str, expected: str = "text, numbers, lists or structs", fix: str = "store it as string"
    ):
        self.column, self.expected, self.fix = column, expected, fix
        super().__init__(text)


def _values(column: pa.Array, name: str, maps: Literal["strict"] | None) -> list[Any]:
    """A column's values, times to the microsecond. Raises _NoJson."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    try:
        return column.to_pylist(maps_as_pydicts=maps)  # type: ignore[no-any-return]
    except pa.ArrowException:
        raise
    except KeyError as error:
        raise _NoJson(name, "a key twice in one map", "each key once", "leave one of the two out") from error
    except UnicodeDecodeError as error:
        fix = "write the texts as UTF-8; where they were, the file is damaged: write it again"
        raise _NoJson(name, f"bytes that are no UTF-8 ({error.reason})", "texts in UTF-8", fix) from error
    except (ValueError, OverflowError) as error:
        raise _NoJson(name, f"a column of {column.type}: {' '.join(str(error).split())[:100]}") from None


def _columns_fit(schema: pa.Schema, file: DataFile, faults: Faults) -> bool:
    import pyarrow as pa

    before = len(faults.problems)
    for name in sorted({name for name in schema.names if schema.names.count(name) > 1}):
        faults.add(file.display_path, name, "two columns of this name", "one column of a name")
    is_bytes = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    for column in schema:
        if any(is_kind(column.type) for is_kind in is_bytes):
            found, expected = f"a column of {column.type}", "text, numbers, lists or structs"
            faults.add(file.display_path, column.name, found, expected, "store it as string")
    return len(faults.problems) == before


def _plain(value: Any, nan_is_null: bool) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            if nan_is_null and math.isnan(value):
                return None
            raise InvalidJson(f"{value} (store a missing number as null)")
        return value
    if isinstance(value, dict):
        return {str(name): _plain(item, nan_is_null) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, nan_is_null) for item in value]
    if isinstance(value, Decimal) and value.is_finite():
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    raise InvalidJson(shown_value(value))
