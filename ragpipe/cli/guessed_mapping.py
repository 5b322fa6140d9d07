"""A file of an unknown shape: the names in it, and for each field of a case a guess where a name suggests one."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from ragpipe.core.sample import Chunk
from ragpipe.core.secrets import redact, secrets_of_environment
from ragpipe.core.text import escape_unprintable, on_one_line, shorten
from ragpipe.data.csv_rows import JSON_FIELDS
from ragpipe.data.expressions import NotPrinted, looks_printed, parsed
from ragpipe.data.native_form import field_meant, passage_number
from ragpipe.data.recognition import PRINTED, JoinedPassages, Separator
from ragpipe.data.settings import OUTPUT_FIELDS, SAMPLE_FIELDS

_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_TEXT_KEYS = (
    "text", "content", "page_content", "pageContent", "body", "passage", "chunk", "document", "snippet", "paragraph_text",
    "passage_text", "chunk_text",
)  # fmt: skip
EITHER = "either "
"""How a doubt begins about names that mean the same field."""
_ANSWER_KEYS = ("text", "aliases", "normalized_aliases", "value")
_DOC_ID = re.compile(r"(?=\S*[\d_/#-])[\w./:#-]+")
_MAX_DEPTH = 4
_JSON_TEXT = "JSON text"
_SILENT = {"null": 2, "empty list": 1, "list of nulls": 1}  # what says little of a name's other values: the higher the less
_MAX_NAMES = 60
_EXAMPLE_WIDTH = 60
GUESSED_FIELDS = ("id", "question", "answer", "contexts", "reference", "references", "method")
_KEPT = (SAMPLE_FIELDS | OUTPUT_FIELDS) - {*GUESSED_FIELDS, "chunks"}


@dataclass(frozen=True, slots=True)
class NameInFile:
    """A name in the records: its path expression, the type of its values, the first of them, and all that are not null."""

    path: str
    kind: str
    example: Any
    values: tuple[Any, ...] = ()

    @property
    def own_name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2].strip('"')

    @property
    def shown_example(self) -> str:
        """The first value on one line, cut; what looks like a key in it is not shown."""
        text = self.example if isinstance(self.example, str) else json.dumps(self.example, ensure_ascii=False, default=str)
        text = redact(on_one_line(text[: 20 * _EXAMPLE_WIDTH], 20 * _EXAMPLE_WIDTH), secrets_of_environment())
        return shorten(escape_unprintable(text), _EXAMPLE_WIDTH)


@dataclass(frozen=True, slots=True)
class GuessedField:
    """A field of a case with the path expression it may come from.

    `separator`: the text at the path holds several passages, which are cut there. `doubt`: what a person has to decide before the
    guess can be run; empty where nobody has to.
    """

    field: str
    path: str
    separator: Separator | None = None
    doubt: str = ""

    @property
    def origin(self) -> str:
        """Where the field comes from, as it is told."""
        return f"{self.path} cut at `{self.separator.label}`" if self.separator else self.path


def names_in_file(records: Sequence[Mapping[str, Any]]) -> list[NameInFile]:
    """The names of the first records, those inside objects and lists after the one that holds them; at most 60."""
    names: dict[str, NameInFile] = {}
    values: dict[str, list[Any]] = {}
    for record in records:
        for name in _names(record, "", 1):
            known = names.get(name.path)
            if known is None or _SILENT.get(known.kind, 0) > _SILENT.get(name.kind, 0):
                names[name.path] = name
            if name.kind != "null":
                values.setdefault(name.path, []).append(name.example)
    return [replace(name, values=tuple(values.get(path, ()))) for path, name in islice(names.items(), _MAX_NAMES)]


def guessed_fields(names: Sequence[NameInFile], *, as_text: bool = False, odd: Collection[str] = ()) -> list[GuessedField]:
    """At most one guess for each field: the name that means it in other tools and has a fitting type, the shallowest first; and in a
    file with a `question` whatever else has a name of the native form, but for what is `odd`.

    Two names that may both be the answer leave it open: which of them a system said, only a person can tell. With `as_text` a
    value of any kind is taken as a text where one is needed.
    """
    guesses: dict[str, list[GuessedField]] = {}
    for name in sorted(names, key=lambda name: name.path.count(".")):
        field = field_meant(name.own_name)
        if field in GUESSED_FIELDS and "[]" not in name.path:
            for guess in _fitted(field, name, as_text):
                guesses.setdefault(guess.field, []).append(guess)
    numbered = {passage_number(name.own_name): name.path for name in names if name.kind == "text" and "[]" not in name.path}
    columns = [path for number, path in sorted((n, path) for n, path in numbered.items() if n is not None)]
    if len(columns) > 1:
        guesses["contexts"] = [GuessedField("contexts", f"[{', '.join(columns)}][?@]")]
    if "references" in guesses:
        guesses.pop("reference", None)
    if "contexts" in guesses:
        guesses.pop("chunks", None)
    best = {field: several[0] for field, several in guesses.items()}
    if (answers := _different(guesses.get("answer", ()), names)) and len(answers) > 1:
        either = " or ".join(answers)
        best["answer"] = GuessedField(
            "answer", "", doubt=f"{EITHER}{either}: which of them did the system say? Another may be the `reference`"
        )
    kept = _kept(names) if any(name.path == "question" for name in names) else ()
    guessed = (best[field] for field in (*GUESSED_FIELDS, "chunks") if field in best)
    return [*guessed, *(guess for guess in kept if guess.field not in odd)]


def _kept(names: Sequence[NameInFile]) -> Iterator[GuessedField]:
    """The fields of the native form that have no other names; a list or an object that is a text, as in CSV, is parsed."""
    for name in names:
        if name.path in _KEPT and name.kind != "null":
            is_cell = name.path in JSON_FIELDS and name.kind in ("text", _JSON_TEXT)
            yield GuessedField(name.path, f"parse({name.path})" if is_cell else name.path)


def _different(guesses: Sequence[GuessedField], names: Sequence[NameInFile]) -> list[str]:
    """The paths of guesses whose values are not those of an earlier one."""
    values = {name.path: name.values for name in names}
    paths: dict[tuple[Any, ...], str] = {}
    for guess in guesses:
        paths.setdefault(tuple(map(str, values.get(guess.path, (guess.path,)))), guess.path)
    return list(paths.values())


def passages_in(names: Sequence[NameInFile]) -> str:
    """The path of the first list of texts, or of objects with a text, that stands in the records or in a cell of JSON: what the
    contexts may be where no name says so. Empty where there is none."""
    for name in names:
        is_list = name.kind == _JSON_TEXT and isinstance(_json_in_text(name.example), list)
        if "[]" not in name.path and (is_list or name.kind.startswith("list of ")):
            guess = next(_fitted("contexts", name), None)
            if path := guess.origin if guess else _longest_texts(name):
                return path
    return ""


def _longest_texts(name: NameInFile) -> str:
    """The path of the longest text of the objects in a list, where it has several words: whatever its name, it may be the passage."""
    elements = _json_in_text(name.example) if name.kind == _JSON_TEXT else name.example
    texts = (
        {key: value for key, value in elements[0].items() if isinstance(value, str)}
        if elements and isinstance(elements[0], dict)
        else {}
    )
    key = max(texts, key=lambda key: len(texts[key]), default="")
    path = f"parse({name.path})" if name.kind == _JSON_TEXT else name.path
    return f"{path}[].{_quoted(key)}" if " " in texts.get(key, "").strip() else ""


def _names(value: Mapping[str, Any], prefix: str, depth: int) -> Iterator[NameInFile]:
    for key, item in value.items():
        path = prefix + _quoted(key)
        inner = _json_in_text(item)
        yield NameInFile(path, _kind(item) if inner is None else _JSON_TEXT, item)
        if inner is not None:
            item, path = inner, f"parse({path})"
        if depth == _MAX_DEPTH:
            continue
        if isinstance(item, Mapping):
            yield from _names(item, f"{path}.", depth + 1)
        elif isinstance(item, list) and isinstance(first := _first(item), Mapping):
            yield from _names(first, f"{path}[].", depth + 1)


def _quoted(name: str) -> str:
    """A name as a path expression has it."""
    return name if _PLAIN.fullmatch(name) else '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _json_in_text(value: Any) -> Any:
    """The object or list that a text is, as JSON or as Python prints it, as cells of a table often are; None for any other value."""
    if not isinstance(value, str) or not (value.lstrip()[:1] in ("{", "[") or looks_printed(value)):
        return None
    try:
        inner = parsed(value)
    except NotPrinted:
        return None
    return inner if isinstance(inner, dict | list) else None


def _kind(value: Any) -> str:
    if value is None or (isinstance(value, float) and value != value) or (isinstance(value, str) and not value.strip()):
        return "null"
    if isinstance(value, list):
        return f"list of {_kind(_first(value))}s" if value else "empty list"
    return {bool: "boolean", int: "number", float: "number", str: "text"}.get(type(value), "object")


def _first(values: Sequence[Any]) -> Any:
    """The first value that says something; None where none does."""
    return next((value for value in values if _kind(value) not in _SILENT), None)


def _fitted(field: str, name: NameInFile, as_text: bool = False) -> Iterator[GuessedField]:
    """The field with the expression that makes its type of the values of a name; nothing where none does."""
    if name.kind == _JSON_TEXT:
        texts = [value for value in name.values if isinstance(value, str)]
        values = tuple(inner for value in texts if (inner := _json_in_text(value)) is not None)
        name = NameInFile(f"parse({name.path})", _kind(_first(values)), _first(values), values)
    kinds, path = {kind for value in name.values if (kind := _kind(value)) not in _SILENT}, name.path
    if field == "contexts":
        yield from _passages(name)
    elif kinds == {"list of texts"} and field == "answer" and not name.own_name.startswith("answer"):
        if all(len(value) == 1 for value in name.values):
            yield GuessedField(field, f"{path}[0]")
    elif name.own_name == "answers" and kinds == {"text"}:
        yield GuessedField("answer", path)
    elif field in ("reference", "references", "answer") and kinds and kinds <= {"list of texts", "list of numbers"}:
        yield GuessedField("references", path if kinds == {"list of texts"} else f"{path}[].to_string(@)")
    elif field in ("reference", "references", "answer") and kinds == {"object"}:
        key = next((key for key in _ANSWER_KEYS if _kind(name.example.get(key)) == "list of texts"), "")
        if key:
            yield GuessedField("references", f"{path}.{key}")
    elif kinds and kinds <= {"text", "number", "boolean"}:
        is_text = kinds == {"text"} and not as_text
        yield GuessedField("reference" if field == "references" else field, path if is_text else f"to_string({path})")


def _passages(name: NameInFile) -> Iterator[GuessedField]:
    """The contexts that a name holds: a list, one text, or several in one text."""
    path = name.path
    if name.kind == "list of texts":
        found = [value for value in name.values if isinstance(value, list)]
        alone = [value[0] for value in found if value and isinstance(value[0], str)]
        separator = JoinedPassages(alone).separator() if all(len(value) < 2 for value in found) else None
        if separator is not None and separator.is_certain:
            yield _joined(f"{path}[0]", separator)
        elif not all(_DOC_ID.fullmatch(text) for value in found for text in value if isinstance(text, str)):
            yield GuessedField("contexts", path)
    elif name.kind == "list of objects":
        objects = [item for value in name.values if isinstance(value, list) for item in value if isinstance(item, dict)]
        key = next((key for item in objects for key in _TEXT_KEYS if _kind(item.get(key)) == "text"), None)
        field = path.removeprefix("parse(").removesuffix(")")
        if field in ("contexts", "chunks") and all(map(_is_chunk, objects)):
            yield GuessedField(field, path)
        elif key:
            yield GuessedField("contexts", f"{path}[].{key}")
        else:  # LlamaIndex: each node in an object with its score
            nodes = ((own, value) for item in objects for own, value in item.items() if isinstance(value, dict))
            inner = ((own, text) for own, value in nodes for text in _TEXT_KEYS if _kind(value.get(text)) == "text")
            yield from (GuessedField("contexts", f"{path}[].{_quoted(own)}.{text}") for own, text in islice(inner, 1))
    elif name.kind.startswith("list of list"):
        doubt = f"{EITHER}'{path}[]' where each text in it is a passage, or '{path}[*][1]' where the second of each is, or \"{path}[*].join(' ', @[1])\" where it is in sentences"
        yield GuessedField("contexts", f"{path}[]", doubt=doubt)
    elif name.kind == "object":
        lists = (key for key, value in name.example.items() if _kind(value) == "list of texts" and "text" in key.lower())
        yield from (GuessedField("contexts", f"{path}.{_quoted(own)}") for own in islice(lists, 1))
    elif name.kind == "text":
        separator = JoinedPassages(value for value in name.values if isinstance(value, str)).separator()
        # one passage, or none where the cell is empty
        yield _joined(path, separator) if separator is not None else GuessedField("contexts", f"[{path}][?@]")


def _is_chunk(item: Mapping[str, Any]) -> bool:
    """Whether the native form reads an object as it is, or says what is wrong with its text."""
    return item.keys() <= Chunk.model_fields.keys() and not {type(item.get("id")), type(item.get("doc_id"))} & {int, float}


def _joined(path: str, separator: Separator) -> GuessedField:
    if separator.label == PRINTED:
        return GuessedField("contexts", f"parse({path})")
    doubt = f"`passages`, the text cut at each `{separator.label}`, which {separator.count} of {separator.texts} have; or '[{path}][?@]' where each text is one passage"
    return GuessedField("contexts", path, separator, "" if separator.is_certain else doubt)
