"""One score of every case over the iterations, read from the columns of `records.parquet` alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ragpipe.core.errors import DataError, Problem
from ragpipe.schema.sample import OUTPUT_KEY
from ragpipe.scoring.accumulators import crossed
from ragpipe.scoring.aggregate import by_label
from ragpipe.scoring.case_records import verdict_column
from ragpipe.scoring.dimensions import LISTS, META, Fields
from ragpipe.store.run.run_tables import numbers_of, open_parquet_file, open_table, read_columns, reading_table

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Counts = NDArray[np.int16]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Repeats:
    """A number per case in data order, 22 bytes per case however many iterations there are.

    `means` is the case's mean value (NaN where no iteration has one), `squares` the sum of squared deviations from it,
    `measured` the iterations with a value, `judged` those with a verdict, `passed` those that passed.
    """

    means: Floats
    squares: Floats
    measured: Counts
    judged: Counts
    passed: Counts

    @property
    def rates(self) -> Floats:
        """Of each case the share of its verdicts that are passes; NaN without a verdict."""
        return np.where(self.judged > 0, self.passed / np.maximum(self.judged, 1), np.nan)

    @property
    def flips(self) -> NDArray[np.bool_]:
        """The cases whose verdict is not the same in all iterations."""
        return (self.passed > 0) & (self.passed < self.judged)


@contextmanager
def open_records(records: Sequence[Path], names: Collection[str]) -> Iterator[dict[Path, pq.ParquetFile]]:
    """The tables of the iterations, each opened once: their footers are large. Raises DataError for one without the columns
    of the scores `names`."""
    with ExitStack() as stack:
        tables = {path: stack.enter_context(open_parquet_file(path)) for path in records}
        for path, table in tables.items():
            columns = set(table.schema_arrow.names)
            for column in (
                column for name in names for column in (name, verdict_column(name)) if column not in columns
            ):
                raise _other_cases(path, f"no column {column}", "the scores that its metrics.json names")
        yield tables


def repeats(tables: Mapping[Path, pq.ParquetFile], name: str, n: int) -> Repeats:
    """The score `name` of `n` cases over these iterations, given as open tables. Raises DataError for a table with another
    number of cases."""
    means, squares = np.zeros(n), np.zeros(n)
    measured, judged, passed = (np.zeros(n, dtype=np.int16) for _ in range(3))
    for path, table in tables.items():
        with reading_table(path):
            values, verdicts = numbers_of(table, name), numbers_of(table, verdict_column(name))
        if len(values) != n:
            raise _other_cases(path, f"{len(values):,} cases", f"{n:,} as in {next(iter(tables))}")
        measured_here = ~np.isnan(values)
        measured[measured_here] += 1
        # Welford's update: a value that never changes leaves exactly 0 squares (Knuth, TAOCP 2, 4.2.2)
        delta = values[measured_here] - means[measured_here]
        means[measured_here] += delta / measured[measured_here]
        squares[measured_here] += delta * (values[measured_here] - means[measured_here])
        judged[~np.isnan(verdicts)] += 1
        passed[verdicts == 1] += 1
    means[measured == 0] = np.nan
    return Repeats(means, squares, measured, judged, passed)


@dataclass(frozen=True)
class Cases:
    """The cases of a run, in data order. `samples` numbers the question of each."""

    names: pa.Table
    samples: Whole

    def __len__(self) -> int:
        return int(self.names.num_rows)

    def key(self, place: int) -> dict[str, Any]:
        """The key of a case: `sample_id`, `method` and `repeat`."""
        return {name: self.names[name][place].as_py() for name in OUTPUT_KEY}


def cases_of(records: Sequence[Path]) -> Cases:
    """The cases of the first table. Raises DataError when another one holds other cases, or the same in another order."""
    first = _identities(records[0])
    for path in records[1:]:
        if not _identities(path).equals(first):
            raise _other_cases(path, "other cases, or another order", f"those of {records[0]}")
    codes = first["sample_id"].combine_chunks().dictionary_encode().indices
    return Cases(first, codes.to_numpy(zero_copy_only=False).astype(np.int64))


def members(records: Path, by: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Whole]]:
    """Numbers of the cases in each group of each field of `by`, as `metrics.json` names them.

    A field that `records.parquet` does not hold is left out.
    """
    groups: dict[str, dict[str, Whole]] = {}
    fields = Fields(_columns(records, {part for field in by for part in field.split("*")}))
    for field in by:
        try:
            cases, codes, names = crossed(*(fields.of(part) for part in field.split("*")))
        except KeyError:
            continue
        groups[field] = {names[code]: places for code, places in by_label(cases, codes)}
    return groups


def chosen_cases(records: Path, where: Mapping[str, Sequence[str]], n: int) -> Flags:
    """Which of the `n` cases of a table the `where` of a gate chooses."""
    chosen = np.ones(n, dtype=np.bool_)
    groups = members(records, {field: {} for field in where})
    for field, labels in where.items():
        here = np.zeros(n, dtype=np.bool_)
        for label in labels:
            here[groups.get(field, {}).get(label, np.empty(0, dtype=np.int64))] = True
        chosen &= here
    return chosen


def _columns(records: Path, parts: Collection[str]) -> dict[str, pa.Array]:
    """The columns that these fields are made of, as far as the table has them."""
    names = {"sample_id", *("meta" if part.startswith(META) else LISTS.get(part, part) for part in parts)}
    with open_table(records) as file:
        table = file.read(columns=sorted(names & set(file.schema_arrow.names)))
    return {name: table[name].combine_chunks() for name in table.column_names}


def _identities(path: Path) -> pa.Table:
    return read_columns(path, OUTPUT_KEY).combine_chunks()


def _other_cases(path: Path, problem: str, expected: str) -> DataError:
    fix = "start the same evaluation again: an iteration that is not scored is scored anew"
    return DataError(
        "the iterations of a run do not fit together", [Problem(str(path), "cases", problem, expected, fix)]
    )
