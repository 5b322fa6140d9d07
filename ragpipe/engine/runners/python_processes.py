"""How processes of this run that are Python are started: they import what this process imports, and nothing else."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping


def module_words(module: str) -> list[str]:
    """The words that start a module. Without `-P` its process would look into the current folder before the standard library, where
    a user may have a `queue.py`."""
    return [sys.executable, "-P", "-m", module]


def import_paths() -> list[str]:
    """The folders that this process imports from, in their order."""
    return [os.path.abspath(path or os.curdir) for path in sys.path]


def import_environment() -> Mapping[str, str]:
    """The environment, with these folders."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(import_paths())}
