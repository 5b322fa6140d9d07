"""How a process of ragpipe holds its memory: when Python looks for garbage, and what goes back to the system."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from contextlib import suppress

GARBAGE_AFTER = 50_000
"""New objects after which Python looks for cyclic garbage, once a task has begun: some megabytes at most."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # glibc's <malloc.h>


def collect_new_garbage() -> None:
    """Look for cyclic garbage from now on, and only among what is created from now on.

    Imports and the configuration leave two hundred thousand objects that stay until the end. Scanning them again and again,
    several times more at exit, took a quarter of the time of a short command.
    """
    gc.freeze()
    gc.set_threshold(GARBAGE_AFTER, 2, 2)
    gc.enable()


def give_memory_back() -> None:
    """Let memory that was freed go back to the system at once, where the C library is glibc.

    A run allocates and frees texts of many sizes in several threads. By default glibc and Arrow keep freed memory for later:
    with cases of 20 KB that was a third of a run's memory.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # read when pyarrow is imported
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library
            mallopt = ctypes.CDLL(None).mallopt
            for name, value in ((_TRIM_THRESHOLD, 128 << 10), (_MMAP_THRESHOLD, 128 << 10), (_ARENA_MAX, 2)):
                mallopt(name, value)
