"""A history as OpenMetrics text: a sample per run, score and figure, at the time of the run.

Format: https://prometheus.io/docs/specs/om/open_metrics_spec/. All families are gauges, so that Prometheus' own text format
reads the samples too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

Row = Mapping[str, Any]
STATES = ("better", "worse", "same", "inconclusive")


class Family(NamedTuple):
    """One metric family: its name, what it is, and the value of a row; None for a row without one."""

    name: str
    help: str
    value: Callable[[Row], float | None]


def _cell(name: str) -> Callable[[Row], float | None]:
    return lambda row: None if row[name] is None else float(row[name])


SCORE_FAMILIES = (
    Family("ragpipe_score_mean", "Mean of a score in its native scale.", _cell("mean")),
    Family("ragpipe_score_interval_low", "Lower end of the interval of the mean.", _cell("interval_low")),
    Family("ragpipe_score_interval_high", "Upper end of the interval of the mean.", _cell("interval_high")),
    Family("ragpipe_score_pass_ratio", "Share of cases that passed, 0 to 1.", _cell("pass_rate")),
    Family("ragpipe_score_cases", "Cases with a value.", _cell("n")),
    Family(
        "ragpipe_score_noise_floor",
        "Difference of two means that the judge's noise alone makes in 1 of 20 pairs of runs.",
        _cell("noise_floor"),
    ),
    Family(
        "ragpipe_score_change", "Paired difference from the run before of the same series.", _cell("before_difference")
    ),
    Family("ragpipe_score_change_low", "Lower end of its interval.", _cell("before_low")),
    Family("ragpipe_score_change_high", "Upper end of its interval.", _cell("before_high")),
)
VERDICT = Family("ragpipe_score_verdict", "1 for the verdict against the run before, 0 for the others.", _cell("n"))
RUN_FAMILIES = (
    Family("ragpipe_run_cases", "Cases of the run.", _cell("n_cases")),
    Family("ragpipe_run_iterations", "Iterations of the run.", _cell("iterations")),
    Family("ragpipe_run_cost_usd", "Price of the replies behind the results, in US dollars.", _cell("cost_usd")),
)
INFO = Family("ragpipe_run_info", "1; its labels name the run, its judge and its data.", lambda row: 1.0)


def open_metrics(rows: Sequence[Row], *, name: str) -> str:
    """The text of a history whose rows are in the order of time, with a last line `# EOF`.

    Args:
        rows: the rows of `history.parquet`.
        name: the name of the runs, a label of every sample.

    Labels: `name` and, for a score, `score` and `series`; nothing that changes with every run, so that Prometheus keeps one
    series per score. Missing values have no sample.
    """
    runs = list({row["run_id"]: row for row in rows}.values())
    ordered = sorted(
        rows, key=lambda row: (row["score"], row["series"])
    )  # stable: the samples of a series follow in time
    lines: list[str] = []
    for family in SCORE_FAMILIES:
        samples = [(_score_labels(name, row), family.value(row), _stamp(row)) for row in ordered]
        lines += _family(family, samples)
    verdicts = [
        ({**_score_labels(name, row), "verdict": state}, float(row["before_state"] == state), _stamp(row))
        for series in _by_series(ordered)
        for state in STATES
        for row in series
        if row["before_state"] is not None
    ]
    lines += _family(VERDICT, verdicts)
    for family in RUN_FAMILIES:
        lines += _family(family, [({"name": name}, family.value(row), _stamp(row)) for row in runs])
    info = [{"name": name, **{key: str(row[key]) for key in ("run_id", "judge", "data")}} for row in runs]
    lines += _family(INFO, [(labels, 1.0, _stamp(row)) for labels, row in zip(info, runs, strict=True)])
    return "\n".join([*lines, "# EOF"]) + "\n"


def _score_labels(name: str, row: Row) -> dict[str, str]:
    return {"name": name, "score": row["score"], "series": row["series"]}


def _by_series(ordered: Iterable[Row]) -> Iterable[list[Row]]:
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in ordered:
        groups.setdefault((row["score"], row["series"]), []).append(row)
    return groups.values()


def _stamp(row: Row) -> str:
    """The time of a run in seconds since 1970, with milliseconds."""
    return f" {datetime.fromisoformat(row['created_at']).timestamp():.3f}"


def _family(family: Family, samples: Iterable[tuple[Mapping[str, str], float | None, str]]) -> list[str]:
    lines = [
        f"{family.name}{{{_labels(labels)}}} {value!r}{stamp}"
        for labels, value, stamp in samples
        if value is not None and math.isfinite(value)
    ]
    return [f"# TYPE {family.name} gauge", f"# HELP {family.name} {family.help}", *lines] if lines else []


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
