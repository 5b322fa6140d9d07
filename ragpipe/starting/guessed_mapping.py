"""A file of an unknown shape: the names in it, and for each field of a case a guess where a name suggests one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragpipe.core.safe_text import escape_unprintable, on_one_line, shorten
from ragpipe.core.secret_detection import redact, secrets_of_environment
from ragpipe.datasets.name_synonyms import field_meant

_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_TEXT_KEYS = ("text", "content", "page_content", "pageContent", "body", "passage", "chunk", "document", "snippet")
_MAX_DEPTH = 4
_JSON_TEXT = "JSON text"
_MAX_NAMES = 60
_EXAMPLE_WIDTH = 60
GUESSED_FIELDS = ("id", "question", "answer", "contexts", "reference", "references", "method")


@dataclass(frozen=True, slots=True)
class NameInFile:
    """A name in the records: its path expression, the type of its values, the first of them."""

    path: str
    kind: str
    example: Any

    @property
    def own_name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2].strip('"')

    @property
    def shown_example(self) -> str:
        """The first value on one line, cut; what looks like a key in it is not shown."""
        text = (
            self.example if isinstance(self.example, str) else json.dumps(self.example, ensure_ascii=False, default=str)
        )
        text = redact(on_one_line(text[: 20 * _EXAMPLE_WIDTH], 20 * _EXAMPLE_WIDTH), secrets_of_environment())
        return shorten(escape_unprintable(text), _EXAMPLE_WIDTH)


@dataclass(frozen=True, slots=True)
class GuessedField:
    """A field of a case with the path expression it may come from."""

    field: str
    path: str


def names_in_file(records: Sequence[Mapping[str, Any]]) -> list[NameInFile]:
    """The names of the first records, those inside objects and lists after the one that holds them; at most 60."""
    names: dict[str, NameInFile] = {}
    for record in records:
        for name in _names(record, "", 1):
            known = names.get(name.path)
            if known is None or (known.kind == "null" and name.kind != "null"):
                names[name.path] = name
    return list(names.values())[:_MAX_NAMES]


def guessed_fields(names: Sequence[NameInFile]) -> list[GuessedField]:
    """At most one guess for each field: the name that means it in other tools and has a fitting type, the shallowest first."""
    guesses: dict[str, GuessedField] = {}
    by_depth = sorted(names, key=lambda name: name.path.count("."))
    for name in by_depth:
        field = field_meant(name.own_name)
        if field not in GUESSED_FIELDS or "[]" in name.path:
            continue
        field, path = _fitted(field, name)
        if path:
            guesses.setdefault(field, GuessedField(field, path))
    if "references" in guesses:
        guesses.pop("reference", None)
    return [guesses[field] for field in GUESSED_FIELDS if field in guesses]


def passages_in(names: Sequence[NameInFile]) -> str:
    """The path of the first list of texts, or of objects with a text, that stands in the records or in a cell of JSON: what the
    contexts may be where no name says so. Empty where there is none."""
    for name in names:
        if "[]" not in name.path and _is_list(name) and (path := _fitted("contexts", name)[1] or _longest_texts(name)):
            return path
    return ""


def _longest_texts(name: NameInFile) -> str:
    """The path of the longest text of the objects in a list, where it has several words: whatever its name, it may be the passage."""
    elements = json.loads(name.example) if name.kind == _JSON_TEXT else name.example
    texts = (
        {key: value for key, value in elements[0].items() if isinstance(value, str)}
        if elements and isinstance(elements[0], dict)
        else {}
    )
    key = max(texts, key=lambda key: len(texts[key]), default="")
    path = f"parse({name.path})" if name.kind == _JSON_TEXT else name.path
    return f"{path}[].{_quoted(key)}" if " " in texts.get(key, "").strip() else ""


def _is_list(name: NameInFile) -> bool:
    return name.kind.startswith("list of ") or (name.kind == _JSON_TEXT and name.example.lstrip().startswith("["))


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
        elif isinstance(item, list) and item and isinstance(item[0], Mapping):
            yield from _names(item[0], f"{path}[].", depth + 1)


def _quoted(name: str) -> str:
    """A name as a path expression has it."""
    return name if _PLAIN.fullmatch(name) else '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _json_in_text(value: Any) -> Any:
    """The object or list that a text is, as cells of a table often are; None for any other value."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"list of {_kind(value[0])}s" if value else "empty list"
    names = {bool: "boolean", int: "number", float: "number", str: "text"}
    return names.get(type(value), "object")


def _fitted(field: str, name: NameInFile) -> tuple[str, str]:
    """The field and the expression that makes its type of a value of this kind; an empty expression where none does."""
    if name.kind == _JSON_TEXT:
        inner = json.loads(name.example)
        name = NameInFile(f"parse({name.path})", _kind(inner), inner)
    kind, path = name.kind, name.path
    if field == "contexts":
        return field, _passages(name)
    if field in ("reference", "references") and kind == "list of texts":
        return "references", path
    if kind == "text" and field != "references":
        return field, path
    return field, f"to_string({path})" if field in ("id", "method") and kind == "number" else ""


def _passages(name: NameInFile) -> str:
    if name.kind == "list of texts":
        return name.path
    if name.kind == "list of objects":
        key = next((key for key in _TEXT_KEYS if isinstance(name.example[0].get(key), str)), None)
        return f"{name.path}[].{key}" if key else ""
    is_list_in_cell = name.kind == "text" and name.example.lstrip().startswith("[")
    if is_list_in_cell:
        return f"parse({name.path})"
    return f"[{name.path}][?@]" if name.kind == "text" else ""  # one passage, or none where the cell is empty
