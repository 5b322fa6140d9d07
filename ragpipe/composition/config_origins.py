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

from ragpipe.composition.option_source import PRIMARY, OptionSource
from ragpipe.core.yaml_files import key_path, lines_of

COMMAND_LINE = "command line"
OVERLAYS = ("experiment", "mode")


class HydraOrigins:
    """The origins of one composition.

    `loader` is Hydra's config loader, `overrides` what it composed with (Hydra's own included), `texts` what the user typed
    after `=`, by key.
    """

    def __init__(self, loader: ConfigLoader, overrides: Sequence[str], texts: Mapping[str, str]):
        self._loader, self._overrides, self._texts = loader, list(overrides), dict(texts)
        self._sources = [source for source in loader.get_sources() if isinstance(source, OptionSource)]

    def location(self, key: str) -> str:
        """Where a dotted key was set: `conf/judge/llm.yaml:7`, `command line (judge.rpm=fast)`, or `the configuration`.

        A key that is set nowhere has the place of the nearest section around it.
        """
        while key and key not in self._origins:
            key = key.rpartition(".")[0]
        return self._origins.get(key, "the configuration")

    def typed_text(self, key: str) -> str | None:
        """The text after `=` as it was typed, None when the command line did not set this key."""
        return self._typed.get(key)

    @cached_property
    def chosen(self) -> tuple[str, ...]:
        """What the user's words set, as dotted keys: a key, the section of a group's option, and whatever an experiment or
        a mode on top sets. Deleted keys are among them."""
        chosen: dict[str, None] = {}
        for override in OverridesParser.create().parse_overrides(self._overrides):
            key = override.key_or_group
            if key in OVERLAYS:
                value: Any = override.value()
                for option in value if isinstance(value, list) else [value]:
                    chosen |= dict.fromkeys(self._set_by(f"{key}/{option}"))
            elif key != "task" and not key.startswith("hydra"):
                chosen[override.package or key.replace("/", ".")] = None
        return tuple(chosen)

    def _set_by(self, name: str) -> list[str]:
        """The keys that an overlay's file sets, and the groups whose options it chooses."""
        if (path := self._file(name)) is None:
            return []
        listed = (yaml.safe_load(path.read_text(encoding="utf-8-sig")) or {}).get("defaults") or []
        items = [key for item in listed if isinstance(item, dict) for key in item]
        groups = [key.removeprefix("override ").strip("/").replace("/", ".") for key in items]
        keys = list(lines_of(path))
        return [*groups, *(key for key in keys if not any(longer.startswith(f"{key}.") for longer in keys))]

    @cached_property
    def _typed(self) -> dict[str, str]:
        """Key -> the text after `=`, for every override that sets a value."""
        overrides = OverridesParser.create().parse_overrides(self._overrides)
        words = {o.key_or_group: o.input_line or "" for o in overrides if not o.is_delete()}
        return {
            key: self._texts.get(key, word.partition("=")[2])
            for key, word in words.items()
            if not key.startswith("hydra.")
        }

    @cached_property
    def _origins(self) -> dict[str, str]:
        origins: dict[str, str] = {}
        for item in self._loader.compute_defaults_list(PRIMARY, self._overrides, RunMode.RUN).defaults:
            if path := self._file(item.config_path or ""):
                package = "" if item.package in ("_global_", "", None) else f"{item.package}."
                lines = lines_of(path).items()
                origins |= {f"{package}{key}": f"{key_path(path)}:{line}" for key, line in lines}
        for key, text in self._typed.items():
            if not any(source.is_group(key) for source in self._sources):
                origins = {k: origin for k, origin in origins.items() if not k.startswith(f"{key}.")}
                origins[key] = f"{COMMAND_LINE} ({key}={text})"
        return origins

    def _file(self, config_path: str) -> Path | None:
        """The file of an option: that of the first folder on the search path which has it."""
        return next((source.file(config_path) for source in self._sources if source.is_config(config_path)), None)
