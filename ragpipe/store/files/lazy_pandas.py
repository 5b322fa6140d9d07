"""Keeps pyarrow from importing pandas before it is used.

The first `pyarrow.array(...)`, `empty_table()` or `to_numpy()` imports pandas where it is installed, only to ask whether
its argument is a pandas object: 0.6-2 s and 45 MiB in every process (pyarrow 26, measured). Until pandas is imported, the answer
is known to be no. Once it is imported, pyarrow is told and accepts frames and series again. The one loss: a `pandas.NA` in
a plain Python list no longer means null. So this is for processes that run no code of the user's (scoring again,
reporting, planning), not for a notebook.
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
    """Answer pyarrow's question with no. Does nothing where pandas is already loaded, or the second time."""
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
