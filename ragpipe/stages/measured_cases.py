"""Measurements of an earlier run, read case by case: what a metric found there holds here, too.

The rows of a case are read from the tables of that run as they are. Nothing is rendered, hashed, looked up or parsed again.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ragpipe.core.errors import PERMANENT
from ragpipe.metrics.base import Metric
from ragpipe.schema.sample import OUTPUT_KEY, Case, CaseKey
from ragpipe.schema.score import Score
from ragpipe.stages.table_rows import Measurement, PackedInputs, packed_inputs
from ragpipe.store.run.ordered_rows import RowGroupCache
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import batches, open_parquet_file

_KEPT_GROUPS = 4
_BATCH = 1000

Name = tuple[str, str, int]
"""What names a case in the tables of one iteration: sample, method, repeat."""


class MeasuredCases:
    """The measurements of one iteration of an earlier run.

    Args:
        run: the earlier run.
        number: the iteration.
        metrics: the metrics that measured there as they would here.
        changed: keys of calls whose replies are not what they were: measurements that rest on them do not hold.
        other_cases: cases of this run that are not in that run, or differ there; None where all are the same.
    """

    def __init__(
        self,
        run: RunFolder,
        number: int,
        metrics: Iterable[Metric],
        *,
        changed: Collection[str] = (),
        other_cases: Collection[Name] | None = None,
    ):
        iteration = run.iteration(number)
        self._metrics = {metric.name: metric for metric in metrics}
        self._changed, self._other_cases = frozenset(changed), other_cases
        self._run, self._number = run, number
        places = {name: place for place, name in enumerate(_names(run.outputs))}
        self._scores = _CaseRows(iteration.scores, places, self._metrics)
        self._inputs = _CaseRows(iteration.judge_inputs, places, self._metrics)

    def as_json(self) -> dict[str, Any]:
        """What another process opens the same measurements by (`from_json`), as plain data."""
        other_cases = None if self._other_cases is None else sorted(self._other_cases)
        return {
            "run": str(self._run.root.absolute()),
            "number": self._number,
            "metrics": sorted(self._metrics),
            "changed": sorted(self._changed),
            "other_cases": other_cases,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any], metrics: Iterable[Metric]) -> MeasuredCases:
        """The measurements that `as_json` names; `metrics` are those of the run that takes them over."""
        others = values["other_cases"]
        return cls(
            RunFolder(Path(values["run"])),
            values["number"],
            [metric for metric in metrics if metric.name in values["metrics"]],
            changed=values["changed"],
            other_cases=None if others is None else {(sample, method, repeat) for sample, method, repeat in others},
        )

    def of(self, case: Case) -> dict[str, Measurement]:
        """The measurements of a case that hold here, by metric."""
        name = (case.sample.id, case.output.method, case.output.repeat)
        if self._other_cases is not None and name in self._other_cases:
            return {}
        inputs = self._inputs.by_metric(name)
        found = {}
        for metric, rows in self._scores.by_metric(name).items():
            if not any(map(is_asked_again, rows)) and self._changed.isdisjoint(rows[0]["calls"]):
                found[metric] = _measurement(self._metrics[metric], rows, inputs.get(metric, []))
        return found

    def close(self) -> None:
        self._scores.close()
        self._inputs.close()


def is_asked_again(score: Mapping[str, Any]) -> bool:
    """Whether a row of `scores.parquet`, by `status` and `details`, failed for a cause that another run may not meet again: any but a
    judge's permanent failure."""
    return score["status"] == "error" and json.loads(score["details"] or "{}").get("kind") not in PERMANENT


def _measurement(metric: Metric, scores: Sequence[Mapping[str, Any]], asked: list[dict[str, Any]]) -> Measurement:
    found = [
        Score(row["value"], row["score_name"], row["status"], row["reason"], json.loads(row["details"] or "{}"))
        for row in scores
    ]
    return Measurement(metric, found, kept=scores[0]["calls"], rows=asked)


class _CaseRows:
    """The rows of cases in a table of an iteration. The table is in the order of the cases, and no case is in two row groups."""

    def __init__(self, path: Path, places: Mapping[Name, int], metrics: Collection[str]):
        self._file, self._places = open_parquet_file(path), places
        self._wanted = pa.array(sorted(metrics), pa.string())
        self._groups = RowGroupCache([self._file], self._read, max_groups=_KEPT_GROUPS)
        columns = list(OUTPUT_KEY)
        firsts = (self._file.read_row_group(g, columns=columns).slice(0, 1) for g in range(self._file.num_row_groups))
        self._firsts = [places[_name(row)] for table in firsts for row in table.to_pylist()]

    def by_metric(self, case: Name) -> dict[str, list[dict[str, Any]]]:
        """The rows of a case by metric, of the wanted metrics only."""
        place = self._places.get(case)
        group = -1 if place is None else bisect_right(self._firsts, place) - 1
        if group < 0:
            return {}
        kept = self._groups.group(group)
        start, stop = kept.ranges.get(case, (0, 0))
        rows = kept.table.slice(start, stop - start).to_pylist()
        return {metric: list(its) for metric, its in groupby(rows, key=lambda row: str(row["metric"]))}

    def close(self) -> None:
        self._groups.clear()
        self._file.close()

    def _read(self, file: pq.ParquetFile, group: int) -> _KeptGroup:
        table = file.read_row_group(group)
        table = table.filter(pc.is_in(table["metric"], value_set=self._wanted)).combine_chunks()
        ranges: dict[Name, tuple[int, int]] = {}
        names = map(_name, table.select(list(OUTPUT_KEY)).to_pylist())
        for name, rows in groupby(enumerate(names), key=lambda numbered: numbered[1]):
            numbers = [number for number, _ in rows]
            ranges[name] = numbers[0], numbers[-1] + 1
        return _KeptGroup(table, ranges)


@dataclass(frozen=True, slots=True)
class _KeptGroup:
    """The rows of a row group, and where those of each case are."""

    table: pa.Table
    ranges: Mapping[Name, tuple[int, int]]


def differing_cases(own: RunFolder, other: RunFolder) -> frozenset[Name]:
    """The cases of a run that another run does not have, or has with another content of sample or output."""
    before, now = _contents(other), _contents(own)
    return frozenset(name for name, content in now.items() if before.get(name) != content)


def _contents(run: RunFolder) -> dict[Name, bytes]:
    """A digest of each case: of every cell of its output and of its sample."""
    samples = [_digest(row) for batch in batches(run.samples, size=_BATCH) for row in batch.to_pylist()]
    contents = {}
    for batch in batches(run.outputs, size=_BATCH):
        for row in batch.to_pylist():
            sample = samples[row.pop("sample_row")]
            contents[_name(row)] = sample + _digest(row)
    return contents


def _digest(row: Mapping[str, Any]) -> bytes:
    return blake2b(json.dumps(row, separators=(",", ":")).encode("ascii"), digest_size=16).digest()


def _names(outputs: Path) -> Iterable[Name]:
    for batch in batches(outputs, OUTPUT_KEY, size=_BATCH):
        yield from map(_name, batch.to_pylist())


def _name(row: Mapping[str, Any]) -> Name:
    return row["sample_id"], row["method"], row["repeat"]


KEPT_BYTES = 64 << 20
"""Bytes of measurements, questions and replies that are kept: some 25,000 calls with five contexts each."""
_ROW_BYTES = 2 << 10  # beside the compressed texts: the cells of a question and its share of the scores, as measured


@dataclass(frozen=True, slots=True)
class ReplayedCase:
    """The measurements of one case by the metrics that ask, in their order, without their calls; and the rows of these."""

    measured: list[Measurement]
    asked: PackedInputs


class ReplayedCases:
    """The cases by key. `keep_messages` says whether the run keeps messages and replies in `judge_inputs.parquet`."""

    def __init__(self, *, keep_messages: bool, limit: int = KEPT_BYTES):
        self._keep_messages, self._left = keep_messages, limit
        self._cases: dict[CaseKey, ReplayedCase] = {}

    def add(self, case: CaseKey, measured: Sequence[Measurement]) -> None:
        """Keep a case, unless one of its judgements failed (the run may ask again) or the room is used up."""
        if self._left <= 0 or any(score.status == "error" for m in measured for score in m.scores):
            return
        asked = packed_inputs(case, measured, keep_messages=self._keep_messages)
        for measurement in measured:
            measurement.free()
        self._left -= len(asked.texts) + len(asked.cells) * _ROW_BYTES
        self._cases[case] = ReplayedCase(list(measured), asked)

    def take(self, case: CaseKey) -> ReplayedCase | None:
        """The case, which is not kept any longer; None where it was not measured by the plan."""
        return self._cases.pop(case, None)


@dataclass(frozen=True, slots=True)
class KnownMeasurements:
    """What a run need not measure: cases that its plan has measured, and by iteration the measurements of an earlier run."""

    replayed: ReplayedCases
    earlier: Mapping[int, MeasuredCases] = field(default_factory=dict)

    def holding(self, case: Case) -> dict[str, Measurement]:
        """The measurements of an earlier run that hold for a case, by metric."""
        earlier = self.earlier.get(case.iteration)
        return earlier.of(case) if earlier is not None else {}

    def close(self) -> None:
        """Close the tables of the earlier run."""
        for measured in self.earlier.values():
            measured.close()
