"""Code of the user's that figures or answers rest on, recognised by the sha256 of its source: code that was edited is
another run.

Watched are the module of a metric's class, those of its bases and of the answer types that these modules name; and of a
Python system the module of its callable, and the one that defines it. What they import beside that is not watched.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from ragpipe.core.digest import sha256
from ragpipe.metrics.base import Metric
from ragpipe.schema.judge_answers.answer_type import Answer
from ragpipe.systems.settings import PythonSystem, SystemSettings

_FOREIGN = frozenset({"ragpipe", "pydantic", "pydantic_core", "typing_extensions", *sys.stdlib_module_names})
"""Packages whose code is no code of the user's."""


class SourceHashes(NamedTuple):
    """`sources` are the hashes of modules by name; `notes` say what cannot be watched, and what this process has imported
    in an older state than its file has now."""

    sources: dict[str, str]
    notes: tuple[str, ...] = ()


class _Loaded(NamedTuple):
    spec: ModuleSpec | None
    sha256: str


_LOADED: dict[str, _Loaded] = {}
"""What each module was when this process saw it first: edited afterwards, it goes on running as it was then. A module that
is loaded again has another spec."""


def metric_sources(kind: type[Metric]) -> SourceHashes:
    """The modules of a metric's class; none for a class of ragpipe's own."""
    left, seen = [base.__module__ for base in kind.__mro__ if _is_users(base.__module__)], dict[str, None]()
    while left:
        if (name := left.pop(0)) not in seen:
            seen[name] = None
            left += _answer_modules(name)
    return _watched(seen)


def system_sources(settings: SystemSettings, plugins: Iterable[str]) -> SourceHashes:
    """The module of a Python system's callable, and the one that defines it where that is another of the user's `plugins`;
    none where `system.identity` is `version`. The module must be imported already."""
    if not isinstance(settings, PythonSystem) or settings.recognised_by == "version":
        return SourceHashes({})
    name, _, function = settings.callable.partition(":")
    roots = {name.partition(".")[0] for name in plugins}
    found = getattr(sys.modules[name], function)
    while isinstance(found, partial):
        found = found.func
    if inspect.isroutine(found):
        found = inspect.unwrap(found)
    defined = str(getattr(found, "__module__", None) or name)
    return _watched([name, *([defined] if defined.partition(".")[0] in roots else [])])


def _is_users(module: str) -> bool:
    return module.partition(".")[0] not in _FOREIGN


def _answer_modules(name: str) -> Iterator[str]:
    """Where the answer types stand that a module names."""
    for value in list(vars(sys.modules.get(name, ModuleType(name))).values()):
        if inspect.isclass(value) and issubclass(value, Answer) and _is_users(value.__module__):
            yield value.__module__


def _watched(names: Iterable[str]) -> SourceHashes:
    sources, notes = dict[str, str](), list[str]()
    for name in sorted(set(names)):
        module = sys.modules.get(name)
        now, spec = _source(module), getattr(module, "__spec__", None)
        before = _LOADED.get(name)
        if before is None or before.spec is not spec:
            if now is None:
                notes.append(
                    f"the source of {name} cannot be read: when it is edited, nothing tells; raise the metric's `version`, or "
                    "system.version"
                )
                continue
            before = _LOADED[name] = _Loaded(spec, now)
        elif now not in (None, before.sha256):
            notes.append(
                f"{name} was edited after this process imported it: what runs is the older code; start the process again, or "
                "use importlib.reload"
            )
        sources[name] = before.sha256
    return SourceHashes(sources, tuple(notes))


def _source(module: ModuleType | None) -> str | None:
    """The hash of a module's source: by its loader, which reads archives too; else of its file; else as `inspect` finds it,
    which knows the cells of a notebook. None where there is none."""
    spec = getattr(module, "__spec__", None)
    try:
        text = spec.loader.get_source(spec.name)  # type: ignore[union-attr]
    except Exception:  # a loader is anybody's code
        text = None
    try:
        if text is None and (file := getattr(module, "__file__", None)) and Path(file).is_file():
            return sha256(Path(file).read_bytes())  # a compiled module
        return sha256(text if text is not None else inspect.getsource(module))  # type: ignore[arg-type]
    except (OSError, TypeError, UnicodeError):
        return None
