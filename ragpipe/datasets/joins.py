"""Other files and lists, held in memory by key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ragpipe.datasets import file_formats, json_rows
from ragpipe.datasets.fault_list import Faults, shown_value
from ragpipe.datasets.mapping_settings import Join, key_text
from ragpipe.datasets.path_expressions import BadExpression, Expression
from ragpipe.datasets.text_lines import DataFile


def records(
    files: Sequence[DataFile], inside: Expression | None, faults: Faults
) -> Iterator[tuple[DataFile, int, dict[str, Any]]]:
    """(file, line or row, record) of all files in their order. `inside` is the path of the list in a document or row."""
    for file in files:
        if inside is not None and file.format == "json":
            document = json_rows.read_document(file, faults)
            rows = json_rows.inside(file.display_path, inside, document, faults) if document is not None else iter(())
        else:
            rows = file_formats.read_rows(file, faults)
            if inside is not None:
                rows = _inside_rows(file, rows, inside, faults)
        for position, record in rows:
            yield file, position, record


def _inside_rows(
    file: DataFile, rows: Iterator[tuple[int, dict[str, Any]]], inside: Expression, faults: Faults
) -> Iterator[tuple[int, dict[str, Any]]]:
    for position, row in rows:
        for _, record in json_rows.inside(file_formats.place(file, position), inside, row, faults):
            yield position, record


class Index:
    """The records of a join by their key. Without `many` a key may stand once only.

    `asked` and `matched` count the look-ups: a join that matches nothing at all is a wrong file or a wrong key.
    """

    def __init__(self, name: str, join: Join, files: Sequence[DataFile], faults: Faults):
        self.many = join.many
        self.asked = self.matched = 0
        self._name, self._join, self._shown = name, join, ", ".join(file.display_path for file in files)
        self._last: str | None = None
        self._found: dict[str, Any] = {}
        by, where = Expression(join.by), dict[str, str]()
        rows = records(files, Expression(join.records) if join.records else None, faults)
        for index, (file, position, record) in enumerate(rows, 1):
            place = file_formats.place(file, position)
            try:
                key = join_key(by({**record, "_index": index} if "_index" in by.roots else record))
            except BadExpression as error:
                faults.add(place, f"join.{name}.by ({join.by})", str(error), "a text or a whole number")
                continue
            if key is None:
                faults.add(place, f"join.{name}.by ({join.by})", "null", "a text or a whole number")
            elif self.many:
                self._found.setdefault(key, []).append(record)
            elif key in self._found:
                fix = f"remove one, or set join.{name}.many to true to get the list"
                faults.add(place, join.by, f"{shown_value(key)} a second time", f"once; it stands at {where[key]}", fix)
            else:
                self._found[key], where[key] = record, place

    def find(self, key: Any) -> Any:
        """The match or None; with `many` the list of them, perhaps empty. Raises BadExpression for a key of a wrong type."""
        text = join_key(key)
        none: list[Any] | None = [] if self.many else None
        if text is None:
            return none
        matches = self._found.get(text, none)
        self.asked += 1
        self.matched += matches is not none
        self._last = text
        return matches

    def check(self, faults: Faults) -> None:
        """A fault when no look-up of a whole reading found anything."""
        if self.asked and not self.matched:
            has = (
                f"the file has e.g. {shown_value(next(iter(self._found)))}" if self._found else "the file has no record"
            )
            actual = f"none of {self.asked} keys is there, e.g. {shown_value(self._last)}; {has}"
            expected = f"records whose `{self._join.by}` equals `{self._join.key}`"
            faults.add(
                self._shown,
                f"join.{self._name}",
                actual,
                expected,
                "is it the right file, and are these the right names?",
            )


def join_key(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return key_text(value)
    raise BadExpression(f"a key must be a text or a whole number, found {shown_value(value)}")
