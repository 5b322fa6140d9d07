"""The user's code behind scores and answers, identified by the sha256 of its source: edited code makes another run.

Hashed are, for a metric, the module of its class and those of its bases and of the answer types that these modules name;
for a Python system, the module of its callable and the module that defines it. What these import is not hashed.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from importlib.machinery import ModuleSpec
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from ragpipe.core.digest import sha256
from ragpipe.metrics.base import Metric
from ragpipe.schema.judge_answers.answer_type import Answer
from ragpipe.systems.settings import AnySystem, LiveSystem

_FOREIGN = frozenset({"ragpipe", "pydantic", "pydantic_core", "typing_extensions", *sys.stdlib_module_names})
"""Packages whose code is not the user's."""


class SourceHashes(NamedTuple):
    """`sources` are the hashes of modules by name; `notes` name modules whose source cannot be read, and those that were
    edited after this process imported them."""

    sources: dict[str, str]
    notes: tuple[str, ...] = ()


class SystemSources(NamedTuple):
    """As `SourceHashes`, by method."""

    sources: dict[str, dict[str, str]]
    notes: tuple[str, ...] = ()


class _LoadedModule(NamedTuple):
    spec: ModuleSpec | None
    sha256: str


_LOADED: dict[str, _LoadedModule] = {}
"""Each module as this process first saw it: when it is edited afterwards, the old code goes on running. A module that is
loaded again has another spec."""


def metric_sources(kind: type[Metric]) -> SourceHashes:
    """The hashes of the modules behind a metric's class; none for a shipped class."""
    queue = [base.__module__ for base in kind.__mro__ if _is_users(base.__module__)]
    modules = dict[str, None]()
    while queue:
        if (name := queue.pop(0)) not in modules:
            modules[name] = None
            queue += _answer_modules(name)
    return _hash_modules(modules)


def system_sources(settings: AnySystem, plugins: Iterable[str]) -> SystemSources:
    """The hashes of the code behind each method of a live system: see `callable_sources`."""
    by_method, notes = dict[str, dict[str, str]](), dict[str, None]()
    for method in settings.each_method() if isinstance(settings, LiveSystem) else ():
        hashes = callable_sources(method, plugins)
        notes |= dict.fromkeys(hashes.notes)
        if hashes.sources:
            by_method[method.method] = hashes.sources
    return SystemSources(by_method, tuple(notes))


def callable_sources(settings: LiveSystem, plugins: Iterable[str]) -> SourceHashes:
    """The hash of the module of a system's `code`, and of the module that defines it where that is another one of the user's
    `plugins`; none where its version alone counts. The module must be imported already."""
    if settings.by_version:
        return SourceHashes({})
    name, _, attribute = settings.code.partition(":")
    function = attrgetter(attribute)(sys.modules[name])
    while isinstance(function, partial):
        function = function.func
    if inspect.isroutine(function):
        function = inspect.unwrap(function)
    defining_module = str(getattr(function, "__module__", None) or name)
    plugin_roots = {plugin.partition(".")[0] for plugin in plugins}
    if defining_module.partition(".")[0] in plugin_roots:
        return _hash_modules([name, defining_module])
    return _hash_modules([name])


def _is_users(module: str) -> bool:
    return module.partition(".")[0] not in _FOREIGN


def _answer_modules(name: str) -> Iterator[str]:
    """The modules that define the answer types which a module names."""
    for value in list(vars(sys.modules.get(name, ModuleType(name))).values()):
        if inspect.isclass(value) and issubclass(value, Answer) and _is_users(value.__module__):
            yield value.__module__


def _hash_modules(names: Iterable[str]) -> SourceHashes:
    sources, notes = dict[str, str](), list[str]()
    for name in sorted(set(names)):
        module = sys.modules.get(name)
        now, spec = _source_digest(module), getattr(module, "__spec__", None)
        before = _LOADED.get(name)
        if before is None or before.spec is not spec:
            if now is None:
                notes.append(
                    f"the source of {name} cannot be read, so an edit goes unnoticed: raise the metric's `version`, or "
                    "system.version"
                )
                continue
            before = _LOADED[name] = _LoadedModule(spec, now)
        elif now not in (None, before.sha256):
            notes.append(
                f"{name} was edited after this process imported it: what runs is the older code; start the process again, or "
                "use importlib.reload"
            )
        sources[name] = before.sha256
    return SourceHashes(sources, tuple(notes))


def _source_digest(module: ModuleType | None) -> str | None:
    """The hash of a module's source: as its loader gives it, which reads archives too; else of its file; else as `inspect`
    gives it, which knows the cells of a notebook. None where there is none."""
    spec = getattr(module, "__spec__", None)
    try:
        text = spec.loader.get_source(spec.name)  # type: ignore[union-attr]
    except Exception:  # a loader may be third-party code
        text = None
    try:
        if text is None and (file := getattr(module, "__file__", None)) and Path(file).is_file():
            return sha256(Path(file).read_bytes())  # a compiled module
        return sha256(text if text is not None else inspect.getsource(module))  # type: ignore[arg-type]
    except (OSError, TypeError, UnicodeError):
        return None
