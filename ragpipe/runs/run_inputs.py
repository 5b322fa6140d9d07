"""The inputs of a run: frozen where it is new, checked where it goes on."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ragpipe.comparison.run_differences import NOTE
from ragpipe.core.errors import DataError, OutputError, Problem, RagpipeError
from ragpipe.report.console import Console
from ragpipe.runs.case_sources import table_damage, table_digests, table_fault
from ragpipe.runs.collected_outputs import output_versions
from ragpipe.runs.identity import run_differences
from ragpipe.runs.load_dataset import block_limits
from ragpipe.runs.manifest import (
    COMPLETE,
    FROZEN,
    INCOMPLETE,
    JUDGED,
    JUDGING_DONE,
    all_in_state,
    checked_manifest,
    copy_prompts,
    new_manifest,
    previous_manifest,
    remove_damaged_seal,
    rewritten_prompt_warnings,
    unseal,
    write_config,
    write_manifest,
)
from ragpipe.runs.measured_cases import ReplayedCases
from ragpipe.runs.outcome import note_reply_times
from ragpipe.runs.plan_summary import announce_plan
from ragpipe.runs.run_list import check_unmodified
from ragpipe.runs.spec import EvaluatePolicy, RunSpec
from ragpipe.store.journal import has_entries
from ragpipe.store.run_folder import RunFolder

_LISTED = 5  # differences from the previous run


@dataclass(frozen=True)
class RunInputs:
    """The manifest of a run whose inputs are in place. `are_new` says that nothing was judged on them yet, so that they are
    sealed at the end of this start. `known` are the cases that the plan has measured."""

    manifest: dict[str, Any]
    are_new: bool
    known: ReplayedCases | None = None


def prepare_inputs(spec: RunSpec, policy: EvaluatePolicy, console: Console) -> RunInputs:
    """Freeze the inputs of a new run, or check those of one that goes on; show the plan; write manifest, configuration and
    prompts. Nothing is spent before, and nothing is left behind when the inputs cannot be frozen. Raises ConfigError and
    DataError."""
    is_new_run = not spec.folder.manifest.exists()
    previous: Mapping[str, Any] = {}
    if is_new_run:
        previous = spec.made_from or previous_manifest(spec.folder)
        manifest = _freeze(spec, previous, console)
    else:
        manifest = checked_manifest(spec.folder, spec.run_id)
        _check_frozen(spec, manifest, console)
    if digests := spec.scoring_files.write(spec.folder, spec.config):
        manifest["scoring_files"] = digests
    states: dict[str, str] = manifest["iterations"]
    known: ReplayedCases | None = None
    if policy.asks_judge and not all_in_state(states, spec.iterations, JUDGING_DONE):
        if not spec.config.retry_errors:
            known = ReplayedCases(keep_messages=spec.config.keep_messages)
        announce_plan(spec, policy, states, console, known)
    if not spec.is_own_source:  # a task over a run does not change how the run was described
        write_config(spec.folder, spec.config)
    copy_prompts(spec.config, spec.folder.prompts)
    if is_new_run:
        for warning in rewritten_prompt_warnings(previous, manifest):
            console.warn(warning)
    # Also where a start that collected again was killed: no iteration was judged on other outputs since.
    are_new = not {COMPLETE, INCOMPLETE} & set(states.values())
    write_manifest(spec.folder, manifest)
    if spec.made_from is None:
        spec.folder.point_latest()
    return RunInputs(manifest, are_new, known)


def _freeze(spec: RunSpec, previous: Mapping[str, Any], console: Console) -> dict[str, Any]:
    """Write the frozen tables of a new run. Returns its manifest, which is not written yet."""
    if previous and (differing := run_differences(previous["identity"], spec.identity)):
        more = f"; {len(differing) - _LISTED} more" if len(differing) > _LISTED else ""
        console.say(f"differs from run {previous['run_id']}: {'; '.join(differing[:_LISTED])}{more}")
    source = spec.source
    source.write(spec.folder, spec.identity)
    data: dict[str, Any] = {
        "name": source.name,
        "digest": source.digest,
        "tables": source.tables_digest(spec.identity),
        "blocks": block_limits(),
        "frozen": table_digests(spec.folder),
    }
    if versions := output_versions(spec.folder.outputs):
        data["versions"] = versions
    beside = {"collected_at": source.collected_at, "pair": source.pair, "remarks": source.remarks}
    data |= {name: value for name, value in beside.items() if value}
    made_from = spec.made_from or {"run_id": None, "identity": {}}
    manifest = new_manifest(spec.config, spec.identity, run_id=spec.run_id, data=data, source_run=made_from["run_id"])
    is_same_judge = made_from["identity"].get("judge_identity") == spec.identity.get("judge_identity")
    if is_same_judge and "check" in made_from.get(NOTE, {}):  # until this run has replies of its own
        manifest[NOTE] = {name: made_from[NOTE][name] for name in ("check", "baseline")}
    manifest["iterations"] = source.adopt_judged(spec.folder)
    if spec.made_from is None:
        for number in manifest["iterations"]:
            note_reply_times(spec.config, spec.folder.iteration(int(number)), manifest, source=None, reads_store=True)
    return manifest


def _check_frozen(spec: RunSpec, manifest: dict[str, Any], console: Console) -> None:
    """Refuse changed tables, forget iterations that lost theirs, collect failed outputs again. Raises DataError."""
    retry_errors = spec.config.retry_errors
    if warning := remove_damaged_seal(spec.folder):
        console.warn(warning)
    _forget_lost_iterations(spec, manifest["iterations"], console)
    if fault := table_damage(spec.folder, manifest["data"].get("frozen")):
        fix = (
            "copy the whole run folder from elsewhere; or move manifest.json and seal.json away and start the run's own command again: "
            "replies of the judge are in the call store, answers of a system in outputs.journal.jsonl"
        )
        tables = "samples.parquet, outputs.parquet"
        problem = Problem(str(spec.folder.root), tables, fault, "the tables that ragpipe wrote", fix)
        raise DataError("the frozen cases of a run are damaged", [problem])
    check_unmodified(spec.folder, manifest["iterations"])
    if retry_errors:
        unseal(spec.folder, *FROZEN)
        if spec.source.retry_failures(spec.folder):
            manifest["iterations"] = {}  # judged again; what did not change costs nothing
            manifest["data"] |= {"collected_at": spec.source.collected_at, "frozen": table_digests(spec.folder)}


def _forget_lost_iterations(spec: RunSpec, states: dict[str, str], console: Console) -> None:
    """An iteration whose tables are missing or cannot be opened is judged again; so the plan counts its questions."""
    for number in [number for number, state in states.items() if state in (JUDGED, COMPLETE)]:
        folder = spec.folder.iteration(int(number))
        if lost := [path.name for path in (folder.scores, folder.judge_inputs) if table_fault(path)]:
            del states[number]
            console.warn(
                f"iteration {number}: {' and '.join(lost)} missing or damaged; its cases are done again over the stored replies"
            )


def remove_unstarted(folder: RunFolder) -> None:
    """Remove a folder that never became a run, because its data, its plan or its system was refused. A folder with a collected
    output or with the journal or the records of an iteration was a run, and has only lost its manifest: it stays."""
    is_collected = has_entries(folder.outputs_journal)
    is_judged = any(made.journal.exists() or made.records.exists() for made in map(folder.iteration, folder.iterations()))
    if not (folder.manifest.exists() or is_collected or is_judged):
        shutil.rmtree(folder.root, ignore_errors=True)
        with suppress(OSError):
            folder.root.parent.rmdir()


def inputs_error(folder: RunFolder, error: Exception) -> RagpipeError | None:
    """The error that names the file of a run that is gone, where that is why `error` was raised; None where it says itself what is
    wrong."""
    is_gone = not folder.root.is_dir()
    if isinstance(error, RagpipeError) and error.exit_code != 1 and not (is_gone and isinstance(error, DataError)):
        return None
    if is_gone:
        return OutputError(
            f"the run folder {folder.root} was removed while the run was going on. To fix: start the same command again; what was "
            "answered is in the call store"
        )
    if isinstance(error, FileNotFoundError) and error.filename:
        problem = Problem(str(error.filename), "file", "no such file", "a file of this run", "start the same command again")
        return DataError("files of a run cannot be read", [problem])
    return None
