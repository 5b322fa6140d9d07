"""Which reader a file gets: by its suffix, and never against its first bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ragpipe.core import registry
from ragpipe.datasets import csv_rows, json_rows, jsonl_rows, parquet_rows, trec_rows
from ragpipe.datasets.fault_list import Faults
from ragpipe.datasets.text_lines import DataFile

SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".trec": "trec",
    ".run": "trec",
    ".qrels": "trec",
}
READERS = {
    "jsonl": jsonl_rows.read_jsonl_rows,
    "json": json_rows.read_json_rows,
    "json_objects": json_rows.read_json_objects,
    "json_columns": json_rows.read_json_columns,
    "csv": csv_rows.read_csv_rows,
    "parquet": parquet_rows.read_parquet_rows,
    "trec": trec_rows.read_trec_rows,
}

_KINDS = (
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"PK\x03\x04", "a zip archive (xlsx?)"),
)
_UTF16 = ((b"\xff\xfe", "UTF-16 (or UTF-32)"), (b"\xfe\xff", "UTF-16"), (b"\x00\x00\xfe\xff", "UTF-32"))
_UTF16_FIX = "convert it, e.g. `iconv -f utf-16 -t utf-8 FILE > NEW`; it was not loaded"


def data_file(path: Path, label: str, name: str, form: str, delimiter: str, faults: Faults) -> DataFile | None:
    """The file with its format; None, and a fault, where it cannot be read or is of a kind that is never loaded.

    Args:
        path: the file.
        label: how messages name it.
        name: its name among the files of the data set.
        form: the format from the configuration; `auto` goes by the suffix.
        delimiter: what separates the cells of a CSV file.
        faults: where a fault is added.
    """
    resolved_form = SUFFIXES.get(path.suffix.lower()) if form == "auto" else form
    known = ", ".join(sorted(SUFFIXES))
    if resolved_form is None:
        fix = "convert it; or name the format by dataset.format (or `format` of the join) if only the name is unusual"
        faults.add(label, "suffix", repr(path.suffix), f"one of {known}", fix)
        return None
    try:
        if path.exists() and not path.is_file():  # a pipe or a device would wait for ever, and cannot be read twice
            faults.add(label, "file", "a folder" if path.is_dir() else "no regular file", "a file")
            return None
        with open(path, "rb") as stream:
            head = stream.read(64)
    except OSError as error:
        fix = "check the path; it is relative to the folder in which the command is started"
        faults.add(label, "file", error.strerror or str(error), "a file that can be read", fix)
        return None
    if wrong := _disguise(head, resolved_form):
        faults.add(
            label,
            "content",
            wrong,
            f"{resolved_form}, by its name or by `format`",
            _UTF16_FIX if wrong.startswith("UTF-16") else "unpack or convert it first; it was not loaded",
        )
        return None
    if path.suffix.lower() == ".tsv" and delimiter == ",":
        delimiter = "\t"
    return DataFile(path, label, name, resolved_form, delimiter)


def _disguise(head: bytes, form: str) -> str | None:
    """What the first bytes say against the format."""
    for magic, kind in _KINDS:
        if head.startswith(magic):
            return kind
    if len(head) > 1 and head[0] == 0x80 and head[1] <= 5:
        return "a Python pickle"
    if form == "parquet":
        return None if not head or head.startswith(b"PAR1") else "something that does not begin with PAR1"
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
        return iter(())
    reader = READERS.get(file.format) or registry.find("reader", file.format)
    rows: Iterator[tuple[int, dict[str, Any]]] = reader(file, faults)
    return rows


def place(file: DataFile, position: int) -> str:
    """Where a record stands, as a message says it."""
    return f"{file.display_path} row {position}" if file.format == "parquet" else file.at(position)
