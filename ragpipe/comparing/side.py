"""One side of a comparison: the scored cases of a run, or those of one of its methods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ragpipe.comparing.judge_drift import Alarm, known_alarms
from ragpipe.core.errors import DataError, Problem
from ragpipe.schema.sample import OUTPUT_KEY
from ragpipe.schema.score import NO_FACTUAL_CLAIMS
from ragpipe.scoring.composites import OVERALL
from ragpipe.scoring.iterations.per_case_repeats import cases_of, members, open_records, repeats
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import read_columns, read_json

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]

TITLE = "the runs cannot be compared"


@dataclass(frozen=True)
class Side:
    """A run, or one method of it, with the open tables of its scored iterations.

    `cases` are the keys of its cases, `rows` their places among the `n_rows` of `records.parquet`. A case's value is its
    mean over the iterations.
    """

    folder: RunFolder
    method: str | None
    manifest: Mapping[str, Any]
    metrics: Mapping[str, Any]
    tables: Mapping[Path, pq.ParquetFile]
    cases: pa.Table
    rows: Whole
    n_rows: int

    @property
    def run_id(self) -> str:
        """The id of the run, whatever its folder is called."""
        return str(self.manifest["run_id"])

    @property
    def declared(self) -> Mapping[str, Mapping[str, Any]]:
        """Scale, direction and threshold of each score."""
        declared: Mapping[str, Mapping[str, Any]] = self.metrics["declared"]
        return declared

    @cached_property
    def methods(self) -> list[str]:
        """The methods of its cases, in the order of the data."""
        names: list[str] = pc.unique(self.cases["method"]).to_pylist()
        return names

    def values(self, name: str) -> tuple[Floats, Floats]:
        """Value and share of passed verdicts of each case, NaN where there is none; both over all iterations."""
        score = repeats(self.tables, name, self.n_rows)
        return score.means[self.rows], score.rates[self.rows]

    def lost(self, name: str) -> dict[str, Flags]:
        """By cause its cases whose judgement of a score was due and did not come out."""
        return {cause: flags[self.rows] for cause, flags in lost_values(self.records, name).items()}

    def groups(self, fields: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Whole]]:
        """The numbers of its cases in each group of each field, as `metrics.json` names them."""
        places = np.full(self.n_rows, -1, dtype=np.int64)
        places[self.rows] = np.arange(len(self.rows))
        named = members(self.records, fields)
        return {
            name: {label: places[rows][places[rows] >= 0] for label, rows in groups.items()}
            for name, groups in named.items()
        }

    def silent(self, name: str) -> Flags:
        """Its cases whose value says no more than that the answer states nothing; of a composite, where a part says so."""
        return silent_values(self.records, self.metrics, name)[self.rows]

    @cached_property
    def judge_alarms(self) -> list[Alarm]:
        """When its judge drifted, as far as its call store knows."""
        return known_alarms(self.folder, self.manifest)

    @property
    def records(self) -> Path:
        """`records.parquet` of the first iteration: what does not change from one to the next."""
        return next(iter(self.tables))

    def document(self) -> dict[str, Any]:
        """What `comparison.json` says of a side."""
        return {
            "run_id": self.run_id,
            "name": str(self.manifest["name"]),
            "method": self.method or (self.methods[0] if len(self.methods) == 1 else None),
            "created_at": self.manifest["created_at"],
            "folder": self.folder.root.name,
            "iterations": list(self.metrics["iterations"]),
            "n_cases": len(self.rows),
            "data": self.manifest["data"]["name"],
            "judge": self.metrics["judge"],
            "signature": self.metrics["signature"],
        }


def lost_values(records: Path, name: str) -> dict[str, Flags]:
    """By cause (`system error`, `judge error`, `not recorded`) the cases of an iteration whose judgement of a score was due and did not
    come out."""
    overall = name == OVERALL.name
    status, reason = ("overall_reason", "overall_reason") if overall else (f"{name}.status", f"{name}.reason")
    table = read_columns(records, [*dict.fromkeys((status, reason)), "system_error"])
    causes = {
        "system error": pc.is_valid(table["system_error"]),
        "judge error": pc.starts_with(table[status], "part_error" if overall else "error"),
        "not recorded": pc.starts_with(table[reason], "not_recorded"),
    }
    flags = {cause: pc.fill_null(found, False).combine_chunks() for cause, found in causes.items()}
    return {cause: found.to_numpy(zero_copy_only=False) for cause, found in flags.items()}


def silent_values(records: Path, metrics: Mapping[str, Any], name: str) -> Flags:
    """The cases of an iteration in which a score, or one of its parts, has a value for an answer that states nothing."""
    parts = metrics["composite_parts"].get(name, {"measured": [] if name == OVERALL.name else [name]})["measured"]
    columns = [[f"{part}.reason", f"{part}.status"] for part in parts]
    table = read_columns(records, ["sample_id", *(column for pair in columns for column in pair)])
    silent = np.zeros(table.num_rows, dtype=np.bool_)
    for reason, status in columns:
        found = pc.and_(pc.equal(table[reason], NO_FACTUAL_CLAIMS), pc.equal(table[status], "ok"))
        silent |= pc.fill_null(found, False).combine_chunks().to_numpy(zero_copy_only=False)
    return silent


@contextmanager
def opened_side(folder: RunFolder, manifest: Mapping[str, Any], method: str | None = None) -> Iterator[Side]:
    """Open the tables of a run's scored iterations. `method`: the cases of this method alone.

    Raises DataError for a run that is not scored to its end, for tables that do not fit together, and for a method that
    the run does not have.
    """
    if not folder.final.metrics.is_file():
        raise _refused(folder, "not scored to its end", "a finished run", "start its command again")
    metrics = read_json(folder.final.metrics)
    records = [folder.iteration(number).records for number in metrics["iterations"]]
    cases = cases_of(records)
    rows = np.arange(len(cases), dtype=np.int64)
    table = cases.names.select(list(OUTPUT_KEY)).combine_chunks()
    if method is not None:
        rows = np.flatnonzero(pc.equal(table["method"], method).combine_chunks().to_numpy(zero_copy_only=False))
        if not len(rows):
            names = ", ".join(sorted(set(table["method"].to_pylist())))
            raise _refused(folder, f"no method {method!r}", f"one of {names}", "name one of these methods")
        table = table.take(pa.array(rows)).combine_chunks()
    with open_records(records, list(metrics["declared"])) as tables:
        yield Side(folder, method, manifest, metrics, tables, table, rows.astype(np.int64), len(cases))


def _refused(folder: RunFolder, actual: str, expected: str, fix: str) -> DataError:
    return DataError(TITLE, [Problem(str(folder.root), "run", actual, expected, fix)])
