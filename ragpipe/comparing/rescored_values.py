"""Composites and the overall score of stored scores under other weights: what another scoring would have made of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ragpipe.comparing.side import Side
from ragpipe.scoring.composites import OVERALL, Composite, mean_column
from ragpipe.scoring.normalisation import MISSING, STATUSES, UNJUDGED, Column
from ragpipe.store.run.run_tables import reading_table

Floats = NDArray[np.float64]


def depends_on_weights(name: str, scoring: Mapping[str, Any]) -> bool:
    """Whether a score is made of others by weights of this scoring (`scoring` of metrics.json)."""
    return name == OVERALL.name or bool((scoring.get("composites") or {}).get(name))


def rescored_values(side: Side, name: str, scoring: Mapping[str, Any]) -> Floats:
    """A composite or the overall score of each case of a side, by the weights of `scoring`; NaN where it has none.

    Parts are the stored scores on 0 to 1; the mean is over the iterations that have a value, as in every comparison.
    """
    values = np.stack([_values(path, table, name, scoring) for path, table in side.tables.items()])[:, side.rows]
    counts = np.sum(np.isfinite(values), axis=0)
    return np.where(counts > 0, np.nansum(values, axis=0) / np.maximum(counts, 1), np.nan)


def _values(path: Path, table: pq.ParquetFile, name: str, scoring: Mapping[str, Any]) -> Floats:
    with reading_table(path):
        return _column(table, name, scoring).values


def _column(table: pq.ParquetFile, name: str, scoring: Mapping[str, Any]) -> Column:
    """A score of one iteration; made anew where it is made of others."""
    if not depends_on_weights(name, scoring):
        return _stored(table, name)
    made = (scoring.get("composites") or {}).get(name)
    weights = scoring["weights"] if made is None else made["weights"]
    spec = OVERALL if made is None else Composite.model_validate(made, strict=False).spec(name)
    columns = set(table.schema_arrow.names)
    used = [part for part, weight in weights.items() if weight > 0 and f"{part}.score" in columns]
    parts = {part: _column(table, part, scoring) for part in used}
    return mean_column(parts, weights, spec, None, int(table.metadata.num_rows))


def _stored(table: pq.ParquetFile, name: str) -> Column:
    rows = table.read(columns=[f"{name}.score", f"{name}.status"])
    scores = rows[f"{name}.score"].combine_chunks().cast(pa.float64()).to_numpy(zero_copy_only=False)
    named = pc.index_in(rows[f"{name}.status"].combine_chunks(), value_set=pa.array(STATUSES))
    status = pc.fill_null(named, MISSING).to_numpy(zero_copy_only=False).astype(np.int8)
    passed = np.full(len(scores), UNJUDGED, dtype=np.int8)
    return Column(scores, scores, passed, status, pa.nulls(len(scores), pa.string()))
