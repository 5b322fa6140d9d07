"""Whether two runs are of the same data: their frozen samples, matched by id and compared column by column."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ragpipe.comparing.run_differences import ChangedKey
from ragpipe.comparing.side import Side
from ragpipe.core.safe_text import on_one_line
from ragpipe.store.run.run_tables import read_columns, schema_of

Whole = NDArray[np.int64]
_ID = 60


def data_differences(base: Side, candidate: Side) -> list[ChangedKey]:
    """What differs between the samples of two runs: those in one run only, and the columns that a shared one has otherwise.

    Answers are no data: what the systems gave is compared, never refused.
    """
    paths = base.folder.samples, candidate.folder.samples
    if base.folder == candidate.folder or _frozen(base) == _frozen(candidate) is not None:
        return []
    ids = [read_columns(path, ["id"])["id"].combine_chunks() for path in paths]
    at_candidate = pc.index_in(ids[0], value_set=ids[1])
    is_shared = at_candidate.is_valid().to_numpy(zero_copy_only=False)
    places = np.flatnonzero(is_shared), at_candidate.drop_null().to_numpy(zero_copy_only=False).astype(np.int64)
    shared = ids[0].take(pa.array(places[0]))
    alone = len(ids[0]) - len(shared), len(ids[1]) - len(shared)
    differences = []
    if any(alone):
        differences.append(
            ChangedKey("data", "samples", f"{alone[0]:,} in the base only", f"{alone[1]:,} in the candidate only")
        )
    return [*differences, *_changed_columns(*paths, *places, shared)]


def _frozen(side: Side) -> str | None:
    """The digest of the run's table of samples."""
    digest = side.manifest["data"].get("frozen", {}).get("samples.parquet")
    return str(digest) if digest else None


def _changed_columns(
    old_path: Path, new_path: Path, old_places: Whole, new_places: Whole, ids: pa.Array
) -> Iterator[ChangedKey]:
    """A difference per column that some shared samples have otherwise, one column in memory at a time."""
    names = [set(schema_of(path).names) - {"id"} for path in (old_path, new_path)]
    for name in sorted(names[0] ^ names[1]):
        yield ChangedKey("data", name, *("a column" if name in side else "(absent)" for side in names))
    for name in sorted(names[0] & names[1]):
        old = read_columns(old_path, [name])[name].combine_chunks().take(pa.array(old_places))
        new = read_columns(new_path, [name])[name].combine_chunks().take(pa.array(new_places))
        if not old.equals(new):
            rows = [place for place, pair in enumerate(zip(old, new, strict=True)) if pair[0] != pair[1]]
            text = f"{len(rows):,} of {len(ids):,} shared samples, first {on_one_line(ids[rows[0]].as_py(), _ID)}"
            yield ChangedKey("data", name, text, "another value")
