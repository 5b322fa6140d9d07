"""The drivers of object stores, behind one protocol: pyarrow where it has one, HTTP, and fsspec for every other scheme.

A driver does one request and raises what its library raises. `object_requests.py` repeats, and says what went wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol
from urllib.parse import urlsplit

from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.extras import install_command
from ragpipe.store.objects.addresses import ARROW, HTTP, name_of, scheme_of
from ragpipe.store.objects.settings import StorageSettings

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

PIECE = 8 << 20
"""Bytes of one request: the memory that a file of any size takes, and what a cut connection of a driver without streams repeats."""
_TITLE = "a file is on an object store that cannot be used here"


@dataclass(frozen=True)
class ObjectInfo:
    """A file of an object store. `version` changes when its content does (an etag, else the time of the last change); empty where the
    store tells neither. `name` is its path below the folder that was listed. `size` is None where the store does not tell."""

    name: str
    size: int | None
    version: str


class ChangedFile(OSError):
    """A file is no longer the version that is being read."""


class ObjectStore(Protocol):
    """One object store. Addresses are whole ones, as the user gives them."""

    def info(self, address: str) -> ObjectInfo | None:
        """The file at an address; None for a folder. Raises FileNotFoundError where there is neither."""
        ...

    def listed(self, address: str) -> Iterator[ObjectInfo]:
        """All files below a folder, in no order."""
        ...

    def resumes(self, version: str) -> bool:
        """Whether reading a file of this version may go on at a later byte, and another version is noticed."""
        ...

    def read(self, address: str, start: int, version: str = "") -> Iterator[bytes]:
        """The bytes of a file from this one on, in pieces. With a `start` above 0 the file is to be of this version; raises
        ChangedFile where it is seen to be another one."""
        ...

    def write(self, address: str, source: BinaryIO) -> None:
        """Make or replace a file."""
        ...

    def delete(self, address: str) -> None:
        """Remove a file; nothing where there is none."""
        ...


def object_store(address: str, settings: StorageSettings) -> ObjectStore:
    """The store that an address is in. Raises ConfigError where a package is missing for it."""
    scheme = scheme_of(address)
    if scheme in HTTP:
        return HttpStore()
    if scheme in ARROW:
        return ArrowStore(_arrow_filesystem(address, settings), scheme)
    return FsspecStore(scheme, address)


def _arrow_filesystem(address: str, settings: StorageSettings) -> FileSystem:
    from pyarrow import fs

    scheme, place = scheme_of(address), settings.endpoint.rstrip("/").partition("://") if settings.endpoint else None
    at: dict[str, Any] = {"scheme": place[0], "endpoint_override": place[2]} if place else {}
    try:
        if scheme == "s3":
            if settings.region:
                at["region"] = settings.region
            # The caller repeats requests: it counts them, and says so.
            once = fs.AwsStandardS3RetryStrategy(max_attempts=1)
            return fs.S3FileSystem(anonymous=settings.anonymous, retry_strategy=once, **at)
        if scheme in ("gs", "gcs"):
            from datetime import timedelta

            return fs.GcsFileSystem(anonymous=settings.anonymous, retry_time_limit=timedelta(seconds=30), **at)
        return fs.FileSystem.from_uri(address)[0]
    except (ImportError, AttributeError) as error:
        problem = Problem(
            address, "path", f"pyarrow without a driver for {scheme}:// ({error})", "a pyarrow that has it", ""
        )
        raise ConfigError(_TITLE, [problem]) from error


class ArrowStore:
    """A store that pyarrow has a driver for."""

    def __init__(self, filesystem: FileSystem, scheme: str):
        self._files, self._scheme = filesystem, scheme

    def _path(self, address: str) -> str:
        parts = urlsplit(address)
        if self._scheme in ("hdfs", "viewfs"):
            return parts.path or "/"
        bucket = parts.netloc.partition("@")[0] if self._scheme.startswith("abfs") else parts.netloc
        path = address.partition("://")[2].partition("/")[2]
        return f"{bucket}/{path}".rstrip("/")

    def info(self, address: str) -> ObjectInfo | None:
        from pyarrow.fs import FileType

        path = self._path(address)
        info = self._files.get_file_info(path)
        if info.type == FileType.NotFound:
            raise FileNotFoundError(address)
        if info.type == FileType.Directory:
            return None
        return ObjectInfo(name_of(address), info.size, self._etag(path) or str(info.mtime_ns or ""))

    def _etag(self, path: str) -> str:
        with self._files.open_input_stream(path, compression=None) as stream:
            metadata = {_text(key).lower(): _text(value) for key, value in (stream.metadata() or {}).items()}
        return metadata.get("generation") or metadata.get("etag") or ""

    def listed(self, address: str) -> Iterator[ObjectInfo]:
        from pyarrow.fs import FileSelector

        root = self._path(address)
        for info in self._files.get_file_info(FileSelector(root, recursive=True)):
            if info.is_file:
                name = info.path.lstrip("/").removeprefix(root.lstrip("/")).lstrip("/")
                yield ObjectInfo(name, info.size, str(info.mtime_ns or ""))

    def resumes(self, version: str) -> bool:
        return bool(version)

    def read(self, address: str, start: int, version: str = "") -> Iterator[bytes]:
        with self._files.open_input_file(self._path(address)) as file:
            file.seek(start)
            while piece := file.read(PIECE):
                yield piece

    def write(self, address: str, source: BinaryIO) -> None:
        path = self._path(address)
        if self._scheme in ("hdfs", "viewfs"):  # an object store has no folders
            self._files.create_dir(path.rpartition("/")[0], recursive=True)
        with self._files.open_output_stream(path, compression=None) as target:
            while piece := source.read(PIECE):
                target.write(piece)

    def delete(self, address: str) -> None:
        with suppress(FileNotFoundError):
            self._files.delete_file(self._path(address))


class HttpStore:
    """Files of a web server: they are read, by ranges where the server knows them, and cannot be listed."""

    def __init__(self) -> None:
        import httpx

        self._client = httpx.Client(follow_redirects=True, timeout=30.0, headers={"Accept-Encoding": "identity"})

    def info(self, address: str) -> ObjectInfo | None:
        response = self._client.head(address)
        if response.status_code in (405, 501):  # a server without HEAD
            with self._client.stream("GET", address) as response:
                return self._info(address, response)
        return self._info(address, response)

    def _info(self, address: str, response: Any) -> ObjectInfo:
        _raise_for(response, address)
        headers = response.headers
        length = headers.get("Content-Length")
        version = headers.get("ETag") or headers.get("Last-Modified") or ""
        return ObjectInfo(name_of(address), int(length) if length else None, version)

    def listed(self, address: str) -> Iterator[ObjectInfo]:
        raise NotImplementedError("files of a web server cannot be listed: name each file")

    def resumes(self, version: str) -> bool:
        return version.startswith('"')  # a strong etag: a weak one, and a time, may be those of other bytes too

    def read(self, address: str, start: int, version: str = "") -> Iterator[bytes]:
        headers = {"Range": f"bytes={start}-", "If-Range": version} if start else {}
        with self._client.stream("GET", address, headers=headers) as response:
            if response.status_code == 416:  # nothing is left
                return
            _raise_for(response, address)
            if start and response.headers.get("ETag", version) != version:
                raise ChangedFile(address)
            is_part = response.status_code == 206
            if is_part and not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
                raise OSError(f"the server answers other bytes than those from {start} on")
            skipped = 0 if is_part else start  # a server without ranges begins at the beginning
            for piece in response.iter_bytes():
                taken = piece[skipped:]
                skipped -= min(skipped, len(piece))
                if taken:
                    yield taken

    def write(self, address: str, source: BinaryIO) -> None:
        raise NotImplementedError("a web server is only read")

    def delete(self, address: str) -> None:
        raise NotImplementedError("a web server is only read")


def _raise_for(response: Any, address: str) -> None:
    if response.status_code in (404, 410):
        raise FileNotFoundError(address)
    if response.status_code in (401, 403):
        raise PermissionError(f"the server answers {response.status_code}")
    if response.status_code >= 400:
        raise OSError(f"the server answers {response.status_code}")
    if response.headers.get("Content-Encoding", "identity") != "identity":  # ranges would be those of the packed bytes
        raise NotImplementedError("the server sends the file packed although it was asked not to")


class FsspecStore:
    """A store of any other scheme, by fsspec and the package that fsspec names for it."""

    def __init__(self, scheme: str, address: str):
        try:
            import fsspec

            self._files = fsspec.filesystem(scheme)
        except ImportError as error:
            fix = f"{install_command('fsspec')}; some schemes need a package of their own: {error}"
            problem = Problem(address, "path", f"no package for {scheme}://", "an installed driver", fix)
            raise ConfigError(_TITLE, [problem]) from error
        except ValueError as error:
            expected = (
                f"one of {', '.join(sorted(f'{name}://' for name in ARROW | HTTP))}, or a scheme that fsspec knows"
            )
            raise ConfigError(_TITLE, [Problem(address, "path", f"the scheme {scheme}://", expected, "")]) from error

    def _path(self, address: str) -> str:
        return str(self._files._strip_protocol(address))

    def info(self, address: str) -> ObjectInfo | None:
        self._files.invalidate_cache()
        info = self._files.info(self._path(address))
        return None if info["type"] == "directory" else _fsspec_info(info, name_of(address))

    def listed(self, address: str) -> Iterator[ObjectInfo]:
        self._files.invalidate_cache()
        root = self._path(address)
        for path, info in self._files.find(root, detail=True).items():
            yield _fsspec_info(info, str(path).removeprefix(root).lstrip("/"))

    def resumes(self, version: str) -> bool:
        return bool(version)

    def read(self, address: str, start: int, version: str = "") -> Iterator[bytes]:
        with self._files.open(self._path(address), "rb") as file:
            file.seek(start)
            while piece := file.read(PIECE):
                yield bytes(piece)

    def write(self, address: str, source: BinaryIO) -> None:
        path = self._path(address)
        self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        with self._files.open(path, "wb") as target:
            while piece := source.read(PIECE):
                target.write(piece)

    def delete(self, address: str) -> None:
        with suppress(FileNotFoundError):
            self._files.rm_file(self._path(address))


def _fsspec_info(info: dict[str, Any], name: str) -> ObjectInfo:
    keys = ("ETag", "etag", "sha256", "blob_id", "LastModified", "last_modified", "mtime", "modified", "created")
    version = next((str(info[key]) for key in keys if info.get(key) is not None), "")
    return ObjectInfo(name, info.get("size"), version)


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
