"""What a scoring names beside its run: the runs that gates hold it against, and the calibration of its judge.

Names become what they mean when they are read: `latest` the id of a run, a path the digest of a file. The run keeps a copy of
what it needs of both, so that its folder alone is enough to score and to verify it again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragpipe.comparison.drop_gates import CASES, Baseline, BaselineNeeds, read_baselines, write_baselines
from ragpipe.core.digest import DIGEST, sha256_file
from ragpipe.core.errors import ConfigError, DataError, Problem, RagpipeError
from ragpipe.runs.manifest import checked_manifest
from ragpipe.runs.run_list import find_named_run, find_preference, runs_with_id, scored_runs
from ragpipe.runs.settings import RunConfig
from ragpipe.score.calibration_file import Calibration, read_calibration
from ragpipe.score.gate_settings import ASKED_IN, NO_EARLIER_RUN, PREFERENCE, Gate
from ragpipe.store.files import is_regular_file, link_or_copy, write_unless_same
from ragpipe.store.run_folder import LATEST, RUN_ID, RunFolder

_TITLE = "a gate's baseline cannot be used"


@dataclass(frozen=True)
class ScoringFiles:
    """Where the copies of a run come from.

    `roots` are folders that baselines are looked for in, `baselines` those that were named otherwise than by their id, by run
    id. `copies` is the finished run whose own copies come first. `calibration` is the file that was named by its path.
    """

    roots: tuple[Path, ...] = ()
    baselines: Mapping[str, RunFolder] = field(default_factory=dict)
    copies: RunFolder | None = None
    calibration: Path | None = None

    def calibration_of(self, folder: RunFolder) -> Calibration | None:
        """The calibration that the scoring of the run in `folder` names: the file, else a copy; None for none. Raises DataError."""
        copies = [place.calibration for place in (folder, self.copies) if place is not None]
        paths = [path for path in (self.calibration, *copies) if path is not None and is_regular_file(path)]
        return read_calibration(paths[0]) if paths else None

    def check(self, config: RunConfig) -> None:
        """Raises DataError for a baseline that is nowhere, before there are cases that could be copied."""
        for run_id, needs in _needs(config).items():
            if self.copies is None or not _holds(_kept(self.copies), {run_id: needs}):
                self._folder_of(run_id)

    def write(self, folder: RunFolder, config: RunConfig) -> dict[str, str]:
        """Put the copies into a run whose cases are frozen, and return their digests by file name. Copies that are there stay.

        Raises DataError for a baseline that is nowhere, or cannot be used.
        """
        if needs := _needs(config):
            self._write_baselines(folder, needs)
        if digest := config.scoring.calibration:
            self._write_calibration(folder, digest)
        named = [*([folder.baseline] if needs else []), *([folder.calibration] if digest else [])]
        return {path.name: sha256_file(path) for path in named}

    def _write_baselines(self, folder: RunFolder, needs: Mapping[str, BaselineNeeds]) -> None:
        if _holds(_kept(folder), needs):
            return
        kept = _kept(self.copies) if self.copies is not None else {}
        if self.copies is not None and _holds(kept, needs) and kept.keys() == needs.keys():
            link_or_copy(self.copies.baseline, folder.baseline)
            return
        missing = [run_id for run_id in needs if not _holds(kept, {run_id: needs[run_id]})]
        write_baselines(folder, needs, {run_id: self._folder_of(run_id) for run_id in missing}, kept)

    def _write_calibration(self, folder: RunFolder, digest: str) -> None:
        copies = self.copies.calibration if self.copies is not None else None
        for path in (folder.calibration, copies, self.calibration):
            if path is not None and is_regular_file(path) and sha256_file(path) == digest:
                if path != folder.calibration:
                    write_unless_same(folder.calibration, path.read_bytes())
                return
        expected = f"a calibration with the sha256 {digest[:12]}..., the run's own"
        problem = Problem(str(folder.calibration), "scoring.calibration", "no such file", expected, "scoring.calibration=PATH")
        raise DataError("the calibration cannot be used", [problem])

    def _folder_of(self, run_id: str) -> RunFolder:
        if run_id in self.baselines:
            return self.baselines[run_id]
        for root in self.roots:
            if found := runs_with_id(run_id, root):
                return found[0]
        searched = ", ".join(map(str, self.roots)) or "nowhere"
        fix = "name its folder: scoring.gates.<name>.against=outputs/<name>/<run_id>"
        problem = Problem(searched, "scoring.gates", f"no run {run_id}", "a run below one of these folders", fix)
        raise DataError(_TITLE, [problem])


NO_FILES = ScoringFiles()


def resolved_for_dataset(
    config: RunConfig, identity_of: Callable[[RunConfig], dict[str, Any]]
) -> tuple[RunConfig, ScoringFiles]:
    """The configuration of a run of a data set with run ids for what its gates name, and where to copy from.

    `latest` is the newest scored evaluation of the same name; where that is this very run, started before and perhaps stopped, it
    is the run that it named then. `identity_of` is the identity of the run of a configuration. Raises ConfigError.
    """
    root = Path(config.output_dir)
    resolved = _Resolution(root / config.name, root)
    scored = _with_gates(config, resolved.run_ids(config))
    scored, calibration = _with_calibration(scored, scored.scoring.calibration)
    if (started := resolved.newest) is not None:
        manifest = checked_manifest(started)
        recorded = manifest["identity"].get("scoring", {}).get("gates", {})
        again = {
            name: str((recorded.get(name) or {}).get(_key(gate)))
            for name, gate in config.scoring.active_gates().items()
            if gate.named_run == LATEST
        }
        as_before = _with_gates(scored, again)
        if identity_of(as_before) == manifest["identity"]:
            return as_before, ScoringFiles((root / config.name, root), resolved.folders, started, calibration)
    return scored, ScoringFiles((root / config.name, root), resolved.folders, None, calibration)


def resolved_for_finished(
    config: RunConfig, folder: RunFolder, own_ids: Collection[str], *, by_own_calibration: bool = False, rescores: bool = False
) -> tuple[RunConfig, ScoringFiles]:
    """The same for a task over the finished run in `folder`: runs are looked for beside it, then below `output_dir`.

    `own_ids` are the run itself and the run that its answers are from: a gate against one of these would compare answers with
    themselves. With `by_own_calibration` what `task=calibrate` wrote into the run goes before the calibration that it was scored
    by; one that `rescores` also takes up in which run a judge was asked for a preference. Raises ConfigError.
    """
    beside, root = folder.root.parent, Path(config.output_dir)
    resolved = _Resolution(beside, root)
    scored = _with_gates(
        config, _with_preferences(config, folder, resolved, resolved.run_ids(config, own_ids), looked_for=rescores)
    )
    found = by_own_calibration and is_regular_file(folder.own_calibration)
    scored, calibration = _with_calibration(scored, str(folder.own_calibration) if found else scored.scoring.calibration)
    return scored, ScoringFiles((beside, root), resolved.folders, folder, calibration)


def _with_preferences(
    config: RunConfig, folder: RunFolder, resolved: _Resolution, run_ids: Mapping[str, str], *, looked_for: bool
) -> dict[str, str]:
    """By gate the run that it names; of a preference also the run in which a judge was asked: where it is `looked_for` the newest one
    about these answers, else the one that the gate names already."""
    found = dict(run_ids)
    for name, gate in config.scoring.active_gates().items():
        base = run_ids.get(name)
        if gate.preference_against is None or base in (None, NO_EARLIER_RUN):
            continue
        asked_in, places = gate.baseline, [resolved.folders[base]] if base in resolved.folders else []
        places += [run for root in (folder.root.parent, resolved.root) for run in runs_with_id(str(base), root)]
        if looked_for and places and (asked := find_preference(places[0], folder)) is not None:
            asked_in = str(checked_manifest(asked)["run_id"])
            resolved.folders[asked_in] = asked
        found[name] = f"{base}{ASKED_IN}{asked_in}" if asked_in else str(base)
    return found


class _Resolution:
    """Names of baselines as they become run ids; `folders` were found by another name, `newest` is what `latest` points to."""

    def __init__(self, named: Path, root: Path):
        self._named, self.root = named, root
        self.folders: dict[str, RunFolder] = {}
        self.newest: RunFolder | None = None

    def run_ids(self, config: RunConfig, own_ids: Collection[str] = ()) -> dict[str, str]:
        """By gate the run id of its baseline. Raises ConfigError that lists every gate whose baseline is none."""
        run_ids, problems = dict[str, str](), list[Problem]()
        for name, gate in config.scoring.active_gates().items():
            if gate.named_run is None:
                continue
            key = f"scoring.gates.{name}.{_key(gate)}"
            try:
                run_ids[name] = self._run_id(gate, key)
            except RagpipeError as error:
                problems.append(_no_baseline(key, gate.named_run, error))
                continue
            if run_ids[name] in own_ids:
                problems.append(
                    Problem(
                        "scoring", key, f"{gate.named_run!r}, the run itself", "another run", "name an earlier run by its id"
                    )
                )
        if problems:
            raise ConfigError(_TITLE, problems)
        return run_ids

    def _run_id(self, gate: Gate, key: str) -> str:
        text = str(gate.named_run)
        if text == NO_EARLIER_RUN or RUN_ID.fullmatch(text):
            return text
        folder = self._latest() if text == LATEST else find_named_run(text, self.root, key=key)
        if folder is None:
            if gate.without_cases == "not_applicable":
                return NO_EARLIER_RUN
            raise DataError(_TITLE, [self._no_earlier_run(key)])
        run_id = str(checked_manifest(folder)["run_id"])
        self.folders[run_id] = folder
        return run_id

    def _latest(self) -> RunFolder | None:
        """The newest evaluation that is scored; a run that was stopped is no baseline. None before the first one."""
        if not os.path.lexists(self._named / LATEST):
            return None
        self.newest = RunFolder.find(self._named / LATEST)
        if self.newest.final.metrics.is_file():
            return self.newest
        scored = next(scored_runs(self._named, warn=lambda _: None), None)
        return scored.folder if scored else None

    def _no_earlier_run(self, key: str) -> Problem:
        """`latest` before the first scored run of a name: a fresh folder has none."""
        name = self._named.relative_to(self.root) if self._named.is_relative_to(self.root) else self._named
        gate = key.rpartition(".")[0]
        fix = f"start it once without this gate ({gate}=null), or {gate}.without_cases=not_applicable"
        return Problem("scoring", key, f"'latest', and no earlier run of the name {name} that is scored", "a finished run", fix)


def _key(gate: Gate) -> str:
    """The key by which a gate names a run."""
    return "against" if gate.preference_against is None else "preference_against"


def _needs(config: RunConfig) -> dict[str, BaselineNeeds]:
    needs: dict[str, BaselineNeeds] = {}
    given = {spec.name for spec in config.scoring.all_specs([s for m in config.metrics.values() for s in m.scores()])}
    for gate in config.scoring.active_gates().values():
        if (run_id := gate.baseline) is not None:
            needs.setdefault(run_id, BaselineNeeds()).wheres.append(gate.labels())
            if gate.preference_against is not None and gate.named_run is not None:  # which of its cases are not here
                needs.setdefault(gate.named_run, BaselineNeeds()).wheres.append(gate.labels())
                needs[gate.named_run].scores.add(CASES)
            if (
                gate.measure == PREFERENCE
                or gate.failure_mode is not None
                or gate.score in given
                or gate.score == "overall_score"
            ):
                needs[run_id].scores.add(gate.measure)
    return needs


def _kept(folder: RunFolder) -> dict[str, Baseline]:
    return read_baselines(folder.baseline) if is_regular_file(folder.baseline) else {}


def _holds(kept: Mapping[str, Baseline], needs: Mapping[str, BaselineNeeds]) -> bool:
    """Whether these baselines have all that is needed of each."""
    return all(run_id in kept and kept[run_id].holds(need) for run_id, need in needs.items())


def _with_gates(config: RunConfig, run_ids: Mapping[str, str]) -> RunConfig:
    if not run_ids:
        return config
    gates = {
        name: gate.model_copy(update={_key(gate): run_ids[name]}) if gate is not None and name in run_ids else gate
        for name, gate in config.scoring.gates.items()
    }
    return config.model_copy(update={"scoring": config.scoring.model_copy(update={"gates": gates})})


def _with_calibration(config: RunConfig, named: str | None) -> tuple[RunConfig, Path | None]:
    """The configuration with the digest of the calibration that is named, and its path where it is named by one."""
    if named is None or DIGEST.fullmatch(named):
        return config, None
    path = Path(named)
    read_calibration(path)
    scoring = config.scoring.model_copy(update={"calibration": sha256_file(path)})
    return config.model_copy(update={"scoring": scoring}), path


def _no_baseline(key: str, text: str, error: RagpipeError) -> Problem:
    causes = getattr(error, "problems", ())
    if causes and causes[0].key == key:
        return Problem("scoring", key, causes[0].found, causes[0].expected, causes[0].fix)
    content = f"{text!r}: " + (f"{causes[0].found} ({causes[0].where})" if causes else str(error))
    expected = "a finished run: `latest`, a run id, a name below output_dir, or a folder"
    return Problem("scoring", key, content, expected, f"{key}=outputs/<name>/<run_id>")
