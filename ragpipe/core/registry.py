"""What features bring to the pipeline, by kind and name: known without importing any of them, imported on first use.

A feature lists what it brings as plain data in `ENTRIES` of its package: kind, name, and "module" or "module:object":

    ENTRIES = {"task": {"view": "ragpipe.extras.view.task"}}

What an entry stands for is said by its kind (`KINDS`). ragpipe's own are in `ENTRIES` here, those of extras in the folders of
`ragpipe/extras/`: an extra is there as long as its folder is. Other distributions name their package by an entry point of the
group `ragpipe.plugins`, and the configuration names packages by `plugins`. Those two are imported only when a name is not
found here, or when all names are needed.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Final, Literal, get_args

from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.resources import PACKAGE, conf_dir

SAFE_PATH = "PYTHONSAFEPATH"
"""The variable by which a Python that is started leaves its working folder out of its path."""
GROUP = "ragpipe.plugins"
"""The group of the entry points by which other distributions name the package that has `ENTRIES`."""
Kind = Literal[
    "judge",  # the settings of a `judge` section, by its `kind`
    "embedder",  # the settings of an `embedder` section, by its `kind`
    "system",  # the settings of a `system` section, by its `kind` (data/system_settings.py)
    "transport",  # the settings of a `transport` section, by its `kind` (runs/settings.py)
    "runner",  # the settings of a `runner` section, by its `kind` (runs/settings.py)
    "store",  # what makes the `CallDatabase` of an address, by its scheme (store/call_database.py)
    "file_system",  # the module that copies files of every address (store/places.py)
    "reader",  # a function that gives the records of a file, by `dataset.format`
    "shapes",  # rows that tell whose file a file is, for `python -m ragpipe FILE` (data/recognition.py)
    "metric",  # a metric's class, by the name alone that `class` in its YAML has (metrics/from_config.py)
    "task",  # a module with `run`, and `validate` and `Keys` where it has settings of its own
    "section",  # a function that makes a section of the report from the run's files (runs/run_report.py)
    "export",  # a function that writes what `task=export formats=[NAME]` asks for (cli/tasks/export.py)
]
KINDS: tuple[Kind, ...] = get_args(Kind)
_EXTRAS = "ragpipe.extras"
_TITLE = "a plugin cannot be used"
_named: list[str] = []  # packages of `plugins`, of the newest configuration

Entries = Mapping[Kind, Mapping[str, str]]


def find(kind: Kind, name: str) -> Any:
    """What is registered under this name, imported now; None where nothing is. Raises ConfigError for a plugin that cannot be
    imported, or does not have what it lists."""
    target = _own()[kind].get(name)
    if target is not None:
        return imported(target)
    others = _others(tuple(_named))[kind]
    return _of_plugin(others[name], f"{kind} {name}") if name in others else None


def names(kind: Kind) -> list[str]:
    """All names of a kind: ragpipe's own, those of its extras, those of plugins. Raises ConfigError for a plugin that cannot be
    imported."""
    return [*own_names(kind), *_others(tuple(_named))[kind]]


def own_names(kind: Kind) -> list[str]:
    """The names of a kind without those of plugins."""
    return list(_own()[kind])


def everything(kind: Kind) -> dict[str, Any]:
    """Everything of a kind by name, without what plugins bring: what ragpipe's own schemas and pages are made from."""
    return {name: imported(target) for name, target in _own()[kind].items()}


def use(plugins: object) -> None:
    """Let the packages of the key `plugins` be found, from now on and in place of those before. They are imported when a name is looked
    for that is not here; what is no list of texts the settings refuse."""
    _named[:] = [name for name in plugins if isinstance(name, str)] if isinstance(plugins, list) else []


def option_folders() -> list[Path]:
    """The folders of YAML options: the shipped one, then those of extras."""
    folders = [Path(package.__path__[0]) / "conf" for package in _extras().values()]
    return [conf_dir(), *(folder for folder in folders if folder.is_dir())]


@cache
def option_files(group: str) -> dict[str, Path]:
    """The shipped YAML options of a group, those of extras too, in alphabetical order."""
    paths = [path for folder in option_folders() for path in (folder / group).glob("*.yaml")]
    return {path.stem: path for path in sorted(paths, key=lambda path: path.stem)}


def help_of_extras() -> list[dict[str, dict[str, str]]]:
    """What `--help` says of the tasks of each extra, by purpose and name."""
    return [getattr(package, "HELP", {}) for package in _extras().values()]


@contextmanager
def installed_modules_only() -> Iterator[list[str]]:
    """While this is open, no module of the working folder can be imported, by this process and by those that it starts; what was on
    the path is given."""
    path, here, safe = list(sys.path), Path.cwd(), os.environ.get(SAFE_PATH)
    if here != PACKAGE.parent:
        sys.path[:] = [entry for entry in path if entry and Path(entry).resolve() != here]
        os.environ[SAFE_PATH] = "1"
    try:
        yield path
    finally:
        sys.path[:] = path
        os.environ.pop(SAFE_PATH, None)
        if safe is not None:
            os.environ[SAFE_PATH] = safe


@cache
def _extras() -> dict[str, Any]:
    folders = importlib.import_module(_EXTRAS).__path__
    extras = sorted(module.name for module in iter_modules(folders) if module.ispkg)
    return {name: importlib.import_module(f"{_EXTRAS}.{name}") for name in extras}


@cache
def _own() -> dict[Kind, dict[str, str]]:
    """The entries of ragpipe itself and of its extras."""
    return _merged({"ragpipe": ENTRIES, **{f"extras.{name}": package.ENTRIES for name, package in _extras().items()}})


@cache
def _others(named: tuple[str, ...]) -> dict[Kind, dict[str, str]]:
    """The entries of other distributions, and of these packages of `plugins`."""
    with installed_modules_only():
        points = sorted(entry_points(group=GROUP), key=lambda point: point.value)
        packages = {point.value: _of_plugin(point.value, f"entry point {point.name}") for point in points}
    packages |= {name: _of_plugin(name, "plugins") for name in named if name not in packages}
    return _merged({name: getattr(package, "ENTRIES", {}) for name, package in packages.items()}, taken=_own())


def _merged(listed: Mapping[str, Entries], taken: Entries | None = None) -> dict[Kind, dict[str, str]]:
    """All entries together. Raises ConfigError for an unknown kind, and for a name that stands for two things."""
    merged: dict[Kind, dict[str, str]] = {kind: {} for kind in KINDS}
    for package, entries in listed.items():
        for kind, by_name in entries.items():
            if kind not in merged:
                raise _refused(f"ENTRIES of {package}", f"the kind {kind!r}", f"one of {', '.join(KINDS)}")
            for name, target in by_name.items():
                known = merged[kind].get(name) or (taken or {}).get(kind, {}).get(name, target)
                if known != target:
                    clash = f"{kind} {name}, which is {known} already"
                    raise _refused(f"ENTRIES of {package}", clash, "a name that nothing else has")
                merged[kind][name] = target
    return merged


def imported(target: str) -> Any:
    """The module, or what `module:object` names in it, imported now."""
    path, _, attribute = target.partition(":")
    module = importlib.import_module(path)
    return getattr(module, attribute) if attribute else module


def _of_plugin(target: str, what: str) -> Any:
    """What a plugin's text names. Raises ConfigError: the import may fail in any way, and the user needs to see which and why."""
    try:
        return imported(target)
    except Exception as error:
        reason = f"{target!r}, whose import fails: {type(error).__name__}: {error}"
        raise _refused(what, reason, "a module, or module:object, that can be imported") from error


def _refused(key: str, fault: str, expected: str) -> ConfigError:
    return ConfigError(_TITLE, [Problem("plugins", key, fault, expected, "correct the plugin, or take it away")])


_TASKS = (
    "calibrate", "compare", "evaluate", "explain", "export", "history", "init", "label", "plan", "rejudge",
    "rescore", "runs", "schema", "store", "verify",
)  # fmt: skip
ENTRIES: Final[Any] = {
    "judge": {"rules": "ragpipe.judge.rules.settings:RulesSettings", "llm": "ragpipe.judge.settings:JudgeSettings"},
    "embedder": {"none": "ragpipe.judge.embedder:NoEmbedder", "minilm": "ragpipe.judge.embedder:MiniLM"},
    "system": {
        "recorded": "ragpipe.data.system_settings:RecordedSystem",
        "python": "ragpipe.data.system_settings:PythonSystem",
        "http": "ragpipe.data.system_settings:HttpSystem",
    },
    "runner": {"local": "ragpipe.runs.settings:LocalRunner"},
    "transport": {
        "live": "ragpipe.runs.settings:LiveTransportSettings",
        "stored": "ragpipe.runs.settings:StoredTransportSettings",
    },
    "section": {  # in the order of the report: is it better, what is wrong, where, the cases, the fine print
        "gates": "ragpipe.report.verdict_section:gates_section",
        "better": "ragpipe.report.results_section:better_section",
        "results": "ragpipe.report.results_section:results_section",
        "shared": "ragpipe.report.results_section:shared_section",
        "methods": "ragpipe.report.results_section:methods_section",
        "corrected": "ragpipe.report.results_section:corrected_section",
        "jury": "ragpipe.report.results_section:jury_section",
        "drift": "ragpipe.report.results_section:drift_section",
        "diagnosis": "ragpipe.report.diagnosis_section:diagnosis_section",
        "low_scores": "ragpipe.report.diagnosis_section:low_scores_section",
        "versions": "ragpipe.report.chunk_section:versions_section",
        "categories": "ragpipe.report.spread_section:categories_section",
        "slices": "ragpipe.report.spread_section:slices_section",
        "spread": "ragpipe.report.spread_section:spread_section",
        "distributions": "ragpipe.report.results_section:distributions_section",
        "iterations": "ragpipe.report.cost_section:iterations_section",
        "lowest_cases": "ragpipe.report.diagnosis_section:lowest_cases_section",
        "chunks": "ragpipe.report.chunk_section:chunks_section",
        "coverage": "ragpipe.report.cost_section:coverage_section",
        "cost": "ragpipe.report.cost_section:cost_section",
        "operations": "ragpipe.report.cost_section:operations_section",
        "index": "ragpipe.report.diagnosis_section:index_section",
        "reading": "ragpipe.report.verdict_section:reading_section",
    },
    "task": {name: f"ragpipe.cli.tasks.{name}" for name in _TASKS},
}
