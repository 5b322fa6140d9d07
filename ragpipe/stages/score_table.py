"""The rows of `scores.parquet` for one block of cases: of each metric as columns, then put in the order of the cases."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ragpipe.core.digest import canonical_json
from ragpipe.schema.sample import CaseKey
from ragpipe.schema.score import ScoreColumns
from ragpipe.schema.table_schemas import SCORES, table_from


def computed_table(metric: str, keys: Sequence[CaseKey], scores: ScoreColumns) -> pa.Table:
    """The rows of one computed metric, case after case. `scores` are those of the cases named by `keys`."""
    count, rows = len(scores.names), len(keys) * len(scores.names)
    of_case = pa.array(np.repeat(np.arange(len(keys)), count))
    of_score = pa.array(np.tile(np.arange(count), len(keys)))
    columns = {
        "sample_id": pa.array([key.sample_id for key in keys], pa.string()).take(of_case),
        "method": pa.array([key.method for key in keys], pa.string()).take(of_case),
        "repeat": pa.array([key.repeat for key in keys], pa.int64()).take(of_case),
        "iteration": pa.array([key.iteration for key in keys], pa.int64()).take(of_case),
        "metric": pa.repeat(metric, rows),
        "score_name": pa.array(scores.names, pa.string()).take(of_score),
        "value": scores.values,
        "status": scores.statuses,
        "reason": scores.reasons,
        "details": [canonical_json(details) if details else None for details in scores.details],
        "calls": pa.ListArray.from_arrays(pa.array(np.zeros(rows + 1, np.int32)), pa.array([], pa.string())),
    }
    return table_from(columns, SCORES)


def in_case_order(tables: Sequence[pa.Table], cases: int) -> pa.Table:
    """The rows of several metrics, case by case, and for each case in the order of the tables. Each table has the same number
    of rows for every case."""
    if len(tables) == 1:
        return tables[0]
    places, start = [], 0
    for table in tables:
        places.append(np.arange(start, start + table.num_rows).reshape(cases, -1))
        start += table.num_rows
    return pa.concat_tables(tables).take(pa.array(np.concatenate(places, axis=1).ravel()))
