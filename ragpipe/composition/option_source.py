"""How Hydra reads the YAML options: by a source that checks each file when Hydra opens it; and which file has set a key.

Hydra's plug-ins cannot be taken out again. So the source has a scheme of its own, and the plug-in of the search path adds
folders only while ragpipe initialises Hydra in this thread: a programme's own Hydra sees neither.
"""

from __future__ import annotations

import importlib
import pickle
import re
import sys
import threading
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.types import RunMode
from omegaconf import OmegaConf

from ragpipe.composition.hydra_keys import file_faults
from ragpipe.composition.interpolations import TITLE
from ragpipe.composition.overrides import COMMAND_LINE, OVERLAYS
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.registry import installed_modules_only
from ragpipe.core.resources import BESIDE_THE_FILE, placed_paths
from ragpipe.core.secret_detection import secrets_of_environment
from ragpipe.core.yaml_files import FastLoader, check_text, key_path, lines_of, yaml_text

PRIMARY = "ragpipe"
"""The option that every composition begins with."""
SHIPPED = "main"
"""The provider of ragpipe's own `conf/` on the search path."""
_ITEM = re.compile(r"defaults\.\d+\.(?:\w+\s+)*/?([^.]+)")


class _Loader(FastLoader):  # type: ignore[misc]
    """The fast parser with OmegaConf's rules: `1e3` is a number, a date is a text."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (PyYAML's own name)
        first: [rule for rule in rules if not rule[0].endswith(":timestamp")]
        for first, rules in FastLoader.yaml_implicit_resolvers.items()
    }


_EXPONENT = re.compile(r"[-+]?([0-9]+(_[0-9]+)*(\.[0-9_]*)?[eE][-+]?[0-9]+|\.[0-9]+(_[0-9]+)*[eE][-+][0-9]+)$")
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+.0123456789"))


class OptionSource(ConfigSource):
    """The options in one folder, `ragpipe://FOLDER` on the search path. A folder or file `hydra` in it is not seen: it could replace
    Hydra's own options. What each method returns is said by Hydra's ConfigSource."""

    @staticmethod
    def scheme() -> str:
        return "ragpipe"

    def available(self) -> bool:
        return Path(self.path).is_dir()

    def is_group(self, config_path: str) -> bool:
        return not _names_hydra(config_path) and (Path(self.path) / config_path).is_dir()

    def is_config(self, config_path: str) -> bool:
        return not _names_hydra(config_path) and self.file(config_path).is_file()

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        names = set()
        for path in (Path(self.path) / config_path).glob("[!_.]*"):
            if path.is_dir() and results_filter in (None, ObjectType.GROUP):
                names.add(path.name)
            elif path.suffix == ".yaml" and path.is_file() and results_filter in (None, ObjectType.CONFIG):
                names.add(path.stem)
        return sorted(names - {"hydra"})

    def load_config(self, config_path: str) -> ConfigResult:
        path = self.file(config_path)
        where, here = key_path(path), Path.cwd()
        try:
            text, problems = yaml_text(path, where)
        except OSError as error:
            text, problems = "", [Problem(where, "the file", f"{error.strerror}", "a file that can be read")]
        _refuse(problems)
        beside = here if BESIDE_THE_FILE in text and path.is_relative_to(here) else None
        known = frozenset(secrets_of_environment())
        content, header = _checked(path, text, known, beside, shipped=self.provider == SHIPPED)
        return ConfigResult(self.provider, self.full_path(), pickle.loads(content), dict(header))

    def file(self, config_path: str) -> Path:
        """The path of an option, whether it is there or not."""
        return Path(self.path) / (config_path if config_path.endswith(".yaml") else f"{config_path}.yaml")


@lru_cache(maxsize=500)
def _checked(
    path: Path, text: str, secrets: frozenset[str], beside: Path | None, *, shipped: bool
) -> tuple[bytes, dict[str, str | None]]:
    """Content and header of a file. Raises ConfigError.

    They are kept by what they depend on, for the jobs of a sweep; so by the working folder only where a path is printed relative to
    it. The content is pickled, in memory: Hydra merges into what it gets, and `copy.deepcopy` takes thirty times as long.
    """
    where = key_path(path)
    _refuse(check_text(text, where))
    plain = yaml.load(text, Loader=_Loader)
    header = OptionSource._get_header_dict(text[:512])
    if not shipped:
        _refuse(file_faults(plain, header["package"] or "", text, where))
    return pickle.dumps(OmegaConf.create({} if plain is None else placed_paths(plain, path.parent))), header


def _refuse(problems: Sequence[Problem]) -> None:
    if problems:
        raise ConfigError(TITLE, problems)


def _names_hydra(config_path: str) -> bool:
    return "hydra" in re.split(r"[/.\[\]]", config_path)


def option_file(loader: ConfigLoader, option: str) -> Path | None:
    """The file of an option, such as `judge/llm`: that of the first folder on the search path which has it."""
    sources = (source for source in loader.get_sources() if isinstance(source, OptionSource))
    return next((source.file(option) for source in sources if source.is_config(option)), None)


def is_group(loader: ConfigLoader, key: str) -> bool:
    """Whether a key names a group of options anywhere on the search path."""
    return any(source.is_group(key) for source in loader.get_sources())


class OptionFolders(SearchPathPlugin):
    """Puts folders on the search path of a Hydra that this thread initialises: provider and folder, the first wins."""

    here = threading.local()

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for provider, folder in getattr(self.here, "folders", ()):
            search_path.append(provider, f"{OptionSource.scheme()}://{folder}")


def installed_plugins_only() -> None:
    """Of Hydra's plug-ins (`hydra_plugins/`) only those that are installed are found, and so imported, in this process; not those
    of whoever wrote the working folder."""
    with installed_modules_only():
        try:
            package: ModuleType = importlib.import_module("hydra_plugins")
        except ImportError:
            package = sys.modules["hydra_plugins"] = ModuleType("hydra_plugins")
        package.__path__ = list(getattr(package, "__path__", ()))  # a namespace package would look again


def unresolved(words: Any) -> list[str]:
    """Hydra's list of words without resolving the interpolations in them."""
    return OmegaConf.to_container(words, resolve=False)  # type: ignore[return-value]


class HydraOrigins:
    """Where the keys of the composition were set that Hydra knows as the running one: in a line of a file, or by a word. The last
    one counts: Hydra's defaults list has the files in the order in which they were merged, with the package of each."""

    def __init__(self, loader: ConfigLoader):
        words = HydraConfig.get().overrides
        self._loader = loader
        self._overrides = [*unresolved(words.hydra), *unresolved(words.task)]
        self._words = OverridesParser.create().parse_overrides(self._overrides)

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
        chosen: list[str] = []
        for word in self._words:
            key = word.key_or_group
            if key in OVERLAYS:
                value: Any = word.value()
                for option in value if isinstance(value, list) else [value]:
                    chosen += self._set_by(f"{key}/{option}")
            elif key != "task" and not key.startswith("hydra"):
                chosen.append(word.package or key.replace("/", "."))
        return tuple(dict.fromkeys(chosen))

    def _set_by(self, overlay: str) -> list[str]:
        """The groups whose options an overlay's file chooses, and the keys that it sets."""
        lines = lines_of(path) if (path := option_file(self._loader, overlay)) else {}
        groups = [match[1].replace("/", ".") for key in lines if (match := _ITEM.fullmatch(key))]
        above = {key.rpartition(".")[0] for key in lines}
        return [*groups, *(key for key in lines if key not in above and not key.startswith("defaults."))]

    @cached_property
    def _typed(self) -> dict[str, str]:
        """Key -> the text after `=`, for every override that sets a value."""
        set_here = (word for word in self._words if not word.is_delete() and not word.key_or_group.startswith("hydra."))
        return {word.key_or_group: word.get_value_string() for word in set_here}

    @cached_property
    def _origins(self) -> dict[str, str]:
        origins: dict[str, str] = {}
        for item in self._loader.compute_defaults_list(PRIMARY, self._overrides, RunMode.RUN).defaults:
            if path := option_file(self._loader, item.config_path or ""):
                package = "" if item.package in ("_global_", "", None) else f"{item.package}."
                origins |= {f"{package}{key}": f"{key_path(path)}:{line}" for key, line in lines_of(path).items()}
        for key, text in self._typed.items():
            if not is_group(self._loader, key):
                origins = {k: origin for k, origin in origins.items() if not k.startswith(f"{key}.")}
                origins[key] = f"{COMMAND_LINE} ({key}={text})"
        return origins
