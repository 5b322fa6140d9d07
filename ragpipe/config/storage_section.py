"""The section `storage` for tasks that read no whole configuration of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.validation import ConfigOrigins, validated
from ragpipe.store.objects.settings import Storage, StorageSettings


def read_storage(plain: Mapping[str, Any], origins: ConfigOrigins, *, title: str) -> Storage:
    """How object stores are reached in this start. Raises ConfigError with this title for a wrong section."""
    problems: list[Problem] = []
    settings = validated(StorageSettings, plain.get("storage", {}), "storage", origins, problems)
    if settings is None:
        raise ConfigError(title, problems)
    return Storage.of(settings, str(plain.get("output_dir", "outputs")))
