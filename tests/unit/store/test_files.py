from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.core.errors import OutputError
from ragpipe.store.files import atomic
from ragpipe.store.files.atomic import (
    atomic_open,
    atomic_write,
    json_lines,
    json_unless_same,
    link_or_copy,
    make_folders,
    sweep_temporaries,
)


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


@pytest.mark.parametrize("data", [b"\x00\xff", "naïve ☃\n", "", b""])
def test_writes_the_whole_file_and_nothing_else(tmp_path: Path, data: bytes | str) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")
    atomic_write(target, data)
    assert target.read_bytes() == (data.encode() if isinstance(data, str) else data)
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("error", [RuntimeError("stop"), KeyboardInterrupt()])
def test_a_failed_block_leaves_the_old_file_and_no_temporary(tmp_path: Path, error: BaseException) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")

    def write_and_fail() -> None:
        with atomic_open(target) as file:
            file.write(b"new")
            raise error

    with pytest.raises(type(error)):
        write_and_fail()
    assert target.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_planted_link_is_replaced_not_followed(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside.txt", tmp_path / "run"
    outside.write_text("precious")
    folder.mkdir()
    (folder / "a.json").symlink_to(outside)
    json_unless_same(folder / "a.json", {"a": 1})
    assert outside.read_text() == "precious"
    assert not (folder / "a.json").is_symlink()
    assert json.loads((folder / "a.json").read_text()) == {"a": 1}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": [1, -float("inf")]}])
def test_json_refuses_what_json_has_not(tmp_path: Path, value: object) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_unless_same(tmp_path / "a.json", value)
    assert names(tmp_path) == []


def test_json_keeps_lone_surrogates_as_escapes(tmp_path: Path) -> None:
    json_unless_same(tmp_path / "a.json", {"text": "bad \ud800 é"})
    assert json.loads((tmp_path / "a.json").read_bytes()) == {"text": "bad \ud800 é"}


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "disk is full"),
        (errno.EDQUOT, "quota"),
        (errno.EACCES, "permission"),
        (errno.EROFS, "read-only"),
        (errno.ENOTDIR, "not a folder"),
        (errno.EMFILE, "too many open files"),
        (errno.EIO, "input/output"),
    ],
)
def test_a_failed_sync_names_path_and_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    target = tmp_path / "a.txt"
    target.write_text("old")
    monkeypatch.setattr(atomic.os, "fsync", fail)
    with pytest.raises(OutputError) as found:
        atomic_write(target, "new")
    assert words in str(found.value)
    assert str(target) in str(found.value)
    assert "To fix" in str(found.value)
    assert target.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.skipif(sys.platform != "linux", reason="has no /proc")
def test_a_place_that_takes_no_folder_is_not_taken_for_one_that_was_removed() -> None:
    with pytest.raises(
        OutputError, match=r"^cannot create the folder /proc/x/run: .*choose a folder that can be written"
    ):
        make_folders(Path("/proc/x/run"))


def test_a_file_system_without_sync_is_tolerated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(atomic.os, "fsync", fail)
    atomic_write(tmp_path / "a.txt", "new")
    assert (tmp_path / "a.txt").read_text() == "new"


def test_real_faults_of_the_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    for target, words in [
        (tmp_path / "file" / "a.txt", "not a folder"),
        (tmp_path / "missing" / "a.txt", "does not exist"),
        (tmp_path / "folder", "a folder is where a file should be"),
        (tmp_path / ("x" * 300), "too long"),
    ]:
        with pytest.raises(OutputError, match=words):
            atomic_write(target, "new")
    assert names(tmp_path) == ["file", "folder"]


@pytest.mark.slow
def test_a_full_disk_is_told_from_other_faults(tmp_path: Path) -> None:
    """A file size limit stands in for a full disk: the write comes back short, then fails."""
    code = (
        "import resource, sys; from pathlib import Path; from ragpipe.core.errors import OutputError\n"
        "from ragpipe.store.files.atomic import atomic_write, is_disk_full\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
        "try: atomic_write(Path(sys.argv[1]), b'x' * 100_000)\n"
        "except OutputError as e: print(is_disk_full(e), e)\n"
    )
    (tmp_path / "a.txt").write_text("old")
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.txt")], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("True cannot write")
    assert names(tmp_path) == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "old"


@pytest.mark.slow
def test_sweeps_only_what_the_dead_left(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from ragpipe.store.files.atomic import atomic_open\n"
        "with atomic_open(Path(sys.argv[1]) / 'a.txt') as file:\n    file.write(b'half'); file.flush(); os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)]).returncode == -9
    assert len(names(tmp_path)) == 1
    (tmp_path / "mine.tmp").write_text("not ours")
    with atomic_open(tmp_path / "b.txt") as file:
        file.write(b"being written")
        assert len(sweep_temporaries(tmp_path)) == 1
    assert names(tmp_path) == ["b.txt", "mine.tmp"]
    assert (tmp_path / "b.txt").read_bytes() == b"being written"
    assert sweep_temporaries(tmp_path / "missing") == []


def test_links_an_unchanged_table(tmp_path: Path) -> None:
    src, dst = tmp_path / "a.parquet", tmp_path / "b.parquet"
    src.write_bytes(b"table")
    dst.write_bytes(b"old")
    for _ in range(2):  # a rename of two names of one file does nothing and would leave the temporary name
        link_or_copy(src, dst)
        assert os.stat(src).st_ino == os.stat(dst).st_ino
        assert names(tmp_path) == ["a.parquet", "b.parquet"]
    atomic_write(dst, b"new")
    assert src.read_bytes() == b"table"


def test_copies_where_links_do_not_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(atomic.os, "link", fail)
    src, dst = tmp_path / "a.parquet", tmp_path / "b.parquet"
    src.write_bytes(b"table")
    link_or_copy(src, dst)
    assert dst.read_bytes() == b"table"
    assert os.stat(src).st_ino != os.stat(dst).st_ino
    assert names(tmp_path) == ["a.parquet", "b.parquet"]


def test_does_not_link_what_a_planted_link_points_to(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "a.parquet").symlink_to(tmp_path / "secret")
    with pytest.raises(OutputError, match="not a regular file"):
        link_or_copy(tmp_path / "a.parquet", tmp_path / "b.parquet")
    with pytest.raises(OutputError, match="does not exist"):
        link_or_copy(tmp_path / "missing", tmp_path / "b.parquet")
    assert names(tmp_path) == ["a.parquet", "secret"]


def test_rights_are_those_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        atomic_write(tmp_path / "a.txt", "private")
    finally:
        os.umask(before)
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o600


def test_json_lines_indent_what_holds_more_than_a_score() -> None:
    score = {"mean": 0.5, "interval": {"low": 0.25, "high": 0.75}, "errors": {}}
    value = {
        "n": 1,
        "by": {"a": {"scores": {"f": score, "é": [1, "x"]}}, "b": {}},
        "list": [{"d": {"e": []}}, 2],
        "none": [],
    }
    assert json_lines(value).decode() == (
        '{\n "n": 1,\n "by": {\n  "a": {\n   "scores": {\n'
        '    "f": {"mean":0.5,"interval":{"low":0.25,"high":0.75},"errors":{}},\n    "é": [1,"x"]\n   }\n  },\n'
        '  "b": {}\n },\n "list": [\n  {\n   "d": {"e":[]}\n  },\n  2\n ],\n "none": []\n}'
    )
    assert json.loads(json_lines(value)) == value


PLAIN_JSON = st.none() | st.booleans() | st.integers() | st.text(max_size=2)
NESTED_JSON = st.recursive(
    PLAIN_JSON, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
)


@pytest.mark.slow
@given(NESTED_JSON)
def test_json_lines_are_one_line_where_the_value_nests_two_levels(value: object) -> None:
    def depth(item: object) -> int:
        if not isinstance(item, dict | list):
            return 0
        return 1 + max(map(depth, item.values() if isinstance(item, dict) else item), default=0)

    assert (b"\n" in json_lines(value)) == (depth(value) > 2)
    assert json.loads(json_lines(value)) == value


def test_json_lines_keep_lone_surrogates_and_refuse_what_json_has_not() -> None:
    value = {"a": {"b": {"c": {"bad \ud800": "é"}}}}
    assert json.loads(json_lines(value)) == value
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_lines({"a": {"b": {"c": [float("nan")]}}})
