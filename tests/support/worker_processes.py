"""The worker processes of a run, from outside."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def workers_of(driver: int) -> list[int]:
    """The living worker processes of a driver."""
    with suppress(OSError):
        pids = Path(f"/proc/{driver}/task/{driver}/children").read_text().split()
        return [int(pid) for pid in pids if "slice_process" in command_of(int(pid))]
    return []


def command_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""
