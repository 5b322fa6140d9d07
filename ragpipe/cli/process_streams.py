"""Standard streams and logging of the process while ragpipe runs in it."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from ragpipe.core.safe_stream import SafeStream


@contextlib.contextmanager
def steady_streams() -> Iterator[None]:
    """Standard output and standard error as streams that cannot end a run, also where the process has none."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(SafeStream, before)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before


@contextlib.contextmanager
def logging_kept() -> Iterator[None]:
    """Restore the handlers and the level of the root logger afterwards: a run may log in its own way."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = []
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def keep_pandas_away() -> None:
    """Let pyarrow take it that there is no pandas, unless it is loaded already.

    The first `pyarrow.array(...)` imports pandas where it is installed, only to ask whether its argument is a pandas object:
    0.6-2 s and 45 MiB in every process (pyarrow 26, measured). Once pandas is imported, pyarrow is told. A `pandas.NA` in a plain
    list no longer means null: so this is for processes that run no code of the user's, not for a notebook.
    """
    if "pandas" in sys.modules or any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    import pyarrow as pa

    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        with suppress(Exception):  # with a pyarrow that asks in another way only the shortcut is lost
            pa.array([1])
    finally:
        finder.asking = False


class _Finder(importlib.abc.MetaPathFinder):
    """Hides pandas while pyarrow asks; later finds it and tells pyarrow."""

    def __init__(self) -> None:
        self.asking = True

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "pandas":
            return None
        if self.asking:
            raise ImportError("pandas is not asked for yet")
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("pandas")
        if spec is not None and spec.loader is not None:
            spec.loader = _Telling(spec.loader)
        return spec


class _Telling(importlib.abc.Loader):
    """Loads pandas, then lets pyarrow look for it again (its lazy `pd` property imports it when it has none)."""

    def __init__(self, loader: importlib.abc.Loader):
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        import pyarrow.lib

        shim: Any = getattr(pyarrow.lib, "_pandas_api", None)
        with suppress(Exception):
            _ = shim.pd
