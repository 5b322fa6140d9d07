"""Configurations from Python: mappings as words of the command line."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hydra.core.override_parser.types import Quote, QuotedString

from ragpipe.composition.config_origins import OVERLAYS
from ragpipe.core.errors import ConfigError, Problem

Config = Mapping[str, Any] | Sequence[str | Mapping[str, Any]]
"""One mapping, or a list of words (`"judge=llm"`) and mappings, where the later ones win."""

WHERE = "the configuration from Python"
_PLAIN = re.compile(r"[A-Za-z_][\w./-]*")
_RESERVED = frozenset({"null", "true", "false", "nan", "inf"})


def override_words(config: Config) -> list[str]:
    """The words that say the same as `config`.

    A mapping inside a mapping stands for its keys: `{"judge": {"model": "m"}}` is `judge.model=m`. Where a key begins
    with `+` its mapping is set as a whole. `experiment` and `mode` need no `+`. Strings stay strings ("007", "null").
    Raises ConfigError for what is neither words nor plain data.
    """
    if isinstance(config, str):
        raise ConfigError(
            "the configuration is one string", [_problem("config", config, "a list of words or a mapping")]
        )
    words: list[str] = []
    for part in [config] if isinstance(config, Mapping) else config:
        if isinstance(part, str):
            words.append(part)
        elif isinstance(part, Mapping):
            words += _words(part)
        else:
            raise ConfigError("the configuration cannot be read", [_problem("config", part, "words and mappings")])
    return words


def _words(section: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in section.items():
        if not isinstance(name, str) or not name:
            raise ConfigError(
                "the configuration cannot be read", [_problem(prefix or "config", name, "keys as strings")]
            )
        key = f"{prefix}.{name}" if prefix else name
        if isinstance(value, Mapping) and value and not key.startswith("+"):
            yield from _words(value, key)
        else:
            yield f"{'+' if key in OVERLAYS else ''}{key}={_text(key, value)}"


def _text(key: str, value: Any) -> str:
    """A value in the grammar of Hydra's overrides."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, str):
        is_plain = _PLAIN.fullmatch(value) and value.lower() not in _RESERVED
        return value if is_plain else QuotedString(value, Quote.double).with_quotes()
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_text(key, str(name))}:{_text(key, item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(_text(key, item) for item in value) + "]"
    raise ConfigError("the configuration cannot be read", [_problem(key, value, "text, numbers, lists and mappings")])


def _problem(key: str, value: Any, expected: str) -> Problem:
    return Problem(WHERE, str(key), f"{type(value).__name__} {value!r}"[:120], expected)
