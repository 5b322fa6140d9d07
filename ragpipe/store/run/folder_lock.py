"""A lock that lets one process at a time work in a run folder."""

from __future__ import annotations

import atexit
import errno
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Self

from ragpipe.core.errors import FolderLocked, OutputError, WaitAbandoned
from ragpipe.store.files.atomic import output_error, temporary_name
from ragpipe.store.files.processes import Process, is_alive, started_at, started_command, this_process

if sys.platform != "win32":
    import fcntl
    import pwd

log = logging.getLogger(__name__)

POLL_S = 0.1
ANNOUNCE_S = 1.0  # the user is told of a longer wait
_HELD = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})
_NO_FLOCK = frozenset({errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL})

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

    The operating system frees it when its process ends, however it ends. Where the file system has no such locks, the
    file itself is the lock, held while its process is alive; `notices` says so, and when a dead process's lock was taken
    over.
    """

    def __init__(self, folder: Path):
        self.folder = Path(folder)
        self.path = self.folder / ".lock"
        self.notices: list[str] = []
        self._descriptor: int | None = None
        self._exclusive = False
        self._flock: bool | None = None

    def acquire(self, wait_s: float = 0) -> Self:
        """Take the lock, waiting up to `wait_s` seconds. Raises FolderLocked, which names the holder; OutputError."""
        started = time.monotonic()
        deadline, is_announced = started + wait_s, False
        while not self._try():
            now = time.monotonic()
            if now >= deadline:
                holder = self._read()
                fix = "wait for it to end, or end it"
                if not holder or holder.get("exclusive"):
                    fix += f"; if it is gone for sure, remove {self.path}"
                raise FolderLocked(f"{self.folder} is in use by {_named(holder)}. To fix: {fix}.")
            if not is_announced and now - started > ANNOUNCE_S:
                log.warning("%s is in use by %s: waiting, at most %.0f s", self.folder, _named(self._read()), wait_s)
                is_announced = True
            time.sleep(min(POLL_S, max(0.0, deadline - now)))
            with suppress(OSError):  # its holder removes a folder that never became a run
                self.folder.mkdir(parents=True, exist_ok=True)
        atexit.register(self.release)
        return self

    def check_held(self) -> None:
        """Raises OutputError when the file is gone or another's: then another process may work in the folder."""
        is_ours = (
            _same(self._read(), this_process()) if self._descriptor is None else _is_at(self._descriptor, self.path)
        )
        if not is_ours:
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
        elif self._exclusive:
            self._exclusive = False
            with suppress(OSError):
                if _same(self._read(), this_process()):
                    self.path.unlink()
        atexit.unregister(self.release)

    def __enter__(self) -> Self:
        return self if self._descriptor is not None or self._exclusive else self.acquire(_wait_s.get())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, WaitAbandoned):  # a thread still works in the folder: it stays locked until that ends
            threading.Thread(target=self._release_after, args=(error.thread,), name="ragpipe-lock", daemon=True).start()
        else:
            self.release()

    def _release_after(self, thread: threading.Thread) -> None:
        thread.join()
        self.release()

    def _try(self) -> bool:
        try:
            if sys.platform == "win32" or not self._has_flock():
                return self._try_exclusive()
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            try:
                descriptor = os.open(self.path, flags, 0o666)
            except PermissionError:
                if not self._remove_file_of_other_user():
                    return False
                descriptor = os.open(self.path, flags, 0o666)
        except OSError as error:
            raise output_error(self.path, error) from error
        try:
            return self._try_flock(descriptor)
        except OSError as error:
            raise output_error(self.path, error) from error
        finally:
            if self._descriptor != descriptor:
                os.close(descriptor)

    def _has_flock(self) -> bool:
        """Whether the file system has such locks: tried on a file of our own, so that no empty lock file is left behind."""
        if self._flock is None:
            probe = temporary_name(self.folder)
            descriptor = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                self._flock = error.errno not in _NO_FLOCK
            else:
                self._flock = True
            finally:
                os.close(descriptor)
                probe.unlink()
        return self._flock

    def _try_flock(self, descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _NO_FLOCK:
                return self._try_exclusive()
            if error.errno in _HELD:
                return False
            raise
        if not _is_at(descriptor, self.path):
            return False  # its last holder removed it after we opened it and before we locked it
        before = self._read()
        if before and is_alive(_process(before)) is None and before.get("exclusive"):
            return False  # held by a process on a host where this file system has no flock
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, _content(exclusive=False), 0)
        self._descriptor = descriptor
        if before:
            self.notices.append(f"{self.folder}: took over the lock of {_named(before)}, which is gone")
        return True

    def _remove_file_of_other_user(self) -> bool:
        """Remove a lock file that this user may not write to; False when it is held."""
        try:
            owner = _user(os.lstat(self.path).st_uid)
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return True
        except PermissionError as error:
            raise OutputError(
                f"{self.folder} cannot be locked: {self.path} belongs to {owner}, and this user may not read it. To fix: if "
                f"no process works in that folder, remove the file as {owner} or as root."
            ) from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a read-only descriptor is enough
            except OSError as error:
                if error.errno in _HELD:
                    return False
                raise
            before = self._read()
            try:
                self.path.unlink(missing_ok=True)
            except PermissionError as error:
                raise OutputError(
                    f"{self.folder} cannot be locked: {self.path} was left by {_named(before)}, which is gone; it belongs to "
                    f"{owner}, and this user may not remove it. To fix: remove it as {owner} or as root."
                ) from error
            self.notices.append(f"{self.folder}: removed the lock of {_named(before)} (user {owner}), which is gone")
            return True
        finally:
            os.close(descriptor)

    def _try_exclusive(self) -> bool:
        """Without flock: whoever creates the file holds the lock; the file of a dead process is moved away first."""
        temporary = temporary_name(self.folder)
        temporary.write_bytes(_content(exclusive=True))
        try:
            for _ in range(2):
                try:
                    os.link(temporary, self.path)
                except FileExistsError:
                    if not self._move_dead_lock():
                        return False
                    continue
                self._exclusive = True
                self.notices.append(
                    f"{self.folder}: this file system has no file locks; the file {self.path.name} is the lock. One left "
                    "by a dead process of another host must be removed by hand."
                )
                return True
            return False
        finally:
            temporary.unlink()

    def _move_dead_lock(self) -> bool:
        """Move away the lock file of a dead process, or an empty one; False when its process may be alive."""
        raw = self._raw()
        if raw is None:
            return True  # freed since we saw it: moving now could take a new holder's file
        content = _parsed(raw)
        if raw and (not content or is_alive(_process(content)) is not False):
            return False
        moved = temporary_name(self.folder)
        try:
            os.rename(self.path, moved)
        except FileNotFoundError:
            return True
        try:
            if moved.read_bytes() != raw:  # another process was quicker, and this is its lock: put it back
                os.link(moved, self.path)
                return False
        finally:
            moved.unlink()
        if content:
            self.notices.append(f"{self.folder}: took over the lock of {_named(content)}, which is gone")
        return True

    def _raw(self) -> bytes | None:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None

    def _read(self) -> dict[str, Any]:
        return _parsed(self._raw() or b"")


def _content(*, exclusive: bool) -> bytes:
    me = this_process()
    content: dict[str, Any] = {
        "pid": me.pid,
        "host": me.host,
        "started": started_at(),
        "mark": me.mark,
        "command": started_command(),
    }
    return json.dumps({**content, "exclusive": True} if exclusive else content).encode("ascii")


def _parsed(raw: bytes) -> dict[str, Any]:
    with suppress(ValueError):
        content = json.loads(raw)
        if isinstance(content, dict):
            return content
    return {}


def _process(content: dict[str, Any]) -> Process:
    pid = content.get("pid")
    return Process(str(content.get("host")), pid if isinstance(pid, int) else -1, str(content.get("mark") or ""))


def _same(content: dict[str, Any], process: Process) -> bool:
    return _process(content) == process


def _named(content: dict[str, Any]) -> str:
    if not content:
        return "another process"
    words = f"process {content.get('pid')} on {content.get('host')}, started {content.get('started')}"
    return f"{words} ({content.get('command')})"


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        opened, current = os.fstat(descriptor), os.lstat(path)
    except FileNotFoundError:
        return False
    return (opened.st_ino, opened.st_dev) == (current.st_ino, current.st_dev)
