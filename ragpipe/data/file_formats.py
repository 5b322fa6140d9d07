"""Which reader a file gets, by its suffix and never against its first bytes; rows of JSON Lines and of TREC files.

And what the beginning of a file shows of its form and of its records (`read_head`): nothing is refused there. The first 1 MiB is
read, up to 16 MiB where the first record is longer; JSON that is cut is closed where it can be.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from ragpipe.core import registry, strict_json
from ragpipe.data import csv_rows, json_rows, parquet_rows
from ragpipe.data.csv_rows import INDEX_COLUMN
from ragpipe.data.faults import Faults, shown_value
from ragpipe.data.parquet_rows import ARROW, table_batches
from ragpipe.data.text_lines import BOM, DAMAGED, NAN_IS_NULL, DataFile, add_damage, open_bytes, text_lines

SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "parquet",
    ".feather": "parquet",
    ".trec": "trec",
    ".run": "trec",
    ".qrels": "trec",
}
_PACKED = (".gz", ".bz2", ".xz")
HEAD_BYTES = 1 << 20  # bytes that tell JSON Lines from a document, and show the first records
_UTF16 = ((b"\xff\xfe", "UTF-16 (or UTF-32)"), (b"\xfe\xff", "UTF-16"), (b"\x00\x00\xfe\xff", "UTF-32"))
_UTF16_FIX = "convert it, e.g. `iconv -f utf-16 -t utf-8 FILE > NEW`; it was not loaded"


def data_file(path: Path, label: str, name: str, form: str, delimiter: str, faults: Faults) -> DataFile | None:
    """The file with its format; None, and a fault, where it cannot be read or is of a kind that is never loaded.

    Messages name it by its `label`, the data set by its `name`. `form` is the format from the configuration (`auto` goes by the
    suffix), `delimiter` what separates the cells of a CSV file.
    """
    resolved_form = SUFFIXES.get(suffix_of(path)) if form == "auto" else form
    known = ", ".join(sorted(SUFFIXES))
    if resolved_form is None:
        fix = "convert it; or name the format, or the reader of a plugin, by dataset.format=NAME (or `format` of the join)"
        faults.add(label, "suffix", repr(path.suffix), f"one of {known}", fix)
        return None
    try:
        if path.exists() and not path.is_file():  # a pipe or a device would wait for ever, and cannot be read twice
            faults.add(label, "file", "a folder" if path.is_dir() else "no regular file", "a file")
            return None
        with open(path, "rb") if resolved_form == "parquet" else open_bytes(path) as stream:
            head = stream.read(HEAD_BYTES if form == "auto" and resolved_form in ("json", "jsonl") else 64)
    except DAMAGED as error:
        add_damage(label, error, faults)
        return None
    except OSError as error:
        fix = "check the path; it is relative to the folder in which the command is started"
        faults.add(label, "file", error.strerror or str(error), "a file that can be read", fix)
        return None
    if wrong := _disguise(head, resolved_form):
        fix = _UTF16_FIX if wrong.startswith("UTF-16") else "unpack or convert it first; it was not loaded"
        faults.add(label, "content", wrong, f"{resolved_form}, by its name or by `format`", fix)
        return None
    if suffix_of(path) == ".tsv" and delimiter == ",":
        delimiter = "\t"
    if len(head) > 64 or resolved_form == "json":
        resolved_form = _written_as(head, resolved_form)
    return DataFile(path, label, name, resolved_form, delimiter)


def suffix_of(path: Path) -> str:
    """The suffix that names the format: of `data.jsonl.gz` it is `.jsonl`."""
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix in _PACKED else suffix


def _written_as(head: bytes, form: str) -> str:
    """JSON Lines that are called .json, and a list that is called .jsonl, are read as what they are."""
    text = head.removeprefix(BOM).lstrip()
    if text.startswith(b"["):
        return "json" if form == "jsonl" else form
    line, line_break, rest = text.partition(b"\n")
    if form != "json" or not line_break or not rest.lstrip().startswith(b"{"):
        return form
    try:
        return "jsonl" if isinstance(json.loads(line), dict) else form
    except (ValueError, RecursionError):
        return form


def _disguise(head: bytes, form: str) -> str | None:
    """What the first bytes say against the format."""
    binary = _binary_form(head)
    if binary in _NEVER_LOADED:
        return _NEVER_LOADED[binary]
    if form == "parquet":
        return None if not head or binary == "parquet" else "neither Parquet (PAR1) nor Arrow"
    if head.startswith(b"PAR1"):
        return None if form not in READERS else "Parquet"
    for magic, kind in _UTF16:
        if head.startswith(magic):
            return kind
    return "bytes of value 0 (UTF-16 without a mark, or binary)" if b"\x00" in head[:4] else None


def read_rows(file: DataFile, faults: Faults) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line or row, record) of the file, by the reader of its format."""
    if file.path.stat().st_size == 0:
        faults.add(file.display_path, "file", "an empty file (0 bytes)", "records", "no records: was it written?")
        return
    try:
        if file.format in READERS:
            yield from READERS[file.format](file, faults)
            return
        for row in registry.find("reader", file.format)(file, faults):  # of a plugin, which may yield anything
            if not (isinstance(row, tuple) and len(row) == 2 and isinstance(row[1], dict)):
                found, expected = f"{shown_value(row)} from the reader of the plugin", "tuples (line or row, record as a dict)"
                faults.add(file.display_path, f"format: {file.format}", found, expected, "correct the plugin")
                return
            yield row
    except DAMAGED as error:
        add_damage(file.display_path, error, faults)


def place(file: DataFile, position: int) -> str:
    """Where a record stands, as a message says it."""
    return f"{file.display_path} row {position}" if file.format == "parquet" else file.at(position)


def read_jsonl_rows(file: DataFile, faults: Faults) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, record) for every good line."""
    for number, line in text_lines(file, faults):
        text = line.strip(" \t\r\n")
        if not text:
            continue
        try:
            record = strict_json.strict_loads(text, nan_is_null=file.nan_is_null)
        except strict_json.InvalidJson as error:
            column = f" at column {error.column}" if error.column else ""
            cut = "" if line.endswith("\n") else "; the file's last line, perhaps cut off"
            faults.add(file.at(number), "line", f"{error}{column}{cut}", "one JSON object", _fix(text, number, error))
            continue
        if not isinstance(record, dict):
            faults.add(file.at(number), "line", shown_value(record), "one JSON object", _fix(text, number))
            continue
        yield number, record


def _fix(text: str, number: int, error: Exception | None = None) -> str:
    if "NaN is" in str(error):
        return NAN_IS_NULL
    if number == 1 and text.startswith("["):
        return "a file that holds one JSON list needs the suffix .json or dataset.format=json"
    return "correct the line, or take it out"


_COLUMNS = {4: "4 columns: query, iteration, document, relevance", 6: "6 columns: query, Q0, document, rank, score, tag"}
_SPACE = re.compile(r"[ \t\r\f\v]+")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def read_trec_rows(file: DataFile, faults: Faults) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line of the query's first mention, record)."""
    groups: dict[str, tuple[int, str, list[tuple[float, float, str]]]] = {}
    seen: dict[tuple[str, str], int] = {}
    width = 0
    for number, line in text_lines(file, faults):
        parts = _SPACE.split(line.strip(" \t\r\n\f\v"))
        if parts == [""]:
            continue
        width = width or (len(parts) if len(parts) in (4, 6) else 0)
        if len(parts) != (width or 6):
            expected = _COLUMNS.get(width, "6 columns (a run) or 4 (qrels)")
            faults.add(file.at(number), "line", f"{len(parts)} columns", expected)
            continue
        query, _, doc = parts[:3]
        if (first := seen.setdefault((query, doc), number)) != number:
            found, expected = f"{doc!r} a second time for query {query!r}", f"once; it stands on line {first}"
            faults.add(file.at(number), "document", found, expected)
            continue
        values = _values(parts[3:], file.at(number), faults)
        if values is not None:
            groups.setdefault(query, (number, parts[-1], []))[2].append((*values, doc))
    for query, (number, tag, ranked) in groups.items():
        if width == 4:
            judged = [{"doc": doc, "relevance": int(level)} for level, _, doc in ranked]
            yield number, {"query": query, "judged": judged}
        else:
            ranked.sort(key=lambda hit: hit[0])
            hits = [{"doc": doc, "rank": int(rank), "score": score} for rank, score, doc in ranked]
            yield number, {"query": query, "tag": tag, "hits": hits}


def _values(parts: list[str], where: str, faults: Faults) -> tuple[float, float] | None:
    key = "rank" if len(parts) > 1 else "relevance"
    if not _WHOLE.fullmatch(parts[0]):
        faults.add(where, key, repr(parts[0][:40]), "a whole number")
        return None
    if len(parts) == 1:
        return int(parts[0]), 0.0
    if not _NUMBER.fullmatch(parts[1]) or not math.isfinite(score := float(parts[1])):
        faults.add(where, "score", repr(parts[1][:40]), "a finite number")
        return None
    return int(parts[0]), score


READERS = {
    "jsonl": read_jsonl_rows,
    "json": json_rows.read_json_rows,
    "json_objects": json_rows.read_json_objects,
    "json_columns": json_rows.read_json_columns,
    "csv": csv_rows.read_csv_rows,
    "parquet": parquet_rows.read_parquet_rows,
    "trec": read_trec_rows,
}
"""By format what reads the rows of a file."""


LONG_HEAD_BYTES = 16 << 20  # read where the first record does not end before that
MAX_RECORDS = 50
_MAX_FOLDER = 2000

Form = Literal[
    "json", "json_columns", "json_objects", "jsonl", "csv", "trec", "parquet", "folder", "zip", "pickle", "html", "yaml", "spreadsheet",
    "zstd", "other",
]  # fmt: skip
_BINARY: tuple[tuple[bytes, Form], ...] = (
    *((magic, "parquet") for magic in (b"PAR1", *ARROW)),
    (b"\xd0\xcf\x11\xe0", "spreadsheet"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"PK\x03\x04", "zip"),
    *((bytes((0x80, protocol)), "pickle") for protocol in range(6)),
)
"""The first bytes of files that are no text."""
_NEVER_LOADED = {"zstd": "zstd", "zip": "a zip archive (xlsx?)", "pickle": "a Python pickle"}
_HTML = re.compile(r"\s*(<!doctype html|<html)", re.IGNORECASE)
_YAML = re.compile(r"\s*(#[^\n]*\n\s*)*[A-Za-z_][\w-]*:(\s|$)")
_TREC_RUN = re.compile(r"\S+\s+\S+\s+\S+\s+\d+\s+[-+.\deE]+\s+\S+")
_TREC_QRELS = re.compile(r"\S+\s+\S+\s+\S+\s+-?\d+")
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?P<end>"|\Z|\\\Z)|[\[\]{},]', re.DOTALL)
_BLANKS = re.compile(r"[ \t\r\n]*")
_LINES = (".jsonl", ".ndjson")
_DELIMITERS = ",;\t|"


@dataclass(frozen=True)
class FileHead:
    """The beginning of a file or of a folder: how it is written, by its content, and its text.

    `records` are the first objects (at most 50) of a list, of lines or of rows, `document` the JSON value where it is no list of
    objects; `columns` those of a CSV (with the `delimiter` of its cells) or Parquet file, also those that stand twice; `names` the
    files below a folder, or in a zip archive.
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


def _binary_form(raw: bytes) -> Form | None:
    return next((form for magic, form in _BINARY if raw.startswith(magic)), None)


def _head_of_bytes(path: Path, raw: bytes, is_cut: bool) -> FileHead:
    if (form := _binary_form(raw)) is not None:
        return _parquet(path) if form == "parquet" else FileHead(form, names=_zip_names(path) if form == "zip" else ())
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
    lines = [line for line in text.split("\n")[:200] if line.strip()]
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
    while (at := _BLANKS.match(text, at).end()) < len(text):  # type: ignore[union-attr]  # it fits everywhere
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            if is_cut and (value := _closed(text[at:])) is not None:
                yield value
            return
        yield value


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
        rows = list(islice(csv.reader(io.StringIO(text, newline="\n"), delimiter=delimiter), MAX_RECORDS + 2))
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
