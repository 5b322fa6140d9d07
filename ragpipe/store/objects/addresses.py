"""Addresses of files that are not on this machine: `s3://bucket/path`, `https://host/path`, and what none of them may hold."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from urllib.parse import parse_qsl, urlsplit

from ragpipe.core.secret_detection import is_secret_name

ARROW = frozenset({"s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs"})
"""Schemes that pyarrow reads and writes itself."""
HTTP = frozenset({"http", "https"})
"""Schemes that are only read."""
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+)://")
_HADOOP = frozenset({"hdfs", "viewfs"})
_AZURE = frozenset({"abfs", "abfss"})  # container@account.dfs.core.windows.net
_UNSIGNED = (
    "an address without a key or a signature in it: fetch a signed address yourself and give the path of the file"
)
_SIGNED = re.compile(r"(?i)(^|[-_])(signature|sig|credential|security-token|awsaccesskeyid|googleaccessid)$")


def is_remote(path: str) -> bool:
    """Whether a configured path is an address (`scheme://...`), not a path of this machine."""
    return _ADDRESS.match(path) is not None


def scheme_of(address: str) -> str:
    """The scheme of an address, in lower case."""
    match = _ADDRESS.match(address)
    return match[1].lower() if match else ""


def publishing_fault(address: str) -> str | None:
    """What is wrong with the address that a run is published to, as the end of "expected ..."; None when nothing is."""
    return address_fault(address, writes=True) if is_remote(address) else "an address such as s3://bucket/prefix"


def address_fault(address: str, *, writes: bool = False) -> str | None:
    """What is wrong with an address, as the end of "expected ...", None when nothing is. The address is not part of the text.

    An address is written into messages and into the run folder, so it can hold neither a name with a password nor a signature. With
    `writes` an address that is only read is refused too.
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
        return "an address without `?...`: endpoint, region and anonymous access are keys of the section `storage`"
    if _holds_key(parts.query):
        return _UNSIGNED
    if not parts.netloc and scheme in ARROW - _HADOOP:
        return f"an address with a bucket, {scheme}://bucket/path"
    if scheme in ARROW and "//" in address.partition("://")[2].removeprefix(parts.netloc):
        return "an address without an empty part (`//`)"
    if ".." in parts.path.split("/"):
        return "an address without `..`"
    if writes and scheme in HTTP:
        return "an object store, such as s3://bucket/prefix: an http address is only read"
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
    """Whether a key or a signature is among the parameters of an address."""
    return any(is_secret_name(name) or _SIGNED.search(name) for name, _ in parse_qsl(query, keep_blank_values=True))


def bucket_of(address: str) -> str | None:
    """The address of the bucket that an address is in; None in a store without buckets."""
    return "/".join(address.split("/")[:3]) if scheme_of(address) in ARROW - _HADOOP else None


def address_below(address: str, name: str) -> str:
    """The address of a file by its name below a folder."""
    return f"{address.rstrip('/')}/{name}"


def parent_of(address: str) -> str:
    """The address of the folder that a file is in."""
    path = address.partition("?")[0] if scheme_of(address) in HTTP else address
    return path.rstrip("/").rpartition("/")[0]


def name_of(address: str) -> str:
    """The last part of an address' path, without a query."""
    return (
        PurePosixPath(urlsplit(address).path).name
        if scheme_of(address) in HTTP
        else address.rstrip("/").rpartition("/")[2]
    )
