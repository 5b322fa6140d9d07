"""A lock that lets one process at a time work in a run folder."""

from __future__ import annotations

import atexit
import errno
import fcntl
import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Self

from ragpipe.core.errors import FolderLocked, OutputError
from ragpipe.store.files import output_error
from ragpipe.store.processes import STARTED_AT, started_command, this_process

log = logging.getLogger(__name__)

POLL_S = 0.1
ANNOUNCE_S = 1.0  # the user is told of a longer wait
_UNKNOWN = "another process"
_HELD = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})

_wait_s: ContextVar[float] = ContextVar("wait_s", default=0.0)


@contextmanager
def waiting(seconds: float) -> Iterator[None]:
    """Inside, `with FolderLock(...)` waits up to `seconds` for a folder that is in use, instead of refusing at once.

    For the jobs of a sweep: two of them may be the same run, and the second then finds it finished.
    """
    before = _wait_s.set(seconds)
    try:
        yield
    finally:
        _wait_s.reset(before)


class FolderLock:
    """The lock of a folder: the file `.lock` in it, which says who holds it.

    The operating system frees it when its process ends, however it ends; `notices` says when a dead process's lock was taken over.
    """

    def __init__(self, folder: Path):
        self.folder = Path(folder)
        self.path = self.folder / ".lock"
        self.notices: list[str] = []
        self._descriptor: int | None = None

    def acquire(self, wait_s: float = 0) -> Self:
        """Take the lock, waiting up to `wait_s` seconds. Raises FolderLocked, which names the holder; OutputError."""
        started = time.monotonic()
        deadline, is_announced = started + wait_s, False
        while not self._try():
            now = time.monotonic()
            if now >= deadline:
                raise FolderLocked(f"{self.folder} is in use by {self._holder()}. To fix: wait for it to end, or end it.")
            if not is_announced and now - started > ANNOUNCE_S:
                log.warning("%s is in use by %s: waiting, at most %.0f s", self.folder, self._holder(), wait_s)
                is_announced = True
            time.sleep(min(POLL_S, max(0.0, deadline - now)))
            with suppress(OSError):  # its holder removes a folder that never became a run
                self.folder.mkdir(parents=True, exist_ok=True)
        atexit.register(self.release)
        return self

    def check_held(self) -> None:
        """Raises OutputError when the file is gone or another's: then another process may work in the folder."""
        if self._descriptor is None or not _is_at(self._descriptor, self.path):
            raise OutputError(
                f"{self.path} was removed or replaced while this process worked: another one may work in the folder now. What was "
                "answered is kept. To fix: see that no other start of this run is going on, and start the same again."
            )

    def release(self) -> None:
        """Free the lock; does nothing when it is not held."""
        if self._descriptor is not None:
            with suppress(OSError):  # the file goes first, while no other process can hold it
                self.path.unlink()
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None
        atexit.unregister(self.release)

    def __enter__(self) -> Self:
        return self if self._descriptor is not None else self.acquire(_wait_s.get())

    def __exit__(self, *_: object) -> None:
        self.release()

    def _try(self) -> bool:
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except PermissionError as error:
            raise OutputError(
                f"{self.folder} cannot be locked: {self.path} belongs to another user, or this one may not write there. To fix: "
                "wait for the end of the process that the file names; if there is none, remove the file."
            ) from error
        except OSError as error:
            raise output_error(self.path, error) from error
        try:
            return self._try_flock(descriptor)
        except OSError as error:
            raise output_error(self.path, error) from error
        finally:
            if self._descriptor != descriptor:
                os.close(descriptor)

    def _try_flock(self, descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _HELD:
                return False
            raise
        if not _is_at(descriptor, self.path):
            return False  # its last holder removed it after we opened it and before we locked it
        before = self._holder()
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, _content(), 0)
        self._descriptor = descriptor
        if before != _UNKNOWN:
            self.notices.append(f"{self.folder}: took over the lock of {before}, which is gone")
        return True

    def _holder(self) -> str:
        """Who holds the lock, or held it last, in words."""
        with suppress(OSError, ValueError):
            content = json.loads(self.path.read_bytes())
            if isinstance(content, dict):
                process = f"process {content.get('pid')} on {content.get('host')}, started {content.get('started')}"
                return f"{process} ({content.get('command')})"
        return _UNKNOWN


def _content() -> bytes:
    me = this_process()
    content = {"pid": me.pid, "host": me.host, "started": STARTED_AT, "mark": me.mark, "command": started_command()}
    return json.dumps(content).encode("ascii")


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        opened, current = os.fstat(descriptor), os.lstat(path)
    except FileNotFoundError:
        return False
    return (opened.st_ino, opened.st_dev) == (current.st_ino, current.st_dev)
