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
from ragpipe.datasets.fault_list import Faults, shown_value
from ragpipe.datasets.text_lines import MAX_LINE, NAN_IS_NULL, DataFile

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    from numpy.typing import NDArray

ARROW = (b"ARROW1", b"\xff\xff\xff\xff")
"""The first bytes of an Arrow (Feather) file, and of a stream, as Hugging Face `datasets` writes it."""
_BATCH = 128
_ROWS = 2048  # read at once, with their texts as dictionaries
_PART_BYTES = 16 << 20  # of texts in memory at once, and of one text however long
_MICRO = len("2024-01-31T12:00:00.123456")


def read_parquet_rows(file: DataFile, faults: Faults) -> Iterator[tuple[int, dict[str, Any]]]:
    """(row number from 1, record). A damaged file is a fault at the first row that cannot be read."""
    import pyarrow as pa

    row = 0
    try:
        with table_batches(file.path) as (schema, batches):
            if not _columns_fit(schema, file, faults):
                return
            maps: Literal["strict"] | None = (
                "strict" if "map<" in str(schema) else None
            )  # ten times slower: only where it is needed
            for batch in batches(_BATCH):
                if batch.num_rows == 1 and batch.nbytes > MAX_LINE:
                    where, row = f"{file.display_path} row {row + 1}", row + 1
                    faults.add(where, "row", f"more than {MAX_LINE >> 20} MiB", "a record of a sane size")
                    continue
                columns = [
                    _values(column, name, maps) for name, column in zip(batch.schema.names, batch.columns, strict=True)
                ]
                for values in zip(*columns, strict=True):
                    row += 1
                    plain = {}
                    for name, value in zip(batch.schema.names, values, strict=True):
                        try:
                            plain[name] = _plain(value, file.nan_is_null)
                        except InvalidJson as error:
                            faults.add(
                                f"{file.display_path} row {row}",
                                name,
                                str(error),
                                "a text, a finite number, true or false",
                                NAN_IS_NULL if "nan (" in str(error) else "",
                            )
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
        plain = pq.read_schema(path)
        with pq.ParquetFile(path, page_checksum_verification=True, read_dictionary=_texts(path, plain)) as table:
            yield plain, lambda size: _batches(table, plain, size)
        return
    with pa.memory_map(str(path)) as source:
        is_file = magic.startswith(ARROW[0])
        reader = pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)

        def batches(size: int) -> Iterator[pa.RecordBatch]:
            stored = (reader.get_batch(n) for n in range(reader.num_record_batches)) if is_file else reader
            for batch in stored:
                yield from (batch.slice(start, size) for start in range(0, batch.num_rows, size))

        yield reader.schema, batches


def _batches(table: pq.ParquetFile, plain: pa.Schema, size: int) -> Iterator[pa.RecordBatch]:
    for group in range(table.num_row_groups):
        stored = table.metadata.row_group(group)
        rows = stored.num_rows * _PART_BYTES // max(1, stored.total_byte_size)  # few at a time where they are large
        read = table.iter_batches(batch_size=max(1, min(_ROWS, rows)), row_groups=[group], use_threads=False)
        for batch in read:
            yield from _small_parts(batch, plain, size)


def _texts(path: Path, plain: pa.Schema) -> list[str]:
    """The paths of texts, those in lists and structs too: read as dictionaries, a text that a file has once and a thousand rows repeat
    is once in memory."""
    import pyarrow.parquet as pq

    leaves = pq.read_metadata(path).schema
    columns = map(leaves.column, range(len(leaves)))
    if "string_view" in str(plain.types):  # no dictionary becomes one
        return []
    return [leaf.path for leaf in columns if leaf.logical_type.type == "STRING"]


def _small_parts(batch: pa.RecordBatch, plain: pa.Schema, size: int) -> Iterator[pa.RecordBatch]:
    """The rows of a batch in parts of at most `_PART_BYTES` and `size` rows, or of one row, with texts in the place of dictionaries."""
    import numpy as np
    import pyarrow as pa

    sizes = sum((_text_bytes(column) for column in batch.columns), np.zeros(batch.num_rows))
    start = 0
    while start < batch.num_rows:
        rows = max(1, int(np.searchsorted(np.cumsum(sizes[start : start + size]), _PART_BYTES, side="right")))
        places = pa.array(range(start, start + rows))  # taken: of a slice all texts of its lists would be cast
        columns = [
            column.slice(start, rows) if column.type == field.type else column.take(places).cast(field.type)
            for column, field in zip(batch.columns, plain, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
        start += rows


def _text_bytes(column: pa.Array) -> NDArray[np.float64]:
    """The bytes of the texts of each row, repeated ones counted each time."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_dictionary(kind):
        lengths = pc.fill_null(pc.binary_length(column.dictionary).take(column.indices), 0)
        return np.asarray(lengths.to_numpy(zero_copy_only=False), dtype=np.float64)
    if pa.types.is_struct(kind):
        inner = (_text_bytes(column.field(place)) for place in range(kind.num_fields))
        return sum(inner, np.zeros(len(column)))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        values = (
            pa.StructArray.from_arrays([column.keys, column.items], ["k", "v"])
            if pa.types.is_map(kind)
            else column.values
        )
        before = np.concatenate(([0.0], np.cumsum(_text_bytes(values))))
        offsets = column.offsets.to_numpy()
        return before[offsets[1:]] - before[offsets[:-1]]  # type: ignore[no-any-return]
    return np.zeros(len(column))


class _NoJson(Exception):
    """A column holds what no JSON value can be made of; what was expected, and how to get it."""

    def __init__(
        self, column: str, text: str, expected: str = "text, numbers, lists or structs", fix: str = "store it as string"
    ):
        self.column, self.expected, self.fix = column, expected, fix
        super().__init__(text)


def _values(column: pa.Array, name: str, maps: Literal["strict"] | None) -> list[Any]:
    """A column's values; times finer than Python's as texts with all their digits. Raises _NoJson."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        return _texts_of_ns(column)
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


def _texts_of_ns(column: pa.Array) -> list[str | None]:
    """Times to the nanosecond in the form of those to the microsecond, with three more digits where they are not all 0."""
    import numpy as np
    import pyarrow as pa

    micro, nano = np.divmod(column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False), 1000)
    times = pa.array(micro, pa.timestamp("us", column.type.tz)).to_pylist()
    texts = [
        f"{(text := time.isoformat(timespec='microseconds'))[:_MICRO]}{more:03}{text[_MICRO:]}"
        if more
        else time.isoformat()
        for time, more in zip(times, nano.tolist(), strict=True)
    ]
    return [text if given else None for text, given in zip(texts, column.is_valid().to_pylist(), strict=True)]


def _columns_fit(schema: pa.Schema, file: DataFile, faults: Faults) -> bool:
    import pyarrow as pa

    fit = True
    for name in sorted({name for name in schema.names if schema.names.count(name) > 1}):
        faults.add(file.display_path, name, "two columns of this name", "one column of a name")
        fit = False
    for column in schema:
        if (
            pa.types.is_binary(column.type)
            or pa.types.is_large_binary(column.type)
            or pa.types.is_fixed_size_binary(column.type)
        ):
            faults.add(
                file.display_path,
                column.name,
                f"a column of {column.type}",
                "text, numbers, lists or structs",
                "store it as string",
            )
            fit = False
    return fit


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
