"""What a path is: a regular file, a folder that several hosts share."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import BinaryIO

_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "gpfs", "beegfs"}
)
_LOCAL = frozenset({"fuse.fuse-overlayfs", "fuse.overlayfs", "fuse.ext4", "fuse.ntfs-3g"})


def is_network_folder(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> bool:
    """True when `folder` is on a file system that several hosts share (no shared memory there, so no SQLite WAL).

    False where the system does not tell.
    """
    kind = _kind(folder.resolve(), mounts)
    return kind in _NETWORK or (kind.startswith("fuse.") and kind not in _LOCAL)


def _kind(folder: Path, mounts: Path) -> str:
    try:
        lines = mounts.read_text(errors="surrogateescape").split("\n")
    except OSError:
        return ""
    best, kind = -1, ""
    for line in lines:
        left, dash, right = line.partition(" - ")
        if not dash:
            continue
        point = Path(re.sub(r"\\(\d{3})", lambda m: chr(int(m[1], 8)), left.split(" ")[4]))
        if (folder == point or point in folder.parents) and len(point.parts) >= best:
            best, kind = len(point.parts), right.split(" ")[0]
    return kind


def is_regular_file(path: Path) -> bool:
    """Whether the path is a file and no symbolic link."""
    return path.is_file() and not path.is_symlink()


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
