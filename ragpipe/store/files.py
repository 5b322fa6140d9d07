"""Files that are complete at any moment, old or new, whenever the process dies.

Everything is written to a temporary file in the same folder, synced, and renamed over the target. A symbolic link at
the target is replaced, never written through.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import itertools
import json
import logging
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, cast

from ragpipe.core.digest import sha256_file
from ragpipe.core.errors import OutputError, RagpipeError, causes
from ragpipe.store.processes import Process, is_alive, this_process

log = logging.getLogger(__name__)

DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
_NO_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EACCES, errno.ENOSYS}) | _NO_SYNC
_CAUSES: dict[int, tuple[str, str]] = {
    errno.ENOSPC: ("the disk is full", "make room and start again: finished work is kept"),
    errno.EDQUOT: ("the disk quota is used up", "make room and start again: finished work is kept"),
    errno.EFBIG: ("the file is larger than the process may write", "raise `ulimit -f` and start again"),
    errno.EACCES: ("permission denied", "give this user write permission, or choose another folder"),
    errno.EPERM: ("permission denied", "give this user write permission, or choose another folder"),
    errno.EROFS: ("the file system is read-only", "choose a folder on a writable one (`output_dir=...`)"),
    errno.ENOTDIR: ("a part of the path is a file, not a folder", "move that file away or choose another folder"),
    errno.EISDIR: ("a folder is where a file should be", "move that folder away"),
    errno.EEXIST: ("a file is where a folder should be", "move that file away or choose another folder"),
    errno.ENOENT: (
        "it, or its folder, does not exist (any more)",
        "remove nothing of a run while it goes on; then start the same command again",
    ),
    errno.EMFILE: ("too many open files", "raise `ulimit -n` or lower `judge.concurrency`, then start again"),
    errno.ENFILE: ("too many open files on this machine", "close other programs, then start again"),
    errno.ENAMETOOLONG: ("the name is too long", "choose a shorter `name` or `output_dir`"),
    errno.ELOOP: ("it is a symbolic link, and links are not followed", "remove the link"),
    errno.EIO: ("the disk reports an input/output error", "check the disk"),
    errno.ENOLCK: ("this file system has no file locks", "choose a folder on another one (`output_dir=...`)"),
    errno.ENOSYS: ("this file system lacks file locks or links", "choose a folder on another one (`output_dir=...`)"),
    errno.ENOTSUP: ("this file system lacks file locks or links", "choose a folder on another one (`output_dir=...`)"),
    errno.ENOMEM: ("no memory is left", "free memory or lower `judge.concurrency`, then start again"),
}
_TEMPORARY = re.compile(r"\.ragpipe,([^,]*),(\d+),([^,]*),\d+\.tmp")
_ABANDONED_S = 86_400.0  # a temporary file whose writer cannot be checked is a leftover after a day
_numbers = itertools.count()


def output_error(path: Path, error: OSError, doing: str = "write") -> OutputError:
    """The OutputError for an OSError: the path, the cause in words, what to do. Raise it `from` the error."""
    cause, fix = _CAUSES.get(error.errno or 0, (error.strerror or str(error), "see the message of the system"))
    fault = OutputError(f"cannot {doing} {path}: {cause}. To fix: {fix}.")
    fault.__cause__ = error
    return fault


def make_folders(folder: Path, *, exist_ok: bool = True) -> None:
    """Make a folder with its parents. Raises OutputError."""
    try:
        folder.mkdir(parents=True, exist_ok=exist_ok)
    except OSError as error:
        if error.errno == errno.ENOENT:  # nothing was removed: the parents were just made, or the system takes none here
            where = (
                "nothing can be made there. To fix: choose a folder that can be written (`output_dir=...`, `store.path=...`)"
            )
            raise OutputError(f"cannot create the folder {folder}: {where}.") from error
        raise output_error(folder, error, "create the folder") from error


def is_disk_full(error: OutputError) -> bool:
    """True when the error comes from a full disk, quota or file size limit."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in DISK_FULL


@contextmanager
def atomic_open(path: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """A binary file to write, which becomes `path` at the end of the block and is removed when the block raises.

    `durable=False` omits the syncs: the file is still complete after a killed process, but may be the old one after a
    power cut. Raises OutputError for any OSError, also one raised inside the block.
    """
    path = Path(path)
    temporary = temporary_name(path.parent)
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            with open(descriptor, "wb") as file:
                yield file
                file.flush()
                if durable:
                    sync(file.fileno(), path)
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        if durable:
            sync_folder(path.parent)
    except OSError as error:
        raise output_error(path, error) from error


def atomic_write(path: Path, data: bytes | str, *, durable: bool = True) -> None:
    """Write a whole file. Raises OutputError."""
    with atomic_open(path, durable=durable) as file:
        file.write(data.encode("utf-8") if isinstance(data, str) else data)


def json_bytes(value: Any, *, indent: int | None = None) -> bytes:
    """JSON as UTF-8 on one line (without `indent`); lone surrogates, which UTF-8 cannot hold, stay as \\u escapes."""
    try:
        return _encoder(indent, False).encode(value).encode("utf-8")
    except UnicodeEncodeError:
        return _encoder(indent, True).encode(value).encode("ascii")


def json_lines(value: Any) -> bytes:
    """Compact JSON for people and diffs: a value that nests at most two levels deep is one line, deeper ones are indented.

    A score with its interval is one line, a group of scores a block of lines.
    """
    try:
        return "".join(_json_pieces(value, "\n", False)).encode("utf-8")
    except UnicodeEncodeError:
        return "".join(_json_pieces(value, "\n", True)).encode("ascii")


def _json_pieces(value: Any, line: str, ascii_only: bool) -> Iterator[str]:
    """The pieces of the text; `line` is what begins a line at this depth."""
    encode = _encoder(None, ascii_only).encode
    if _nests_within(value, 2):
        yield encode(value)
        return
    inner, ends = line + " ", "{}" if isinstance(value, Mapping) else "[]"
    items = value.items() if isinstance(value, Mapping) else enumerate(value)
    for place, (key, item) in enumerate(items):
        yield (ends[0] if place == 0 else ",") + inner
        if isinstance(value, Mapping):
            yield f"{encode(key)}: "
        yield from _json_pieces(item, inner, ascii_only)
    yield line + ends[1]


def _nests_within(value: Any, levels: int) -> bool:
    """Whether objects and lists nest at most `levels` deep; a plain value does not nest. What is deeper is not looked at."""
    if isinstance(value, str | int | float) or not isinstance(value, Mapping | list | tuple):
        return True  # the plain values first: they are most
    items = value.values() if isinstance(value, Mapping) else value
    return levels > 0 and all(_nests_within(item, levels - 1) for item in items)


@cache
def _encoder(indent: int | None, ascii_only: bool) -> json.JSONEncoder:
    separators = (",", ":") if indent is None else None
    return json.JSONEncoder(ensure_ascii=ascii_only, allow_nan=False, indent=indent, separators=separators)


def link_or_copy(src: Path, dst: Path) -> None:
    """Give a file a second name: a hard link, or a copy where the file system has none. Raises OutputError.

    Both names share their bytes from then on, which is safe because no file is ever written in place.
    """
    src, dst = Path(src), Path(dst)
    temporary = temporary_name(dst.parent)
    try:
        if not stat.S_ISREG(os.lstat(src).st_mode):
            raise OutputError(f"cannot link {src} to {dst}: it is not a regular file. To fix: remove {src}.")
        try:
            os.link(src, temporary)
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            with open(src, "rb") as source, atomic_open(dst) as target:
                shutil.copyfileobj(source, target, 1 << 20)
            return
        try:
            os.replace(temporary, dst)
        finally:
            with suppress(FileNotFoundError):  # a rename between two names of one file does nothing
                os.unlink(temporary)
        sync_folder(dst.parent)
    except OSError as error:
        raise output_error(dst, error) from error


def temporary_name(folder: Path) -> Path:
    """A new name in `folder` that contains its process, so that leftovers of dead processes can be recognised."""
    process = this_process()
    host = re.sub(r"[^\w.-]", "_", process.host)[:64]
    return folder / f".ragpipe,{host},{process.pid},{process.mark},{next(_numbers)}.tmp"


def sweep_temporaries(folder: Path) -> list[Path]:
    """Remove the temporary files that dead processes left in `folder` (not below it). Returns the removed paths."""
    removed = []
    with suppress(FileNotFoundError, NotADirectoryError):
        for entry in os.scandir(folder):
            match = _TEMPORARY.fullmatch(entry.name)
            if match and not entry.is_dir(follow_symlinks=False) and _is_leftover(entry, match):
                with suppress(OSError):
                    os.unlink(entry.path)
                    removed.append(Path(entry.path))
    return removed


def sweep_below(folder: Path) -> list[Path]:
    """As `sweep_temporaries`, also in all folders below. Links are not followed."""
    return [path for place, _, _ in os.walk(folder) for path in sweep_temporaries(Path(place))]


def _is_leftover(entry: os.DirEntry[str], match: re.Match[str]) -> bool:
    alive = is_alive(Process(match[1], int(match[2]), match[3]))
    if alive is None:
        with suppress(OSError):
            return time.time() - entry.stat(follow_symlinks=False).st_mtime > _ABANDONED_S
    return alive is False


def sync(descriptor: int, path: Path) -> None:
    """Bring a file's bytes to the disk. A file system that cannot sync is logged and tolerated."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
        log.warning("%s: this file system cannot sync; a power cut may lose the last writes", path)


def sync_folder(folder: Path) -> None:
    """Bring a folder's names to the disk (a rename is only durable then)."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync(descriptor, folder)
    finally:
        os.close(descriptor)


class _Unchanged(Exception):
    """Ends an atomic write without the rename."""


class Hashing:
    """A writable file that hashes what is written."""

    def __init__(self, file: BinaryIO):
        self._file = file
        self.digest = hashlib.sha256()
        self.closed = False

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:  # whoever opened the file closes it
        self.flush()


@contextmanager
def open_unless_same(path: Path) -> Iterator[BinaryIO]:
    """As `atomic_open`, but a file with equal content stays as it is (same inode, same time)."""
    try:
        with atomic_open(path) as file:
            hashing = Hashing(file)
            yield cast(BinaryIO, hashing)
            if is_regular_file(path) and sha256_file(path) == hashing.digest.hexdigest():
                raise _Unchanged
    except _Unchanged:
        pass


def write_unless_same(path: Path, data: bytes | str) -> bool:
    """Write a whole file; True when it had to be written. Raises OutputError."""
    content = data.encode("utf-8", "backslashreplace") if isinstance(data, str) else data
    if is_regular_file(path) and path.stat().st_size == len(content) and path.read_bytes() == content:
        return False
    atomic_write(path, content)
    return True


def json_unless_same(path: Path, value: Any) -> bool:
    """Write plain JSON as `json_lines` says; True when it had to be written. Raises ValueError for NaN, OutputError."""
    return write_unless_same(path, json_lines(value) + b"\n")


def append_lines(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    """Append lines of JSON in one write, and make the file and its folder where they are missing, also for no lines.

    Writers take turns, and the write goes to the end of the file; it is synced. A last line that a full disk or a power
    cut left torn is ended first, so that it spoils no other. Raises OutputError, also for a symbolic link.
    """
    content = b"".join(json_bytes(line) + b"\n" for line in lines)
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(path, flags, 0o666), "rb+", buffering=0) as file:
            with suppress(OSError):  # without locks of the file system two writers may leave an empty line
                fcntl.flock(file.fileno(), fcntl.LOCK_EX)
            size = file.seek(0, os.SEEK_END)
            if content and size:
                file.seek(size - 1)
                content = content if file.read(1) == b"\n" else b"\n" + content
            if content and file.write(content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            os.fsync(file.fileno())
    except OSError as error:
        raise output_error(path, error) from error


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


_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "gpfs", "beegfs"})
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


_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_regular(path: Path) -> BinaryIO:
    """A regular file, opened for reading. Never waits, as opening a pipe would. Raises OSError, also for a link, a pipe, a device or a
    folder; ValueError for a path that cannot be one (a NUL)."""
    descriptor = os.open(path, _FLAGS)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path}: no regular file")
    return os.fdopen(descriptor, "rb")


_KEPT = "what was answered is kept, and the same command goes on"
_MEMORY = f"no memory is left. To fix: free memory, raise the limit (`ulimit -v`, the container's) or lower `judge.concurrency`; {_KEPT}"
_THREADS = f"the system lets this process start no more threads. To fix: raise `ulimit -u` or the memory limit; {_KEPT}"
_WORKER = f"a worker process was killed by the system, most often because no memory was left. To fix: free memory; {_KEPT}"
_JOB = (
    "a job of the sweep left no result: it could not be submitted, was stopped by the scheduler (its time, its memory, a more urgent job), or "
    f"was killed. Its logs are below hydra.sweep.dir (<output_dir>/.sweep) in .submitit. To fix: what they say; {_KEPT}"
)
_NO_ROOM = re.compile("failed to map segment|[Cc]annot allocate memory")  # a library that could not be loaded
_KILLED = frozenset({"TerminatedWorkerError", "BrokenProcessPool"})
_SUBMITTED = frozenset({"UncompletedJobError", "FailedJobError", "FailedSubmissionError"})  # submitit's
_USED_UP = frozenset({errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN})


def outside_cause(error: BaseException | None, *, any_file: bool = False) -> RagpipeError | None:
    """The OutputError that says what the machine lacks, where `error` or one of its causes does; None otherwise.

    With `any_file` also for a file that cannot be read or written for any reason.
    """
    if any_file and isinstance(error, OSError) and error.filename is not None:
        return output_error(Path(os.fsdecode(error.filename)), error, "read or write")
    return next(filter(None, map(_lack, causes(error))), None)


def _lack(error: BaseException) -> OutputError | None:
    """What the machine lacks by this error alone."""
    if isinstance(error, MemoryError) or (isinstance(error, ImportError) and _NO_ROOM.search(str(error))):
        return OutputError(_MEMORY)
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return OutputError(_THREADS)
    if type(error).__name__ in _KILLED:
        return OutputError(_WORKER)
    if type(error).__name__ in _SUBMITTED:
        return OutputError(f"{_JOB}\n  {error}".split("\n" + "-" * 40)[0])
    if isinstance(error, OSError) and error.errno in _USED_UP and not isinstance(error, BlockingIOError):
        return output_error(Path(error.filename or "any more files"), error, "open")
    return None
