"""A page and the files beside it: at any moment the page on the disk finds its own data."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest
from markupsafe import Markup

from ragpipe.core.errors import OutputError
from ragpipe.pages.data_blocks import json_block
from ragpipe.pages.page_file import Page
from ragpipe.store.files import page_writer
from ragpipe.store.files.page_writer import write_page
from tests.support.page_blocks import block_json


def page(*texts: str) -> Page:
    return Page("p", Markup(""), "", "", [json_block(f"d{n}", [text]) for n, text in enumerate(texts)])


def named(path: Path) -> list[str]:
    """The files that the page on the disk says its data is in."""
    files = block_json(path.read_text(), "files")
    return [f"{files['folder']}/{name}" for name, _ in files["files"]]


def beside(path: Path) -> list[str]:
    return sorted(f"{path.parent.name}/{path.name}" for path in path.with_suffix(".data").iterdir())


def test_a_small_page_is_one_file(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    assert write_page(path, page("a")) == [path]
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_large_page_names_exactly_the_files_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    written = write_page(path, page("a", "b"), single_file_mb=0)
    assert written[0] == path
    assert [f"report.data/{file.name}" for file in written[1:]] == named(path) == beside(path)


def test_another_page_takes_its_old_files_away_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_page(path, page("a"), single_file_mb=0)
    (old,) = beside(path)
    (tmp_path / "report.data" / "mine.js").write_text("")
    write_page(path, page("b"), single_file_mb=0)
    assert old not in beside(path)
    assert beside(path) == sorted([*named(path), "report.data/mine.js"])
    write_page(path, page("b"))
    assert beside(path) == ["report.data/mine.js"]


def test_a_page_that_fits_again_leaves_no_folder(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_page(path, page("a"), single_file_mb=0)
    write_page(path, page("a"))
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_the_same_page_again_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    before = {file: file.stat().st_mtime_ns for file in write_page(path, page("a", "b"), single_file_mb=0)}
    assert {file: file.stat().st_mtime_ns for file in write_page(path, page("a", "b"), single_file_mb=0)} == before


@pytest.mark.parametrize("step", ["html", "removal"])
def test_a_writer_that_dies_leaves_a_page_with_its_own_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Before the page is written the old one finds its old files; after it the new one its new files."""
    path = tmp_path / "report.html"
    write_page(path, page("a"), single_file_mb=0)
    old_page = path.read_text()

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    real = page_writer.open_unless_same

    @contextmanager
    def dies_at_the_page(target: Path) -> Iterator[BinaryIO]:
        with real(target) as file:
            yield file
            raise KeyboardInterrupt

    if step == "html":
        monkeypatch.setattr(page_writer, "open_unless_same", dies_at_the_page)
    else:
        monkeypatch.setattr(page_writer, "_remove_others", die)
    with pytest.raises(KeyboardInterrupt):
        write_page(path, page("b"), single_file_mb=0)
    assert (path.read_text() == old_page) is (step == "html")
    assert set(named(path)) <= set(beside(path))
    monkeypatch.undo()
    write_page(path, page("b"), single_file_mb=0)
    assert named(path) == beside(path)


def test_a_link_in_place_of_the_folder_is_replaced_and_never_written_through(tmp_path: Path) -> None:
    target, path = tmp_path / "elsewhere", tmp_path / "run" / "report.html"
    for folder in (target, path.parent):
        folder.mkdir()
    (target / "d0-0123456789abcdef.js").write_text("theirs")
    os.symlink(target, path.with_suffix(".data"))
    write_page(path, page("a"))
    write_page(path, page("a"), single_file_mb=0)
    assert not path.with_suffix(".data").is_symlink()
    assert [file.read_text() for file in target.iterdir()] == ["theirs"]


def test_a_file_in_place_of_the_folder_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.with_suffix(".data").write_text("mine")
    with pytest.raises(OutputError, match=re.escape(str(path.with_suffix(".data")))):
        write_page(path, page("a"), single_file_mb=0)
    assert not path.exists()
