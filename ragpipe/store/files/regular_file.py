"""Opening a file of a folder that anybody may have made: nothing in it may lead elsewhere or make the reader wait."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


def open_regular(path: Path) -> BinaryIO:
    """A regular file, opened for reading. Never waits, as opening a pipe would. Raises OSError, also for a link, a pipe, a device or a
    folder; ValueError for a path that cannot be one (a NUL)."""
    if path.is_symlink():  # said here too: not every system has O_NOFOLLOW
        raise OSError(f"{path}: a symbolic link")
    descriptor = os.open(path, _FLAGS)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path}: no regular file")
    return os.fdopen(descriptor, "rb")
