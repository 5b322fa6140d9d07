"""The failure modes of a run as a table: how often each occurs in all cases, and in each group of the breakdowns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ragpipe.comparison.side import Modes, opened_side, question_numbers
from ragpipe.stats.intervals import estimate_rate
from ragpipe.store.run_folder import RunFolder
from ragpipe.store.run_tables import read_json
from ragpipe.store.table_rows import table_schema

_COLUMNS = (
    ("failure_mode", pa.string(), "name of the failure mode"),
    ("field", pa.string(), "what the cases are broken down by; null for all cases"),
    ("value", pa.string(), "the group"),
    ("n_cases", pa.int64(), "its cases, without those in which a score that decides the mode failed"),
    ("n", pa.int64(), "those with the mode, in more than half of the iterations"),
    ("rate", pa.float64(), "mean share of the iterations in which a case has it, 0 to 1"),
    ("interval_low", pa.float64(), "interval of the rate, clustered by question"),
    ("interval_high", pa.float64(), "interval of the rate, clustered by question"),
)
MODE_TABLE = table_schema(*_COLUMNS)


def mode_table(folder: RunFolder) -> pa.Table:
    """The table of a scored run. Raises DataError for a run that is not scored, or that cannot be read."""
    with opened_side(folder, read_json(folder.manifest)) as side:
        return pa.Table.from_pylist(list(_rows(Modes.of(side))), schema=MODE_TABLE)


def _rows(modes: Modes) -> Iterator[dict[str, Any]]:
    questions = question_numbers(modes.cases)
    everything: dict[tuple[str | None, str | None], Any] = {(None, None): np.arange(len(questions))}
    groups = modes.groups(modes.metrics["by"])
    everything |= {(field, value): cases for field, named in groups.items() for value, cases in named.items()}
    for name in modes.declared:
        values = modes.values(name)[0]
        for (field, value), cases in everything.items():
            known = cases[np.isfinite(values[cases])]
            rate = estimate_rate(values[known], questions[known], level=modes.metrics["scoring"]["level"])
            interval = rate.interval
            yield {
                "failure_mode": name,
                "field": field,
                "value": value,
                "n_cases": len(known),
                "n": int(np.count_nonzero(values[known] > 0.5)),
                "rate": rate.value,
                "interval_low": interval.low if interval else None,
                "interval_high": interval.high if interval else None,
            }
