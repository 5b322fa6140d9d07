"""Ending all processes of a session: those that a process started, however they are related to it by now."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_END_S = 5.0


def end_session(session: int) -> None:
    """Kill the processes of a session that this machine has, without the calling one, and wait for their end (5 s at most)."""
    end = time.monotonic() + _END_S
    while members := [pid for pid in members_of(session) if pid != os.getpid()]:
        for pid in members:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > end:
            return
        time.sleep(0.02)


def members_of(session: int) -> Iterator[int]:
    """The processes of a session on this machine that have not ended."""
    for pid, state in _processes():
        with suppress(ProcessLookupError, PermissionError):
            if not state.startswith("Z") and os.getsid(pid) == session:
                yield pid


def _processes() -> Iterator[tuple[int, str]]:
    """Number and state of every process that can be seen."""
    if sys.platform == "linux":
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                yield int(path.parent.name), path.read_text(errors="replace").rpartition(")")[2].strip()
        return
    listed = subprocess.run(["ps", "-axo", "pid=,stat="], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        pid, state = line.split(None, 1)
        yield int(pid), state
