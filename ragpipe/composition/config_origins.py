"""Which file and line, or which word of the command line, has set a key of the composed configuration.

Hydra's defaults list gives the files in the order in which they were merged, with the package each was placed in;
`yaml.compose` gives the lines. The last one to set a key counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode

from ragpipe.composition.option_files import OptionSource
from ragpipe.core.yaml_lines import key_path, lines_of

COMMAND_LINE = "command line"
OVERLAYS = ("experiment", "mode")


class HydraOrigins:
    """The origins of one composition.

    `loader` is Hydra's config loader, `overrides` what it composed with (Hydra's own included), `texts` what the user typed
    after `=`, by key.
    """

    def __init__(self, loader: ConfigLoader, config_name: str, overrides: Sequence[str], texts: Mapping[str, str]):
        self._loader, self._config_name, self._overrides = loader, config_name, list(overrides)
        self._texts = dict(texts)

    def location(self, key: str) -> str:
        """Where a dotted key was set: `conf/judge/llm.yaml:7`, `command line (judge.rpm=fast)`, or `the configuration`.

        A key that is set nowhere has the place of the nearest section around it.
        """
        parts = key.split(".")
        for end in range(len(parts), 0, -1):
            origin = self._origins.get(".".join(parts[:end]))
            if origin:
                return origin
        return "the configuration"

    def typed_text(self, key: str) -> str | None:
        """The text after `=` as it was typed, None when the command line did not set this key."""
        return self._values.get(key)

    @cached_property
    def chosen(self) -> tuple[str, ...]:
        """What the user's words set, as dotted keys: a key, the section of a group's option, and whatever an experiment or
        a mode on top sets. Deleted keys are among them."""
        chosen: dict[str, None] = {}
        for override in OverridesParser.create().parse_overrides(self._overrides):
            key = override.key_or_group
            if key.startswith("hydra"):
                continue
            if key in OVERLAYS:
                value: Any = override.value()
                for option in value if isinstance(value, list) else [value]:
                    chosen |= dict.fromkeys(self._set_by(f"{key}/{option}"))
            elif key != "task":
                chosen[override.package or key.replace("/", ".")] = None
        return tuple(chosen)

    def _set_by(self, name: str) -> list[str]:
        """The keys that an overlay's file sets, and the groups whose options it chooses."""
        path = self._file(name)
        if path is None:
            return []
        listed = (yaml.safe_load(path.read_text(encoding="utf-8-sig")) or {}).get("defaults") or []
        groups = [
            key.removeprefix("override ").strip("/").replace("/", ".")
            for item in listed
            if isinstance(item, dict)
            for key in item
        ]
        keys = list(lines_of(path))
        leaves = [key for key in keys if not any(longer.startswith(f"{key}.") for longer in keys)]
        return [*groups, *leaves]

    @cached_property
    def _values(self) -> dict[str, str]:
        return {key: text.partition("=")[2] for key, text in self._typed.items() if "=" in text}

    @cached_property
    def _typed(self) -> dict[str, str]:
        """Key -> the whole word, for every override that sets a value."""
        words = {}
        for override in OverridesParser.create().parse_overrides(self._overrides):
            if not override.is_delete() and not override.key_or_group.startswith("hydra."):
                line = (override.input_line or "").lstrip("+")
                key = override.key_or_group
                typed = self._texts.get(key)
                words[key] = f"{key}={typed}" if typed is not None else line
        return words

    @cached_property
    def _origins(self) -> dict[str, str]:
        origins: dict[str, str] = {}
        for path, package in self._files():
            printed = key_path(path)
            for key, line in lines_of(path).items():
                origins[f"{package}.{key}" if package else key] = f"{printed}:{line}"
        for key, text in self._typed.items():
            if not any(source.is_group(key) for source in self._sources):
                origins[key] = f"{COMMAND_LINE} ({text})"
                for inner in [k for k in origins if k.startswith(f"{key}.")]:
                    del origins[inner]
        return origins

    @cached_property
    def _sources(self) -> list[OptionSource]:
        return [source for source in self._loader.get_sources() if isinstance(source, OptionSource)]

    def _file(self, config_path: str) -> Path | None:
        """The file of an option: that of the first folder on the search path which has it."""
        return next((s.file(config_path) for s in self._sources if s.is_config(config_path)), None)

    def _files(self) -> list[tuple[Path, str]]:
        """The YAML files in the order in which they were merged, each with its package."""
        merged = self._loader.compute_defaults_list(self._config_name, self._overrides, RunMode.RUN).defaults
        placed = ((self._file(item.config_path or ""), item.package or "") for item in merged)
        return [(path, "" if package == "_global_" else package) for path, package in placed if path is not None]
