"""Pydantic models of configuration sections, and their errors as problems with location and fix."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Protocol, TypeVar, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from ragpipe.core.digest import DIGEST
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.text import shorten

M = TypeVar("M", bound=BaseModel)
_VALUE_CHARS = 80  # of a value in a message
_TYPE_NAMES = {str: "text", bool: "true/false", int: "whole number", float: "number", list: "list", dict: "mapping"}


class ConfigOrigins(Protocol):
    """Where the keys of a configuration were set."""

    def location(self, key: str) -> str:
        """The file and line, or `command line`, where a dotted key was set."""

    def typed_text(self, key: str) -> str | None:
        """The text after `=` when the command line set the key."""


class NoOrigins:
    """Origins of a configuration that came from no file and no command line."""

    def location(self, key: str) -> str:
        return "the configuration"

    def typed_text(self, key: str) -> str | None:
        return None


def validated(
    model: type[M], section: Any, prefix: str, origins: ConfigOrigins, problems: list[Problem], context: Any = None
) -> M | None:
    """The section as its model; None when it is wrong, with a problem for every fault. `prefix` is its dotted key, `context`
    what the validators get. Where a text is expected, the typed text of a command-line value is taken, whose type was
    guessed. Read as JSON, so that a YAML list may become a tuple and a text a path."""
    if not isinstance(section, Mapping):
        problems.append(Problem(origins.location(prefix), prefix, show_value(section), "a mapping (key: value)"))
        return None
    plain = json.loads(json.dumps(section))
    for _ in range(2):
        try:
            return model.model_validate_json(json.dumps(plain), context=context)
        except ValidationError as error:
            if not _restore_typed_texts(error, plain, prefix, origins):
                problems += _problems(error, model, plain, prefix, origins)
                return None
    return None


def _restore_typed_texts(error: ValidationError, plain: dict[str, Any], prefix: str, origins: ConfigOrigins) -> bool:
    """Put the typed text where a text is expected; True when this changed anything."""
    changed = False
    for fault in error.errors(include_url=False, include_context=False):
        if fault["type"] == "string_type":
            path = _path(fault["loc"], plain)
            raw = origins.typed_text(_dotted(prefix, path))
            if raw is not None and path and not isinstance(_at(plain, path), str | None | list | dict):
                _at(plain, path[:-1])[path[-1]] = raw
                changed = True
    return changed


def _problems(
    error: ValidationError, model: type[BaseModel], plain: dict[str, Any], prefix: str, origins: ConfigOrigins
) -> list[Problem]:
    merged: dict[str, Problem] = {}
    for fault in error.errors(include_url=False):
        path = _path(fault["loc"], plain)
        if fault["type"] == "missing":
            path = [*path, fault["loc"][-1]]
        key = _dotted(prefix, path)
        expected, fix = _expected_and_fix(dict(fault), model, path, key)
        if key in merged:  # each member of a union says what it expects
            before = merged[key]
            either = before.expected if expected in before.expected else f"{before.expected}, or {expected}"
            merged[key] = Problem(before.where, key, before.found, either, before.fix or fix)
        else:
            merged[key] = Problem(origins.location(key), key, _value_in(dict(fault)), expected, fix)
    return list(merged.values())


def _value_in(fault: dict[str, Any]) -> str:
    if fault["type"] == "missing":
        return "nothing"
    value = show_value(fault["input"])
    return f"an unknown key (= {value})" if fault["type"] == "extra_forbidden" else value


def _expected_and_fix(fault: dict[str, Any], model: type[BaseModel], path: list[Any], key: str) -> tuple[str, str]:
    kind, context = fault["type"], fault.get("ctx") or {}
    if kind == "missing":
        fix = f"pass {key}=... or set it in your experiment"
        return "a value: this key must be set", with_description(fix, _description_at(model, path))
    if kind == "extra_forbidden":
        descriptions = _descriptions_at(model, path[:-1])
        names = sorted(descriptions)
        fix = did_you_mean(str(path[-1]), names)
        return f"one of {', '.join(names)}" if names else "no such key", with_description(fix, *_named(descriptions, fix))
    if kind == "literal_error":
        options = [part.strip().strip("'") for part in str(context.get("expected", "")).replace(" or ", ",").split(",")]
        return f"one of {', '.join(options)}", did_you_mean(str(fault["input"]), options)
    if kind == "string_type":
        unquoted = isinstance(fault["input"], bool | int | float)
        return "a text", f'put it in quotes: {key.rpartition(".")[2]}: "..."' if unquoted else ""
    if kind in ("list_type", "tuple_type"):
        single = isinstance(fault["input"], str | int | float) and not isinstance(fault["input"], bool)
        example = f", such as [{shorten(str(fault['input']), _VALUE_CHARS)}]" if single else ""
        return f"a list{example}", _description_at(model, path)
    if kind == "value_error":
        error = context.get("error")
        return str(error or fault["msg"].removeprefix("Value error, ")), getattr(error, "fix", "")
    return _plain_message(fault["msg"]), _description_at(model, path)


def _plain_message(message: str) -> str:
    """Pydantic's message without its opening, in the words of this package."""
    for opening in ("Input should be ", "Input should "):
        message = message.removeprefix(opening)
    return message.replace("a valid integer", "a whole number").replace("a valid number", "a number")


def with_description(fix: str, *descriptions: str) -> str:
    """A fix with the description of the key that it is about, where there is one: `did you mean top_p? Nucleus sampling...`."""
    if not fix or len(descriptions) != 1 or not descriptions[0]:
        return fix
    return f"{fix}{'' if fix.endswith('?') else ':'} {descriptions[0]}"


def _named(descriptions: Mapping[str, str], fix: str) -> list[str]:
    words = fix.rstrip("?").split()
    return [description for name, description in descriptions.items() if name in words]


def _description_at(model: type[BaseModel], path: Sequence[Any]) -> str:
    """What the key at a path below a model means; empty where it is not described."""
    return _descriptions_at(model, path[:-1]).get(str(path[-1]), "") if path else ""


def _descriptions_at(model: type[BaseModel], path: Iterable[Any]) -> dict[str, str]:
    """The keys that are allowed at a path below a model, with their descriptions; empty where any key is."""
    current: Any = model
    is_mapping = False  # whether the next part is a key of the user's, in a mapping of models
    for part in path:
        if is_mapping:
            is_mapping = False
            continue
        field = getattr(current, "model_fields", {}).get(part)
        if field is None:
            return {}
        is_mapping = get_origin(field.annotation) is dict
        current = _model_of(field.annotation)
    fields = {} if is_mapping else getattr(current, "model_fields", {})
    return {field.alias or name: field.description or "" for name, field in fields.items()}


def did_you_mean(name: str, options: Iterable[str]) -> str:
    """`did you mean 'temperature'?`, empty when no option is similar."""
    near = difflib.get_close_matches(name, list(options), n=2, cutoff=0.62)
    return f"did you mean {' or '.join(near)}?" if near else ""


def show_value(value: Any) -> str:
    """A value and its type, short: `'hot' (text)`."""
    if value is None:
        return "null"
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return f"{shorten(text, _VALUE_CHARS)} ({_TYPE_NAMES.get(type(value), type(value).__name__)})"


def _model_of(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        model = _model_of(inner)
        if model is not None:
            return model
    return None


def _path(loc: Iterable[Any], plain: Any) -> list[Any]:
    """The part of pydantic's location that is in the data (it adds the members of unions)."""
    path: list[Any] = []
    for part in loc:
        is_key = part in plain if isinstance(plain, Mapping) else isinstance(plain, list) and part in range(len(plain))
        if is_key:
            plain = plain[part]
            path.append(part)
    return path


def _at(plain: Any, path: Iterable[Any]) -> Any:
    for part in path:
        plain = plain[part]
    return plain


def _dotted(prefix: str, path: Iterable[Any]) -> str:
    return ".".join([*([prefix] if prefix else []), *(str(part) for part in path)])


Sha256 = Annotated[str, Field(pattern=f"^{DIGEST.pattern}$")]
"""A hex sha256."""


def accepted_by(read: Callable[[Any], object]) -> AfterValidator:
    """For a value that `read` must take, which says by a ValueError why it does not; the value stays as it is."""

    def check(value: Any) -> Any:
        read(value)
        return value

    return AfterValidator(check)


class NotInIdentity:
    """Marks a field that cannot change a number (`Annotated[int, NotInIdentity]`): it is left out of a run's identity."""


class Settings(BaseModel):
    """A configuration section: unknown keys are refused, a str means a str, and it cannot change once read.

    Its validator is built when it is first used (`defer_build`): most sections are parts of others and never read alone.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=(), defer_build=True)

    def identity(self) -> dict[str, Any]:
        """The fields that can change a number, as plain JSON: what two runs must share to be the same run."""
        fields: dict[str, Any] = {}
        for name, field in type(self).model_fields.items():
            if any(mark is NotInIdentity for mark in field.metadata):
                continue
            value = getattr(self, name)
            fields[name] = value.identity() if isinstance(value, Settings) else _plain(value)
        return fields


def _plain(value: Any) -> Any:
    if isinstance(value, Settings):
        return value.identity()
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = [_plain(item) for item in value]
        return sorted(items, key=str) if isinstance(value, set | frozenset) else items
    return value


SettingsT = TypeVar("SettingsT", bound=Settings)


def task_settings(
    settings_class: type[SettingsT],
    plain: Mapping[str, Any],
    origins: ConfigOrigins,
    *,
    title: str,
    section: str = "",
    known_problems: Iterable[Problem] = (),
) -> SettingsT:
    """The settings of a task, from its top-level keys or from the section of this name; `known_problems` are reported with
    theirs. Raises ConfigError."""
    problems = list(known_problems)
    values = plain.get(section, {}) if section else own_values(settings_class, plain)
    settings = validated(settings_class, values, section, origins, problems)
    if settings is None or problems:
        raise ConfigError(title, problems)
    return settings


def own_values(settings_class: type[Settings], plain: Mapping[str, Any]) -> dict[str, Any]:
    """The part of the composed configuration that these settings read; a task ignores all other keys."""
    return {key: plain[key] for key in setting_keys(settings_class) if key in plain}


def setting_keys(settings_class: type[Settings]) -> tuple[str, ...]:
    """The keys of these settings, as they are written in YAML."""
    return tuple(field.alias or name for name, field in settings_class.model_fields.items())
