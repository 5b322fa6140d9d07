"""What a path is: a regular file, a folder that several hosts share."""

from __future__ import annotations

import re
from pathlib import Path

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
