"""Files: written whole or not at all, appended by several processes, swept when left behind; what the machine lacks is told as that."""

import errno
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ragpipe.core.errors import OutputError, RagpipeError
from ragpipe.store import files
from ragpipe.store.processes import this_process


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def failing(number: int) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("data", [b"\x00\xff", "naïve ☃\n", "", b""])
def test_writes_the_whole_file_and_nothing_else(tmp_path: Path, data: bytes | str) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")
    files.atomic_write(target, data)
    assert target.read_bytes() == (data.encode() if isinstance(data, str) else data)
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("error", [RuntimeError("stop"), KeyboardInterrupt()])
def test_a_failed_block_leaves_the_old_file_and_no_temporary(tmp_path: Path, error: BaseException) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")

    def write_and_fail() -> None:
        with files.atomic_open(target) as file:
            file.write(b"new")
            raise error

    with pytest.raises(type(error)):
        write_and_fail()
    assert (target.read_text(), names(tmp_path)) == ("old", ["a.txt"])


def test_links_are_not_followed(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside.txt", tmp_path / "run"
    outside.write_text("precious")
    folder.mkdir()
    (folder / "a.json").symlink_to(outside)
    files.json_unless_same(folder / "a.json", {"a": 1})
    assert outside.read_text() == "precious"
    assert not (folder / "a.json").is_symlink()
    assert json.loads((folder / "a.json").read_text()) == {"a": 1}
    (tmp_path / "target").write_text("")
    (tmp_path / "link").symlink_to("target")
    for name in ("link", "."):
        with pytest.raises(OutputError, match="cannot write"):
            files.append_lines(tmp_path / name, [{"a": 1}])
    assert (tmp_path / "target").read_text() == ""


@pytest.mark.parametrize(("number", "words"), [
    (errno.ENOSPC, "disk is full"), (errno.EDQUOT, "quota"), (errno.EACCES, "permission"), (errno.EROFS, "read-only"),
    (errno.ENOTDIR, "not a folder"), (errno.EMFILE, "too many open files"), (errno.EIO, "input/output"),
])  # fmt: skip
def test_a_failed_sync_names_path_and_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")
    monkeypatch.setattr(files.os, "fsync", failing(number))
    with pytest.raises(OutputError) as found:
        files.atomic_write(target, "new")
    assert [part for part in (words, str(target), "To fix") if part not in str(found.value)] == []
    assert (target.read_text(), names(tmp_path)) == ("old", ["a.txt"])


@pytest.mark.skipif(sys.platform != "linux", reason="has no /proc")
def test_a_place_that_takes_no_folder_is_not_taken_for_one_that_was_removed() -> None:
    with pytest.raises(OutputError, match=r"^cannot create the folder /proc/x/run: .*choose a folder that can be written"):
        files.make_folders(Path("/proc/x/run"))


def test_a_file_system_without_sync_is_tolerated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.os, "fsync", failing(errno.EINVAL))
    files.atomic_write(tmp_path / "a.txt", "new")
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
            files.atomic_write(target, "new")
    assert names(tmp_path) == ["file", "folder"]


def test_unchanged_tables_are_linked_or_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    src, dst = tmp_path / "a.parquet", tmp_path / "b.parquet"
    src.write_bytes(b"table")
    dst.write_bytes(b"old")
    for _ in range(2):  # a rename of two names of one file does nothing and would leave the temporary name
        files.link_or_copy(src, dst)
        assert os.stat(src).st_ino == os.stat(dst).st_ino
        assert names(tmp_path) == ["a.parquet", "b.parquet"]
    files.atomic_write(dst, b"new")
    assert src.read_bytes() == b"table"

    monkeypatch.setattr(files.os, "link", failing(errno.EXDEV))
    files.link_or_copy(src, dst)
    assert dst.read_bytes() == b"table"
    assert os.stat(src).st_ino != os.stat(dst).st_ino
    assert names(tmp_path) == ["a.parquet", "b.parquet"]


def test_rights_are_those_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        files.atomic_write(tmp_path / "a.txt", "private")
    finally:
        os.umask(before)
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o600


def test_json_lines_indent_what_holds_more_than_a_score() -> None:
    score = {"mean": 0.5, "interval": {"low": 0.25, "high": 0.75}, "errors": {}}
    value = {"n": 1, "by": {"a": {"scores": {"f": score, "é": [1, "x"]}}, "b": {}}, "list": [{"d": {"e": []}}, 2], "none": []}
    assert files.json_lines(value).decode() == (
        '{\n "n": 1,\n "by": {\n  "a": {\n   "scores": {\n'
        '    "f": {"mean":0.5,"interval":{"low":0.25,"high":0.75},"errors":{}},\n    "é": [1,"x"]\n   }\n  },\n'
        '  "b": {}\n },\n "list": [\n  {\n   "d": {"e":[]}\n  },\n  2\n ],\n "none": []\n}'
    )
    assert json.loads(files.json_lines(value)) == value


def test_lines_are_added_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.jsonl"
    assert list(files.read_lines(path)) == []
    files.append_lines(path, [])
    assert path.read_bytes() == b""
    files.append_lines(path, [{"a": 1}, {"a": "é\n"}])
    files.append_lines(path, [{"a": 3}])
    files.append_lines(path, [])
    assert path.read_text() == '{"a":1}\n{"a":"é\\n"}\n{"a":3}\n'
    assert [line["a"] for line in files.read_lines(path)] == [1, "é\n", 3]
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a":1}\n{"a":2')
    files.append_lines(path, [{"a": 3}])
    assert path.read_bytes() == b'{"a":1}\n{"a":2\n{"a":3}\n'
    assert [line["a"] for line in files.read_lines(path)] == [1, 3]


def test_writers_at_the_same_time_do_not_mix_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"

    def write(writer: int) -> None:
        for number in range(40):
            files.append_lines(path, [{"writer": writer, "number": number, "text": "x" * 3000}] * 2)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = list(files.read_lines(path))
    assert len(lines) == path.read_bytes().count(b"\n") == 4 * 40 * 2
    assert [line["number"] for line in lines if line["writer"] == 2] == [n for n in range(40) for _ in range(2)]


class TerminatedWorkerError(Exception):
    """As joblib's, by name."""


class UncompletedJobError(RuntimeError):
    """As submitit's, by name."""


@pytest.mark.parametrize(("error", "word"), [
    (MemoryError(), "memory"),
    (RuntimeError("can't start new thread"), "threads"),
    (TerminatedWorkerError("A worker process managed by the executor was unexpectedly terminated."), "worker"),
    (UncompletedJobError("Job 4_1 has not produced any output (state: TIMEOUT)"), "TIMEOUT"),
    (OSError(errno.EMFILE, "Too many open files", "f"), "open files"),
    (OSError(errno.ENOMEM, "Cannot allocate memory"), "memory"),
    (ImportError("libarrow.so.2600: failed to map segment from shared object"), "memory"),
])  # fmt: skip
def test_causes(error: Exception, word: str) -> None:
    wrapped = RagpipeError("a case")
    wrapped.__cause__ = error
    for found in map(files.outside_cause, (error, wrapped)):
        assert isinstance(found, OutputError)
        assert word in str(found)
        assert found.exit_code == 6


@pytest.mark.parametrize("error", [ValueError("x"), RuntimeError("x"), ImportError("No module named x"), FileNotFoundError(2, "no", "f")])
def test_a_bug_stays_a_bug(error: Exception) -> None:
    assert files.outside_cause(error) is None


def test_leftovers_of_killed_writes_are_swept_wherever_they_are(tmp_path: Path) -> None:
    me = this_process()
    gone = f".ragpipe,{me.host},999999,{me.mark},1.tmp"
    living = f".ragpipe,{me.host},{me.pid},{me.mark},2.tmp"
    folders = [tmp_path, tmp_path / "prompts" / "faithfulness", tmp_path / "export" / "iteration-1"]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        for name in (gone, living, "mine.tmp", ".ragpipe,notes.tmp"):
            (folder / name).touch()
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    (outside / gone).touch()
    (tmp_path / "link").symlink_to(outside)
    assert sorted(files.sweep_below(tmp_path)) == sorted(folder / gone for folder in folders)
    for folder in folders:
        assert {path.name for path in folder.iterdir() if path.is_file()} == {living, "mine.tmp", ".ragpipe,notes.tmp"}
    assert (outside / gone).exists()
