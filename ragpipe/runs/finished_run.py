"""Opening a finished run for another task: its configuration, with the user's overrides laid over it.

The folder alone is enough: frozen cases, replies and prompts travel with it. It may come from anybody, so no class, plugin,
endpoint or name of a key is taken from it, only data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

from pydantic import Field

from ragpipe.core.errors import ConfigError, DataError, Problem
from ragpipe.core.resources import prompts_dir
from ragpipe.core.settings import ConfigOrigins, NoOrigins, Settings, SettingsT, setting_keys, task_settings
from ragpipe.core.yaml_files import FastLoader, check_yaml, key_path, lines_of
from ragpipe.judge.jury import JurySettings
from ragpipe.judge.prompt_library import PromptLibrary
from ragpipe.judge.settings import JudgeSettings
from ragpipe.runs.identity import run_identity, sources_of, with_sources
from ragpipe.runs.manifest import checked_manifest
from ragpipe.runs.run_list import EXPECTED, check_unmodified, run_of_task
from ragpipe.runs.scoring_files import NO_FILES, ScoringFiles, resolved_for_finished
from ragpipe.runs.settings import RunConfig, prompt_library
from ragpipe.runs.validation import INVALID_CONFIGURATION, validate_finished_config
from ragpipe.store.recorded_replies import RecordedReplies
from ragpipe.store.run_folder import RunFolder
from ragpipe.store.run_tables import check_regular_file, check_sealed, run_file_error
from ragpipe.store.seals import unchecked

START_SECTIONS = frozenset(
    {
        "output_dir",
        "plugins",
        "log_level",
        "on_metric_error",
        "retry_errors",
        "lock_wait_s",
        "task",
        "transport",
        "runner",
        "store",
        "run",
        "prompt_dirs",
        "publish",
    }
)
"""Sections that belong to this start and this machine, never to the run: they come from the composed configuration."""


@dataclass(frozen=True)
class FinishedRun:
    """A run that was made before. `overrides` are the keys that the user set over its configuration; `scoring_files` is what
    its scoring names beside it."""

    folder: RunFolder
    manifest: dict[str, Any]
    config: RunConfig
    overrides: tuple[str, ...]
    scoring_files: ScoringFiles = NO_FILES

    @property
    def run_id(self) -> str:
        """The id of the run, whatever its folder is called."""
        return str(self.manifest["run_id"])

    def identity(self) -> dict[str, Any]:
        """The identity of the run that this configuration describes, over the same data and outputs."""
        config, system = self.config, self.manifest["identity"].get("system")
        sources = sources_of(system) if isinstance(system, dict) else {}
        return run_identity(
            with_sources(config.identity(), sources),
            list(config.metrics.values()),
            data=self.manifest["data"]["digest"],
            judge=config.judge,
        )

    def folder_of(self, run_id: str) -> RunFolder:
        """The folder of the run with this id: this run's own for its own id, else one beside it; below `output_dir` where
        the user set that."""
        if run_id == self.run_id:
            return self.folder
        if "output_dir" in self.overrides:
            return RunFolder.at(Path(self.config.output_dir), self.config.name, run_id)
        return RunFolder(self.folder.root.parent / run_id)

    def judge_inputs(self) -> list[Path]:
        """The tables with the replies of every iteration that was judged to its end."""
        return [self.folder.iteration(number).judge_inputs for number in _judged_iterations(self.manifest)]

    def replies(self, *, failures: str = "all") -> RecordedReplies:
        """The replies of these tables, as a store of calls."""
        return RecordedReplies(self.judge_inputs(), failures=failures)


def open_run(
    plain: Mapping[str, Any],
    origins: ConfigOrigins | None = None,
    *,
    changeable: Sequence[str],
    task: str,
    task_keys: Sequence[str] = (),
    current_prompts: bool = False,
) -> FinishedRun:
    """The run that `run` names, with the user's overrides over its configuration.

    Templates come from the run, versions that it does not have from the prompt folders of this start; with `current_prompts`
    all from there. `changeable` are the sections and keys of the run that the task may change, `task_keys` its own, which are
    no part of a run. Raises ConfigError and DataError.
    """
    origins = origins or NoOrigins()
    with unchecked() if task == "verify" else nullcontext():  # it says what changed, so it reads the run as it is
        folder = _run_folder(plain, origins, task)
        manifest = checked_manifest(folder)
        check_unmodified(folder, manifest["iterations"])
        recorded = read_config(folder)
        overrides = tuple(getattr(origins, "chosen", ()))
        changes = [key for key in overrides if key.partition(".")[0] not in START_SECTIONS.union(task_keys)]
        _check_changeable(changes, changeable, task, origins)
        _check_removed_metrics(recorded, plain, changes, origins)
        composed = _overlaid(recorded, plain, changes)
        if "iterations" not in changes:
            composed["iterations"] = max(_judged_iterations(manifest))
        overlaid_origins = _OverlaidOrigins(folder.config, origins, changes)
        dirs = list(plain.get("prompt_dirs") or [])
        prompts = prompt_library(dirs) if current_prompts else run_prompts(folder, [Path(name).absolute() for name in dirs])
        config = validate_finished_config(composed, overlaid_origins, prompts=prompts)
        own_ids = [run_id for run_id in (manifest["run_id"], manifest.get("source_run")) if run_id]
        beside = task == "rescore" and "scoring.calibration" not in changes
        config, scoring_files = resolved_for_finished(
            config, folder, own_ids, by_own_calibration=beside, rescores=task == "rescore"
        )
        return FinishedRun(folder, manifest, config, overrides, scoring_files)


def _check_changeable(changes: Sequence[str], changeable: Sequence[str], task: str, origins: ConfigOrigins) -> None:
    """Raises ConfigError for changes of what is frozen in the run, or is not for this task to change."""
    refused = [key for key in changes if not any(f"{key}.".startswith(f"{part}.") for part in changeable)]
    if not refused:
        return
    of_this_start = ", ".join(sorted(START_SECTIONS - {"run", "task"}))
    expected = f"{', '.join(changeable)} (and {of_this_start})"
    if not changeable:
        expected = f"no change: task={task} reads the run as it is (only {of_this_start} may be set)"
    problems = [
        Problem(origins.location(key), key, "a change of what is frozen in the run", expected, f"task=evaluate with {key}=...")
        for key in refused
    ]
    raise ConfigError(f"task={task} cannot change everything of a run", problems)


def _check_removed_metrics(
    recorded: Mapping[str, Any], plain: Mapping[str, Any], changes: Sequence[str], origins: ConfigOrigins
) -> None:
    """Raises ConfigError where a metric is taken away that the run does not have."""
    run_metrics, metrics = recorded.get("metrics") or {}, plain.get("metrics") or {}
    names = {key: key.removeprefix("metrics.") for key in changes if re.fullmatch(r"metrics\.[^.]+", key)}
    unknown = [key for key, name in names.items() if metrics.get(name) is None and name not in run_metrics]
    if unknown:
        expected = f"one of {', '.join(run_metrics)}"
        problems = [Problem(origins.location(key), key, "no metric of this run", expected, "") for key in unknown]
        raise ConfigError(INVALID_CONFIGURATION, problems)


class _OverlaidOrigins:
    """Where a value was set: a line of the run's config.yaml, or where the user overrode it."""

    def __init__(self, path: Path, start: ConfigOrigins, changes: Sequence[str]):
        self._start, self._changes, self._path = start, tuple(changes), path
        self._lines = lines_of(path)

    def location(self, key: str) -> str:
        is_change = any(key == change or key.startswith(f"{change}.") for change in self._changes)
        if is_change or key.partition(".")[0] in START_SECTIONS:
            return self._start.location(key)
        parts = key.split(".")
        prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
        line = next((self._lines[prefix] for prefix in prefixes if prefix in self._lines), 1)
        return f"{key_path(self._path)}:{line}"

    def typed_text(self, key: str) -> str | None:
        return self._start.typed_text(key)


def _judged_iterations(manifest: Mapping[str, Any]) -> list[int]:
    """The iterations that were judged to their end, in order; [1] where none was, so that errors name its file."""
    return sorted(map(int, manifest["iterations"])) or [1]


def _run_folder(plain: Mapping[str, Any], origins: ConfigOrigins, task: str) -> RunFolder:
    path = plain.get("run")
    if not isinstance(path, str) or not path:
        fix = f"python -m ragpipe task={task} run=NAME"
        raise ConfigError(INVALID_CONFIGURATION, [Problem(origins.location("run"), "run", repr(path), EXPECTED, fix)])
    return run_of_task(path, plain, origins)


def read_config(folder: RunFolder) -> dict[str, Any]:
    """The run's config.yaml as plain data, not checked. Raises DataError for a file that is missing, a link, or not YAML."""
    import yaml

    path = folder.config
    check_regular_file(path)
    check_sealed(path)
    if problems := check_yaml(path, key_path(path)):
        raise DataError("a run's configuration cannot be read", problems)
    document = yaml.load(path.read_text(encoding="utf-8"), Loader=FastLoader)
    try:
        json.dumps(document, default=str)
    except (ValueError, RecursionError):  # an alias to a value that contains it
        raise run_file_error(path, "a value that contains itself", "plain values") from None
    return document if isinstance(document, dict) else {}


def run_prompts(folder: RunFolder, dirs: Sequence[Path]) -> PromptLibrary:
    """The templates of a run folder, then of these folders, then of the shipped one. Raises DataError for a link."""
    for path in (folder.prompts, *sorted(folder.prompts.rglob("*"))):
        if path.is_symlink():  # what a template holds is sent to a judge: it must not be a file of this machine
            raise run_file_error(path, "a symbolic link", "the template itself")
        check_sealed(path)
    return PromptLibrary([folder.prompts.absolute(), *dirs, prompts_dir()])


def _overlaid(recorded: Mapping[str, Any], plain: Mapping[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """The run's configuration, with the sections of this start and, key by key, what the user changed."""
    overlaid = deepcopy({key: value for key, value in recorded.items() if key not in START_SECTIONS})
    overlaid |= {key: plain[key] for key in START_SECTIONS - {"run"} if key in plain}
    for key in sorted(changes, key=lambda key: key.count(".")):  # a section before its keys
        if key == "metrics":
            overlaid[key] = _chosen_metrics(overlaid.get(key), plain.get(key))
        else:
            _copy_key(overlaid, key.split("."), plain)
    if isinstance(overlaid.get("metrics"), dict):
        overlaid["metrics"] = {name: section for name, section in overlaid["metrics"].items() if section is not None}
    return overlaid


def _chosen_metrics(recorded: Any, chosen: Any) -> Any:
    """`metrics=[a,b]` over a run: metrics of the run keep its settings, others have those of the shipped option."""
    if not (isinstance(recorded, Mapping) and isinstance(chosen, Mapping)):
        return deepcopy(chosen)
    return {name: deepcopy(recorded.get(name, section)) for name, section in chosen.items()}


def _copy_key(target: dict[str, Any], path: list[str], source: Any) -> None:
    """Copy one key from the composition; a key that was removed there is removed here."""
    *parents, last = path
    for name in parents:
        target = target.setdefault(name, {})
        source = source.get(name, {}) if isinstance(source, Mapping) else {}
        if not isinstance(target, dict):
            return
    if isinstance(source, Mapping) and last in source:
        target[last] = deepcopy(source[last])
    else:
        target.pop(last, None)


class FinishedRunKeys(Settings):
    """The keys of a task over a finished run, beside its own. `Keys` of a task's module are all that its YAML may have."""

    run: str = Field(min_length=1, description="Finished run: a name, NAME/latest, a run id, a run folder, or latest.")


@dataclass(frozen=True)
class FinishedRunTask(Generic[SettingsT]):
    """A task over a finished run: the run as it was opened, and the task's own settings."""

    finished: FinishedRun
    settings: SettingsT

    @property
    def plugins(self) -> list[str]:
        """The packages of the user's own classes that this start may import."""
        return self.finished.config.plugins

    @property
    def log_level(self) -> str:
        """The level of the library logs of this start."""
        return self.finished.config.log_level

    @property
    def lock_wait_s(self) -> float | None:
        """Seconds to wait for a folder that another process is using; None for the default."""
        return self.finished.config.lock_wait_s


def open_finished_run(
    plain: Mapping[str, Any],
    origins: ConfigOrigins | None,
    settings_class: type[SettingsT],
    *,
    task: str,
    title: str = "",
    section: str = "",
    changeable: Sequence[str] = (),
) -> FinishedRunTask[SettingsT]:
    """The task's settings, from the section of that name or from top-level keys, and the run that `run` names. `title` is that
    of the error for wrong settings, `changeable` what of the run's configuration the task may change. Raises ConfigError and
    DataError."""
    origins = origins or NoOrigins()
    settings = task_settings(settings_class, plain, origins, title=title, section=section)
    keys = (section,) if section else setting_keys(settings_class)
    finished = open_run(plain, origins, changeable=changeable, task=task, task_keys=keys)
    return FinishedRunTask(finished, settings)


def unnamed_judge(finished: FinishedRun, origins: ConfigOrigins, *, without_a_call: str) -> Problem | None:
    """The problem where a live judge is to be asked that only the run folder names: the folder may come from anybody, so a live
    call goes where the user says. `without_a_call` is what to write instead for no call at all."""
    config = finished.config
    asks_server = isinstance(config.judge, JurySettings) and bool(config.judge.asked_servers)
    is_live = config.transport.asks and (isinstance(config.judge, JudgeSettings) or asks_server)
    if not is_live or "judge" in finished.overrides:
        return None
    return Problem(
        origins.location("judge"),
        "judge",
        f"only the run's own ({config.judge.label})",
        "a judge that you name: addresses and names of keys are never taken from a run folder",
        f"judge=llm judge.model=... (and judge.api_base, judge.api_key_env), or {without_a_call} for no call",
    )
