"""Copies of remote files: whole or absent, used again until the file changes, never half old and half new."""

import sys
from pathlib import Path
from typing import Any

import pytest

from ragpipe.core.errors import ConfigError, DataError, OutputError
from ragpipe.extras.objects.remote_files import RemotePlace, file_system, open_remote
from tests.support.s3_server import S3Server

CONTENT = b"0123456789" * 300_000


def _copy(address: str, cache: Path) -> Path:
    path = open_remote(address, cache).file
    assert path is not None
    return path


def _copies(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def _gets(server: S3Server, key: str) -> int:
    return len(server.seen("GET", key))


def test_a_copy_is_as_old_as_its_version_says(server: S3Server, tmp_path: Path) -> None:
    server.objects["b/d/x.jsonl"] = b"one"
    address = f"{server.endpoint}/b/d/x.jsonl"
    first = _copy(address, tmp_path)
    assert (_copy(address, tmp_path), _gets(server, "b/d/x.jsonl")) == (first, 1)
    server.objects["b/d/x.jsonl"] = b"two"  # of the same size
    second = _copy(address, tmp_path)
    assert (second.name, second.read_bytes()) == ("x.jsonl", b"two")
    assert first.read_bytes() == b"one"  # a copy in use stays
    server.objects["b/x.jsonl"] = b"one"
    server.has_versions = False
    address = f"{server.endpoint}/b/x.jsonl"
    first = _copy(address, tmp_path)
    assert _copy(address, tmp_path) == first  # the same bytes, the same copy
    server.objects["b/x.jsonl"] = b"two"
    assert _copy(address, tmp_path).read_bytes() == b"two"
    assert (first.read_bytes(), _gets(server, "b/x.jsonl")) == (b"one", 3)


def test_a_cut_connection_leaves_no_copy(server: S3Server, tmp_path: Path) -> None:
    server.objects["b/x.bin"] = CONTENT
    server.cut_after += [1_000_000]
    address = f"{server.endpoint}/b/x.bin"
    with pytest.raises(DataError, match="a file of an object store cannot be read") as caught:
        _copy(address, tmp_path)
    problem = caught.value.problems[0]
    assert (problem.where, problem.fix) == (address, "check the address and the connection, and start again")
    assert (_copies(tmp_path), _copy(address, tmp_path).read_bytes()) == ([], CONTENT)


def test_a_file_that_changes_while_it_is_read_is_noticed(server: S3Server, tmp_path: Path) -> None:
    server.objects["b/x.bin"] = CONTENT

    def change(key: str) -> None:
        server.objects[key] = CONTENT[::-1]

    server.after_get = change
    with pytest.raises(DataError, match="changed while it was being read") as caught:
        _copy(f"{server.endpoint}/b/x.bin", tmp_path)
    assert (caught.value.problems[0].fix, _copies(tmp_path)) == ("start again", [])


@pytest.mark.parametrize(("status", "key", "fix"), [
    (403, "access", "credentials come from the environment"),
    (401, "access", "credentials come from the environment"),
    (500, "file", "check the address and the connection"),
])  # fmt: skip
def test_a_refusal_says_what_to_do(server: S3Server, tmp_path: Path, status: int, key: str, fix: str) -> None:
    server.objects["b/x.bin"] = b"1"
    server.statuses += [status] * 9
    with pytest.raises(DataError) as caught:
        _copy(f"{server.endpoint}/b/x.bin", tmp_path)
    problem = caught.value.problems[0]
    assert problem.key == key
    assert fix in problem.fix


def test_what_cannot_be_written() -> None:
    told = r"cannot write memory://a/x: no room.*To fix: check the address"
    with pytest.raises(OutputError, match=told), file_system("memory://a/x", writes=True):
        raise OSError("no room")
    with pytest.raises(OSError, match="full"), file_system("memory://a/x"):
        raise OSError(28, "full")


def test_a_missing_file_is_named(memory: Any, server: S3Server, tmp_path: Path) -> None:
    for address in ("memory://none/none.jsonl", f"{server.endpoint}/b/none.jsonl"):
        with pytest.raises(DataError, match="nothing at this address") as caught:
            _copy(address, tmp_path)
        assert caught.value.problems[0].where == address


@pytest.mark.parametrize(("address", "found", "fix"), [
    ("nosuch://b/x", "Protocol not known: nosuch", "pip install fsspec, and the package that it names"),
    ("s3://b/x", "s3fs", "pip install s3fs boto3"),
    ("gs://b/x", "gcsfs", "pip install gcsfs"),
    ("abfss://c@a.dfs.core.windows.net/x", "abfss", "pip install adlfs"),
])  # fmt: skip
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, address: str, found: str, fix: str) -> None:
    for package in ("s3fs", "gcsfs", "adlfs"):
        monkeypatch.setitem(sys.modules, package, None)
    for scheme in ("s3", "gs", "abfss"):
        monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, scheme, raising=False)
    with pytest.raises(ConfigError) as caught:
        _copy(address, tmp_path)
    assert found in caught.value.problems[0].found
    assert caught.value.problems[0].fix == fix


def test_a_file_outside_the_folder_is_not_read(memory: Any, tmp_path: Path) -> None:
    memory.pipe({"/g/a.jsonl": b"1", "/x.jsonl": b"2"})
    place = RemotePlace("memory://g", tmp_path, None)
    with pytest.raises(DataError, match=r"without `..`"):
        place.below("../x.jsonl")
    with pytest.raises(DataError, match="without a key or a signature") as caught:
        place.below("a.jsonl?X-Amz-Signature=00")
    assert "Signature=" not in str(caught.value)
