"""Where a configured path leads: to a file or folder of this machine, or to an address such as `s3://bucket/path`.

What an address may not hold is said here; the extra `objects` reads and writes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path, PurePosixPath
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

from ragpipe.core import registry
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.secrets import is_secret_name

HTTP = frozenset({"http", "https"})
"""Schemes that are only read."""
BUCKETS = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"})
"""Schemes whose addresses begin with a bucket."""
DEFAULT_CACHE = Path("outputs/.fetched")
"""The folder of the copies of fetched files where no `output_dir` is named."""
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+)://")
_AZURE = frozenset({"abfs", "abfss", "az"})  # container@account.dfs.core.windows.net
_UNSIGNED = "an address without a key or a signature in it: fetch a signed address yourself and give the path of the file"
_SIGNED = re.compile(r"(?i)(^|[-_])(signature|sig|credential|security-token|awsaccesskeyid|googleaccessid)$")


class Place(Protocol):
    """A file or folder that a configured path names. `file` is None for a folder."""

    @property
    def file(self) -> Path | None: ...

    def names(self, pattern: str) -> list[str]:
        """The files that a pattern such as `*.json` finds in the folder, or in the one of the file, sorted. Raises ValueError for
        what is no pattern."""

    def below(self, name: str) -> Path:
        """A file of the folder by its name."""


@dataclass(frozen=True)
class LocalPlace:
    """A file or folder of this machine. `names` gives those of an absolute pattern by their whole paths."""

    root: Path

    @property
    def file(self) -> Path | None:
        return None if self.root.is_dir() else self.root

    @property
    def _folder(self) -> Path:
        return self.root if self.root.is_dir() else self.root.parent

    def names(self, pattern: str) -> list[str]:
        root = Path(pattern).anchor
        folder, fits = Path(root or self._folder), name_pattern(pattern)
        files = [path for path in folder.glob(pattern.removeprefix(root)) if not path.is_dir()]
        names = [str(path) if root else str(path.relative_to(folder)) for path in files]
        return sorted(name for name in names if fits.fullmatch(Path(name).as_posix()))

    def below(self, name: str) -> Path:
        return self._folder / name


def open_place(path: str, local: Path, cache: Path) -> Place:
    """The place that a configured path names: an address, or `local`. A file of an object store is copied now, below `cache`."""
    if not is_remote(path):
        return LocalPlace(local)
    place: Place = objects("file_system", "*").open_remote(path, cache)
    return place


def objects(kind: registry.Kind, name: str) -> Any:
    """What the extra for addresses brings: the `file_system` `*`, the `task` `publish` or `fetch`. Raises ConfigError without it."""
    module = registry.find(kind, name)
    if module is None:
        problem = Problem(
            "ragpipe.extras", "objects", "no such extra", "what reads and writes addresses", "take the files here first"
        )
        raise ConfigError("a file of an object store cannot be read", [problem])
    return module


def cache_folder(plain: Mapping[str, Any]) -> Path:
    """The folder of the copies of fetched files, of a composed configuration: `.fetched` in its `output_dir`."""
    return Path(str(plain.get("output_dir", "outputs"))) / DEFAULT_CACHE.name


def name_pattern(pattern: str) -> re.Pattern[str]:
    """A pattern of files as a regular expression: `*`, `?` and `[ab]` stay in a folder, `**` is any folders. None of them stands for the
    dot that begins the name of a hidden file or folder. Raises ValueError for `**` that is not followed by a slash, or not alone."""
    *folders, last = pattern.split("/")
    if "**" in last or any("**" in folder and folder != "**" for folder in folders):
        raise ValueError("`**` stands for whole folders: **/*.jsonl")
    text, begins = "", True
    for piece in filter(None, re.split(r"(\*\*/|\*|\?|\[!?\]?[^\]/]*\])", pattern)):
        dot = r"(?!\.)" if begins else ""
        if piece == "**/":
            text += r"(?:(?!\.)[^/]+/)*"
        elif piece in ("*", "?"):
            text += dot + ("[^/]*" if piece == "*" else "[^/]")
        elif piece[0] == "[" and piece[-1] == "]":
            text += dot + f"(?!/){translate(piece)}".replace(r"\Z", "").replace(r"\z", "")
        else:
            text += re.escape(piece)
        begins = piece.endswith("/")
    return re.compile(text)


def is_remote(path: str) -> bool:
    """Whether a configured path is an address (`scheme://...`), not a path of this machine."""
    return _ADDRESS.match(path) is not None


def scheme_of(address: str) -> str:
    """The scheme of an address, in lower case."""
    match = _ADDRESS.match(address)
    return match[1].lower() if match else ""


def publishing_fault(address: str) -> str | None:
    """What is wrong with the address that a run is published to, as the end of "expected ..."; None when nothing is."""
    if not is_remote(address):
        return "an address such as s3://bucket/prefix"
    if scheme_of(address) in HTTP:
        return "an object store, such as s3://bucket/prefix: an http address is only read"
    return address_fault(address)


def address_fault(address: str) -> str | None:
    """What is wrong with an address, as the end of "expected ...", None when nothing is. The address is not part of the text.

    An address is written into messages and into the run folder, so it can hold neither a name with a password nor a signature.
    """
    scheme = scheme_of(address)
    try:
        parts = urlsplit(address)
    except ValueError:
        return "an address such as s3://bucket/path"
    if scheme == "file":
        return "the path itself, without file://"
    if "@" in parts.netloc and (scheme not in _AZURE or ":" in parts.netloc.partition("@")[0]):
        return "an address without a user or a key: credentials come from the environment or the provider's own files"
    if parts.query and scheme not in HTTP:
        return "an address without `?...`: endpoint, region and anonymous access are settings of fsspec"
    if _holds_key(parts.query):
        return _UNSIGNED
    if not parts.netloc and scheme in BUCKETS:
        return f"an address with a bucket, {scheme}://bucket/path"
    if scheme in BUCKETS and "//" in address.partition("://")[2].removeprefix(parts.netloc):
        return "an address without an empty part (`//`)"
    if ".." in parts.path.split("/"):
        return "an address without `..`"
    return None


def name_fault(folder: str, name: str) -> str | None:
    """What is wrong with the name of a file below a folder, or with a pattern of names, as the end of "expected ..."; None when nothing
    is. The name is not part of the text.

    A name becomes the end of an address, and is written where addresses are. `folder` may be a path of this machine, or a file.
    """
    if is_remote(name):
        return "a name below `path`, not an address of its own"
    if not is_remote(folder):
        return None
    if _holds_key(name.partition("?")[2]):
        return _UNSIGNED
    # In the name of an object `?` is a letter like others, and in a pattern it stands for one.
    return address_fault(address_below(folder, name if scheme_of(folder) in HTTP else name.replace("?", "_")))


def _holds_key(query: str) -> bool:
    return any(is_secret_name(name) or _SIGNED.search(name) for name, _ in parse_qsl(query, keep_blank_values=True))


def address_below(address: str, name: str) -> str:
    """The address of a file by its name below a folder."""
    return f"{address.rstrip('/')}/{name}"


def parent_of(address: str) -> str:
    """The address of the folder that a file is in."""
    path = address.partition("?")[0] if scheme_of(address) in HTTP else address
    return path.rstrip("/").rpartition("/")[0]


def name_of(address: str) -> str:
    """The last part of an address' path, without a query."""
    if scheme_of(address) in HTTP:
        return PurePosixPath(urlsplit(address).path).name
    return address.rstrip("/").rpartition("/")[2]
