"""A file of JSON lines that many runs append to and others read: each append is one write, whole or told as torn."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ragpipe.store.files.atomic import json_bytes, output_error

if sys.platform != "win32":
    import fcntl


def append_lines(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    """Append lines of JSON in one write, and make the file and its folder where they are missing, also for no lines.

    Writers take turns, and the write goes to the end of the file; it is synced. A last line that a full disk or a power
    cut left torn is ended first, so that it spoils no other. Raises OutputError, also for a symbolic link.
    """
    content = b"".join(json_bytes(line) + b"\n" for line in lines)
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(path, flags, 0o666), "rb+", buffering=0) as file:
            _lock(file.fileno())
            size = file.seek(0, os.SEEK_END)
            if content and size:
                file.seek(size - 1)
                content = content if file.read(1) == b"\n" else b"\n" + content
            if content and file.write(content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            os.fsync(file.fileno())
    except OSError as error:
        raise output_error(path, error) from error


def _lock(descriptor: int) -> None:
    """Keep other writers out until the file is closed. Without locks of the file system two of them may leave an empty line."""
    if sys.platform != "win32":
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file of JSON lines; a torn line and what is no object are passed over. None for a file that is not there.

    Raises OutputError for a file that cannot be read.
    """
    try:
        content = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise output_error(path, error, "read") from error
    for line in content.split(b"\n"):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            yield entry
