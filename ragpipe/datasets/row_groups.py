"""Rows that become one record, by their key: one row per passage, per document, per run of a trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ragpipe.core.digest import canonical_json
from ragpipe.datasets import file_formats
from ragpipe.datasets.fault_list import Faults
from ragpipe.datasets.mapping_settings import MAX_GROUPED, Group
from ragpipe.datasets.path_expressions import BadExpression, Expression
from ragpipe.datasets.text_lines import DataFile

Row = tuple[DataFile, int, dict[str, Any]]


def rows_by_key(rows: Iterator[Row], group: Group, faults: Faults) -> Iterator[Row]:
    """One record per key, at the place of its first row, in the order of the first rows.

    A row without a key and more than MAX_GROUPED rows are faults.
    """
    return _gathered(_keyed(rows, group, faults), group, faults)


def _keyed(rows: Iterator[Row], group: Group, faults: Faults) -> Iterator[tuple[str, Row]]:
    paths = [Expression(path) for path in group.by]
    for file, position, record in rows:
        where = file_formats.place(file, position)
        key = []
        for path in paths:
            try:
                value = path(record)
            except BadExpression as error:
                faults.add(where, f"group.by ({path.text})", str(error), "a value")
                break
            if value is None:
                faults.add(where, f"group.by ({path.text})", "null", "a value; rows without one belong to no record")
                break
            key.append(value)
        else:
            if group.into in record:
                fix = "choose another name by group.as"
                faults.add(where, "group.as", f"a name of the row: {group.into!r}", "a name that no row has", fix)
            yield canonical_json(key), (file, position, record)


def _gathered(keyed: Iterator[tuple[str, Row]], group: Group, faults: Faults) -> Iterator[Row]:
    groups: dict[str, list[Row]] = {}
    for count, (key, row) in enumerate(keyed, 1):
        if count > MAX_GROUPED:
            fix = "divide the file, or give its rows to an evaluation as records of their own"
            faults.add(file_formats.place(row[0], row[1]), "group", f"row {count}", f"at most {MAX_GROUPED} rows", fix)
            return
        groups.setdefault(key, []).append(row)
    for rows in groups.values():
        yield _record(rows, group)


def _record(rows: list[Row], group: Group) -> Row:
    file, position, first = rows[0]
    return file, position, {**first, group.into: [record for _, _, record in rows]}
