"""The sources that Hydra composes from: checked YAML files, and of Hydra's own section only what may be set.

Hydra's registry of sources belongs to the whole process and is not touched: the sources are created here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository, IConfigRepository
from hydra._internal.core_plugins import file_config_source, structured_config_source
from hydra._internal.core_plugins.importlib_resources_config_source import ImportlibResourcesConfigSource
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.default_element import ResultDefault
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from hydra.types import RunMode
from omegaconf import Container, DictConfig, OmegaConf, open_dict, read_write
from omegaconf._utils import get_yaml_loader

from ragpipe.composition.config_origins import COMMAND_LINE
from ragpipe.composition.hydra_keys import FORCED, group_refused, is_hydra, key_fault
from ragpipe.composition.interpolations import TITLE, guarded
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.resources import placed_paths
from ragpipe.core.secret_detection import secrets_of_environment
from ragpipe.core.yaml_check import check_text, yaml_text
from ragpipe.core.yaml_lines import FastLoader, key_path, lines_of

SHIPPED = "main"
"""The provider of ragpipe's own `conf/` on the search path."""


class _Loader(FastLoader):  # type: ignore[misc]
    """OmegaConf's rules for YAML (what is a float) on the fast parser; duplicate keys were refused before."""


_Loader.yaml_implicit_resolvers = get_yaml_loader().yaml_implicit_resolvers


class FileConfigSource(file_config_source.FileConfigSource):
    """Hydra's source for `file://`, with `check_yaml` before a file is read, and libyaml to read it with.

    A folder `hydra/` in it is ignored: it could replace Hydra's own options.
    """

    def is_group(self, config_path: str) -> bool:
        return not _of_hydra(config_path) and super().is_group(config_path)

    def is_config(self, config_path: str) -> bool:
        return not _of_hydra(config_path) and super().is_config(config_path)

    def load_config(self, config_path: str) -> ConfigResult:
        path = Path(self.path) / self._normalize_file_name(config_path)
        if path.is_file():
            try:
                text, problems = yaml_text(path, key_path(path))
            except OSError as error:
                unreadable = Problem(key_path(path), "the file", f"{error.strerror}", "a file that can be read")
                text, problems = "", [unreadable]
            if problems:
                raise ConfigError(TITLE, problems)
            return ConfigResult(
                config=self._content(text, path),
                path=f"{self.scheme()}://{self.path}",
                provider=self.provider,
                header=self._get_header_dict(text[:512]),
            )
        return super().load_config(config_path)

    def state_of(self, config_path: str) -> Hashable:
        """What the result of `load_config` depends on; None where that is not known."""
        path = Path(self.path) / self._normalize_file_name(config_path)
        try:
            content = path.read_bytes()
        except OSError:
            return None
        return content, path, Path.cwd(), self.provider, frozenset(secrets_of_environment())

    def _content(self, text: str, path: Path) -> Container:
        """The checked content of a file. Raises ConfigError."""
        if problems := check_text(text, key_path(path)):
            raise ConfigError(TITLE, problems)
        plain = yaml.load(text, Loader=_Loader)
        if self.provider != SHIPPED and (problems := _hydra_choices(plain, text, key_path(path))):
            raise ConfigError(TITLE, problems)
        return OmegaConf.create({} if plain is None else placed_paths(plain, path.parent))


class StructuredConfigSource(structured_config_source.StructuredConfigSource):
    """What is registered in the process's ConfigStore, as far as it is Hydra's: a program may keep options of its own there,
    under names that ragpipe uses too. (Hydra finds this source by the name of its class.)"""

    def is_group(self, config_path: str) -> bool:
        return _of_hydra(config_path) and super().is_group(config_path)

    def is_config(self, config_path: str) -> bool:
        return _of_hydra(config_path) and super().is_config(config_path)

    def load_config(self, config_path: str) -> ConfigResult:
        if not _of_hydra(config_path):  # asked for a schema of the same name as a file
            raise ConfigLoadError(f"no structured option {config_path}")
        return super().load_config(config_path)

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        options: list[str] = super().list(config_path, results_filter)
        return options if _of_hydra(config_path) else [name for name in options if name == "hydra"]


def _of_hydra(config_path: str) -> bool:
    return config_path.strip("/").split("/")[0] in ("hydra", "hydra.yaml")


LOADED: dict[Hashable, ConfigResult] = {}
"""What was loaded in this process. Each job of a sweep loads the same files, and to check and build them takes a third of composing."""
_MOST_LOADED = 500


class Repository(ConfigRepository):
    """The sources of one search path, created without the registry of the process."""

    def load_config(self, config_path: str) -> ConfigResult | None:
        """The content of a file, and its defaults list. The content is shared with later compositions and must not be changed:
        `Loader._embed_result_config` copies it. Raises ConfigError."""
        source = self._find_object_source(config_path=config_path, object_type=ObjectType.CONFIG)
        if not isinstance(source, FileConfigSource):
            return super().load_config(config_path)
        state = source.state_of(config_path)
        loaded = LOADED.get((config_path, state))
        if loaded is None:
            loaded = super().load_config(config_path)
            if loaded is None or state is None or source.state_of(config_path) != state:  # edited meanwhile
                return loaded
            while len(LOADED) >= _MOST_LOADED:
                LOADED.pop(next(iter(LOADED), None), None)
            LOADED[config_path, state] = loaded
        return copy.copy(loaded)

    def initialize_sources(self, config_search_path: ConfigSearchPath) -> None:
        kinds: dict[str, Callable[[str, str], ConfigSource]] = {
            "file": FileConfigSource,
            "structured": StructuredConfigSource,
            "pkg": ImportlibResourcesConfigSource,
        }
        self.sources = [
            kinds[self._get_scheme(str(element.path))](str(element.provider), str(element.path))
            for element in config_search_path.get_path()
        ]


class Loader(ConfigLoaderImpl):
    """Hydra's loader, which checks every key of Hydra's own section, for a run and for each job of a sweep."""

    def __init__(self, config_search_path: ConfigSearchPath):
        self.config_search_path = config_search_path
        self.repository = Repository(config_search_path)
        self._sweep_dir: str | None = None  # the file and line that set hydra.sweep.dir, of the last composition
        self._merging: Sequence[ResultDefault] = ()
        self._merged: tuple[str | None, list[str], Sequence[ResultDefault]] | None = (
            None  # by the last composition of a run
        )

    def load_configuration(
        self,
        config_name: str | None,
        overrides: list[str],
        run_mode: RunMode,
        from_shell: bool = True,
        validate_sweep_overrides: bool = True,
    ) -> DictConfig:
        """Compose a configuration.

        Args:
            config_name, overrides, run_mode, from_shell, validate_sweep_overrides: as Hydra passes them.

        Raises ConfigError for a key of Hydra's that may not be set, and for an interpolation that is refused.
        """
        problems = [p for word in OverridesParser.create().parse_overrides(overrides) for p in word_faults(word)]
        if problems:
            raise ConfigError(TITLE, problems)
        self._sweep_dir = self._merged = None
        with guarded() as watch:
            try:
                config = super().load_configuration(
                    config_name, overrides, run_mode, from_shell, validate_sweep_overrides
                )
                on_command_line = any(word.lstrip("+").startswith("hydra.sweep.dir=") for word in overrides)
                self._close(config, sweep_dir_typed=on_command_line)
            except Exception as error:
                if watch.refusals and not isinstance(error, ConfigError):
                    raise ConfigError(TITLE, watch.problems("the configuration", "an interpolation")) from error
                raise
            if watch.refusals:
                raise ConfigError(TITLE, watch.problems("the configuration", "an interpolation"))
        if run_mode == RunMode.RUN:
            self._merged = config_name, composed_words(config.hydra), self._merging
        return config

    def merged_files(self, config_name: str | None, overrides: Sequence[str]) -> Sequence[ResultDefault]:
        """The files that a run's composition with these words merges, in that order: known where it was the last one, else
        found out again, which takes as long as composing."""
        if self._merged is not None and self._merged[:2] == (config_name, list(overrides)):
            return self._merged[2]
        listed: Sequence[ResultDefault] = self.compute_defaults_list(config_name, list(overrides), RunMode.RUN).defaults
        return listed

    def _compose_config_from_defaults_list(self, defaults: list[ResultDefault], repo: IConfigRepository) -> DictConfig:
        self._merging = defaults
        return super()._compose_config_from_defaults_list(defaults, repo)

    @staticmethod
    def _embed_result_config(ret: ConfigResult, package_override: str | None) -> ConfigResult:
        """A copy of what was loaded, in its package. What Hydra merges becomes a part of the configuration."""
        embedded = ConfigLoaderImpl._embed_result_config(ret, package_override)
        if embedded is ret:  # it has no package, and was not copied
            embedded = copy.copy(ret)
            embedded.config = copy.deepcopy(ret.config)
        return embedded

    def _load_single_config(self, default: ResultDefault, repo: IConfigRepository) -> ConfigResult:
        path = default.config_path or ""
        if not default.primary and not _of_hydra(path) and (loaded := repo.load_config(path)) is not None:
            package = (default.package if default.package is not None else loaded.header["package"]) or ""
            if package.split(".")[0] == "hydra" or (not package and "hydra" in loaded.config):
                embedded = self._embed_result_config(loaded, default.package).config
                section = OmegaConf.to_container(embedded, resolve=False) if isinstance(embedded, DictConfig) else {}
                if isinstance(section, dict) and "hydra" in section:
                    self._check(section["hydra"], loaded, default)
        return super()._load_single_config(default, repo)

    def _check(self, section: Any, loaded: ConfigResult, default: ResultDefault) -> None:
        """Raises ConfigError for what a file sets in Hydra's section."""
        path = default.config_path or ""
        file = Path(loaded.path.partition("://")[2]) / (path if path.endswith(".yaml") else f"{path}.yaml")
        package = default.package if default.package is not None else loaded.header["package"] or ""
        lines = lines_of(file)
        problems = []
        for key, value in _leaves(section, "hydra"):
            in_file = key.removeprefix(f"{package}.") if package else key
            line = next((lines[k] for k in _upwards(in_file) if k in lines), 1)
            if key == "hydra.sweep.dir":
                self._sweep_dir = f"{key_path(file)}:{line}"
            if fault := key_fault(key, value, typed=False):
                problems.append(Problem(f"{key_path(file)}:{line}", key, *fault))
        if problems:
            raise ConfigError(TITLE, problems)

    def _close(self, config: DictConfig, *, sweep_dir_typed: bool) -> None:
        """Force the keys that no user may set, and resolve what Hydra will use: nothing of it is resolved later.

        Raises ConfigError for a sweep folder outside `output_dir`, unless it was typed on the command line.
        """
        with read_write(config), open_dict(config):
            for key, value in FORCED.items():
                OmegaConf.update(config, key, value, merge=False, force_add=True)
            folder = str(config.hydra.sweep.dir)
            config.hydra.sweep.dir = folder
            for part in ("launcher", "sweeper"):
                if OmegaConf.is_config(config.hydra.get(part)):
                    OmegaConf.resolve(config.hydra[part])
        if self._sweep_dir is None or sweep_dir_typed:
            return
        below = Path(str(config.output_dir)).absolute()
        if below not in (inside := Path(folder).resolve(), *inside.parents) and below.resolve() not in inside.parents:
            raise ConfigError(
                TITLE,
                [
                    Problem(
                        self._sweep_dir,
                        "hydra.sweep.dir",
                        repr(folder),
                        f"a folder below output_dir ({config.output_dir})",
                        "write hydra.sweep.dir=... as a word for a folder elsewhere",
                    )
                ],
            )


def composed_words(hydra: Any) -> list[str]:
    """The words that Hydra's section says a configuration was composed with, those about Hydra first; the interpolations in
    them are not resolved."""
    words = OmegaConf.to_container(hydra.overrides, resolve=False)
    return [*words["hydra"], *words["task"]]  # type: ignore[call-overload, index]


def word_faults(override: Override) -> list[Problem]:
    """What a word of the command line, or of a sweeper, sets in Hydra's section and may not."""
    key = override.key_or_group
    if not is_hydra(key):
        return []
    if "/" in key or override.package is not None:
        if not group_refused(key) and override.package is None:
            return []
        expected = "hydra/launcher=NAME or hydra/sweeper=NAME"
        return [Problem(COMMAND_LINE, key, "a group of Hydra's own", expected, "log_level=debug for more lines")]
    if override.is_delete():
        return [Problem(COMMAND_LINE, key, "a key of Hydra's own, removed", "keys of the configuration")]
    value = None if override.is_sweep_override() else _plain(override.value())
    fault = key_fault(key, value, typed=True)
    return [Problem(COMMAND_LINE, key, *fault)] if fault else []


def _plain(value: Any) -> Any:
    """The value of a word without the quotes that Hydra keeps."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float) else str(getattr(value, "text", value))


def _leaves(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from _leaves(item, f"{key}.{name}")
    else:
        yield key, value


def _upwards(key: str) -> Iterator[str]:
    """`a.b.c`, `a.b`, `a`."""
    parts = key.split(".")
    return (".".join(parts[:end]) for end in range(len(parts), 0, -1))


def _hydra_choices(plain: Any, text: str, where: str) -> list[Problem]:
    """Items of a defaults list that choose an option of Hydra's groups other than launcher and sweeper."""
    listed = plain.get("defaults") if isinstance(plain, dict) else None
    refused = []
    for place, item in enumerate(listed if isinstance(listed, list) else []):
        name = next(iter(item), "") if isinstance(item, dict) else item
        group = str(name).strip()
        for word in ("override ", "optional "):
            group = group.removeprefix(word).strip()
        group, at, package = group.strip("/").partition("@")
        allowed = "/".join(group.split("/")[:2]) in ("hydra/launcher", "hydra/sweeper") and not at
        if (is_hydra(group) and not allowed) or is_hydra(package.rpartition(":")[2].removeprefix("_global_.")):
            refused.append((place, str(name)))
    if not refused:
        return []
    tree = yaml.compose(text, Loader=FastLoader)
    items = next(value.value for key, value in tree.value if key.value == "defaults")
    expected = "options of ragpipe's groups, of hydra/launcher or of hydra/sweeper"
    return [
        Problem(f"{where}:{items[place].start_mark.line + 1}", "defaults", repr(name), expected, "remove the line")
        for place, name in refused
    ]
