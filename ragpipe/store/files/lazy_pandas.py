"""Keeps pyarrow from importing pandas before anybody uses it.

The first `pyarrow.array(...)`, `empty_table()` or `to_numpy()` imports pandas where it is installed, only to ask whether
its argument is a pandas object: 0.6-2 s and 45 MiB in every process (pyarrow 26, measured). As long as nobody imported
pandas, the answer is known to be no. Once somebody does, pyarrow is told and takes frames and
series again. One thing it does not learn any more: that a `pandas.NA` in a plain Python list means null. So this is for
processes that run no code of the user's (scoring again, reporting, planning), not for a notebook.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def keep_pandas_away() -> None:
    """Answer pyarrow's question once and for all. Does nothing where pandas is loaded already, or the second time."""
    if "pandas" in sys.modules or any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    import pyarrow as pa

    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        with suppress(Exception):  # a pyarrow that asks in another way loses the shortcut, nothing else
            pa.array([1])
    finally:
        finder.asking = False


class _Finder(importlib.abc.MetaPathFinder):
    """Says that there is no pandas while pyarrow asks; later finds it and tells pyarrow that it has come."""

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
