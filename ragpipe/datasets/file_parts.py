"""Cutting files of lines into parts that are read by themselves, with the same line numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ragpipe.datasets.text_lines import BOM, DataFile, FilePart

_LEAST, _PIECE = 8, 1 << 20  # a byte order mark and what follows it are in one block


class UnevenLines(ValueError):
    """A file with a line that does not begin with `{`: how many records stand before a part would need a whole reading."""


def file_parts(files: tuple[DataFile, ...], size: int) -> Iterator[DataFile]:
    """JSONL files in parts of whole lines, in order, each of `size` bytes and what is left of its last line.

    Raises UnevenLines at the first part with a line that is blank or begins with something else than an object.
    """
    index = 1
    for file in files:
        line, start = 1, 0
        with open(file.path, "rb") as stream:
            while block := stream.read(max(size, _LEAST)):
                lines, objects = _counts(block, is_first=not start)
                if not block.endswith(b"\n"):
                    while piece := stream.readline(_PIECE):
                        if piece.endswith(b"\n"):
                            break
                    lines += 1
                if lines != objects:
                    raise UnevenLines(file.display_path)
                stop = stream.tell()
                yield replace(file, part=FilePart(start, stop, line, index))
                line, index, start = line + lines, index + lines, stop


def _counts(block: bytes, *, is_first: bool) -> tuple[int, int]:
    """The line ends in a block that begins with a line, and the lines in it that begin with an object."""
    text = block.removeprefix(BOM) if is_first else block
    return text.count(b"\n"), text.count(b"\n{") + text.startswith(b"{")
