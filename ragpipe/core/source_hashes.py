"""The user's code behind scores and answers, by the sha256 of its source: edited code makes another run."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from ragpipe.core.digest import sha256

_FOREIGN = frozenset({"ragpipe", "pydantic", "pydantic_core", "typing_extensions", *sys.stdlib_module_names})
"""Packages whose code is not the user's."""


class SourceHashes(NamedTuple):
    """`sources` are the hashes of modules by name; `notes` name modules whose source cannot be read, and those that were
    edited after this process imported them."""

    sources: dict[str, str]
    notes: tuple[str, ...] = ()


class _LoadedModule(NamedTuple):
    spec: ModuleSpec | None
    sha256: str


_LOADED: dict[str, _LoadedModule] = {}
"""Each module as this process first saw it: when it is edited afterwards, the old code goes on running. A module that is
loaded again has another spec."""


def hash_modules(names: Iterable[str], remedy: str = "raise the metric's `version`, or system.version") -> SourceHashes:
    """The hashes of these modules. `remedy` is what to do where a source cannot be read."""
    sources, notes = dict[str, str](), list[str]()
    for name in sorted(set(names)):
        module = sys.modules.get(name)
        now, spec = _source_digest(module), getattr(module, "__spec__", None)
        before = _LOADED.get(name)
        if before is None or before.spec is not spec:
            if now is None:
                notes.append(f"the source of {name} cannot be read, so an edit goes unnoticed: {remedy}")
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
    """The hash of a module's source: by its loader (archives), its file, or `inspect` (notebooks); None where there is none."""
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


def users_modules(made: Any) -> list[str]:
    """The modules of a class and its bases, or of a function, which are the user's."""
    modules = [base.__module__ for base in made.__mro__] if isinstance(made, type) else [made.__module__]
    return [name for name in modules if is_users(name)]


def is_users(module: str) -> bool:
    """Whether a module, or what `module:object` names, is the user's own code."""
    return module.partition(".")[0] not in _FOREIGN
