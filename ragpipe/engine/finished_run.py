"""A finished run as the start of another task: its configuration, with what the user says now laid over it.

The folder alone is enough: frozen cases, replies and prompts travel with it. It may come from a stranger: no class,
plugin, endpoint or name of a key is taken from it, only data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragpipe.config.run_validation import INVALID_CONFIGURATION, validate_finished_config
from ragpipe.config.settings import RunConfig, prompt_library
from ragpipe.core.errors import ConfigError, DataError, Problem
from ragpipe.core.resources import prompts_dir
from ragpipe.core.validation import ConfigOrigins, NoOrigins
from ragpipe.core.yaml_check import check_yaml
from ragpipe.core.yaml_lines import FastLoader, key_path, lines_of
from ragpipe.engine.manifest import checked_manifest
from ragpipe.engine.run_identity import run_identity, with_source
from ragpipe.prompting.library import PromptLibrary
from ragpipe.store.calls.recorded_replies import RecordedReplies
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import check_regular_file, run_file_error

OURS = frozenset(
    {
        "output_dir",
        "plugins",
        "log_level",
        "on_metric_error",
        "retry_errors",
        "lock_wait_s",
        "task",
        "transport",
        "store",
        "run",
        "prompt_dirs",
    }
)
"""Sections that belong to this start and this machine, never to the run: taken from what is composed now."""


@dataclass(frozen=True)
class FinishedRun:
    """A run that was made before. `changed` are the keys that the user's words set over its configuration."""

    folder: RunFolder
    manifest: dict[str, Any]
    config: RunConfig
    changed: tuple[str, ...]

    @property
    def plugins(self) -> list[str]:
        return self.config.plugins

    @property
    def log_level(self) -> str:
        return self.config.log_level

    @property
    def lock_wait_s(self) -> float | None:
        return self.config.lock_wait_s

    @property
    def run_id(self) -> str:
        return str(self.manifest["run_id"])

    def identity(self) -> dict[str, Any]:
        """That of the run that this configuration describes, over the same data and the outputs that it has."""
        config, system = self.config, self.manifest["identity"].get("system")
        sources = system.get("source") if isinstance(system, dict) else None
        return run_identity(
            with_source(config.identity(), sources or {}),
            list(config.metrics.values()),
            data=self.manifest["data"]["digest"],
            judge=config.judge.identity_of_judge(),
        )

    def sibling(self, run_id: str) -> RunFolder:
        """The folder of another run beside this one; under `output_dir` when that was said. The run itself, whatever its
        folder is called by now, has its own."""
        if run_id == self.run_id:
            return self.folder
        if "output_dir" in self.changed:
            return RunFolder.at(Path(self.config.output_dir), self.config.name, run_id)
        return RunFolder(self.folder.root.parent / run_id)

    def judge_inputs(self) -> list[Path]:
        """The replies of every iteration that was judged to its end."""
        return [self.folder.iteration(number).judge_inputs for number in _judged(self.manifest)]

    def replies(self, *, failures: str = "all") -> RecordedReplies:
        return RecordedReplies(self.judge_inputs(), failures=failures)


def open_run(
    plain: Mapping[str, Any],
    origins: ConfigOrigins | None = None,
    *,
    allowed: Sequence[str],
    task: str,
    task_keys: Sequence[str] = (),
    current_prompts: bool = False,
) -> FinishedRun:
    """The run that `run` names, with the user's words over its configuration.

    `allowed` are the sections, and single keys, that this task may change, `task_keys` its own keys, which are no part of a run. Templates come from the run, other versions than its own from
    the folders of now; with `current_prompts` all of them do. Raises ConfigError and DataError.
    """
    origins = origins or NoOrigins()
    folder = _folder(plain, origins, task)
    manifest = checked_manifest(folder)
    own = read_config(folder)
    said = tuple(key for key in getattr(origins, "chosen", ()))
    words = [key for key in said if key.partition(".")[0] not in OURS.union(task_keys)]
    if refused := [key for key in words if not any(f"{key}.".startswith(f"{part}.") for part in allowed)]:
        expected = f"{', '.join(allowed)} (and {', '.join(sorted(OURS - {'run', 'task'}))})"
        raise ConfigError(
            f"task={task} cannot change everything of a run",
            [
                Problem(
                    origins.location(key),
                    key,
                    "a change of what is frozen in the run",
                    expected,
                    f"task=evaluate with {key}=...",
                )
                for key in refused
            ],
        )
    if unknown := _not_there(own, plain, words):
        there = ", ".join(own.get("metrics") or {})
        raise ConfigError(
            INVALID_CONFIGURATION,
            [Problem(origins.location(key), key, "no metric of this run", f"one of {there}", "") for key in unknown],
        )
    composed = _overlaid(own, plain, words)
    place = _Places(folder.config, origins, words)
    dirs = list(plain.get("prompt_dirs") or [])
    prompts = prompt_library(dirs) if current_prompts else _prompts(folder, dirs)
    if "iterations" not in words:
        composed["iterations"] = max(_judged(manifest))
    config = validate_finished_config(composed, place, prompts=prompts)
    return FinishedRun(folder, manifest, config, said)


class _Places:
    """Origins: the run's config.yaml, and for what was said now wherever it was said."""

    def __init__(self, path: Path, now: ConfigOrigins, said: Sequence[str]):
        self._now, self._said, self._path = now, tuple(said), path
        self._lines = lines_of(path)

    def location(self, key: str) -> str:
        if key.partition(".")[0] in OURS or any(key == s or key.startswith(f"{s}.") for s in self._said):
            return self._now.location(key)
        parts = key.split(".")
        line = next((self._lines[k] for n in range(len(parts), 0, -1) if (k := ".".join(parts[:n])) in self._lines), 1)
        return f"{key_path(self._path)}:{line}"

    def typed_text(self, key: str) -> str | None:
        return self._now.typed_text(key)


def _judged(manifest: Mapping[str, Any]) -> list[int]:
    """The iterations that were judged to their end, in order; the first one also where none was, so that its file is named.

    A start that was stopped while it judged one more leaves a folder without tables: the others are whole.
    """
    return sorted(map(int, manifest["iterations"])) or [1]


def _folder(plain: Mapping[str, Any], origins: ConfigOrigins, task: str) -> RunFolder:
    found = plain.get("run")
    if not isinstance(found, str) or not found:
        fix = f"python -m ragpipe task={task} run=outputs/<name>/latest"
        raise ConfigError(
            INVALID_CONFIGURATION, [Problem(origins.location("run"), "run", repr(found), "a run folder", fix)]
        )
    return RunFolder.find(Path(found))


def read_config(folder: RunFolder) -> dict[str, Any]:
    """The run's config.yaml as plain data, not checked. Raises DataError for one that is missing, a link, or no YAML."""
    import yaml

    path = folder.config
    check_regular_file(path)
    if problems := check_yaml(path, key_path(path)):
        raise DataError("a run's configuration cannot be read", problems)
    found = yaml.load(path.read_text(encoding="utf-8"), Loader=FastLoader)
    try:
        json.dumps(found, default=str)
    except (ValueError, RecursionError):  # an alias to what it stands in
        raise run_file_error(path, "a value that contains itself", "plain values") from None
    return found if isinstance(found, dict) else {}


def _prompts(folder: RunFolder, dirs: Sequence[str]) -> PromptLibrary:
    for path in (folder.prompts, *sorted(folder.prompts.rglob("*"))):
        if path.is_symlink():  # what a template holds is sent to a judge: it must not be a file of this machine
            raise run_file_error(path, "a symbolic link", "the template itself")
    return PromptLibrary([folder.prompts.absolute(), *(Path(d).absolute() for d in dirs), prompts_dir()])


def _overlaid(own: Mapping[str, Any], plain: Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """The run's configuration, the sections of this start, and key by key what was said."""
    found = deepcopy({key: value for key, value in own.items() if key not in OURS})
    found |= {key: plain[key] for key in OURS - {"run"} if key in plain}
    for key in sorted(words, key=lambda key: key.count(".")):  # a section before its keys
        if key == "metrics":
            found[key] = _chosen(found.get(key), plain.get(key))
        else:
            _put(found, key.split("."), plain)
    if isinstance(found.get("metrics"), dict):
        found["metrics"] = {name: section for name, section in found["metrics"].items() if section is not None}
    return found


def _not_there(own: Mapping[str, Any], plain: Mapping[str, Any], words: Sequence[str]) -> list[str]:
    """The metrics that are to be taken away and that the run does not have."""
    has, now = own.get("metrics") or {}, plain.get("metrics") or {}
    keys = [key for key in words if key.startswith("metrics.") and key.count(".") == 1]
    return [key for key in keys if now.get(key[8:]) is None and key[8:] not in has]


def _chosen(own: Any, chosen: Any) -> Any:
    """`metrics=[a,b]` over a run: those that it has as it has them, others as they are shipped."""
    if not (isinstance(own, Mapping) and isinstance(chosen, Mapping)):
        return deepcopy(chosen)
    return {name: deepcopy(own.get(name, section)) for name, section in chosen.items()}


def _put(target: dict[str, Any], path: list[str], source: Any) -> None:
    """Copy one key from the composition; a key that was taken away there is taken away here."""
    *around, last = path
    for name in around:
        target = target.setdefault(name, {})
        source = source.get(name, {}) if isinstance(source, Mapping) else {}
        if not isinstance(target, dict):
            return
    if isinstance(source, Mapping) and last in source:
        target[last] = deepcopy(source[last])
    else:
        target.pop(last, None)
