"""The values of one score of a finished run, by output: what audits and self-tests compare."""

from __future__ import annotations

import pyarrow.compute as pc

from ragpipe.stages.combine_iterations import scored_iterations
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import batches

_BATCH = 32_768  # rows read at once


def values_by_output(folder: RunFolder, score: str) -> dict[tuple[str, str, int], list[float]]:
    """The values of a score by output (sample id, method, repeat), one for each iteration that gave one. Raises DataError for a
    table that cannot be read."""
    values: dict[tuple[str, str, int], list[float]] = {}
    columns = ("sample_id", "method", "repeat", "score_name", "value")
    for number in scored_iterations(folder):
        for batch in batches(folder.iteration(number).scores, columns, size=_BATCH):
            for row in batch.filter(pc.equal(batch.column("score_name"), score)).to_pylist():
                if row["value"] is not None:
                    values.setdefault((row["sample_id"], row["method"], row["repeat"]), []).append(row["value"])
    return values
