"""Copies of remote files: whole or absent, resumed where a connection was cut, made again only when the file changed."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from ragpipe.core.errors import ConfigError, DataError, OutputError
from ragpipe.store.objects.copies import RemotePlace, copied_file, copied_folder, transfers_to
from ragpipe.store.objects.object_store import PIECE
from ragpipe.store.objects.settings import Storage, StorageSettings
from tests.support.buckets import KEY_ID, SECRET, storage_at
from tests.support.s3_server import S3Server, etag

CONTENT = random.Random(5).randbytes(2 * PIECE + 12_345)


def _address(server: S3Server, kind: str, key: str) -> str:
    return f"s3://{key}" if kind == "s3" else f"{server.endpoint}/{key}"


def _ranges(server: S3Server) -> list[str]:
    return [seen.range for seen in server.seen("GET", "b/x.bin")]


@pytest.mark.thorough
@pytest.mark.slow
def test_a_cut_connection_of_a_bucket_goes_on_at_the_piece_that_was_cut(server: S3Server, tmp_path: Path) -> None:
    server.objects["b/x.bin"] = CONTENT
    server.cut_after += [PIECE, 1000, 0]  # the first piece arrives; the second one is cut twice
    copy = copied_file("s3://b/x.bin", storage_at(server, tmp_path))
    assert copy is not None
    assert copy.read_bytes() == CONTENT
    second = f"bytes={PIECE}-{2 * PIECE - 1}"
    assert _ranges(server) == [f"bytes=0-{PIECE - 1}", second, second, second, f"bytes={2 * PIECE}-{len(CONTENT) - 1}"]


@pytest.mark.slow
def test_a_cut_http_connection_goes_on_at_the_byte_where_it_was_cut(server: S3Server, tmp_path: Path) -> None:
    server.objects["b/x.bin"] = CONTENT
    server.cut_after += [1_000_000, 7]
    copy = copied_file(f"{server.endpoint}/b/x.bin", storage_at(server, tmp_path))
    assert copy is not None
    assert copy.read_bytes() == CONTENT
    assert _ranges(server) == ["", "bytes=1000000-", "bytes=1000007-"]
    assert [seen.headers.get("if-range") for seen in server.seen("GET")] == [None, etag(CONTENT), etag(CONTENT)]


def test_a_file_without_a_version_is_never_half_old_and_half_new(server: S3Server, tmp_path: Path) -> None:
    """The file is replaced by one of the same size where the connection is cut: all of it is read again."""
    old, new = b"a" * 3_000_000, b"b" * 3_000_000
    server.objects["b/x.bin"] = old
    server.has_versions = False
    server.cut_after += [1_000_000]

    def replace(key: str) -> None:
        server.objects[key] = new

    server.after_get = replace
    copy = copied_file(f"{server.endpoint}/b/x.bin", storage_at(server, tmp_path))
    assert copy is not None
    assert copy.read_bytes() == new
    assert _ranges(server) == ["", ""]


def test_a_file_without_a_version_is_given_up_where_no_new_byte_arrives(server: S3Server, tmp_path: Path) -> None:
    """Each try begins anew and is cut at the same byte: they count as tries in a row."""
    server.objects["b/x.bin"] = CONTENT
    server.has_versions = False
    server.cut_after += [1_000_000] * 9
    with pytest.raises(DataError, match="cut off at byte 1,000,000 of"):
        copied_file(f"{server.endpoint}/b/x.bin", storage_at(server, tmp_path))
    assert _ranges(server) == [""] * 3


def test_a_part_that_begins_elsewhere_is_not_taken(server: S3Server, tmp_path: Path) -> None:
    server.objects["b/x.bin"] = CONTENT
    server.cut_after += [1_000_000]
    server.range_shift = 10
    with pytest.raises(DataError, match="other bytes than those from 1000000 on"):
        copied_file(f"{server.endpoint}/b/x.bin", storage_at(server, tmp_path))


def test_a_file_that_changed_where_it_was_cut_is_noticed_at_once(server: S3Server, tmp_path: Path) -> None:
    server.objects["b/x.bin"] = CONTENT
    server.cut_after += [1_000_000]

    def replace(key: str) -> None:
        server.objects[key] = CONTENT[::-1]

    server.after_get = replace
    with pytest.raises(DataError, match="changed while it was being read") as caught:
        copied_file(f"{server.endpoint}/b/x.bin", storage_at(server, tmp_path))
    assert "1,000,000 bytes read; now another version" in caught.value.problems[0].found
    assert len(_ranges(server)) == 2


def test_a_server_without_ranges_begins_anew_and_gives_the_same_bytes(server: S3Server, tmp_path: Path) -> None:
    server.objects["b/x.bin"] = CONTENT
    server.has_ranges = False
    server.cut_after += [1_000_000]
    copy = copied_file(f"{server.endpoint}/b/x.bin", storage_at(server, tmp_path))
    assert copy is not None
    assert copy.read_bytes() == CONTENT


@pytest.mark.parametrize("kind", ["s3", "http"])
def test_a_file_is_given_up_after_so_many_failures_in_a_row(server: S3Server, tmp_path: Path, kind: str) -> None:
    server.objects["b/x.bin"] = CONTENT
    server.cut_after += [PIECE, 0, 0, 0, 0]
    address = _address(server, kind, "b/x.bin")
    with pytest.raises(DataError) as caught:
        copied_file(address, storage_at(server, tmp_path))
    problem = caught.value.problems[0]
    assert problem.where == address
    assert f"cut off at byte {PIECE:,} of {len(CONTENT):,}" in problem.found
    assert "storage.tries" in problem.fix
    assert len(_ranges(server)) == 1 + 3 if kind == "s3" else 3
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["s3", "http"])
def test_a_file_that_changes_while_it_is_read_is_noticed(server: S3Server, tmp_path: Path, kind: str) -> None:
    server.objects["b/x.bin"] = CONTENT

    def change(key: str) -> None:
        server.objects[key] = CONTENT[::-1]

    server.after_get = change
    with pytest.raises(DataError, match="changed while it was being read") as caught:
        copied_file(_address(server, kind, "b/x.bin"), storage_at(server, tmp_path))
    assert "start again" in caught.value.problems[0].fix
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("kind", ["s3", "http"])
def test_a_copy_is_used_until_the_file_changes(server: S3Server, tmp_path: Path, kind: str) -> None:
    server.objects["b/d/x.jsonl"] = b"one"
    address, storage = _address(server, kind, "b/d/x.jsonl"), storage_at(server, tmp_path)
    first = copied_file(address, storage)
    assert copied_file(address, storage) == first
    assert len(server.seen("GET", "b/d/x.jsonl")) == 1
    server.objects["b/d/x.jsonl"] = b"two"  # of the same size
    copy = copied_file(address, storage)
    assert copy is not None
    assert copy.read_bytes() == b"two"
    assert copy.name == "x.jsonl"


def test_a_copy_that_was_changed_here_is_made_again(server: S3Server, tmp_path: Path) -> None:
    server.objects["b/x.jsonl"] = b"one"
    storage = storage_at(server, tmp_path)
    copy = copied_file("s3://b/x.jsonl", storage)
    assert copy is not None
    copy.write_bytes(b"damaged")
    assert copied_file("s3://b/x.jsonl", storage) == copy
    assert copy.read_bytes() == b"one"


@pytest.mark.thorough(tried=1)
@pytest.mark.slow
@pytest.mark.parametrize("has_versions", [True, False])
def test_a_copy_in_use_is_not_replaced_by_the_same_bytes(server: S3Server, tmp_path: Path, has_versions: bool) -> None:
    """Two first starts at once: each copies the file before it could see the copy of the other."""
    server.objects["b/x.jsonl"] = b"one"
    server.has_versions = has_versions
    address, storage = f"{server.endpoint}/b/x.jsonl", storage_at(server, tmp_path)
    others: list[Path | None] = []

    def start_too(key: str) -> None:
        if not others:
            others.append(None)
            others[0] = copied_file(address, storage)

    server.after_get = start_too
    first = copied_file(address, storage)
    assert first is not None
    assert first == others[0]
    inode = first.stat().st_ino
    if not has_versions:
        assert copied_file(address, storage) == first
    assert len(server.seen("GET")) == (2 if has_versions else 3)
    assert first.stat().st_ino == inode
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["copied.json", "x.jsonl"]


def test_a_copy_in_use_outlives_a_new_version(server: S3Server, tmp_path: Path) -> None:
    server.objects["b/x.jsonl"] = b"one"
    storage = storage_at(server, tmp_path)
    first = copied_file("s3://b/x.jsonl", storage)
    server.objects["b/x.jsonl"] = b"two"
    second = copied_file("s3://b/x.jsonl", storage)
    assert first is not None
    assert second is not None
    assert (first.read_bytes(), second.read_bytes()) == (b"one", b"two")


def test_a_file_may_be_called_as_the_note_of_a_copy(server: S3Server, tmp_path: Path) -> None:
    server.objects["b/copied.json"] = b"[]"
    storage = storage_at(server, tmp_path)
    copy = copied_file("s3://b/copied.json", storage)
    assert copy is not None
    assert (copy.name, copy.read_bytes()) == ("copied.json", b"[]")
    assert copied_file("s3://b/copied.json", storage) == copy
    assert len(server.seen("GET")) == 1


def test_a_file_of_memory_is_read_as_any_other(tmp_path: Path) -> None:
    import fsspec

    fsspec.filesystem("memory").pipe("/anyfiles/a.jsonl", b"abc")
    storage = Storage(StorageSettings(), tmp_path)
    place = RemotePlace("memory://anyfiles", storage, None)
    assert copied_file("memory://anyfiles", storage) is None
    assert place.names("*.jsonl") == ["a.jsonl"]
    assert place.below("a.jsonl").read_bytes() == b"abc"


def test_patterns_mean_what_they_mean_in_a_folder(server: S3Server, tmp_path: Path) -> None:
    names = ["a.json", "b.json", "c.jsonl", "d/a.json", "d/e/f.json", "x[1].json"]
    here = tmp_path / "here"
    for name in names:
        server.objects[f"b/p/{name}"] = b"{}"
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text("{}")
    place = RemotePlace("s3://b/p", storage_at(server, tmp_path / "cache"), None)
    for pattern in ("*.json", "*/*.json", "**/*.json", "d/**/*.json", "?.json", "none*"):
        assert place.names(pattern) == sorted(str(path.relative_to(here)) for path in here.glob(pattern)), pattern


@pytest.mark.slow
def test_a_copy_of_a_folder_never_changes(server: S3Server, tmp_path: Path) -> None:
    server.objects |= {"b/p/m/one.v1.jinja": b"1", "b/p/m/two.v1.jinja": b"2", "b/other": b"3"}
    storage = storage_at(server, tmp_path)
    first = copied_folder("s3://b/p", storage)
    assert {path.relative_to(first).as_posix() for path in first.rglob("*.jinja")} == {
        "m/one.v1.jinja",
        "m/two.v1.jinja",
    }
    requests = len(server.seen("GET", "b/p/m/one.v1.jinja"))
    assert copied_folder("s3://b/p", storage) == first
    assert len(server.seen("GET", "b/p/m/one.v1.jinja")) == requests
    del server.objects["b/p/m/two.v1.jinja"]
    server.objects["b/p/m/one.v1.jinja"] = b"9"
    second = copied_folder("s3://b/p", storage)
    assert [path.read_bytes() for path in second.rglob("*.jinja")] == [b"9"]
    assert sorted(path.read_bytes() for path in first.rglob("*.jinja")) == [b"1", b"2"]


def test_a_name_that_would_leave_the_folder_is_refused(server: S3Server, tmp_path: Path) -> None:
    server.objects["b/p/../evil.jinja"] = b"1"
    with pytest.raises(DataError, match="names that stay below"):
        copied_folder("s3://b/p", storage_at(server, tmp_path))


def test_a_file_outside_the_folder_is_not_read(server: S3Server, tmp_path: Path) -> None:
    server.objects |= {"b/g/a.jsonl": b"1", "b/x.jsonl": b"2"}
    place = RemotePlace("s3://b/g", storage_at(server, tmp_path), None)
    with pytest.raises(DataError, match=r"without `..`"):
        place.below("../x.jsonl")
    with pytest.raises(DataError, match="without a key or a signature") as caught:
        place.below("a.jsonl?X-Amz-Signature=00")
    assert "Signature=" not in str(caught.value)
    assert not server.requests


@pytest.mark.slow
def test_an_upload_is_tried_again_and_is_whole(server: S3Server, tmp_path: Path) -> None:
    source = tmp_path / "x.bin"
    source.write_bytes(CONTENT)
    server.statuses += [503]
    transfers_to("s3://b", storage_at(server, tmp_path)).upload(source, "s3://b/up/x.bin")
    assert server.objects == {"b/up/x.bin": CONTENT}


@pytest.mark.parametrize(("status", "words"), [(403, "credentials come from the environment"), (503, "storage.tries")])
def test_a_refusal_says_what_to_do_and_no_key(server: S3Server, tmp_path: Path, status: int, words: str) -> None:
    server.objects["b/x.bin"] = b"1"
    server.statuses += [status] * 9
    with pytest.raises(DataError) as caught:
        copied_file("s3://b/x.bin", storage_at(server, tmp_path))
    assert words in str(caught.value)
    assert KEY_ID not in str(caught.value)
    assert SECRET not in str(caught.value)
    assert len(server.requests) == (1 if status == 403 else 3)  # a refusal is not tried again


def test_what_cannot_be_written_is_an_output_error(server: S3Server, tmp_path: Path) -> None:
    server.statuses += [403]
    with pytest.raises(OutputError, match=r"cannot write s3://b/x: .*ACCESS_DENIED"):
        transfers_to("s3://b", storage_at(server, tmp_path)).write_bytes(b"1", "s3://b/x")


def test_an_address_that_a_driver_refuses_is_no_bug(server: S3Server, tmp_path: Path) -> None:
    transfers = transfers_to("s3://b", storage_at(server, tmp_path))
    with pytest.raises(DataError, match="Empty path component") as caught:
        transfers.info("s3://b//x")
    assert caught.value.problems[0].fix == "check bucket and path"
    with pytest.raises(OutputError, match=r"cannot write s3://b//x: Empty path component.*check bucket and path"):
        transfers.write_bytes(b"1", "s3://b//x")
    assert not server.requests


@pytest.mark.parametrize("address", ["s3://b/none.jsonl", "memory://none/none.jsonl"])
def test_a_missing_file_is_named(server: S3Server, tmp_path: Path, address: str) -> None:
    with pytest.raises(DataError, match="nothing at this address") as caught:
        copied_file(address, storage_at(server, tmp_path))
    assert caught.value.problems[0].where == address


def test_a_file_that_a_server_packs_is_refused(server: S3Server, tmp_path: Path) -> None:
    server.objects["b/x.jsonl"] = b"1"
    server.encoding = "gzip"  # its ranges would be those of the packed bytes
    with pytest.raises(DataError, match="packed"):
        copied_file(f"{server.endpoint}/b/x.jsonl", storage_at(server, tmp_path))


def test_an_unknown_scheme_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="scheme that fsspec knows"):
        copied_file("nosuch://b/x", Storage(StorageSettings(), tmp_path))


def test_credentials_go_in_the_signature_alone(server: S3Server, tmp_path: Path) -> None:
    server.objects["b/x.bin"] = b"1"
    copied_file("s3://b/x.bin", storage_at(server, tmp_path))
    header = server.requests[0].headers["authorization"]
    assert KEY_ID in header
    assert SECRET not in header
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and KEY_ID.encode() in path.read_bytes()]
    assert os.environ["AWS_ACCESS_KEY_ID"] == KEY_ID
