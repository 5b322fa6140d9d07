"""Finds secrets in a composed configuration, which is copied into the run's folder and so must hold none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ragpipe.core.errors import Problem
from ragpipe.core.secret_detection import FIX, looks_secret, secret_at, secrets_of_environment
from ragpipe.core.validation import ConfigOrigins

_EXPECTED = "no secret in a configuration"


def secrets_in(plain: Any, origins: ConfigOrigins) -> list[Problem]:
    """Every key or value that looks like a secret, wherever it came from (an interpolation may have brought it in)."""
    known_secrets = secrets_of_environment()
    return [
        Problem(origins.location(key), key or "a key", f"{description} (not shown)", _EXPECTED, FIX)
        for key, description in _secrets(plain, "", known_secrets)
    ]


def _secrets(value: Any, key: str, known_secrets: Any) -> Iterator[tuple[str, str]]:
    """Dotted keys, each with what is secret there, in the order of the configuration."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            if description := looks_secret(str(name), known_secrets):
                yield key, f"{description} as a key"
            else:
                yield from _secrets(item, f"{key}.{name}" if key else str(name), known_secrets)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _secrets(item, f"{key}.{index}", known_secrets)
    elif description := secret_at(key, value, known_secrets):
        yield key, description
