"""From a record of any shape to flat fields of Sample and Output, by the declared joins, splits, explodes and fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ragpipe.core.patterns import compile_splitter
from ragpipe.core.text import on_one_line
from ragpipe.data import file_formats, json_rows
from ragpipe.data.expressions import WHOLE, BadExpression, Expression, finite_number
from ragpipe.data.faults import Faults, shown_value
from ragpipe.data.settings import MAX_SPLIT, DatasetSettings, FieldMap, Join, Split, key_text
from ragpipe.data.text_lines import DataFile

_MILLISECONDS: dict[str, Callable[[float], float]] = {
    "ns": lambda value: value / 1_000_000,
    "us": lambda value: value / 1000,
    "ms": lambda value: value,
    "s": lambda value: value * 1000,
    "min": lambda value: value * 60_000,
}

Scope = dict[str, Any]
Value = Callable[[Any], Any]
Step = Callable[[Scope], list[Scope]]

NO_OUTPUT = "_no_output"
_QUOTED_TEXT = re.compile(r"'([^']*)'")
"""What JMESPath reads as a text."""


class BadMapping(ValueError):
    """A record does not fit the mapping: `key` is the part of the mapping, the rest as in a Problem."""

    def __init__(self, key: str, actual: str, expected: str, fix: str = ""):
        self.key, self.actual, self.expected, self.fix = key, actual, expected, fix
        super().__init__(f"{key}: {actual}")


class RecordMapping:
    """The compiled mapping of a data set. `sources` tells for each field of a case the expression it comes from."""

    def __init__(self, settings: DatasetSettings, indexes: Mapping[str, Index]):
        steps = {name: _join_step(name, join, indexes[name]) for name, join in settings.join.items()}
        steps |= {name: _split_step(name, split) for name, split in settings.split.items()}
        steps |= {name: _explode_step(name, path) for name, path in settings.explode.items()}
        self._steps = [steps[name] for name in settings.order()]
        self._fields = {name: _value(spec, f"fields.{name}") for name, spec in settings.fields.items()}
        may_be_null = {name for name, s in settings.fields.items() if "default" in s.model_fields_set and s.default is None}
        due = settings.fields.keys() - may_be_null
        self._parts = {name: False for name in ("answer", "contexts", "chunks") if name in due}
        self._needs_id = "id" in due
        self._answered = False
        self.sources = {name: described(spec) for name, spec in settings.fields.items()}
        self.sources.setdefault("id", "hash of the content")
        if (recorded := settings.fields.get("recorded")) is not None:
            self.sources |= {f"recorded.{name}": described(part) for name, part in (recorded.fields or {}).items()}

    def cases(self, record: dict[str, Any], file: str, line: int, index: int) -> Iterator[tuple[Scope, bool, list[BadMapping]]]:
        """(fields, whether there is an output, what did not fit) for each case of a record.

        Beside the record's own names an expression sees `_file`, `_line`, `_index` (from 1, among all records) and
        `_record` (the record itself). An empty list to explode gives one case without an output: the question is there,
        nobody answered it.
        """
        place = {"_file": file, "_line": line, "_index": index, "_record": record}
        scopes: list[Scope] = [record | place]
        try:
            for step in self._steps:
                scopes = [after for scope in scopes for after in step(scope)]
        except BadMapping as error:
            yield {}, False, [error]
            return
        for scope in scopes:
            fields: Scope = {}
            bad: list[BadMapping] = []
            for name, value in self._fields.items():
                try:
                    fields[name] = value(scope)
                except BadMapping as error:
                    bad.append(error)
            if self._needs_id and fields.get("id", "") is None:
                fix = "correct the path; or leave `id` out, or give it `default: null`: the id is then the content's hash"
                bad.append(BadMapping(f"fields.id ({self.sources['id']})", "null", "a text", fix))
            if NO_OUTPUT not in scope:
                self._answered = True
                self._parts |= {name: True for name in self._parts if fields.get(name) is not None}
            yield fields, NO_OUTPUT not in scope, bad

    def check(self, where: str, faults: Faults) -> None:
        """A fault when an answer or contexts are mapped and no output of a whole reading has any: a wrong path would
        otherwise look like a field that is not recorded."""
        for name in (name for name, is_there in self._parts.items() if self._answered and not is_there):
            fix = "correct the path, or take the field out of the mapping where the data does not record it"
            faults.add(where, f"fields.{name} ({self.sources[name]})", "null in every record", "a value in one", fix)


def _join_step(name: str, join: Join, index: Index) -> Step:
    key, label = Expression(join.key), f"join.{name}"

    def one(scope: Scope) -> list[Scope]:
        return [scope | {name: _applied(lambda s: index.find(key(s)), scope, f"{label}.key", join.key)}]

    if join.each is None:
        return one
    items, into = Expression(join.each), join.into or "match"

    def every(scope: Scope) -> list[Scope]:
        matches = []
        for item in _list(items, scope, f"{label}.each") or []:
            match = _applied(lambda s: index.find(key(s)), item, f"{label}.key", join.key)
            matches.append({**(item if isinstance(item, dict) else {"value": item}), into: match})
        return [scope | {name: matches if items(scope) is not None else None}]

    return every


def _split_step(name: str, split: Split) -> Step:
    text, pieces, label = Expression(split.text), compile_splitter(split.pattern), f"split.{name}"

    def run(scope: Scope) -> list[Scope]:
        whole_text = _applied(text, scope, label, split.text)
        if whole_text is None:
            return [scope | {name: None}]
        if not isinstance(whole_text, str):
            raise BadMapping(f"{label}.text ({split.text})", shown_value(whole_text), "a text")
        if len(whole_text) > MAX_SPLIT:
            raise BadMapping(f"{label}.text", f"{len(whole_text)} characters", f"at most {MAX_SPLIT}")
        try:
            return [scope | {name: [piece.strip() for piece in pieces(whole_text)]}]
        except TimeoutError:
            expected = "a pattern that does not backtrack without bound"
            raise BadMapping(f"{label}.pattern", "no end after 1 s", expected) from None

    return run


def _explode_step(name: str, path: str) -> Step:
    items = Expression(path)

    def run(scope: Scope) -> list[Scope]:
        elements = _elements(_applied(items, scope, f"explode.{name}", path))
        if not isinstance(elements, list):
            raise BadMapping(f"explode.{name} ({path})", shown_value(elements), "a list or an object")
        return [scope | {name: item} for item in elements] or [scope | {name: None, NO_OUTPUT: True}]

    return run


def _value(spec: FieldMap, label: str) -> Value:
    """The function that gives a field's value from a scope. Raises BadMapping."""
    if "const" in spec.model_fields_set:
        return lambda scope: spec.const
    if spec.each is not None:
        return _each(spec, label)
    if spec.fields is not None:
        inner = {name: _value(part, f"{label}.{name}") for name, part in spec.fields.items()}
        return lambda scope: {name: value(scope) for name, value in inner.items()}
    path, text, table = Expression(spec.path or ""), spec.path or "", _table(spec, label)
    if path.plain is not None and table is None and spec.unit is None and spec.default is None:
        return path.plain  # most fields are of this kind, and a log has millions of them

    def value(scope: Any) -> Any:
        result = _applied(path, scope, label, text)
        if result is None:
            return spec.default
        if spec.unit is not None:
            return _in_milliseconds(result, spec, label)
        if table is None:
            return result
        return [table(item) for item in result] if isinstance(result, list) else table(result)

    return value


def _in_milliseconds(value: Any, spec: FieldMap, label: str) -> Any:
    """The duration in milliseconds; `default` for a text that holds no number. Raises BadMapping."""
    try:
        duration = finite_number(value)
    except BadExpression:
        expected = f"a duration in {spec.unit}, a number"
        raise BadMapping(f"{label} ({spec.path})", shown_value(value), expected) from None
    return spec.default if duration is None else _MILLISECONDS[spec.unit or "ms"](duration)


def _each(spec: FieldMap, label: str) -> Value:
    items = Expression(spec.each or "")
    key = Expression(spec.key) if spec.key is not None else None
    part = _value(FieldMap(fields=spec.fields) if spec.fields is not None else spec.value or FieldMap(path="@"), label)

    def value(scope: Any) -> Any:
        elements = _list(items, scope, label)
        if elements is None:
            return spec.default
        if key is None:
            return [part(item) for item in elements]
        result: dict[str, Any] = {}
        for item in elements:
            name = _applied(key, item, label, key.text)
            if not isinstance(name, str | int) or key_text(name) in result:
                raise BadMapping(f"{label}.key ({key.text})", shown_value(name), "a text that stands once in the list")
            result[key_text(name)] = part(item)
        return result

    return value


def _list(items: Expression, scope: Any, label: str) -> list[Any] | None:
    elements = _elements(_applied(items, scope, label, items.text))
    if elements is not None and not isinstance(elements, list):
        raise BadMapping(f"{label} ({items.text})", shown_value(elements), "a list or an object")
    return elements


def _elements(value: Any) -> Any:
    """An object as the list of its `{key, value}`, anything else as it is."""
    return [{"key": key, "value": item} for key, item in value.items()] if isinstance(value, dict) else value


def _applied(find: Callable[[Any], Any], scope: Any, label: str, text: str) -> Any:
    try:
        return find(scope)
    except BadExpression as error:
        fix = error.fix or _name_in_single_quotes(text, scope)
        raise BadMapping(f"{label} ({text})", str(error), "a value the expression can be applied to", fix) from None


def _name_in_single_quotes(text: str, scope: Any) -> str:
    """What to write where an expression has a name of the record in single quotes, which make it a text; else empty."""
    names = scope if isinstance(scope, Mapping) else {}
    quoted = next((name for name in _QUOTED_TEXT.findall(text) if name in names), None)
    if quoted is None:
        return ""
    right = text.replace(f"'{quoted}'", f'"{quoted}"')
    return f"'{quoted}' is a text; a name stands in double quotes: {right}"


def _table(spec: FieldMap, label: str) -> Value | None:
    """The translation by `map`, None without one."""
    if (table := spec.map) is None:
        return None

    def translated(value: Any) -> Any:
        name = key_text(value)
        if name in table:
            return table[name]
        if "otherwise" in spec.model_fields_set and isinstance(value, str | int | float):
            return spec.otherwise
        fix = "add it to the map (in YAML quote yes, no, on and off), or give `otherwise`"
        raise BadMapping(f"{label}.map", shown_value(value), f"one of {', '.join(table)}", fix)

    return translated


def described(spec: FieldMap) -> str:
    """A field's source on one line, for the plan."""
    if "const" in spec.model_fields_set:
        return f"constant {spec.const!r}"
    if spec.each is not None:
        part = FieldMap(fields=spec.fields) if spec.fields is not None else spec.value
        inner = described(part) if part else "@"
        return f"each {spec.each}: {spec.key + ' -> ' if spec.key else ''}{inner}"
    if spec.fields is not None:
        return "{" + ", ".join(f"{name}: {described(part)}" for name, part in spec.fields.items()) + "}"
    return (spec.path or "") + (" through a map" if spec.map else "") + (f" in {spec.unit}" if spec.unit else "")


Row = tuple[DataFile, int, dict[str, Any]]


def records(files: Sequence[DataFile], inside: Expression | None, faults: Faults) -> Iterator[Row]:
    """(file, line or row, record) of all files in their order. `inside` is the path of the list in a document or row."""
    for file in files:
        if inside is not None and file.format == "json":
            document = json_rows.read_document(file, faults)
            rows = json_rows.inside(file.display_path, inside, document, faults) if document is not None else iter(())
        else:
            rows = file_formats.read_rows(file, faults)
            if inside is not None:
                of_row = ((n, json_rows.inside(file_formats.place(file, n), inside, row, faults)) for n, row in rows)
                rows = ((n, record) for n, found in of_row for _, record in found)
        for position, record in rows:
            yield file, position, record


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
            has = f"e.g. {shown_value(next(iter(self._found)))}" if self._found else "no record"
            actual = f"none of {self.asked} keys is there, e.g. {shown_value(self._last)}; the file has {has}"
            expected = f"records whose `{self._join.by}` equals `{self._join.key}`"
            fix = "is it the right file, and are these the right names?"
            faults.add(self._shown, f"join.{self._name}", actual, expected, fix)


def join_key(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return key_text(value)
    raise BadExpression(f"a key must be a text or a whole number, found {shown_value(value)}")


_SHOWN = 12


def unread_names(records: Iterable[dict[str, Any]], settings: DatasetSettings) -> list[str]:
    """The names of records, without those inside of their values, that no expression of a mapping looks up. A name whose value is null
    everywhere does not count."""
    paths = [*(join.each or join.key for join in settings.join.values()), *settings.explode.values()]
    paths += [split.text for split in settings.split.values()]
    paths += [path for spec in settings.fields.values() for path in _paths(spec)]
    read = {name for path in paths for name in Expression(path).roots}
    if read & {"_record", WHOLE}:
        return []
    names = dict.fromkeys(name for record in records for name, value in record.items() if value is not None)
    return [name for name in names if name not in read]


def _paths(spec: FieldMap) -> Iterator[str]:
    """The expressions of a field that are applied to the record itself."""
    if path := spec.path or spec.each:
        yield path
    elif spec.fields is not None:
        for part in spec.fields.values():
            yield from _paths(part)


def unread_line(names: Sequence[str]) -> str:
    """The names on one line; empty where there is none."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"not read: {on_one_line(', '.join(names[:_SHOWN]), 1000)}{more}" if names else ""
