"""JSONL: one JSON object a line. Blank lines are passed over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ragpipe.core import strict_json
from ragpipe.datasets.fault_list import Faults, shown_value
from ragpipe.datasets.text_lines import NAN_IS_NULL, DataFile, text_lines


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
