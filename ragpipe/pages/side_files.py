"""Side files: the data blocks of a page that are too many for one file, as scripts beside it.

`report.html` then keeps `index` and `cols`, and `report.data/` has the other blocks, several per script, each script one line
per block: `ragpipeBlock("d0", "<base64>");`. The block `files` of the page says which script has which block;
`assets/blocks.js` loads a script when one of its blocks is needed. A script's name ends in a digest of its content: a page never
finds the data of another page, whatever was written beside it since.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b

from ragpipe.pages.data_blocks import DataBlock, json_block

SINGLE_FILE_MB = 50
"""A page holds so many megabytes (10^6 bytes) of data blocks itself; of more it keeps `IN_PAGE`."""
IN_PAGE = frozenset({"index", "cols"})
"""The blocks that stay in the page: with them the list lives, also where the folder is missing."""
POLICY = "ragpipe-side-files"
"""The Trusted Types policy by which the page's script may name a script to load."""
_FILE_BYTES = 2_000_000  # of blocks in a script: opening a case loads one such script, or two
_BLOCK_NAME = re.compile(r"([a-z]+)\d*")
_FOLDER_NAME = re.compile(r"[\w.-]+", re.ASCII)


@dataclass(frozen=True)
class SideFolder:
    """Where the side files of a page go.

    Attributes:
        name: The folder beside the page: letters, digits, `.`, `_`, `-`.
        save: Is called with each file's name in the folder and its content.
        limit: Bytes of data blocks that the page holds itself.
        file_bytes: Bytes of blocks in one file; a block is never divided.
    """

    name: str
    save: Callable[[str, bytes], None]
    limit: int = SINGLE_FILE_MB * 10**6
    file_bytes: int = _FILE_BYTES


def divided_blocks(blocks: Iterable[DataBlock], folder: SideFolder) -> list[DataBlock]:
    """The blocks that the page holds itself: all, where they are within `folder.limit`, else `IN_PAGE` and `files`, and the
    others are saved in the folder while they come. Raises ValueError for a name that is none."""
    inside, files, size = list[DataBlock](), None, 0
    for block in blocks:
        if files is not None and block.name not in IN_PAGE:
            files.add(block)
            continue
        inside.append(block)
        size += len(block.text)
        if files is None and size > folder.limit:
            files = _SideFiles(folder)
            for held in inside:
                if held.name not in IN_PAGE:
                    files.add(held)
            inside = [held for held in inside if held.name in IN_PAGE]
    return inside if files is None else [*inside, files.contents()]


class _SideFiles:
    """Blocks gathered into files, those of one kind (`d0`, `d1`) together."""

    def __init__(self, folder: SideFolder):
        if not _FOLDER_NAME.fullmatch(folder.name):
            raise ValueError(f"a folder beside a page cannot be called {folder.name!r}")
        self._folder = folder
        self._open: dict[str, list[DataBlock]] = {}
        self._files: list[tuple[str, list[str]]] = []

    def add(self, block: DataBlock) -> None:
        kind = _BLOCK_NAME.fullmatch(block.name)
        if kind is None:
            raise ValueError(f"a data block cannot be called {block.name!r}")
        gathered = self._open.setdefault(kind[1], [])
        if gathered and sum(len(one.text) for one in [*gathered, block]) > self._folder.file_bytes:
            self._close(kind[1])
            gathered = self._open.setdefault(kind[1], [])
        gathered.append(block)

    def contents(self) -> DataBlock:
        """Close what is open. The block `files`: the folder, and per file its name and its blocks."""
        for kind in sorted(self._open):
            self._close(kind)
        return json_block("files", {"folder": self._folder.name, "files": self._files})

    def _close(self, kind: str) -> None:
        gathered = self._open.pop(kind)
        lines = [f"ragpipeBlock({json.dumps(block.name)},{json.dumps(block.text)});\n" for block in gathered]
        content = "".join(lines).encode("ascii")
        name = f"{gathered[0].name}-{blake2b(content, digest_size=8).hexdigest()}.js"
        self._folder.save(name, content)
        self._files.append((name, [block.name for block in gathered]))
