"""Reading a file that a user names: a word may be the path of a device or a pipe, which has no end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

MOST_BYTES = 256 << 20


def named_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """The content of a regular file of at most `most` bytes. Raises OSError, also for a device, a pipe and a larger file."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"more than {most:,} bytes", str(path))
    return content


def named_text(path: Path, most: int = MOST_BYTES, encoding: str = "utf-8") -> str:
    """As `named_bytes`, decoded, with every line end as `\\n`. Raises UnicodeDecodeError too."""
    return named_bytes(path, most).decode(encoding).replace("\r\n", "\n").replace("\r", "\n")
