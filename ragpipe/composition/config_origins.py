"""Which file and line, or which word of the command line, has set a key of the composed configuration.

Hydra's defaults list gives the files in the order in which they were merged, with the package each was placed in;
`yaml.compose` gives the lines. The last one to set a key counts.
"""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.types import RunMode
from omegaconf import OmegaConf

from ragpipe.composition.option_source import PRIMARY, OptionSource
from ragpipe.core.yaml_files import key_path, lines_of

COMMAND_LINE = "command line"
OVERLAYS = ("experiment", "mode")
_ITEM = re.compile(r"defaults\.\d+\.(?:\w+\s+)*/?([^.]+)")


def unresolved(words: Any) -> list[str]:
    """Hydra's list of words without resolving the interpolations in them."""
    return OmegaConf.to_container(words, resolve=False)  # type: ignore[return-value]


class HydraOrigins:
    """The origins of the composition that Hydra knows as the running one."""

    def __init__(self, loader: ConfigLoader):
        words = HydraConfig.get().overrides
        self._loader = loader
        self._overrides = [*unresolved(words.hydra), *unresolved(words.task)]
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
        for override in self._words:
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
        lines = lines_of(path) if (path := self._file(name)) else {}
        keys = [key for key in lines if not any(longer.startswith(f"{key}.") for longer in lines)]
        items = [match[1].replace("/", ".") for key in lines if (match := _ITEM.fullmatch(key))]
        return [*items, *(key for key in keys if not key.startswith("defaults."))]

    @cached_property
    def _words(self) -> list[Override]:
        return OverridesParser.create().parse_overrides(self._overrides)

    @cached_property
    def _typed(self) -> dict[str, str]:
        """Key -> the text after `=`, for every override that sets a value."""
        set_here = (word for word in self._words if not word.is_delete() and not word.key_or_group.startswith("hydra."))
        return {word.key_or_group: word.get_value_string() for word in set_here}

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
