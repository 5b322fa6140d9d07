"""How Hydra reads the YAML options: by a source of ours that checks each file when Hydra opens it, and parses it once.

Hydra keeps its plug-ins for the whole process and they cannot be taken out again. So the source has a scheme of its own, and
the plug-in of the search path adds folders only while `searched` is open in this thread: a programme's own Hydra sees neither.
"""

from __future__ import annotations

import importlib
import pickle
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import ModuleType

import yaml
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

from ragpipe.composition.hydra_keys import file_faults
from ragpipe.composition.interpolations import TITLE
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.registry import installed_modules_only
from ragpipe.core.resources import BESIDE_THE_FILE, placed_paths
from ragpipe.core.secret_detection import secrets_of_environment
from ragpipe.core.yaml_files import FastLoader, check_text, key_path, yaml_text

PRIMARY = "ragpipe"
"""The option that every composition begins with."""
SHIPPED = "main"
"""The provider of ragpipe's own `conf/` on the search path."""
_here = threading.local()


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
        for path in (Path(self.path) / config_path).iterdir():
            if path.is_dir() and results_filter in (None, ObjectType.GROUP) and not path.name.startswith(("_", ".")):
                names.add(path.name)
            elif path.suffix == ".yaml" and path.is_file() and results_filter in (None, ObjectType.CONFIG):
                names.add(path.stem)
        return sorted(name for name in names if not _names_hydra(name))

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

    They are kept by what they depend on, so by the working folder only where a path in the file is printed relative to it: each
    job of a sweep, and each start in a notebook, reads the same files. The content is pickled, in memory only: Hydra merges other
    files into what it gets, and this copies thirty times as fast as `copy.deepcopy`.
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


class OptionFolders(SearchPathPlugin):
    """Puts the folders of `searched` on Hydra's search path."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for provider, folder in getattr(_here, "folders", ()):
            search_path.append(provider, f"{OptionSource.scheme()}://{folder}")


@contextmanager
def searched(folders: Sequence[tuple[str, Path]]) -> Iterator[None]:
    """While this is open, a Hydra that this thread initialises reads its options from these folders, the first wins."""
    installed_plugins_only()
    for plugin in (OptionSource, OptionFolders):
        Plugins.instance().register(plugin)
    _here.folders = folders
    try:
        yield
    finally:
        del _here.folders


def installed_plugins_only() -> None:
    """Of Hydra's plug-ins (`hydra_plugins/`) only those that are installed are found, and so imported, in this process; not those
    of whoever wrote the working folder."""
    with installed_modules_only():
        try:
            package: ModuleType = importlib.import_module("hydra_plugins")
        except ImportError:
            package = sys.modules["hydra_plugins"] = ModuleType("hydra_plugins")
        package.__path__ = list(getattr(package, "__path__", ()))  # a namespace package would look again
