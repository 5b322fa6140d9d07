"""A page as one HTML file: it loads nothing, sends nothing, and runs no script or style but its own.

A Content-Security-Policy names the page's style and script by their hashes. Nothing may be loaded from anywhere, and no
script may turn text into markup (`require-trusted-types-for`). A page whose data is too much for one file may load scripts from
where it is itself (`script-src 'self'`), and only one named policy of its script may say which: those of its side files.

Data blocks: what a page shows, packed into the page and decoded by its script when it is needed.

A block is gzip, then base64, inside `<script type="text/plain" id="block-NAME">`: neither has a `<`, so nothing in it can end
the element, and nothing has to be escaped. `assets/blocks.js` reads it. The names in use:

- `index`: JSON: the names of the rows, and the layout of `cols`.
- `cols`: numbers and codes, column after column: Float32 (NaN is missing) and Uint8.
- `text`: JSON: one lower-case text per row, for the search.
- `d<n>`: JSON: the rows `ROWS_PER_BLOCK * n` and on in full.
- `t<n>`: JSON: long texts that several rows share, each once (`TextPool`), `TEXTS_PER_BLOCK` per block; `p<n>` the same for prompts.
- `files`: JSON: where the blocks are that the page does not hold itself (`side_files`).

Side files: the data blocks of a page that are too many for one file, as scripts beside it.

`report.html` then keeps `index` and `cols`, and `report.data/` has the other blocks, several per script, each script one line
per block: `ragpipeBlock("d0", "<base64>");`. The block `files` of the page says which script has which block;
`assets/blocks.js` loads a script when one of its blocks is needed. A script's name ends in a digest of its content: a page never
finds the data of another page, whatever was written beside it since.

Links into a page: its state as the fragment of its address, `#v=1&slice=category:policy&case=dao-01/rerank/1`.

A state is named, never numbered by row, so that a link holds when the page is made again. `assets/address.js` writes and reads
the same form.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from pydantic_core import to_json

from ragpipe.core.text import printable
from ragpipe.store.files import open_unless_same, output_error, sweep_temporaries, sync_folder, write_unless_same

if TYPE_CHECKING:
    from jinja2 import Environment

ROWS_PER_BLOCK = 64
TEXTS_PER_BLOCK = 128
_LEVEL = 1  # of gzip: a third of the time of level 6 for 17 % more bytes
_ESCAPED = re.compile(rb"\\[bfru]")  # in JSON: perhaps a control character
_TYPES = {"float32": "f4", "uint8": "u1"}


@dataclass(frozen=True)
class DataBlock:
    """A packed block: its name, and its text in base64."""

    name: str
    text: str


def pack(name: str, content: bytes) -> DataBlock:
    """The bytes as a block. The same bytes give the same block: no time is stored."""
    return DataBlock(name, base64.b64encode(gzip.compress(content, _LEVEL, mtime=0)).decode("ascii"))


def json_block(name: str, value: Any) -> DataBlock:
    """A JSON value as a block. Control characters of its texts are shown as escapes (`printable`)."""
    return pack(name, _printable_json(value))


class JsonList:
    """A JSON list that is packed while it grows: memory holds it compressed."""

    def __init__(self) -> None:
        self._gzip = zlib.compressobj(_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
        self._pieces: list[bytes] = []

    def append(self, value: Any) -> None:
        """Add a value, with its control characters shown as escapes."""
        self._pieces.append(self._gzip.compress((b"," if self._pieces else b"[") + _printable_json(value)))

    def block(self, name: str) -> DataBlock:
        """The list as a block, at the end."""
        end = b"]" if self._pieces else b"[]"
        packed = b"".join([*self._pieces, self._gzip.compress(end), self._gzip.flush()])
        return DataBlock(name, base64.b64encode(packed).decode("ascii"))


def _printable_json(value: Any) -> bytes:
    with suppress(ValueError):  # a lone surrogate; a number that is none becomes null
        content = to_json(value, inf_nan_mode="null")
        if not _ESCAPED.search(content) and printable(text := content.decode()) == text:  # few texts have any
            return content
    return to_json(_shown(value), inf_nan_mode="null")


def column_block(columns: Mapping[str, NDArray[Any]]) -> tuple[DataBlock, list[dict[str, Any]]]:
    """The block `cols` and its layout (`name`, `type`, `offset` in bytes), which goes into `index`.

    Columns are float32 or uint8 and equally long. Float columns come first, so that each begins at a multiple of four.
    Raises ValueError for another type or length.
    """
    if len({len(column) for column in columns.values()}) > 1:
        raise ValueError("the columns of a page are not equally long")
    parts, layout, offset = [], [], 0
    for name, column in sorted(columns.items(), key=lambda item: item[1].dtype != np.float32):
        if column.dtype.name not in _TYPES:
            raise ValueError(f"column {name} is {column.dtype}; a page has float32 and uint8")
        content = column.astype(column.dtype.newbyteorder("<")).tobytes()
        layout.append({"name": name, "type": _TYPES[column.dtype.name], "offset": offset})
        parts.append(content)
        offset += len(content)
    return pack("cols", b"".join(parts)), layout


class TextPool:
    """Texts that several rows share, each kept once under a number. Full blocks are packed at once: memory holds the last
    one, and a hash of each text. `prefix` begins the names of its blocks."""

    def __init__(self, prefix: str = "t") -> None:
        self._prefix = prefix
        self._numbers: dict[bytes, int] = {}
        self._texts: list[str] = []
        self._blocks: list[DataBlock] = []

    def number(self, text: str) -> int:
        """The number of a text: block `<prefix><number // TEXTS_PER_BLOCK>`, place `number % TEXTS_PER_BLOCK`."""
        digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if digest not in self._numbers:
            self._numbers[digest] = len(self._numbers)
            self._texts.append(text)
            if len(self._texts) == TEXTS_PER_BLOCK:
                self._close()
        return self._numbers[digest]

    def full_blocks(self) -> Iterator[DataBlock]:
        """The blocks that are full and were not taken yet: whoever takes them between texts keeps memory small."""
        while self._blocks:
            yield self._blocks.pop(0)

    def blocks(self) -> Iterator[DataBlock]:
        """The blocks that were not taken yet, at the end."""
        if self._texts:
            self._close()
        yield from self.full_blocks()

    def _close(self) -> None:
        self._blocks.append(json_block(f"{self._prefix}{(len(self._numbers) - 1) // TEXTS_PER_BLOCK}", self._texts))
        self._texts = []


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return {printable(str(key)): _shown(item) for key, item in value.items()}
    return [_shown(item) for item in value] if isinstance(value, list | tuple) else value


_ASSETS, TEMPLATES = Path(__file__).resolve().parent / "assets", Path(__file__).resolve().parent / "templates"
PIECES = ("dom", "folds", "blocks", "address", "keys", "list", "filters", "share", "list_page", "word_diff", "changes")
"""The pieces of the core script, in the order in which they go into a page."""
_POLICY = (
    "default-src 'none'; style-src '{style}'; script-src '{script}'{loaded}; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; trusted-types {types}"
)
_BEGINNING = Markup(
    """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
"""
)
_END = Markup(
    """
<script>{script}</script>
</body>
</html>
"""
)
_BLOCK = '<script type="text/plain" id="block-{name}">{text}</script>'


@dataclass(frozen=True)
class Page:
    """What a page is made of: its title, its body as markup, style and script as texts of ours, and its data blocks."""

    title: str
    body: Markup
    style: str
    script: str
    blocks: Iterable[DataBlock] = ()
    connects: bool = False
    """Whether its script may ask the server that it came from."""


def page_html(page: Page, side: SideFolder | None = None) -> str:
    """The whole file. Arguments and errors as of `page_pieces`."""
    return "".join(page_pieces(page, side))


def page_pieces(page: Page, side: SideFolder | None = None) -> Iterator[str]:
    """The file in pieces: with its data blocks it can have tens of megabytes. Control characters in its body are shown as escapes.

    With `side`, blocks beyond its limit are saved there (`divided_blocks`). Raises ValueError for a style or a script
    that would end its own element, before the first piece.
    """
    for kind, text in (("style", page.style), ("script", page.script)):
        if f"</{kind}" in text.lower():
            raise ValueError(f"the {kind} of the page {page.title!r} contains its own end tag")
    inside = list(page.blocks) if side is None else divided_blocks(page.blocks, side)
    is_divided = any(block.name == "files" for block in inside)
    style, script = content_hash(page.style), content_hash(page.script)
    loaded, types = (" 'self'", POLICY) if is_divided else ("", "'none'")
    policy = _POLICY.format(style=style, script=script, loaded=loaded, types=types)
    policy = Markup(policy + "; connect-src 'self'" * page.connects)  # its quotes are its own
    body = Markup(printable(page.body))
    yield str(_BEGINNING.format(policy=policy, title=printable(page.title), style=Markup(page.style), body=body))
    for number, block in enumerate(inside):
        yield "\n" * (number > 0) + _BLOCK.format(name=block.name, text=block.text)
    yield str(_END.format(script=Markup(page.script)))


def content_hash(text: str) -> str:
    """The name by which a Content-Security-Policy knows an inline style or script (https://www.w3.org/TR/CSP3/#framework-directive-source-list)."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()


def core_style() -> str:
    """The style that all pages share: colours for light, dark and print, text, tables, buttons, list, charts."""
    return _asset("core.css")


def core_script(pieces: Sequence[str]) -> str:
    """The pieces of the core script with these names, in the order of `PIECES`. Raises ValueError for an unknown one."""
    if unknown := [name for name in pieces if name not in PIECES]:
        raise ValueError(f"no piece {unknown[0]!r} in the core script; there are: {', '.join(PIECES)}")
    return "\n".join(['"use strict";', *(_asset(f"{name}.js") for name in PIECES if name in pieces)])


def page_environment(templates: Path) -> Environment:
    """Jinja for the bodies of pages: every value is escaped, and its control characters are shown."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    def shown(value: Any) -> Any:
        return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    return Environment(
        loader=FileSystemLoader(templates),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


@cache
def template_file(name: str) -> str:
    """The text of a style or a script of some pages, which stands beside their templates."""
    return (TEMPLATES / name).read_text(encoding="utf-8")


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


VERSION = "1"
_SAFE = "!~*'()/:"  # as encodeURIComponent leaves them, and `/` and `:`, which a fragment may hold


def page_address(**state: str | None) -> str:
    """The fragment of a state: its parts in their order, those that are None or empty left out."""
    parts = {"v": VERSION, **{key: value for key, value in state.items() if value}}
    return "#" + "&".join(f"{quote(key, safe=_SAFE)}={quote(printable(value), safe=_SAFE)}" for key, value in parts.items())


def case_name(sample_id: str, method: str | None, repeat: int) -> str:
    """A case as addresses name it: `dao-01/rerank/1`; a row of all methods is `dao-01/1`."""
    return "/".join([sample_id, *([] if method is None else [method]), str(repeat)])


_SIDE_FILE = re.compile(r"[a-z]+\d*-[0-9a-f]{16}\.js")


def side_folder(path: Path) -> Path:
    """The folder beside a page for what is too much for one file: `report.data` of `report.html`."""
    return path.with_suffix(".data")


def write_page(path: Path, page: Page) -> list[Path]:
    """Write a page; above SINGLE_FILE_MB megabytes of data blocks, what it can load later goes to `side_folder(path)`.
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

    side = SideFolder(folder.name, save, limit=int(SINGLE_FILE_MB * 10**6))
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
