"""Taking over what another run measured: the same cases, the same metrics, the same judge, and the same stored replies.

A sweep makes many runs that ask the same questions. The first of them renders, asks and reads; the others would get every
reply from the call store and come to the same rows, byte for byte. So they take the rows over, permanent failures too, once it is certain
that nothing that measuring depends on is different: both tables at once where all metrics and cases are the same, else case by
case and metric by metric.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from ragpipe.config.settings import RunConfig
from ragpipe.core.digest import canonical_json
from ragpipe.core.errors import RagpipeError
from ragpipe.engine.judge_access import served_model, store_place
from ragpipe.engine.run_spec import RunSpec
from ragpipe.engine.runs.manifest import COMPLETE, JUDGED, checked_manifest
from ragpipe.judging.served_model import DATED, OTHER
from ragpipe.judging.settings import JudgeSettings
from ragpipe.metrics.base import Computed, Metric
from ragpipe.stages.measured_cases import MeasuredCases, differing_cases, is_asked_again
from ragpipe.store.calls.call_database import StorePlace, call_database
from ragpipe.store.calls.call_rows import (
    COLUMNS,
    PLAIN,
    UNUSED,
    Cells,
    DamagedRow,
    SharedValues,
    checked_cells,
    key_bytes,
    wire_hash_of,
)
from ragpipe.store.calls.store_connection import StoreConnection
from ragpipe.store.files.atomic import atomic_write, link_or_copy
from ragpipe.store.files.filesystem import is_regular_file
from ragpipe.store.run.run_folder import IterationFolder, RunFolder
from ragpipe.store.run.run_tables import batches, read_columns
from ragpipe.store.run.seals import open_seal, seal_file

LOOKED_AT = 50
"""Runs of the same name whose manifests are read, the newest first."""
_OF_THE_CASES = ("dataset", "data", "system")
"""Sections of an identity of which the frozen cases, which are compared, are all that measuring depends on."""
_BY_METRIC = ("metrics", "metric_order")
_UNREADABLE = (RagpipeError, OSError, ValueError)
"""What a run that is damaged or being removed can raise. Taking over is a shortcut: the cases are judged instead."""


class EarlierRuns:
    """The other runs of the same name, and what may be taken over from them.

    Nothing is raised because of another run: one that cannot be read is passed over. Nothing is taken over with an embedded
    judge, which costs nothing, and with `retry_errors`.

    Args:
        spec: the run, whose cases are frozen.
        manifest: its manifest.
        recorded: the judge inputs of a finished run whose replies come before those of the call store.
    """

    def __init__(self, spec: RunSpec, manifest: dict[str, Any], *, recorded: Collection[Path] = ()):
        self._spec, self._manifest, self._recorded = spec, manifest, recorded
        self._applies = isinstance(spec.config.judge, JudgeSettings) and not spec.config.retry_errors

    def take_over(self, say: Callable[[str], None]) -> dict[str, str]:
        """Link the measured tables of other runs where they are those that this run would come to.

        `measured_in` of the manifest gets the id of the other run by iteration. Returns the states of these iterations.
        """
        states: dict[str, str] = {}
        for other, other_manifest in self._runs():
            if not self._is_same(other_manifest):
                continue
            for number in self._spec.iterations:
                if str(number) in states or not _is_complete(other_manifest, number):
                    continue
                try:
                    taken = self._link(other, number)
                except _UNREADABLE:
                    continue
                if taken:
                    states[str(number)] = JUDGED
                    self._manifest.setdefault("measured_in", {})[str(number)] = other.root.name
                    say(
                        f"iteration {number}: run {other.root.name} measured these cases with the same metrics, judge and "
                        "replies: its scores are taken over"
                    )
        return states

    def copy_journals(self) -> None:
        """Copy the journals of the iterations that were taken over. A folder with a journal has begun to be a run, so this comes
        after the plan, which may be refused."""
        for number, run_id in self._manifest.get("measured_in", {}).items():
            source = RunFolder(self._spec.folder.root.parent / run_id).iteration(int(number))
            target = self._spec.folder.iteration(int(number))
            if is_regular_file(source.journal) and is_regular_file(source.progress):
                atomic_write(target.journal, source.journal.read_bytes())
                link_or_copy(source.progress, target.progress)

    def measured_cases(self, number: int, say: Callable[[str], None]) -> MeasuredCases | None:
        """The measurements of an iteration that hold here, of the newest run that has some. To be closed by the caller."""
        for other, other_manifest in self._runs():
            metrics = self._same_metrics(other_manifest)
            if not metrics or not _is_complete(other_manifest, number):
                continue
            try:
                measured = self._open(other, other_manifest, number, metrics)
            except _UNREADABLE:
                continue
            if measured is not None:
                names = ", ".join(metric.name for metric in metrics)
                say(
                    f"iteration {number}: what run {other.root.name} measured with {names} is taken over where cases and "
                    "replies are the same"
                )
                return measured
        return None

    def _runs(self) -> Iterator[tuple[RunFolder, Mapping[str, Any]]]:
        """The other runs, the newest first, with their manifests."""
        if not self._applies:
            return
        own = self._spec.folder.root
        paths = (path for path in own.parent.iterdir() if path != own and not path.is_symlink())
        runs = [run for run in map(RunFolder, paths) if is_regular_file(run.manifest)]
        for run in heapq.nlargest(LOOKED_AT, runs, key=lambda run: run.manifest.stat().st_mtime_ns):
            try:
                yield run, checked_manifest(run, run.root.name)
            except RagpipeError:
                continue

    def _has_same_cases(self, other: Mapping[str, Any]) -> bool:
        return bool(self._manifest["data"]["frozen"] == other["data"].get("frozen"))

    def _is_same(self, other: Mapping[str, Any]) -> bool:
        """Whether another run measures the same cases with the same metrics in the same way."""
        own, its = self._manifest["identity"], other["identity"]
        same_metrics = all(own[name] == its.get(name) for name in _BY_METRIC)
        same_prompts = self._manifest["prompts"] == other.get("prompts")  # rows name the version of a template, too
        return self._is_same_way(other) and same_metrics and same_prompts and self._has_same_cases(other)

    def _is_same_way(self, other: Mapping[str, Any]) -> bool:
        """Whether another run asks the same judge in the same way, by the same code."""
        own, its = _way(self._manifest["identity"]), _way(other["identity"])
        return own == its and self._manifest["code"] == other.get("code")

    def _same_metrics(self, other: Mapping[str, Any]) -> list[Metric]:
        """The metrics that ask a judge and would measure a case as they did in another run."""
        if not self._is_same_way(other):
            return []
        own, its = self._manifest["identity"]["metrics"], other["identity"]["metrics"]
        prompts = other.get("prompts") or {}
        return [
            metric
            for metric in self._spec.metrics
            if not isinstance(metric, Computed)
            and own[metric.name] == its.get(metric.name)
            and all(prompt.signature in prompts for prompt in metric.prompts().values())
            # tokens may be weighed by all references of the data
            and (metric.encoder_settings is None or self._has_same_cases(other))
        ]

    def _link(self, other: RunFolder, number: int) -> bool:
        """Link one iteration, where everything still stands. Whether it was linked."""
        source, target = other.iteration(number), self._spec.folder.iteration(number)
        if not _is_as_sealed(other, source) or _has_failures(source.scores):
            return False
        if any(True for _ in self._changed(source)):
            return False
        target.create()
        link_or_copy(source.judge_inputs, target.judge_inputs)
        link_or_copy(source.scores, target.scores)
        return True

    def _open(
        self, other: RunFolder, manifest: Mapping[str, Any], number: int, metrics: Collection[Metric]
    ) -> MeasuredCases | None:
        """The measurements of one iteration; None where its tables are not as they were sealed."""
        iteration = other.iteration(number)
        if not _is_as_sealed(other, iteration, other.samples, other.outputs):
            return None
        other_cases = None if self._has_same_cases(manifest) else differing_cases(self._spec.folder, other)
        changed = frozenset(self._changed(iteration))
        return MeasuredCases(other, number, metrics, changed=changed, other_cases=other_cases)

    def _changed(self, source: IterationFolder) -> Iterator[str]:
        """The keys of the recorded calls that this run would not answer its questions with, or would flag otherwise."""
        accept = _accepted(self._spec.config)
        if source.judge_inputs not in self._recorded:
            yield from changed_replies(store_place(self._spec.config), source.judge_inputs, accept)
            return
        for batch in batches(source.judge_inputs, ("key", *ACCEPTED_BY)):
            yield from (row["key"] for row in batch.to_pylist() if not accept(row))


def _way(identity: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of an identity that say how any question is asked and read."""
    without = ("scoring", *_OF_THE_CASES, *_BY_METRIC)
    return {name: section for name, section in identity.items() if name not in without}


def _is_complete(manifest: Mapping[str, Any], number: int) -> bool:
    return bool(manifest["iterations"].get(str(number)) == COMPLETE)


def _is_as_sealed(run: RunFolder, iteration: IterationFolder, *more: Path) -> bool:
    """Whether scores, judge inputs and more tables are what they were when the run ended."""
    seal = open_seal(run.seal)
    paths = (iteration.scores, iteration.judge_inputs, *more)
    if seal is None or not all(map(is_regular_file, paths)):
        return False
    return all(_sealed_digest(seal, path.relative_to(run.root).as_posix()) == seal_file(path) for path in paths)


def _sealed_digest(seal: Mapping[str, Any], name: str) -> str | None:
    table = seal["tables"].get(name)
    digest: str | None = table["sha256"] if table else seal["files"].get(name)
    return digest


def _has_failures(scores: Path) -> bool:
    """Whether a judgement failed for a cause that this run may not meet again."""
    table = read_columns(scores, ["status", "details"])
    return any(map(is_asked_again, table.filter(pc.equal(table["status"], "error")).to_pylist()))


def _accepted(config: RunConfig) -> Callable[[Mapping[str, Any]], bool]:
    """Whether a recorded reply may be used with the served models of this configuration, and would have the same flags."""
    judge, embedder = served_model(config.judge), served_model(config.embedder)

    def is_accepted(row: Mapping[str, Any]) -> bool:
        served = embedder if row["output_mode"] == "vector" else judge if row["template"] else None
        if served is None or row["status"] != "ok":  # a failure has no flags
            return True
        kind = served.kind(row["model"])
        if kind == "other" and served.refuses:
            return False
        expected = {"other": {OTHER}, "dated": {DATED}}.get(kind, set()) if served is judge else set()
        return {OTHER, DATED}.intersection(row["flags"] or ()) == expected

    return is_accepted


ACCEPTED_BY = ("template", "model", "flags", "output_mode", "status")
"""The columns of a row that `accept` looks at."""
_AT_ONCE = 500  # keys in one statement, and rows of the table in memory
_SAME = tuple(name for name in PLAIN if name not in ("iteration", "text", "answers", UNUSED))
"""Columns of `judge_inputs.parquet` that stand under the same name among the cells of a call."""
_PLACES = {name: PLAIN.index(name) for name in (*_SAME, "text", "iteration", "answers")}
_BESIDE = ("reply", "judge", "model", "fingerprint", "paid_by", "output_mode", "sent", "wire_hash")
"""The other columns that are compared, in the order of `_StoredRows`."""
_READ = tuple(dict.fromkeys((*_SAME, *_BESIDE, *ACCEPTED_BY, "key")))
_WIRE = len(PLAIN)  # place of the hash of the request body among the cells


def changed_replies(
    store: StorePlace, judge_inputs: Path, accept: Callable[[Mapping[str, Any]], bool]
) -> Iterator[str]:
    """The keys of the rows of a run's `judge_inputs.parquet` for which the store has no reply and no failure that is equal in
    all that the row says of it.

    Args:
        store: the place of the call store.
        judge_inputs: the table.
        accept: whether a row, by its columns `ACCEPTED_BY`, may be used by this run at all.

    Raises OutputError and DataError for a store or a table that cannot be read.
    """
    with call_database(store).reading() as db:
        reader = _StoredRows(db)
        for batch in batches(judge_inputs, _READ, size=_AT_ONCE):
            rows = batch.to_pylist()
            stored = reader.read([row["key"] for row in rows])
            yield from (
                row["key"] for row in rows if _recorded(row) not in stored.get(row["key"], ()) or not accept(row)
            )


class _StoredRows:
    """Reads the replies and failures of a store as tuples, in the form of `_recorded`."""

    def __init__(self, db: StoreConnection):
        self._db, self._shared = db, SharedValues(db)
        self._sent: dict[str | None, str | None] = {}

    def read(self, keys: Sequence[str]) -> dict[str, list[tuple[Any, ...]]]:
        """By key the reply, or the failures of all runs where there is none. Missing and damaged ones are left out."""
        stored: dict[str, list[tuple[Any, ...]]] = {}
        for key, cells in self._rows(list(dict.fromkeys(map(key_bytes, keys)))):
            stored.setdefault(key, []).append(cells)
        return stored

    def _rows(self, keys: Sequence[bytes]) -> Iterator[tuple[str, tuple[Any, ...]]]:
        marks = ", ".join("?" * len(keys))
        statement = f"SELECT {', '.join(COLUMNS)} FROM calls WHERE key IN ({marks})"
        for row in self._db.execute(statement, keys):
            try:
                shared, cells = checked_cells(row, self._shared)
            except DamagedRow:
                continue
            yield row[0].hex(), self._as_recorded(shared, cells)

    def _as_recorded(self, shared: tuple[Cells, Cells, Cells], cells: tuple[Any, ...]) -> tuple[Any, ...]:
        (run,), (label, _, mode, sent), (model, fingerprint) = shared
        payer = f"{run}/{cells[_PLACES['iteration']]}" if cells[_PLACES["answers"]] else None
        same = (cells[_PLACES[name]] for name in _SAME)
        # the parameters of a call as its row has them: a judge has one or two kinds
        if sent not in self._sent:
            parameters = json.loads(sent or "{}")
            self._sent[sent] = canonical_json(parameters) if parameters else None
        return (
            *same,
            cells[_PLACES["text"]],
            label,
            model,
            fingerprint,
            payer,
            mode,
            self._sent[sent],
            wire_hash_of(cells[_WIRE]),
        )


def _recorded(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in (*_SAME, *_BESIDE))
