"""Configurations from Python: mappings as words of the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hydra.core.override_parser.types import Quote, QuotedString

from ragpipe.composition.config_origins import OVERLAYS
from ragpipe.core.errors import ConfigError, Problem

Config = Mapping[str, Any] | Sequence[str | Mapping[str, Any]]
"""One mapping, or a list of words (`"judge=llm"`) and mappings, where the later ones win."""

WHERE = "the configuration from Python"
_PLAIN = re.compile(r"(?!(?i:null|true|false|nan|inf)$)[A-Za-z_][\w./-]*")


def override_words(config: Config) -> list[str]:
    """The words that say the same as `config`.

    A mapping inside a mapping stands for its keys: `{"judge": {"model": "m"}}` is `judge.model=m`. Where a key begins
    with `+` its mapping is set as a whole. `experiment` and `mode` need no `+`. Strings stay strings ("007", "null").
    Raises ConfigError for what is neither words nor plain data.
    """
    if isinstance(config, str):
        raise _unreadable("config", config, "a list of words or a mapping")
    words: list[str] = []
    for part in [config] if isinstance(config, Mapping) else config:
        if not isinstance(part, str | Mapping):
            raise _unreadable("config", part, "words and mappings")
        words += [part] if isinstance(part, str) else _words(part)
    return words


def _words(section: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in section.items():
        if not isinstance(name, str) or not name:
            raise _unreadable(prefix or "config", name, "keys as strings")
        key = f"{prefix}.{name}" if prefix else name
        if isinstance(value, Mapping) and value and not key.startswith("+"):
            yield from _words(value, key)
        else:
            yield f"{'+' if key in OVERLAYS else ''}{key}={_text(key, value)}"


def _text(key: str, value: Any) -> str:
    """A value in the grammar of Hydra's overrides."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else QuotedString(value, Quote.double).with_quotes()
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_text(key, str(name))}:{_text(key, item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(_text(key, item) for item in value) + "]"
    raise _unreadable(key, value, "text, numbers, lists and mappings")


def _unreadable(key: str, value: Any, expected: str) -> ConfigError:
    problem = Problem(WHERE, str(key), f"{type(value).__name__} {value!r}"[:120], expected)
    return ConfigError("the configuration cannot be read", [problem])
