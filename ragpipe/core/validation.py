"""Turns what pydantic finds wrong with a section into faults that say where, what, and how to fix it."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeVar, get_origin

from pydantic import BaseModel, ValidationError

from ragpipe.core.errors import Problem
from ragpipe.core.safe_text import shorten

M = TypeVar("M", bound=BaseModel)
_SHOWN = 80  # characters of a found value


class ConfigOrigins(Protocol):
    """Where a dotted key was set, and the text after `=` when the command line set it."""

    def of(self, key: str) -> str: ...
    def raw(self, key: str) -> str | None: ...


class NoOrigins:
    """Origins of a configuration that came from no file and no command line."""

    def of(self, key: str) -> str:
        return "the configuration"

    def raw(self, key: str) -> str | None:
        return None


def validated(
    model: type[M],
    section: Any,
    prefix: str,
    origins: ConfigOrigins,
    problems: list[Problem],
) -> M | None:
    """The section as its model; None when it is wrong, with every fault added to `problems`.

    The command line is typed by its looks (`name=2024` arrives as a number): where a text is expected, what was typed
    is taken instead. A section is read as JSON, so that a YAML list may be a tuple and a text a path.
    """
    if not isinstance(section, Mapping):
        problems.append(Problem(origins.of(prefix), prefix, show_value(section), "a mapping (key: value)"))
        return None
    plain = json.loads(json.dumps(section))
    for _ in range(2):
        try:
            return model.model_validate_json(json.dumps(plain))
        except ValidationError as error:
            if not _typed_texts(error, plain, prefix, origins):
                problems += _problems(error, model, plain, prefix, origins)
                return None
    return None


def _typed_texts(error: ValidationError, plain: dict[str, Any], prefix: str, origins: ConfigOrigins) -> bool:
    """Put the typed text where a text is expected; True when something was put."""
    changed = False
    for fault in error.errors(include_url=False, include_context=False):
        if fault["type"] == "string_type":
            path = _path(fault["loc"], plain)
            raw = origins.raw(_dotted(prefix, path))
            if raw is not None and path and not isinstance(_at(plain, path), str | None | list | dict):
                _at(plain, path[:-1])[path[-1]] = raw
                changed = True
    return changed


def _problems(
    error: ValidationError, model: type[BaseModel], plain: dict[str, Any], prefix: str, origins: ConfigOrigins
) -> list[Problem]:
    merged: dict[str, Problem] = {}
    for fault in error.errors(include_url=False):
        kind, loc = fault["type"], fault["loc"]
        path = _path(loc, plain)
        if kind == "missing":
            path = [*path, loc[-1]]
        key = _dotted(prefix, path)
        expected, fix = _expected(dict(fault), model, path, key)
        found = "nothing" if kind == "missing" else show_value(fault["input"])
        if kind == "extra_forbidden":
            found = f"an unknown key (= {show_value(fault['input'])})"
        if key in merged:  # the members of a union each say what they expect
            before = merged[key]
            both = before.expected if expected in before.expected else f"{before.expected}, or {expected}"
            merged[key] = Problem(before.where, key, before.found, both, before.fix or fix)
        else:
            merged[key] = Problem(origins.of(key), key, found, expected, fix)
    return list(merged.values())


def _expected(fault: dict[str, Any], model: type[BaseModel], path: list[Any], key: str) -> tuple[str, str]:
    """What is expected, and how to fix it."""
    kind, context = fault["type"], fault.get("ctx") or {}
    if kind == "missing":
        return "a value: this key must be set", f"pass {key}=... or set it in your experiment"
    if kind == "extra_forbidden":
        names = fields_at(model, path[:-1])
        return f"one of {', '.join(names)}" if names else "no such key", did_you_mean(str(path[-1]), names)
    if kind == "literal_error":
        options = [part.strip().strip("'") for part in str(context.get("expected", "")).replace(" or ", ",").split(",")]
        return f"one of {', '.join(options)}", did_you_mean(str(fault["input"]), options)
    if kind == "string_type":
        quoted = isinstance(fault["input"], bool | int | float)
        return "a text", f'put it in quotes: {key.rpartition(".")[2]}: "..."' if quoted else ""
    if kind == "value_error":
        return str(context.get("error") or fault["msg"].removeprefix("Value error, ")), ""
    message = fault["msg"]
    for opening in ("Input should be ", "Input should "):
        message = message.removeprefix(opening)
    return message.replace("a valid integer", "a whole number").replace("a valid number", "a number"), ""


def fields_at(model: type[BaseModel], path: Iterable[Any]) -> list[str]:
    """The names that may stand at a path below a model; empty where any name may."""
    current: Any = model
    named = False  # whether the next part is a name of the user's, in a mapping of models
    for part in path:
        if named:
            named = False
            continue
        field = getattr(current, "model_fields", {}).get(part)
        if field is None:
            return []
        named = get_origin(field.annotation) is dict
        current = _model_of(field.annotation)
    return [] if named else sorted(field.alias or name for name, field in getattr(current, "model_fields", {}).items())


def did_you_mean(name: str, options: Iterable[str]) -> str:
    """`did you mean 'temperature'?`, empty when nothing is near."""
    near = difflib.get_close_matches(name, list(options), n=2, cutoff=0.62)
    return f"did you mean {' or '.join(near)}?" if near else ""


def show_value(value: Any) -> str:
    """A value and its type, short: `'hot' (text)`."""
    names = {str: "text", bool: "true/false", int: "whole number", float: "number", list: "list", dict: "mapping"}
    if value is None:
        return "null"
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return f"{shorten(text, _SHOWN)} ({names.get(type(value), type(value).__name__)})"


def _model_of(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        found = _model_of(inner)
        if found is not None:
            return found
    return None


def _path(loc: Iterable[Any], plain: Any) -> list[Any]:
    """The part of pydantic's location that is in the data (it adds the members of unions)."""
    path: list[Any] = []
    for part in loc:
        here = part in plain if isinstance(plain, Mapping) else isinstance(plain, list) and part in range(len(plain))
        if here:
            plain = plain[part]
            path.append(part)
    return path


def _at(plain: Any, path: Iterable[Any]) -> Any:
    for part in path:
        plain = plain[part]
    return plain


def _dotted(prefix: str, path: Iterable[Any]) -> str:
    return ".".join([*([prefix] if prefix else []), *(str(part) for part in path)])
