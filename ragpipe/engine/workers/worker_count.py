"""How many processes of this machine share the work of a run."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache

from ragpipe.config.runner_settings import RunnerSettings
from ragpipe.store.files.processes import usable_cores

MANY_CASES = 5_000
"""Cases from which on `runner=auto` has several processes: with fewer, their start takes what they save (docs/processes.md)."""
MANY_COMPUTED_CASES = 50_000
"""The same where every metric is computed without a judge: such a case takes a tenth of a millisecond."""


def worker_count(runner: RunnerSettings, *, is_much: bool) -> int:
    """How many processes of this machine do a piece of work that asks no server; 0: this one alone. `is_much` says that there is enough
    of it. With `runner=ray` a cluster measures, and reading and scoring are done here."""
    if runner.kind == "auto":
        idle = idle_cores()
        count = min(idle, runner.workers or idle)
        return count if is_much and count > 1 else 0
    if runner.kind == "ray":
        return usable_cores()
    return 0 if runner.kind == "local" else runner.workers or usable_cores()


@cache
def idle_cores() -> int:
    """The cores that other processes leave to this one, by the load of the minute before it was first asked: later its own
    workers are part of the load."""
    load = 0.0
    with suppress(OSError, AttributeError):  # a system without it
        load = os.getloadavg()[0]
    return max(1, usable_cores() - round(load))
