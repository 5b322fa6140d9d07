"""Files of JSON lines that several processes append to."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ragpipe.core.errors import OutputError
from ragpipe.store.files.atomic import append_lines, read_lines


def test_no_lines_make_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "alerts.jsonl"
    assert list(read_lines(path)) == []
    append_lines(path, [])
    assert path.read_bytes() == b""


def test_lines_are_added_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    append_lines(path, [{"a": 1}, {"a": "é\n"}])
    append_lines(path, [{"a": 3}])
    append_lines(path, [])
    assert path.read_text() == '{"a":1}\n{"a":"é\\n"}\n{"a":3}\n'
    assert [line["a"] for line in read_lines(path)] == [1, "é\n", 3]


def test_a_torn_line_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a":1}\n{"a":2')
    append_lines(path, [{"a": 3}])
    assert path.read_bytes() == b'{"a":1}\n{"a":2\n{"a":3}\n'
    assert [line["a"] for line in read_lines(path)] == [1, 3]


def test_writers_at_the_same_time_do_not_mix_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"

    def write(writer: int) -> None:
        for number in range(40):
            append_lines(path, [{"writer": writer, "number": number, "text": "x" * 3000}] * 2)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = list(read_lines(path))
    assert len(lines) == path.read_bytes().count(b"\n") == 4 * 40 * 2
    assert [line["number"] for line in lines if line["writer"] == 2] == [n for n in range(40) for _ in range(2)]


def test_a_link_or_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("")
    (tmp_path / "link").symlink_to("target")
    for name in ("link", "."):
        with pytest.raises(OutputError, match="cannot write"):
            append_lines(tmp_path / name, [{"a": 1}])
    assert (tmp_path / "target").read_text() == ""
