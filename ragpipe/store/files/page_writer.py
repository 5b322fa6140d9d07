"""A page and the files beside it, written as a set: whenever the process dies, the page there has its own data."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from ragpipe.pages.page_file import Page, page_pieces
from ragpipe.pages.side_files import SINGLE_FILE_MB, SideFolder
from ragpipe.store.files.atomic import open_unless_same, output_error, sweep_temporaries, sync_folder, write_unless_same

_SIDE_FILE = re.compile(r"[a-z]+\d*-[0-9a-f]{16}\.js")


def side_folder(path: Path) -> Path:
    """The folder beside a page for what is too much for one file: `report.data` of `report.html`."""
    return path.with_suffix(".data")


def write_page(path: Path, page: Page, *, single_file_mb: float = SINGLE_FILE_MB) -> list[Path]:
    """Write a page; above `single_file_mb` megabytes of data blocks, what it can load later goes to `side_folder(path)`.
    Returns the paths, the page first. Files that would not change are left alone.

    First the new side files are written, then the page, then files of earlier pages are removed: as names tell contents apart,
    the page on the disk finds its own data at any moment. Raises OutputError.
    """
    folder, written = side_folder(path), list[Path]()

    def save(name: str, content: bytes) -> None:
        if not written:
            _make(folder)
        write_unless_same(folder / name, content)
        written.append(folder / name)

    side = SideFolder(folder.name, save, limit=int(single_file_mb * 10**6))
    with open_unless_same(path) as file:
        for piece in page_pieces(page, side):
            file.write(piece.encode("utf-8", "backslashreplace"))
    _remove_others(folder, {file.name for file in written})
    return [path, *written]


def _make(folder: Path) -> None:
    """Make the folder; a link in its place is replaced, never written through."""
    try:
        if folder.is_symlink():
            folder.unlink()
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)
    except OSError as error:
        raise output_error(folder, error) from error


def _remove_others(folder: Path, names: set[str]) -> None:
    """Remove the side files that the page does not name, and the folder when nothing is left."""
    with suppress(OSError):
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            return
        sweep_temporaries(folder)
        for entry in list(os.scandir(folder)):
            if _SIDE_FILE.fullmatch(entry.name) and entry.name not in names:
                os.unlink(entry.path)
        if not names:
            folder.rmdir()
