"""Taking over what another run measured: the same cases, the same metrics, the same judge, and the same stored replies.

A sweep over weights or thresholds makes many runs that ask the same questions. The first of them renders, asks and reads; the
others would get every reply from the call store and come to the same tables, byte for byte. So they link the tables instead,
once it is certain that nothing that measuring depends on is different.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from ragpipe.config.settings import RunConfig
from ragpipe.core.errors import RagpipeError
from ragpipe.engine.iteration_states import COMPLETE, JUDGED
from ragpipe.engine.judge_access import served_model, store_path
from ragpipe.engine.manifest import checked_manifest
from ragpipe.engine.run_spec import RunSpec
from ragpipe.judging.served_model import DATED, OTHER
from ragpipe.judging.settings import JudgeSettings
from ragpipe.store.calls.replies_unchanged import ACCEPTED_BY, replies_unchanged
from ragpipe.store.files.atomic import atomic_write, link_or_copy
from ragpipe.store.files.filesystem import is_regular_file
from ragpipe.store.run.run_folder import IterationFolder, RunFolder
from ragpipe.store.run.run_tables import batches, read_columns
from ragpipe.store.run.seals import open_seal, seal_file

LOOKED_AT = 50
"""Runs of the same name whose manifests are read, the newest first."""
_NOT_MEASURED_BY = ("scoring", "dataset", "data", "system")
"""Sections of an identity that no measurement depends on: the frozen cases, which are compared, are all that is left of them."""


def take_over_measured(
    spec: RunSpec, manifest: dict[str, Any], say: Callable[[str], None], *, recorded: Collection[Path] = ()
) -> dict[str, str]:
    """Link the measured tables of another run of the same name into a new run.

    That run has the same frozen cases, and the same identity in all that measuring depends on, by the same code. Its tables
    are as they were sealed, no judgement failed, and the call store still has every reply, word for word (a rejudge takes the
    replies of its source from there, without the store). Its journal comes along as it is.

    Args:
        spec: the new run, whose cases are frozen.
        manifest: its manifest; `measured_in` is added to it, the id of the other run by iteration.
        say: prints what was taken over.
        recorded: the judge inputs of a finished run whose replies come before those of the call store.

    Returns the states of the iterations that need no judging. Raises nothing because of the other run: one that cannot be
    read is passed over.
    """
    if not isinstance(spec.config.judge, JudgeSettings) or spec.config.retry_errors:
        return {}
    states: dict[str, str] = {}
    for other, other_manifest in _earlier_runs(spec.folder):
        if not _measures_the_same(manifest, other_manifest):
            continue
        for number in spec.iterations:
            if str(number) in states or other_manifest["iterations"].get(str(number)) != COMPLETE:
                continue
            try:
                taken = _take_over(other, spec.folder, number, spec.config, recorded)
            except (
                RagpipeError,
                ValueError,
                KeyError,
                TypeError,
            ):  # it is only a shortcut: the cases are judged instead
                continue
            if taken:
                states[str(number)] = JUDGED
                manifest.setdefault("measured_in", {})[str(number)] = other.root.name
                say(
                    f"iteration {number}: run {other.root.name} measured these cases with the same metrics, judge and replies: "
                    "its scores are taken over"
                )
    return states


def _earlier_runs(folder: RunFolder) -> Iterator[tuple[RunFolder, Mapping[str, Any]]]:
    """The other runs of the same name, the newest first, with their manifests."""
    paths = (path for path in folder.root.parent.iterdir() if path != folder.root and not path.is_symlink())
    runs = [run for run in map(RunFolder, paths) if is_regular_file(run.manifest)]
    for run in heapq.nlargest(LOOKED_AT, runs, key=lambda run: run.manifest.stat().st_mtime_ns):
        try:
            yield run, checked_manifest(run, run.root.name)
        except RagpipeError:
            continue


def _measures_the_same(manifest: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two runs measure the same cases in the same way."""
    if manifest["code"] != other.get("code") or manifest["data"]["frozen"] != other["data"].get("frozen"):
        return False
    return _measuring(manifest["identity"]) == _measuring(other["identity"])


def _measuring(identity: Mapping[str, Any]) -> dict[str, Any]:
    return {name: section for name, section in identity.items() if name not in _NOT_MEASURED_BY}


def _take_over(other: RunFolder, own: RunFolder, number: int, config: RunConfig, recorded: Collection[Path]) -> bool:
    """Link one iteration, where everything still stands. Whether it was linked.

    Args:
        other: the run that measured.
        own: the new run.
        number: of the iteration.
        config: of the new run.
        recorded: see `take_over_measured`.
    """
    source, target = other.iteration(number), own.iteration(number)
    if not _as_sealed(other, source) or _has_failures(source.scores):
        return False
    if source.judge_inputs in recorded:
        rows = (row for batch in batches(source.judge_inputs, ACCEPTED_BY) for row in batch.to_pylist())
        if not all(map(_accepted(config), rows)):
            return False
    elif not replies_unchanged(store_path(config), source.judge_inputs, _accepted(config)):
        return False
    target.create()
    if is_regular_file(source.journal):  # copied, not linked: a later start may append to it
        atomic_write(target.journal, source.journal.read_bytes())
    if is_regular_file(source.progress):
        link_or_copy(source.progress, target.progress)
    link_or_copy(source.judge_inputs, target.judge_inputs)
    link_or_copy(source.scores, target.scores)
    return True


def _as_sealed(run: RunFolder, iteration: IterationFolder) -> bool:
    """Whether scores and judge inputs are what they were when the run ended. Raises ValueError for a seal that was changed."""
    seal = open_seal(run.seal)
    if seal is None:
        return False
    return all(
        _sealed_digest(seal, run, path) == seal_file(path) for path in (iteration.scores, iteration.judge_inputs)
    )


def _sealed_digest(seal: Mapping[str, Any], run: RunFolder, path: Path) -> str | None:
    name = path.relative_to(run.root).as_posix()
    table = seal["tables"].get(name)
    digest: str | None = table["sha256"] if table else seal["files"].get(name)
    return digest if is_regular_file(path) else None


def _has_failures(scores: Path) -> bool:
    """Whether a judgement failed: its questions are asked again in another run."""
    return bool(pc.any(pc.equal(read_columns(scores, ["status"])["status"], "error")).as_py())


def _accepted(config: RunConfig) -> Callable[[Mapping[str, Any]], bool]:
    """Whether a recorded reply may be used with the served models of this configuration, and would have the same flags."""
    judge, embedder = served_model(config.judge), served_model(config.embedder)

    def is_accepted(row: Mapping[str, Any]) -> bool:
        served = embedder if row["output_mode"] == "vector" else judge
        if served is None:
            return True
        kind = served.kind(row["model"])
        if kind == "other" and served.refuses:
            return False
        if served is embedder:  # vectors carry no such flag
            return True
        expected = {"other": {OTHER}, "dated": {DATED}}.get(kind, set())
        return {OTHER, DATED}.intersection(row["flags"] or ()) == expected

    return is_accepted
