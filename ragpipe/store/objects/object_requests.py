"""Requests to an object store that are repeated, and files that are copied from and to it.

A copy is whole or absent: it is written beside its place and renamed. A cut connection goes on at the byte where it was cut,
where the store would tell that the file is another one by then. What it says of the file before and after must agree: a file that
changes while it is copied is noticed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from ragpipe.core.errors import DataError, OutputError, Problem, RagpipeError
from ragpipe.core.secret_detection import redact, secrets_of_environment
from ragpipe.store.files.atomic import atomic_open
from ragpipe.store.objects.object_store import ChangedFile, ObjectInfo, ObjectStore

FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 30.0
_FINAL = re.compile(
    "(?i)access_?denied|invalid_?access_?key|signature_?does_?not_?match|no_?such_?bucket|HTTP status 40[13]"
)
"""What drivers say of a request that no further try helps."""
_DRIVERS = frozenset({"httpx", "httpcore", "aiohttp", "botocore", "fsspec", "requests"})
"""Packages with errors of their own that are no OSError."""
_READ = "a file of an object store cannot be read"
_CREDENTIALS = (
    "credentials come from the environment or the provider's own files (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, "
    "GOOGLE_APPLICATION_CREDENTIALS, AZURE_*); storage.anonymous=true for a public bucket"
)
_CHECK = "check bucket and path"
_NAME_IT = "name one file as dataset.path, and of several each in dataset.files.main (a list); or fetch them yourself and give the path"
T = TypeVar("T")


class Transfers:
    """Requests to one store, each tried `tries` times, with a wait that doubles. Raises DataError for what is read, OutputError for
    what is written; both name the address, what was found and how to fix it."""

    def __init__(self, store: ObjectStore, tries: int, *, wait: Callable[[float], None] | None = None):
        self._store, self._tries, self._wait = store, tries, wait or time.sleep

    def info(self, address: str) -> ObjectInfo | None:
        """The file at an address; None for a folder. Raises DataError where there is neither."""
        return self._repeated(address, lambda: self._store.info(address))

    def exists(self, address: str) -> bool:
        """Whether a file or a folder is at an address."""
        try:
            self._repeated(address, lambda: self._store.info(address), missing=FileNotFoundError)
        except FileNotFoundError:
            return False
        return True

    def file_at(self, address: str) -> ObjectInfo | None:
        """The file at an address; None where there is none."""
        try:
            return self._repeated(address, lambda: self._store.info(address), missing=FileNotFoundError)
        except FileNotFoundError:
            return None

    def listed(self, address: str) -> list[ObjectInfo]:
        """All files below a folder, sorted by name."""
        infos = self._repeated(address, lambda: list(self._store.listed(address)))
        return sorted(infos, key=lambda info: info.name)

    def read_bytes(self, address: str) -> bytes | None:
        """A small file as a whole; None where there is none."""
        try:
            pieces = self._repeated(address, lambda: list(self._store.read(address, 0)), missing=FileNotFoundError)
        except FileNotFoundError:
            return None
        return b"".join(pieces)

    def fetch(self, address: str, target: Path, info: ObjectInfo) -> None:
        """Copy a file to `target`. `info` is what the store said of it. Raises DataError where it is another one afterwards."""
        with atomic_open(target) as file:
            size = 0
            for start, piece in self._pieces(address, info):
                if start != size:
                    file.seek(start)
                    file.truncate()
                file.write(piece)
                size = start + len(piece)
        now = self.info(address)
        if now != info or (info.size is not None and size != info.size):
            target.unlink()
            raise _changed(address, info, f"{size:,} bytes read; now {_shown(now)}")

    def _pieces(self, address: str, info: ObjectInfo) -> Iterator[tuple[int, bytes]]:
        """The bytes of a file, each piece with the place of its first byte. A read that ends early goes on where it ended, `tries` times
        in a row; it begins anew where a store could not tell that the file is another one by then."""
        at = furthest = failures = 0

        def wrong(error: Exception) -> DataError:
            return self._read_error(address, error, f"cut off at byte {at:,}{_of(info.size)}")

        while info.size is None or at < info.size or not at:
            try:
                for piece in self._store.read(address, at, info.version):
                    yield at, piece
                    at += len(piece)
                    if at > furthest:
                        furthest, failures = at, 0
                if info.size is None or at >= info.size:
                    return
                raise EOFError("the connection ended early")
            except ChangedFile as error:
                raise _changed(address, info, f"{at:,} bytes read; now another version") from error
            except Exception as error:
                failures += 1
                self._before_next_try(failures, error, wrong)
                at = at if self._store.resumes(info.version) else 0

    def upload(self, source: Path, address: str) -> None:
        """Make or replace a file. A request that fails begins anew: a store shows a file when it is whole."""

        def write() -> None:
            with open(source, "rb") as file:
                self._store.write(address, file)

        self._written(address, write)

    def write_bytes(self, content: bytes, address: str) -> None:
        """Make or replace a small file."""
        from io import BytesIO

        self._written(address, lambda: self._store.write(address, BytesIO(content)))

    def delete(self, address: str) -> None:
        """Remove a file; nothing where there is none."""
        self._written(address, lambda: self._store.delete(address))

    def _repeated(self, address: str, request: Callable[[], T], *, missing: type[Exception] | None = None) -> T:
        """What a request gives. `missing` is raised as it is: nothing there is an answer too."""
        failures = 0
        while True:
            try:
                return request()
            except Exception as error:
                if missing is not None and isinstance(error, missing):
                    raise
                failures += 1
                self._before_next_try(failures, error, lambda error: self._read_error(address, error))

    def _written(self, address: str, request: Callable[[], None]) -> None:
        failures = 0
        while True:
            try:
                return request()
            except Exception as error:
                failures += 1
                self._before_next_try(failures, error, lambda error: _write_error(address, error))

    def _before_next_try(self, failures: int, error: Exception, wrong: Callable[[Exception], RagpipeError]) -> None:
        """Wait. Raises what `wrong` makes of the error where no further try is left or would help, and a bug as it is."""
        if not _is_of_the_store(error):
            raise error
        if _is_final(error) or failures >= self._tries:
            raise wrong(error) from error
        self._wait(min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** (failures - 1)))

    def _read_error(self, address: str, error: Exception, text: str = "") -> DataError:
        if isinstance(error, FileNotFoundError):
            problem = Problem(address, "file", "nothing at this address", "a file or a folder", _CHECK)
            return DataError(_READ, [problem])
        said = "; ".join(part for part in (text, _said(error)) if part)
        if isinstance(error, NotImplementedError):
            return DataError(
                _READ, [Problem(address, "file", said, "a file that can be read by its address", _NAME_IT)]
            )
        if _is_refused_address(error):
            return DataError(_READ, [Problem(address, "file", said, "an address that pyarrow takes", _CHECK)])
        if _is_final(error):
            return DataError(_READ, [Problem(address, "access", said, "access to it", _CREDENTIALS)])
        tries = f"{self._tries} tries in a row" if self._tries > 1 else "the only try"
        fix = f"check the connection and start again; {tries} failed, storage.tries allows more"
        return DataError(_READ, [Problem(address, "file", said, "the whole file", fix)])


def _is_of_the_store(error: Exception) -> bool:
    """Whether a driver raised the error because of the store or of the way to it."""
    return (
        isinstance(error, OSError | EOFError | NotImplementedError)
        or _is_refused_address(error)
        or type(error).__module__.partition(".")[0] in _DRIVERS
    )


def _is_refused_address(error: Exception) -> bool:
    """Whether pyarrow cannot make a request of the address."""
    return isinstance(error, ValueError) and type(error).__name__ == "ArrowInvalid"


def _is_final(error: Exception) -> bool:
    is_refused = isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError | NotImplementedError)
    return is_refused or _is_refused_address(error) or bool(_FINAL.search(str(error)))


def _changed(address: str, info: ObjectInfo, actual: str) -> DataError:
    expected = f"{_shown(info)}, as when it was first looked at"
    problem = Problem(address, "file", actual, expected, "start again")
    return DataError("a file changed while it was being read", [problem])


def _of(size: int | None) -> str:
    return "" if size is None else f" of {size:,}"


def _said(error: Exception) -> str:
    """What a driver says, on one line and without a key."""
    text = " ".join(str(error).split()) or type(error).__name__
    return redact(text, secrets_of_environment())[:300]


def _write_error(address: str, error: Exception) -> OutputError:
    if _is_refused_address(error):
        return OutputError(f"cannot write {address}: {_said(error)}. To fix: {_CHECK}")
    fix = _CREDENTIALS if _is_final(error) else "check the connection and start again: what is there is not sent again"
    return OutputError(f"cannot write {address}: {_said(error)}. To fix: {fix}")


def _shown(info: ObjectInfo | None) -> str:
    if info is None:
        return "a folder"
    size = "a file of unknown size" if info.size is None else f"{info.size:,} bytes"
    return f"{size}, version {info.version}" if info.version else size
