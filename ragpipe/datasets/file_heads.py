"""What the beginning of a file shows of its form and of its records, without reading the rest and without judging it.

The first 1 MiB is read, and up to 16 MiB where the first record is longer (of Parquet its footer with the columns, and the
first rows). JSON that is cut there is closed where it can be, so that the names of a document of any size are seen. Nothing
is refused here: the readers of a data set are strict, this only looks.
"""

from __future__ import annotations

import csv
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from ragpipe.datasets.csv_rows import INDEX_COLUMN
from ragpipe.datasets.file_formats import suffix_of
from ragpipe.datasets.parquet_rows import ARROW, table_batches
from ragpipe.datasets.text_lines import DAMAGED, open_bytes

HEAD_BYTES = 1 << 20
LONG_HEAD_BYTES = 16 << 20  # read where the first record does not end before that
MAX_RECORDS = 50
_MAX_FOLDER = 2000

Form = Literal[
    "json",
    "json_columns",
    "json_objects",
    "jsonl",
    "csv",
    "trec",
    "parquet",
    "folder",
    "zip",
    "pickle",
    "html",
    "yaml",
    "spreadsheet",
    "zstd",
    "other",
]
_PICKLE = re.compile(rb"\x80[\x00-\x05]")
_HTML = re.compile(r"\s*(<!doctype html|<html)", re.IGNORECASE)
_YAML = re.compile(r"\s*(#[^\n]*\n\s*)*[A-Za-z_][\w-]*:(\s|$)")
_TREC_RUN = re.compile(r"\S+\s+\S+\s+\S+\s+\d+\s+[-+.\deE]+\s+\S+")
_TREC_QRELS = re.compile(r"\S+\s+\S+\s+\S+\s+-?\d+")
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?P<end>"|\Z|\\\Z)|[\[\]{},]', re.DOTALL)
_LINES = (".jsonl", ".ndjson")
_DELIMITERS = ",;\t|"


@dataclass(frozen=True)
class FileHead:
    """The beginning of a file or of a folder.

    Attributes:
        form: how it is written, by its content.
        records: the first objects (at most 50): of a list, of lines, of rows; a CSV row by the names of its columns.
        document: the JSON value of the file, where it is no list of objects.
        columns: the columns of a CSV or Parquet file, in order, also those that stand twice.
        names: the files below a folder, or in a zip archive.
        delimiter: what separates the cells of a CSV file.
        text: the text itself.
    """

    form: Form
    records: tuple[Mapping[str, Any], ...] = ()
    document: Any = None
    columns: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    delimiter: str = ","
    text: str = ""

    def merged(self) -> dict[str, Any]:
        """One record with every name that one of the first records has, and its first value that is not null."""
        record: dict[str, Any] = {}
        for each in self.records:
            for name, value in each.items():
                if record.get(name) is None:
                    record[name] = value
        return record


def read_head(path: Path) -> FileHead:
    """The head of a file or a folder. Raises OSError where it cannot be read."""
    if path.is_dir():
        paths = (below.relative_to(path).as_posix() for below in path.rglob("*") if below.is_file())
        return FileHead("folder", names=tuple(sorted(islice(paths, _MAX_FOLDER))))
    if path.exists() and not path.is_file():  # a pipe would wait for ever
        return FileHead("other")
    head, is_cut = _head_of(path, HEAD_BYTES)
    if is_cut and head.form in ("csv", "jsonl", "json", "other") and not head.merged() and not head.document:
        head, _ = _head_of(path, LONG_HEAD_BYTES)
    return head


def _head_of(path: Path, size: int) -> tuple[FileHead, bool]:
    """The head by so many bytes, and whether the file goes on after them."""
    try:
        with open_bytes(path) as stream:
            raw = stream.read(size)
            is_cut = bool(stream.read(1))
    except DAMAGED as error:
        raise OSError(f"a packed file that is cut or damaged: {error}") from error
    return _head_of_bytes(path, raw, is_cut), is_cut


def _head_of_bytes(path: Path, raw: bytes, is_cut: bool) -> FileHead:
    if raw.startswith((b"PAR1", *ARROW)):
        return _parquet(path)
    if raw.startswith(b"\xd0\xcf\x11\xe0"):
        return FileHead("spreadsheet")
    if raw.startswith(b"\x28\xb5\x2f\xfd"):
        return FileHead("zstd")
    if raw.startswith(b"PK\x03\x04"):
        return FileHead("zip", names=_zip_names(path))
    if _PICKLE.match(raw):
        return FileHead("pickle")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if not is_cut or error.start < len(raw) - 4:
            return FileHead("other")
        text = raw[: error.start].decode("utf-8-sig")
    if text.lstrip()[:1] in ("{", "["):
        return _json_head(text, is_cut, suffix_of(path) in _LINES)
    return _table_head(text, is_cut)


def _table_head(text: str, is_cut: bool) -> FileHead:
    lines = [line for line in text.splitlines()[:200] if line.strip()]
    lines = lines[:-1] if is_cut and len(lines) > 1 else lines
    for pattern in (_TREC_RUN, _TREC_QRELS):
        if lines and all(pattern.fullmatch(line.strip()) for line in lines):
            return FileHead("trec", text="run" if pattern is _TREC_RUN else "qrels")
    if _HTML.match(text):
        return FileHead("html", text=text)
    if table := _csv_head(text, is_cut):
        return table
    return FileHead("yaml" if _YAML.match(text) else "other", text=text)


def _json_head(text: str, is_cut: bool, are_lines: bool) -> FileHead:
    values = list(islice(_json_values(text, is_cut), MAX_RECORDS))
    if not values:
        return FileHead("other", text=text)
    if len(values) > 1:
        records = tuple(value for value in values if isinstance(value, dict))
        return FileHead("json_objects" if _spans_lines(text) else "jsonl", records)
    document = values[0]
    if isinstance(document, list) and any(isinstance(item, dict) for item in document):
        return FileHead("json", tuple(item for item in document[:MAX_RECORDS] if isinstance(item, dict)))
    if isinstance(document, dict) and are_lines:
        return FileHead("jsonl", (document,))
    if rows := _columnwise(document):
        return FileHead("json_columns", rows, columns=tuple(document))
    return FileHead("json", document=document)


def _columnwise(document: Any) -> tuple[dict[str, Any], ...]:
    """The rows of an object of columns, each an object from row number to value, as pandas writes it; else none."""
    if not isinstance(document, dict) or not all(isinstance(column, dict) for column in document.values()):
        return ()
    numbers = list(next(iter(document.values()), {}))
    if not numbers or numbers[0] != "0" or not all(number.isdecimal() for number in numbers):
        return ()
    return tuple({name: column.get(n) for name, column in document.items()} for n in numbers[:MAX_RECORDS])


def _json_values(text: str, is_cut: bool) -> Iterator[Any]:
    """The JSON values that stand one after another; the last one closed where it is cut."""
    decoder, at = json.JSONDecoder(), 0
    while (at := _past_blanks(text, at)) < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            if is_cut and (value := _closed(text[at:])) is not None:
                yield value
            return
        yield value


def _past_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _spans_lines(text: str) -> bool:
    """Whether the first of several values takes more than a line, which JSON Lines do not allow."""
    try:
        json.loads(text.lstrip().split("\n", 1)[0])
    except (ValueError, RecursionError):
        return True
    return False


def _closed(text: str) -> Any:
    """The value that begins here and is cut: up to its last complete element. None where there is none."""
    stack: list[str] = []
    end, closing = 0, ""
    for token in _TOKEN.finditer(text):
        sign = token[0]
        if sign[0] == '"' and token["end"] != '"':  # the text that is cut
            break
        if sign in "[{":
            stack.append("]" if sign == "[" else "}")
        elif sign in "]}" and (not stack or stack.pop() != sign):
            return None
        if sign in "[{]}" or sign == ",":
            end, closing = (token.start() if sign == "," else token.end()), "".join(reversed(stack))
    try:
        return json.loads(text[:end] + closing)
    except (ValueError, RecursionError):
        return None


def _csv_head(text: str, is_cut: bool) -> FileHead | None:
    """The head of a table: at least two columns, and rows of as many cells. None for any other text."""
    first = text.split("\n", 1)[0]
    delimiter = max(_DELIMITERS, key=first.count)
    csv.field_size_limit(max(csv.field_size_limit(), LONG_HEAD_BYTES))
    try:
        rows = list(islice(csv.reader(text.splitlines(keepends=True), delimiter=delimiter), MAX_RECORDS + 2))
    except csv.Error:
        return None
    rows = [row for row in (rows[:-1] if is_cut else rows) if row][: MAX_RECORDS + 1]
    if not rows or len(rows[0]) < 2 or any(len(row) != len(rows[0]) for row in rows):
        return None
    columns = tuple(name.strip() or ("" if place else INDEX_COLUMN) for place, name in enumerate(rows[0]))
    records = tuple(dict(zip(columns, row, strict=True)) for row in rows[1:])
    return FileHead("csv", records, columns=columns, delimiter=delimiter)


def _parquet(path: Path) -> FileHead:
    import pyarrow as pa

    try:
        with table_batches(path) as (schema, batches):
            batch = next(batches(MAX_RECORDS), None)
            records = batch.to_pylist() if batch is not None else []
            return FileHead("parquet", tuple(records), columns=tuple(schema.names))
    except (pa.ArrowException, OSError, ValueError):
        return FileHead("other")


def _zip_names(path: Path) -> tuple[str, ...]:
    try:
        with zipfile.ZipFile(path) as archive:
            return tuple(archive.namelist()[:_MAX_FOLDER])
    except zipfile.BadZipFile:
        return ()
