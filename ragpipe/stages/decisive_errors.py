"""Which of several errors decides what becomes of a measurement."""

from __future__ import annotations

from ragpipe.core.errors import (
    ConfigError,
    DataError,
    Incomplete,
    Interrupted,
    JudgeError,
    OutputError,
    ProviderUnusable,
    Skipped,
)

RUN_ENDING = (ConfigError, DataError, Incomplete, Interrupted, OutputError, ProviderUnusable)
"""Errors that end a run, whichever case they come from."""


def decisive_error(error: Exception) -> Exception:
    """The error that decides the outcome of a measurement. A metric that asks in a TaskGroup raises a group: an error that ends
    the run comes first, then a bug, then a failed judgement."""
    if not isinstance(error, ExceptionGroup):
        return error
    errors = [decisive_error(part) for part in error.exceptions]
    ending = (part for part in errors if isinstance(part, RUN_ENDING))
    bugs = (part for part in errors if not isinstance(part, Skipped | JudgeError))
    return next(ending, None) or next(bugs, None) or errors[0]
