"""Files of object stores and web servers, by fsspec. What is read is copied to the local disk first, where every reader reads it.

A copy is whole or absent, and is named by the version that the store gave its file, so one that is in use never changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ragpipe.core.digest import sha256, sha256_file
from ragpipe.core.errors import ConfigError, DataError, OutputError, Problem, RagpipeError
from ragpipe.core.secrets import redact, secrets_of_environment
from ragpipe.store.files import DISK_FULL
from ragpipe.store.places import HTTP, address_below, name_fault, name_of, name_pattern, parent_of, scheme_of

_PACKAGES = {
    **dict.fromkeys(("s3", "s3a"), "s3fs boto3"),  # with boto3 pip chooses the one that fits the botocore of s3fs
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("abfs", "abfss", "az"), "adlfs"),
}
_VERSIONS = (
    "ETag", "etag", "generation", "sha256", "blob_id", "LastModified", "Last-Modified", "last_modified", "mtime", "created",
)  # fmt: skip
"""What stores call what changes with the content of a file."""
_REFUSED = ("credential", "denied", "forbidden", "unauthorized", "accesskey", "signature")
_CREDENTIALS = (
    "credentials come from the environment or the provider's own files (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, "
    "GOOGLE_APPLICATION_CREDENTIALS, AZURE_*); FSSPEC_S3='{\"anon\": true}' for a public bucket of s3://"
)


@contextmanager
def file_system(address: str, *, writes: bool = False) -> Iterator[tuple[Any, str]]:
    """The file system of an address and the path there, for the block; what its package raises names address, fault and fix.

    Raises ConfigError where a package is missing, DataError where something cannot be read, with `writes` OutputError.
    """
    try:
        from fsspec.core import url_to_fs

        files, path = url_to_fs(address, **_web_options() if scheme_of(address) in HTTP else {})
        files.invalidate_cache()
        yield files, path
    except RagpipeError:
        raise
    except Exception as error:
        raise _fault(address, error, writes) from error


def _web_options() -> dict[str, Any]:
    """Proxies of the environment, and no limit on the time that a whole file takes: aiohttp's own is five minutes."""
    from aiohttp import ClientTimeout

    return {"client_kwargs": {"trust_env": True, "timeout": ClientTimeout(total=None, sock_connect=30, sock_read=60)}}


def _fault(address: str, error: Exception, writes: bool) -> Exception:
    if isinstance(error, OSError) and error.errno in DISK_FULL:
        return error  # of this machine
    if scheme_of(address) in HTTP and getattr(error.__cause__, "status", 0) not in (404, 410):
        error = error.__cause__ if isinstance(error.__cause__, Exception) else error  # not found by fsspec, whatever was wrong
    said = redact(" ".join(str(error).split()) or type(error).__name__, secrets_of_environment())[:300]
    scheme, text = scheme_of(address), f"{type(error).__name__} {error}".lower()
    package = _PACKAGES.get(scheme)
    if isinstance(error, ImportError) or text.startswith("valueerror protocol not known"):
        fix = f"pip install {package}" if package else "pip install fsspec, and the package that it names"
        problem = Problem(address, "path", said, f"a scheme of fsspec, and its package for {scheme}://", fix)
        return ConfigError("a file of an object store cannot be read", [problem])
    if isinstance(error, FileNotFoundError) and not writes:
        return _read_error(address, "file", "nothing at this address", "a file or a folder", "check bucket and path")
    is_refused = isinstance(error, PermissionError) or getattr(error, "status", 0) in (401, 403)
    is_refused = is_refused or any(word in text for word in _REFUSED)
    fix = _CREDENTIALS if is_refused else "check the address and the connection, and start again"
    if writes:
        return OutputError(f"cannot write {address}: {said}. To fix: {fix}")
    return _read_error(address, "access" if is_refused else "file", said, "the whole file", fix)


def _read_error(address: str, key: str, found: str, expected: str, fix: str = "") -> DataError:
    return DataError("a file of an object store cannot be read", [Problem(address, key, found, expected, fix)])


def read_bytes(address: str) -> bytes | None:
    """A small file as a whole; None where there is none."""
    with file_system(address) as (files, path), suppress(FileNotFoundError):
        return bytes(files.cat_file(path))
    return None


@dataclass(frozen=True)
class RemotePlace:
    """A file or folder of an object store. Every file that is asked for is copied."""

    address: str
    cache: Path
    file: Path | None

    @property
    def _folder(self) -> str:
        return self.address if self.file is None else parent_of(self.address)

    def names(self, pattern: str) -> list[str]:
        names = sorted(filter(name_pattern(pattern).fullmatch, _listed(self._folder)))
        for name in names:
            if ".." in name.split("/") or "\\" in name or "\0" in name:
                raise _read_error(self._folder, "file", repr(name), "names that stay below the folder", "rename it")
        return names

    def below(self, name: str) -> Path:
        if expected := name_fault(self._folder, name):
            raise _read_error(self._folder, "file", "a name that is not taken", expected)
        address = address_below(self._folder, name)
        if (path := _copied_file(address, self.cache)) is None:
            raise _read_error(address, "file", "a folder", "a file", "name a file of it, or a pattern")
        return path


def open_remote(address: str, cache: Path) -> RemotePlace:
    """The place of an address. A file is copied now. Raises ConfigError, DataError, OutputError."""
    return RemotePlace(address, cache, _copied_file(address, cache))


def _copied_file(address: str, cache: Path) -> Path | None:
    """The copy of a file, made now unless there is one of the same version; None for a folder."""
    name, info, folder = name_of(address) or "file", _info(address), copy_folder_of(address, cache)
    if info["type"] == "directory":
        return None
    version = _version(info)
    copy = folder / sha256({name: version})[:16]
    if version and copy.is_dir():
        return copy / name
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".part-", dir=folder) as scratch:
        part = Path(scratch, "files")
        part.mkdir()
        with file_system(address) as (files, _):
            files.get_file(info["name"], str(part / name))
        size = (part / name).stat().st_size
        if info.get("size") not in (None, size) or version != _version(_info(address)):
            read = f"{size:,} bytes read; the store says another size or version"
            problem = Problem(address, "file", read, "what the store said before it was read", "start again")
            raise DataError("a file changed while it was being read", [problem])
        if not version:
            copy = folder / sha256({name: sha256_file(part / name)})[:16]
        try:
            part.rename(copy)
        except OSError:  # another start has made the same copy
            if not copy.is_dir():
                raise
    return copy / name


def _info(address: str) -> Mapping[str, Any]:
    with file_system(address) as (files, path):
        info: Mapping[str, Any] = files.info(path)
    return info


def _listed(address: str) -> list[str]:
    if scheme_of(address) in HTTP:
        fix = "name one file as dataset.path, and of several each in dataset.files.main (a list)"
        raise _read_error(address, "file", "files of a web server cannot be listed", "the address of a file", fix)
    with file_system(address) as (files, path):
        names = [str(name).removeprefix(path).lstrip("/") for name in files.find(path)]
    return [name for name in names if name and not name.endswith("/")]


def copy_folder_of(address: str, cache: Path) -> Path:
    """The folder of the copies of an address."""
    return cache.absolute() / sha256(address)[:16]


def _version(info: Mapping[str, Any]) -> list[str]:
    """What changes with the content of a file; empty where the store tells nothing but its size."""
    known = [str(info[key]) for key in _VERSIONS if info.get(key) is not None]
    return [str(info.get("size")), *known] if known else []
