"""How many processes of this machine share the work of a run."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache

from ragpipe.config.runner_settings import RunnerSettings
from ragpipe.store.files.processes import usable_cores

MANY_CASES = 5_000
"""Cases from which on `runner=auto` has several processes: with fewer, their start takes what they save (docs/processes.md)."""


def worker_count(runner: RunnerSettings, *, is_much: bool) -> int:
    """How many workers do a piece of work that asks no server; 0: this process does it. `is_much` says that there is enough of it."""
    if runner.kind == "auto":
        idle = idle_cores()
        count = min(idle, runner.workers or idle)
        return count if is_much and count > 1 else 0
    return 0 if runner.kind == "local" else runner.workers or usable_cores()


@cache
def idle_cores() -> int:
    """The cores that other processes leave to this one, by the load of the minute before it was first asked: later its own
    workers are part of the load."""
    load = 0.0
    with suppress(OSError, AttributeError):  # a system without it
        load = os.getloadavg()[0]
    return max(1, usable_cores() - round(load))
