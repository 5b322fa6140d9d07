"""Evaluate RAG systems from config files.

import ragpipe
run = ragpipe.run(["+experiment=quickstart"])     # what `python -m ragpipe +experiment=quickstart` does
run = ragpipe.load("outputs/quickstart/latest")   # a run that is there already
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from ragpipe.reports.frames import Run

__version__ = "0.1.0"
__all__ = ["__version__", "load", "run"]


def run(overrides: Sequence[str], *, config_dir: str | None = None) -> Run:
    """Evaluate what the words of a command line describe (`["+experiment=x", "judge=llm"]`) and return its results.

    Works where an event loop is running already (a notebook). Raises the errors of `ragpipe.errors`; a failed gate is
    no error here, it stands in the results.
    """
    from ragpipe.cli import run_overrides

    return load(run_overrides(overrides, config_dir=config_dir))


def load(path: str | Path) -> Run:
    """The results in a run folder: `.records`, `.scores`, `.judge_inputs` as pandas frames, `.metrics`, `.cost` as dicts."""
    from ragpipe.reports.frames import load as read

    return read(path)
