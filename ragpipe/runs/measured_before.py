"""Taking over what another run measured: the same cases, the same metrics, the same judge, and the same stored replies.

A sweep makes many runs that ask the same questions. The first of them renders, asks and reads; the others would get every
reply from the call store and come to the same rows, byte for byte. So they take the tables over, permanent failures too, once it is
certain that nothing that measuring depends on is different.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from ragpipe.core.digest import sha256_file
from ragpipe.core.errors import PERMANENT, RagpipeError
from ragpipe.judge.provider_state import DATED, OTHER
from ragpipe.judge.settings import JudgeSettings
from ragpipe.runs.judge_access import served_model, store_place
from ragpipe.runs.manifest import COMPLETE, JUDGED, checked_manifest
from ragpipe.runs.settings import RunConfig
from ragpipe.runs.spec import RunSpec
from ragpipe.runs.table_rows import CALL_COLUMNS, call_cells
from ragpipe.store.call_database import StorePlace
from ragpipe.store.call_store import read_calls
from ragpipe.store.files import atomic_write, is_regular_file, link_or_copy
from ragpipe.store.run_folder import IterationFolder, RunFolder
from ragpipe.store.run_tables import batches, read_columns
from ragpipe.store.seals import open_seal

LOOKED_AT = 50
"""Runs of the same name whose manifests are read, the newest first."""
_BESIDE_THE_WAY = ("scoring", "dataset", "data", "system")
"""Sections of an identity on which measuring depends by the frozen cases alone, which are compared, or not at all."""
_AT_ONCE = 500  # rows of the judge inputs in memory


def take_over(
    spec: RunSpec, manifest: dict[str, Any], recorded: Collection[Path], say: Callable[[str], None]
) -> dict[str, str]:
    """Link the measured tables of other runs of the same name where they are those that this run would come to. Returns the states of
    these iterations.

    Nothing is raised because of another run: one that cannot be read is passed over, and the cases are judged instead. Nothing is
    taken over with a judge in this process, which costs nothing, nor with `retry_errors`.

    Args:
        spec: the run, whose cases are frozen.
        manifest: its manifest; `measured_in` gets the id of the other run by iteration.
        recorded: the judge inputs of a finished run whose replies come before those of the call store.
        say: prints what is taken over.
    """
    states: dict[str, str] = {}
    if not isinstance(spec.config.judge, JudgeSettings) or spec.config.retry_errors:
        return states
    for other, other_manifest in _other_runs(spec.folder):
        if not _is_same(manifest, other_manifest):
            continue
        for number in spec.iterations:
            if str(number) in states or other_manifest["iterations"].get(str(number)) != COMPLETE:
                continue
            try:
                is_linked = _link(spec, other, number, recorded)
            except (RagpipeError, OSError, ValueError):  # it is damaged, or being removed
                continue
            if is_linked:
                states[str(number)] = JUDGED
                manifest.setdefault("measured_in", {})[str(number)] = other.root.name
                say(
                    f"iteration {number}: run {other.root.name} measured these cases with the same metrics, judge and "
                    "replies: its scores are taken over"
                )
    return states


def copy_journals(spec: RunSpec, manifest: Mapping[str, Any]) -> None:
    """Copy the journals of the iterations that were taken over. A folder with a journal has begun to be a run, so this comes
    after the plan, which may be refused."""
    for number, run_id in manifest.get("measured_in", {}).items():
        source = RunFolder(spec.folder.root.parent / run_id).iteration(int(number))
        target = spec.folder.iteration(int(number))
        if is_regular_file(source.journal) and is_regular_file(source.progress):
            atomic_write(target.journal, source.journal.read_bytes())
            link_or_copy(source.progress, target.progress)


def _other_runs(own: RunFolder) -> Iterator[tuple[RunFolder, Mapping[str, Any]]]:
    """The other runs of the name, the newest first, with their manifests."""
    paths = (path for path in own.root.parent.iterdir() if path != own.root and not path.is_symlink())
    runs = [run for run in map(RunFolder, paths) if is_regular_file(run.manifest)]
    for run in heapq.nlargest(LOOKED_AT, runs, key=lambda run: run.manifest.stat().st_mtime_ns):
        try:
            yield run, checked_manifest(run, run.root.name)
        except RagpipeError:
            continue


def _is_same(own: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether another run, by the manifests, measures the same cases with the same metrics and judge, by the same code."""
    ways = ({name: section for name, section in run["identity"].items() if name not in _BESIDE_THE_WAY} for run in (own, other))
    is_same_code = own["code"] == other.get("code")
    is_same_prompts = own["prompts"] == other.get("prompts")  # rows name the version of a template, too
    return (
        next(ways) == next(ways) and is_same_code and is_same_prompts and own["data"]["frozen"] == other["data"].get("frozen")
    )


def _link(spec: RunSpec, other: RunFolder, number: int, recorded: Collection[Path]) -> bool:
    """Link one iteration, where everything still stands. Whether it was linked."""
    source, target = other.iteration(number), spec.folder.iteration(number)
    if not _is_as_sealed(other, source) or _has_failures(source.scores):
        return False
    store = None if source.judge_inputs in recorded else store_place(spec.config)
    if not rows_hold(source.judge_inputs, store, other.root.name, _accepted(spec.config)):
        return False
    target.create()
    link_or_copy(source.judge_inputs, target.judge_inputs)
    link_or_copy(source.scores, target.scores)
    return True


def _is_as_sealed(run: RunFolder, iteration: IterationFolder) -> bool:
    """Whether scores and judge inputs are what they were when the run ended."""
    seal = open_seal(run.seal)
    paths = (iteration.scores, iteration.judge_inputs)
    if seal is None or not all(map(is_regular_file, paths)):
        return False
    return all(seal["files"].get(path.relative_to(run.root).as_posix()) == sha256_file(path) for path in paths)


def _has_failures(scores: Path) -> bool:
    """Whether a judgement failed for a cause that this run may not meet again: any but a judge's permanent failure."""
    table = read_columns(scores, ["status", "details"])
    failed = table.filter(pc.equal(table["status"], "error"))["details"].to_pylist()
    return any(json.loads(details or "{}").get("kind") not in PERMANENT for details in failed)


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


def rows_hold(judge_inputs: Path, store: StorePlace | None, run_id: str, accept: Callable[[Mapping[str, Any]], bool]) -> bool:
    """Whether a run may use every row of another run's `judge_inputs.parquet`, and the call store has the reply or failure of each,
    equal in all that the row says of it.

    Args:
        judge_inputs: the table.
        store: the place of the call store; None where the table itself answers.
        run_id: the other run, whose failures count where the row does not say who paid for them.
        accept: whether a row may be used at all.

    Raises OutputError and DataError for a store or a table that cannot be read.
    """
    for batch in batches(judge_inputs, ("template", "flags", *CALL_COLUMNS), size=_AT_ONCE):
        rows = batch.to_pylist()
        if not all(map(accept, rows)) or (store is not None and not _are_stored(rows, store, run_id)):
            return False
    return True


def _are_stored(rows: Collection[Mapping[str, Any]], store: StorePlace, run_id: str) -> bool:
    by_payer: dict[str | None, list[Mapping[str, Any]]] = {}  # a failure is stored for the run that paid
    for row in rows:
        payer = None if row["status"] == "ok" else (row["paid_by"] or run_id).partition("/")[0]
        by_payer.setdefault(payer, []).append(row)
    for payer, its_rows in by_payer.items():
        calls = read_calls(store, {row["key"] for row in its_rows}, run_id=payer)
        cells = {key: call_cells(call) for key, call in calls.items()}
        if any({name: row[name] for name in CALL_COLUMNS} != cells.get(row["key"]) for row in its_rows):
            return False
    return True
