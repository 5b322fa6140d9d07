"""Evaluate RAG systems from config files.

import ragpipe
run = ragpipe.run(["+experiment=quickstart"])     # what `python -m ragpipe +experiment=quickstart` does
run = ragpipe.load("outputs/quickstart/latest")   # a run that is there already
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ragpipe.core.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from ragpipe.reports.run_data import Run

__all__ = ["__version__", "load", "run", "stop"]


def run(overrides: Sequence[str], *, config_dir: str | None = None) -> Run:
    """Evaluate what the words of a command line describe (`["+experiment=x", "judge=llm"]`) and return its results.

    Works where an event loop is running already (a notebook), and in any thread. Raises the errors of `ragpipe.core.errors`; a
    failed gate is no error here, it stands in the results. An interrupt (Ctrl-C, a notebook's stop button) asks nothing
    new, waits for the calls in flight, and raises KeyboardInterrupt; a second one gives them up. Running the same again
    goes on where it stopped.
    """
    from ragpipe.cli import run_overrides

    return load(run_overrides(overrides, config_dir=config_dir))


def stop() -> int:
    """Ask every `run` of this process to end early, from another thread: it asks nothing new, lets the calls in flight
    land, and raises `ragpipe.core.errors.Interrupted`. Returns how many runs there are; does not wait for them.
    """
    from ragpipe.engine.graceful_shutdown import stop_all

    return stop_all()


def load(path: str | Path) -> Run:
    """The results in a run folder: `.records`, `.scores`, `.judge_inputs` as pandas frames, `.metrics`, `.cost` as dicts."""
    from ragpipe.reports.run_data import load as read

    return read(path)
