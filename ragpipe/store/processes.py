"""Processes and whether they are alive, told apart even when a pid is used again."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import shlex
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

STARTED_AT = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
"""When this process loaded ragpipe, ISO 8601 to the second."""
_PROC = Path("/proc")
_SECRET = re.compile(r"(?i)((?:key|token|secret|password)\w*(?<!_env)(?<!tokens)=).+|\bsk-[\w-]{8,}")
"""Values that may be secret. The name of an environment variable (`api_key_env`) is none, nor is a number of tokens."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process by host, pid and mark.

    `mark` is `<boot>.<pid namespace>.<start tick>`: a later process with the same pid, after a reboot or in another
    container, has another one. It is empty where the system does not provide it.
    """

    host: str
    pid: int
    mark: str = ""


def this_process() -> Process:
    """The running process (asked again after a fork)."""
    return _described(os.getpid())


@cache
def _described(pid: int) -> Process:
    stat = _stat(pid)
    return Process(socket.gethostname() or "localhost", pid, f"{_boot_and_namespace()}.{stat[1]}" if stat else "")


def is_alive(process: Process) -> bool | None:
    """True or False where this process can find out, None for a process of another host or container."""
    here = this_process()
    if process.pid <= 0:
        return False  # kill(0) and kill(-1) would ask whole groups
    if process.host != here.host:
        return None
    if process.mark and here.mark and process.mark.rsplit(".", 1)[0] != _boot_and_namespace():
        return None  # another boot or container under the same host name: its pids mean nothing here
    if stat := _stat(process.pid):
        state, tick = stat
        return state not in "ZX" and (not process.mark or process.mark == f"{_boot_and_namespace()}.{tick}")
    return _answers_signal(process.pid)


def _answers_signal(pid: int) -> bool:
    """Whether the system knows the pid, without a look at /proc."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def is_stopped(process: Process) -> bool:
    """Whether a live process of this host is stopped (SIGSTOP, a debugger): it may continue."""
    if process.host != this_process().host:
        return False
    stat = _stat(process.pid)
    return stat is not None and stat[0] in "Tt"


def started_command() -> str:
    """The words that this process was started with, quoted for a shell; `***` stands for what may be secret."""
    return shlex.join(_SECRET.sub(lambda match: f"{match[1] or ''}***", word) for word in sys.argv)


def _stat(pid: int) -> tuple[str, str] | None:
    """(state, start tick) of a process from /proc, None where there is none."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()  # the command before it may hold spaces and brackets
    return fields[0], fields[19]


@cache
def _boot_and_namespace() -> str:
    """The boot and pid namespace that pids of this process belong to."""
    boot = "-"
    with suppress(OSError):
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()[:8]
    try:
        namespace = os.stat(_PROC / "self/ns/pid").st_ino
    except OSError:
        namespace = 0
    return f"{boot}.{namespace}"


def usable_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


GARBAGE_AFTER = 50_000
"""New objects after which Python looks for cyclic garbage, once a task has begun: some megabytes at most."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # glibc's <malloc.h>


def collect_new_garbage() -> None:
    """Look for cyclic garbage only among what is created from now on: scanning what imports leave took a quarter of the time
    of a short command."""
    gc.freeze()
    gc.set_threshold(GARBAGE_AFTER, 2, 2)
    gc.enable()


def spare_the_system() -> None:
    """Let freed memory go back to the system at once, where the C library is glibc: with cases of 20 KB that is a third of a
    run's memory. And let numpy's threads sleep while they have nothing to do. To be called before pyarrow and numpy are imported."""
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")  # 2 ** 4 cycles of spinning; by default they spin for 50 ms
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library
            mallopt = ctypes.CDLL(None).mallopt
            for name, value in ((_TRIM_THRESHOLD, 128 << 10), (_MMAP_THRESHOLD, 128 << 10), (_ARENA_MAX, 2)):
                mallopt(name, value)
