"""Which reader a file gets: by its suffix, and never against its first bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ragpipe.core import registry
from ragpipe.datasets import csv_rows, json_rows, jsonl_rows, parquet_rows, trec_rows
from ragpipe.datasets.fault_list import Faults
from ragpipe.datasets.parquet_rows import ARROW
from ragpipe.datasets.text_lines import BOM, DAMAGED, DataFile, add_damage, open_bytes

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
READERS = {
    "jsonl": jsonl_rows.read_jsonl_rows,
    "json": json_rows.read_json_rows,
    "json_objects": json_rows.read_json_objects,
    "json_columns": json_rows.read_json_columns,
    "csv": csv_rows.read_csv_rows,
    "parquet": parquet_rows.read_parquet_rows,
    "trec": trec_rows.read_trec_rows,
}

_PACKED = (".gz", ".bz2", ".xz")
_KINDS = ((b"\x28\xb5\x2f\xfd", "zstd"), (b"PK\x03\x04", "a zip archive (xlsx?)"))
_HEAD = 1 << 20  # bytes that tell JSON Lines from a document
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
    resolved_form = SUFFIXES.get(suffix_of(path)) if form == "auto" else form
    known = ", ".join(sorted(SUFFIXES))
    if resolved_form is None:
        fix = "convert it; or name the format by dataset.format (or `format` of the join) if only the name is unusual"
        faults.add(label, "suffix", repr(path.suffix), f"one of {known}", fix)
        return None
    try:
        if path.exists() and not path.is_file():  # a pipe or a device would wait for ever, and cannot be read twice
            faults.add(label, "file", "a folder" if path.is_dir() else "no regular file", "a file")
            return None
        with open(path, "rb") if resolved_form == "parquet" else open_bytes(path) as stream:
            head = stream.read(_HEAD if form == "auto" and resolved_form in ("json", "jsonl") else 64)
    except DAMAGED as error:
        faults.add(
            label, "packed file", str(error)[:200], "a whole gzip, bzip2 or xz file", "pack or download it again"
        )
        return None
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
    for magic, kind in _KINDS:
        if head.startswith(magic):
            return kind
    if len(head) > 1 and head[0] == 0x80 and head[1] <= 5:
        return "a Python pickle"
    if form == "parquet":
        is_table = not head or head.startswith((b"PAR1", *ARROW))
        return None if is_table else "neither Parquet (PAR1) nor Arrow"
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
    reader = READERS.get(file.format) or registry.find("reader", file.format)
    try:
        yield from reader(file, faults)
    except DAMAGED as error:
        add_damage(file, error, faults)


def place(file: DataFile, position: int) -> str:
    """Where a record stands, as a message says it."""
    return f"{file.display_path} row {position}" if file.format == "parquet" else file.at(position)
