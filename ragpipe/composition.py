"""Composes a configuration with Hydra: search path, checked YAML files, the user's words, and Hydra's errors in our form.

Every file that Hydra opens is checked first (`yaml_check`), every word of the command line too, so that nothing
dangerous or secret reaches a file that Hydra writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra._internal.core_plugins import file_config_source
from hydra._internal.hydra import Hydra
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.plugins.config_source import ConfigResult
from hydra.types import RunMode
from hydra.version import setbase
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf._utils import get_yaml_loader
from omegaconf.errors import OmegaConfBaseException

from ragpipe.credentials import MEND, pairs, secret_at, secrets_of_environment
from ragpipe.errors import ConfigError, Problem
from ragpipe.provenance import COMMAND_LINE, OVERLAYS, Provenance
from ragpipe.resources import conf_dir
from ragpipe.validation import did_you_mean
from ragpipe.yaml_check import check_yaml
from ragpipe.yaml_lines import FastLoader, shown

PRIMARY = "ragpipe"
TITLE = "the configuration is wrong; nothing was started"


class _Loader(FastLoader):  # type: ignore[misc]
    """OmegaConf's own reading of YAML (its idea of a float) on the fast parser; double keys are refused before it."""


_Loader.yaml_implicit_resolvers = get_yaml_loader().yaml_implicit_resolvers


class FileConfigSource(file_config_source.FileConfigSource):
    """Hydra's source for `file://`, with `check_yaml` before a file is read, and libyaml to read it with.

    It keeps the name of the one it replaces: by that a worker process of a sweep sees that `file` is registered already.
    """

    def load_config(self, config_path: str) -> ConfigResult:
        path = Path(self.path) / self._normalize_file_name(config_path)
        if path.is_file():
            try:
                problems = check_yaml(path, shown(path))
            except OSError as error:
                problems = [Problem(shown(path), "the file", f"{error.strerror}", "a file that can be read")]
            if problems:
                raise ConfigError(TITLE, problems)
            text = path.read_text(encoding="utf-8")
            plain = yaml.load(text, Loader=_Loader)
            return ConfigResult(
                config=OmegaConf.create({} if plain is None else plain), path=f"{self.scheme()}://{self.path}",
                provider=self.provider, header=self._get_header_dict(text[:512]),
            )  # fmt: skip
        return super().load_config(config_path)


@dataclass(frozen=True)
class Words:
    """The overrides of one start: as Hydra takes them, and what was typed after `=` for those without a sweep."""

    overrides: list[str]
    texts: dict[str, str]
    jobs: int


class Composer:
    """A Hydra of our own: `with Composer(config_dir) as composer`. Restores whatever Hydra state there was."""

    def __init__(self, config_dir: str | None = None):
        self._config_dir = config_dir
        self._overlays: list[str] = []  # experiments and modes on top, as `experiment/x`

    def __enter__(self) -> Composer:
        self._before = (GlobalHydra.instance().hydra, HydraConfig.instance().cfg)
        GlobalHydra.instance().clear()
        setbase("1.3")
        Plugins.instance()  # registers Hydra's own sources before ours takes the place of one
        SourcesRegistry.instance().types["file"] = FileConfigSource
        self.hydra = Hydra.create_main_hydra2(task_name=PRIMARY, config_search_path=self._search_path())
        return self

    def __exit__(self, *_: object) -> None:
        GlobalHydra.instance().clear()
        GlobalHydra.instance().hydra, HydraConfig.instance().cfg = self._before

    def _search_path(self) -> ConfigSearchPathImpl:
        path = ConfigSearchPathImpl()
        path.append("hydra", "pkg://hydra.conf")
        path.append("main", f"file://{conf_dir()}")
        if self._config_dir is not None:
            folder = Path(self._config_dir).absolute()
            if not folder.is_dir():
                raise ConfigError(TITLE, [Problem(
                    COMMAND_LINE, "--config-dir", f"{self._config_dir!r}, which is no folder", "a folder with options",
                    "see task=init for a layout that works",
                )])  # fmt: skip
            path.append("command-line", f"file://{folder}")
        own = Path.cwd() / "conf"
        if own.is_dir() and own.resolve() != conf_dir().resolve():
            path.append("working-directory", f"file://{own}")
        path.append("schema", "structured://")
        return path

    def words(self, overrides: Sequence[str], *, sweep: bool) -> Words:
        """Parse and check the user's overrides. Raises ConfigError."""
        problems = [p for word in overrides for p in _unsafe(word)]
        if problems:
            raise ConfigError(TITLE, problems)
        parser = OverridesParser.create(config_loader=self.hydra.config_loader)
        over_a_run = any(word.startswith("run=") for word in overrides)
        taken, texts, jobs = [], {}, 1
        for given in overrides:
            word = given
            try:
                try:
                    override = parser.parse_override(word)
                except HydraException:
                    word = _in_quotes(given)
                    override = parser.parse_override(word)
            except HydraException as error:
                problems.append(_grammar(given, error))
                continue
            except RecursionError:
                problems.append(Problem(COMMAND_LINE, given[:60], "too many brackets", "key=value"))
                continue
            fault = self._misused(override)
            if fault:
                problems.append(fault)
                continue
            if over_a_run and override.is_delete() and override.key_or_group.startswith("metrics."):
                taken.append(f"++{override.key_or_group}=null")  # the run has it, this composition does not
                continue
            taken.append(self._as_hydra_takes_it(override, word))
            if override.is_add() and override.key_or_group in OVERLAYS:
                self._overlays.append(f"{override.key_or_group}/{override.value()}")
            if not override.is_sweep_override():
                texts[override.key_or_group] = given.partition("=")[2]
            elif sweep and override.is_discrete_sweep():
                jobs *= _width(override, word)
        if problems:
            raise ConfigError(TITLE, problems)
        return Words(taken, texts, jobs)

    def _as_hydra_takes_it(self, override: Override, word: str) -> str:
        """`key=value` becomes `++key=value`: Hydra only knows the keys some YAML lists, pydantic knows all of them."""
        key = override.key_or_group
        plain = not (override.is_add() or override.is_force_add() or override.is_delete())
        hydras = key == "hydra" or key.startswith(("hydra.", "hydra/"))
        group = override.package is not None or self.is_group(key)
        return f"++{word}" if plain and not hydras and not group else word

    @contextmanager
    def sweep_folder(self, overrides: list[str]) -> Iterator[None]:
        """Takes away what Hydra's sweeper leaves on disk; what a launcher writes there (submitit's logs) stays."""
        config = self.hydra.compose_config(PRIMARY, overrides, run_mode=RunMode.MULTIRUN, with_log_configuration=False)
        folder = Path(config.hydra.sweep.dir).absolute()
        new = [p for p in (folder, *folder.parents) if not p.exists()]
        try:
            yield
        finally:
            (folder / "multirun.yaml").unlink(missing_ok=True)
            for made in new:
                with suppress(OSError):  # it is in use
                    made.rmdir()

    def is_group(self, key: str) -> bool:
        """Whether a key names a group of options, on the whole search path."""
        loader: Any = self.hydra.config_loader
        return bool(loader.repository.group_exists(key))

    def groups(self) -> list[str]:
        """The groups there are: `dataset`, `judge`, ... without Hydra's own."""
        loader = self.hydra.config_loader
        return [g for g in loader.list_groups("") if not g.startswith("hydra")]

    def options(self, group: str) -> list[str]:
        """The options of a group, over the whole search path."""
        found: list[str] = self.hydra.config_loader.get_group_options(group)
        return found

    def _misused(self, override: Override) -> Problem | None:
        """A word that Hydra can parse but not use, in a way its own message would not explain."""
        key = override.key_or_group
        if not key:
            return Problem(COMMAND_LINE, override.input_line or "", "a word without a key", "key=value")
        group = self.is_group(key)
        value = None if override.is_sweep_override() else override.value()
        if group and value is not None and not isinstance(value, str | list):
            options = ", ".join(self.options(key))
            return Problem(
                COMMAND_LINE, key, f"{value!r}", f"one of {options}", f"write {key}=NAME, or {key}.KEY=VALUE"
            )
        return None

    def problems(self, error: Exception) -> ConfigError:
        """Any error of composing as a ConfigError."""
        if isinstance(error, ConfigError):
            return error
        if isinstance(error, MissingConfigException):
            return ConfigError(TITLE, [self._missing(error)])
        cause = error.__cause__ or error.__context__
        if isinstance(cause, ConfigError):
            return cause
        text = (str(error) or str(cause or type(error).__name__)).replace("++", "")
        first, _, rest = text.strip().partition("\n")
        key = (_quoted(first) or "the composition").partition("=")[0]
        if key in OVERLAYS and "Could not override" in first:
            mend = f"write +{key}=NAME"
            return ConfigError(TITLE, [Problem(COMMAND_LINE, key, "an overlay without +", f"+{key}=NAME", mend)])
        if "--multirun" in text:
            found, expected = f"{_quoted(first)}", "one value, or a sweep with -m"
            return ConfigError(TITLE, [Problem(
                COMMAND_LINE, key, found, expected, f"add -m for a sweep, or write a list as {key}=[a,b]",
            )])  # fmt: skip
        if isinstance(cause, OmegaConfBaseException) and str(cause).split("\n")[0] not in text:
            first = f"{first.rstrip('.')}: {str(cause).splitlines()[0]}"
        file = re.match(r"In '([^']+)'", first)
        where = f"{file[1]}.yaml" if file else COMMAND_LINE
        mend = (did_you_mean(key, self.groups()) if "." not in key else "") or " ".join(rest.split())[:300]
        return ConfigError(TITLE, [Problem(where, key, first, "words and files that Hydra can compose", mend)])

    def _overlay_line(self, group: str, name: str) -> str | None:
        """File and line of `override /<group>: <name>` in an experiment or a mode that was put on top."""
        line = re.compile(rf"^\s*-\s*override\s+/{re.escape(group)}\s*:.*{re.escape(name)}", re.M)
        for source in self.hydra.config_loader.get_sources():
            for overlay in self._overlays:
                file = Path(source.path) / f"{overlay}.yaml"
                found = line.search(file.read_text(encoding="utf-8-sig")) if file.is_file() else None
                if found:
                    return f"{shown(file)}:{found.string.count(chr(10), 0, found.start()) + 1}"
        return None

    def _missing(self, error: MissingConfigException) -> Problem:
        """An option or an overlay that does not exist: the nearest names and the list."""
        path = error.missing_cfg_file or ""
        group, _, name = path.rpartition("/")
        options = self.options(group) if group else []
        if not options:
            groups = self.groups()
            expected = f"an option of one of the groups {', '.join(groups)}"
            return Problem(
                COMMAND_LINE, group or path, f"{path!r}, which does not exist", expected, did_you_mean(group, groups)
            )
        parent = re.match(r"In '([^']+)'", str(error))
        inside = parent is not None and parent[1] not in (PRIMARY, "hydra/config")
        where = f"{parent[1]}.yaml" if parent and inside else self._overlay_line(group, name) or COMMAND_LINE
        mend = did_you_mean(name, options) or "--info searchpath shows the folders that were searched"
        return Problem(where, group, repr(name), f"one of {', '.join(options)}", mend)


def provenance(texts: Mapping[str, str]) -> Provenance:
    """The origins of the configuration of the job that is running."""
    hydra = HydraConfig.get()
    overrides = [*_raw(hydra.overrides.hydra), *_raw(hydra.overrides.task)]
    return Provenance(GlobalHydra.instance().config_loader(), hydra.job.config_name or PRIMARY, overrides, texts)


def _raw(words: Any) -> list[str]:
    """Hydra's list of words without resolving the interpolations in them."""
    return OmegaConf.to_container(words, resolve=False)  # type: ignore[return-value]


def typed(overrides: Sequence[str]) -> str:
    """A job's words as a user would type them."""
    return " ".join(word[2:] if word.startswith("++") else word for word in overrides)


def typed_words(overrides: Sequence[str]) -> list[str]:
    """A job's words one by one, without those that say how Hydra starts it: they change no result."""
    words = (typed([word]) for word in overrides)
    return [word for word in words if not word.lstrip("+~").startswith(("hydra.", "hydra/", "hydra="))]


def job_words() -> tuple[int, str]:
    """Number and words of the job of a sweep that is running."""
    hydra = HydraConfig.get()
    return hydra.job.num, typed(_raw(hydra.overrides.task))


def resolved(config: DictConfig, origins: Provenance) -> dict[str, Any]:
    """The configuration as plain data, every interpolation resolved.

    Raises ConfigError that lists every `???` and every interpolation that cannot be resolved.
    """
    problems: list[Problem] = []
    plain = _plain(config, "", origins, problems)
    if problems:
        raise ConfigError(TITLE, problems)
    return plain  # type: ignore[no-any-return]


def _plain(node: Any, key: str, origins: Provenance, problems: list[Problem]) -> Any:
    if isinstance(node, DictConfig):
        return {_name(k): _child(node, k, key, origins, problems) for k in node} if node else {}
    if isinstance(node, ListConfig):
        return [_child(node, i, key, origins, problems) for i in range(len(node))]
    return node


def _name(key: Any) -> str:
    """A YAML key as text: `true` and `no` are keys of JSON, too."""
    return str(key).lower() if isinstance(key, bool) else str(key)


def _child(node: Any, name: Any, above: str, origins: Provenance, problems: list[Problem]) -> Any:
    key = f"{above}.{_name(name)}" if above else _name(name)
    if OmegaConf.is_missing(node, name):
        mend = f"pass {key}=... or set it in your experiment"
        problems.append(Problem(origins.of(key), key, "??? (to be given)", "a value", mend))
        return None
    try:
        value = node[name]
    except (OmegaConfBaseException, RecursionError) as error:
        text = str(error)
        if isinstance(error, RecursionError) or "Recursive" in text:
            text = "an interpolation that leads back to itself"
        problems.append(Problem(
            origins.of(key), key, text.split("\n")[0], "an interpolation that can be resolved",
            "define the key or the environment variable it names",
        ))  # fmt: skip
        return None
    return _plain(value, key, origins, problems)


def refused(error: Exception) -> bool:
    """True for an error that says the composition is wrong; anything else is a bug."""
    return isinstance(error, HydraException | OmegaConfBaseException | yaml.YAMLError | ValueError)


def _unsafe(word: str) -> list[Problem]:
    """A word of the command line that must not even reach Hydra, which would write it down."""
    key = word.partition("=")[0].strip().lstrip("+~")
    value = word.partition("=")[2].strip().strip("'\"")
    known = secrets_of_environment()
    inner = (
        [("", "")] if value == "{}" else pairs(value)
    )  # `system.headers_env={X-Tenant: X_TENANT}`: each value under its own key
    parts = [(f"{key}.{name}", one) for name, one in inner] if inner else [(key, value)]
    what = next((found for part in parts if (found := secret_at(*part, known))), None) or secret_at("", word, known)
    if what:
        name = key if re.fullmatch(r"[A-Za-z_][\w.@/\-]{0,60}", key) and not secret_at("", key) else "an argument"
        return [Problem(COMMAND_LINE, name, f"{what} (not shown)", "no secret on the command line", MEND)]
    if "_target_" in word:
        return [Problem(COMMAND_LINE, key, "`_target_`", "nothing that is called", "name a class with `class`")]
    return []


def _in_quotes(word: str) -> str:
    """The word with its value in quotes, where that is surely meant: `path=größe.csv`, `x=a=b` are no grammar of Hydra's."""
    key, equals, value = word.partition("=")
    plain = equals and value and not set(value) & set("'\"[]{}(),\\$")
    return f'{key}="{value}"' if plain else word


def _grammar(word: str, error: Exception) -> Problem:
    found = str(error.message if isinstance(error, OverrideParseException) else error).split("\n")[0]
    if "=" not in word and not word.startswith("~"):
        return Problem(COMMAND_LINE, word[:80], "a word without =", "key=value", f"did you mean {word[:40]}=...?")
    return Problem(
        COMMAND_LINE, word[:80], found, "key=value in Hydra's grammar",
        "put a value with spaces, commas, brackets, = or : in quotes twice: 'key=\"a, b\"'",
    )  # fmt: skip


def _width(override: Override, word: str) -> int:
    width = sum(1 for _ in override.sweep_iterator())
    if width == 0:
        raise ConfigError(TITLE, [Problem(
            COMMAND_LINE, override.key_or_group, f"{word}: nothing to sweep over", "at least one value",
        )])  # fmt: skip
    return width


def _quoted(text: str) -> str | None:
    found = re.search(r"'([^']+)'", text)
    return found[1] if found else None
