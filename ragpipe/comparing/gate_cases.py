"""The cases behind a gate's verdict: the lowest values, the largest drops, the cases with a failure mode, those without a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ragpipe.comparing.baseline_table import lost_cases, read_baselines
from ragpipe.comparing.drop_gates import on_unit_scale
from ragpipe.comparing.pairing import paired_cases
from ragpipe.scoring.gates.gate_settings import NO_EARLIER_RUN
from ragpipe.scoring.iterations.per_case_repeats import cases_of, chosen_cases, open_records, repeats
from ragpipe.store.files.filesystem import is_regular_file
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import read_columns, read_json

Floats = NDArray[np.float64]


class GateCase(NamedTuple):
    """A case and its value: 0 (worst) to 1 (best), or in the native scale for a count; the change against the baseline for a gate on
    a drop; None for a failure mode, and where there is none."""

    sample_id: str
    method: str
    repeat: int
    value: float | None


def worst_cases(run: RunFolder, gate: Mapping[str, Any], count: int) -> list[GateCase]:
    """At most `count` cases that a gate of the run's `gates.json` goes by, the worst first, in the order of the data among equals.

    A gate that could not be measured has the cases whose judgement, or whose system, failed. Empty for a score that the run does
    not give. Values are means over the iterations. Raises DataError for a table that cannot be read.
    """
    metrics = read_json(run.final.metrics)
    records = [run.iteration(number).records for number in metrics["iterations"]]
    names = cases_of(records).names
    chosen = chosen_cases(records[0], gate["where"], len(names))
    if "failure_mode" in gate:
        modes = pc.cast(read_columns(records[-1], ["failure_modes"])["failure_modes"], pa.list_(pa.string()))
        has_mode = np.array([gate["failure_mode"] in (row or ()) for row in modes.to_pylist()], dtype=np.bool_)
        return _cases(names, np.flatnonzero(chosen & has_mode)[:count], None)
    if gate["score"] not in metrics["declared"]:
        return []
    if gate["verdict"] in ("no_evidence", "not_enough_evidence"):
        return _cases(names, np.flatnonzero(chosen & lost_cases(records[-1], gate["score"]))[:count], None)
    with open_records(records, [gate["score"]]) as tables:
        score = repeats(tables, gate["score"], len(names))
    scale = metrics["declared"][gate["score"]]
    by_rate = gate["of"] == "pass_rate"
    values = score.rates if by_rate else score.means if scale["low"] is None else on_unit_scale(score.means, scale)
    if gate.get("against", NO_EARLIER_RUN) != NO_EARLIER_RUN:
        values = _changes(run, gate, values, names, scale, by_rate=by_rate)
    values = np.where(chosen, values, np.nan)
    order = np.argsort(values if gate.get("max") is None else -values, kind="stable")  # NaN comes last
    return _cases(names, order[: min(count, int(np.sum(~np.isnan(values))))], values)


def _changes(
    run: RunFolder, gate: Mapping[str, Any], values: Floats, names: pa.Table, scale: Mapping[str, Any], *, by_rate: bool
) -> Floats:
    """What each case has more than in the gate's baseline; NaN where one of them has none."""
    changes = np.full(len(values), np.nan)
    baselines = read_baselines(run.baseline) if is_regular_file(run.baseline) else {}
    if gate["against"] in baselines:
        rows = baselines[gate["against"]].score(gate["score"])
        pairs = paired_cases(rows, names)
        before = rows["pass_rate" if by_rate else "value"].to_numpy().astype(np.float64)[pairs.base]
        changes[pairs.candidate] = values[pairs.candidate] - (before if by_rate else on_unit_scale(before, scale))
    return changes


def _cases(names: pa.Table, places: NDArray[np.int64], values: Floats | None) -> list[GateCase]:
    rows = names.take(pa.array(places)).select(["sample_id", "method", "repeat"]).to_pylist()
    figures = [None] * len(rows) if values is None else [float(values[place]) for place in places]
    return [
        GateCase(row["sample_id"], row["method"], row["repeat"], value)
        for row, value in zip(rows, figures, strict=True)
    ]
