"""Composes a configuration with Hydra: search path, checked YAML files, the user's words, and Hydra's errors in our form.

Every file that Hydra opens is checked first (`yaml_check`), every word of the command line too, so that nothing
dangerous or secret reaches a file that Hydra writes.
"""

from __future__ import annotations

import copy
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra._internal.hydra import Hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.core.utils import JobRuntime
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.types import RunMode
from hydra.version import VersionBase, setbase
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.basecontainer import BaseContainer
from omegaconf.errors import OmegaConfBaseException

from ragpipe.composition.config_origins import COMMAND_LINE, OVERLAYS, HydraOrigins
from ragpipe.composition.config_sources import TITLE, Loader, word_faults
from ragpipe.composition.hydra_keys import is_hydra
from ragpipe.core.errors import ConfigError, Problem, RagpipeError
from ragpipe.core.resources import conf_dir
from ragpipe.core.secret_detection import FIX, pairs, secret_at, secrets_of_environment
from ragpipe.core.validation import did_you_mean
from ragpipe.core.yaml_lines import key_path

PRIMARY = "ragpipe"
_LOCK = threading.RLock()
_HYDRAS = ("now", "hydra", "python_version")  # the resolvers that Hydra registers


@dataclass(frozen=True)
class ParsedWords:
    """The overrides of one start: as Hydra takes them, and what was typed after `=` for those without a sweep."""

    overrides: list[str]
    texts: dict[str, str]
    jobs: int


class Composer:
    """A Hydra of our own: `with Composer(config_dir) as composer`. One at a time in a process; other threads wait.

    Hydra and OmegaConf keep state for the whole process. All that is touched of it is put back at the end: resolvers,
    Hydra's version base, the name and the configuration of its running job. A Hydra that somebody has initialised is left alone.
    """

    def __init__(self, config_dir: str | None = None):
        self._config_dir = config_dir
        self._overlays: list[str] = []  # experiments and modes on top, as `experiment/x`

    def __enter__(self) -> Composer:
        with ExitStack() as undo:
            undo.enter_context(_LOCK)
            undo.enter_context(_state_kept())
            setbase("1.3")
            Plugins.instance()  # finds the launchers and sweepers that are installed
            self.loader = Loader(self._search_path())
            self.hydra = Hydra(task_name=PRIMARY, config_loader=self.loader)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    @contextmanager
    def composed(self, overrides: list[str]) -> Iterator[DictConfig]:
        """The configuration of a single run, its interpolations not resolved; inside `with` Hydra's own can be."""
        with self.refusals():
            config = self.loader.load_configuration(PRIMARY, overrides, RunMode.RUN)
        with read_write(config), open_dict(config):
            config.hydra.mode = RunMode.RUN
            config.hydra.runtime.output_dir = os.getcwd()
        HydraConfig.instance().set_config(config)
        own = copy.deepcopy(config)
        with read_write(own), open_dict(own):
            del own["hydra"]
        yield own

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """Raises what Hydra and OmegaConf find wrong with a composition as a ConfigError."""
        try:
            yield
        except Exception as error:
            if not isinstance(error, RagpipeError) and is_refusal(error):
                raise self.problems(error) from error
            raise

    def _search_path(self) -> ConfigSearchPathImpl:
        path = ConfigSearchPathImpl()
        path.append("hydra", "pkg://hydra.conf")
        path.append("main", f"file://{conf_dir()}")
        if self._config_dir is not None:
            folder = Path(self._config_dir).absolute()
            if not folder.is_dir():
                raise ConfigError(
                    TITLE,
                    [
                        Problem(
                            COMMAND_LINE,
                            "--config-dir",
                            f"{self._config_dir!r}, which is no folder",
                            "a folder with options",
                            "see task=init for a layout that works",
                        )
                    ],
                )
            path.append("command-line", f"file://{folder}")
        own = Path.cwd() / "conf"
        if own.is_dir() and own.resolve() != conf_dir().resolve():
            path.append("working-directory", f"file://{own}")
        path.append("schema", "structured://")
        return path

    def words(self, overrides: Sequence[str], *, sweep: bool) -> ParsedWords:
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
            faults = word_faults(override) or self._misused(override)
            if faults:
                problems += faults
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
        return ParsedWords(taken, texts, jobs)

    def _as_hydra_takes_it(self, override: Override, word: str) -> str:
        """`key=value` becomes `++key=value`: Hydra only knows the keys some YAML lists, pydantic knows all of them."""
        key = override.key_or_group
        plain = not (override.is_add() or override.is_force_add() or override.is_delete())
        group = override.package is not None or self.is_group(key)
        return f"++{word}" if plain and not is_hydra(key) and not group else word

    @contextmanager
    def sweep_folder(self, overrides: list[str]) -> Iterator[None]:
        """Takes away what Hydra's sweeper leaves on disk; what a launcher writes there (submitit's logs) stays.

        Raises ConfigError where Hydra's `multirun.yaml` would take the place of a file of somebody else's.
        """
        with self.refusals():
            config = self.loader.load_configuration(PRIMARY, overrides, RunMode.MULTIRUN)
        folder = Path(config.hydra.sweep.dir).absolute()
        own = folder == Path(str(config.output_dir)).absolute() / ".sweep"
        if folder.is_symlink() or (not own and (folder / "multirun.yaml").exists()):
            found = (
                "a symbolic link" if folder.is_symlink() else "a folder with a multirun.yaml, which Hydra would replace"
            )
            raise ConfigError(
                TITLE,
                [
                    Problem(
                        "the sweep",
                        "hydra.sweep.dir",
                        f"{config.hydra.sweep.dir!r}, {found}",
                        "a folder of its own",
                        "name another folder, or remove what stands there",
                    )
                ],
            )
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

    def _misused(self, override: Override) -> list[Problem]:
        """A word that Hydra can parse but not use, in a way its own message would not explain."""
        key = override.key_or_group
        if not key:
            return [Problem(COMMAND_LINE, override.input_line or "", "a word without a key", "key=value")]
        group = self.is_group(key)
        value = None if override.is_sweep_override() else override.value()
        if group and value is not None and not isinstance(value, str | list):
            options = ", ".join(self.options(key))
            fix = f"write {key}=NAME, or {key}.KEY=VALUE"
            return [Problem(COMMAND_LINE, key, f"{value!r}", f"one of {options}", fix)]
        return []

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
            fix = f"write +{key}=NAME"
            return ConfigError(TITLE, [Problem(COMMAND_LINE, key, "an overlay without +", f"+{key}=NAME", fix)])
        if "--multirun" in text:
            found, expected = f"{_quoted(first)}", "one value, or a sweep with -m"
            return ConfigError(
                TITLE,
                [
                    Problem(
                        COMMAND_LINE,
                        key,
                        found,
                        expected,
                        f"add -m for a sweep, or write a list as {key}=[a,b]",
                    )
                ],
            )
        if isinstance(cause, OmegaConfBaseException) and str(cause).split("\n")[0] not in text:
            first = f"{first.rstrip('.')}: {str(cause).splitlines()[0]}"
        file = re.match(r"In '([^']+)'", first)
        where = f"{file[1]}.yaml" if file else COMMAND_LINE
        fix = (did_you_mean(key, self.groups()) if "." not in key else "") or " ".join(rest.split())[:300]
        return ConfigError(TITLE, [Problem(where, key, first, "words and files that Hydra can compose", fix)])

    def _overlay_line(self, group: str, name: str) -> str | None:
        """File and line of `override /<group>: <name>` in an experiment or a mode that was put on top."""
        line = re.compile(rf"^\s*-\s*override\s+/{re.escape(group)}\s*:.*{re.escape(name)}", re.M)
        for source in self.hydra.config_loader.get_sources():
            for overlay in self._overlays:
                file = Path(source.path) / f"{overlay}.yaml"
                found = line.search(file.read_text(encoding="utf-8-sig")) if file.is_file() else None
                if found:
                    return f"{key_path(file)}:{found.string.count(chr(10), 0, found.start()) + 1}"
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
        fix = did_you_mean(name, options) or "--info searchpath shows the folders that were searched"
        return Problem(where, group, repr(name), f"one of {', '.join(options)}", fix)


@contextmanager
def _state_kept() -> Iterator[None]:
    """Hydra's and OmegaConf's state of the process is afterwards what it was before."""
    resolvers, runtime, version, running = (
        BaseContainer._resolvers,
        JobRuntime.instance(),
        VersionBase.instance(),
        HydraConfig.instance(),
    )
    before = {name: resolvers[name] for name in _HYDRAS if name in resolvers}
    name, base, config = runtime.get("name"), version.version_base, running.cfg
    try:
        yield
    finally:
        for resolver in _HYDRAS:
            if resolver in before:
                resolvers[resolver] = before[resolver]
            else:
                resolvers.pop(resolver, None)
        runtime.set("name", name)
        version.version_base, running.cfg = base, config


def hydra_origins(loader: Loader, texts: Mapping[str, str]) -> HydraOrigins:
    """The origins of the configuration of the job that is running."""
    hydra = HydraConfig.get()
    overrides = [*_raw(hydra.overrides.hydra), *_raw(hydra.overrides.task)]
    return HydraOrigins(loader, hydra.job.config_name or PRIMARY, overrides, texts)


def _raw(words: Any) -> list[str]:
    """Hydra's list of words without resolving the interpolations in them."""
    return OmegaConf.to_container(words, resolve=False)  # type: ignore[return-value]


def typed_value(overrides: Sequence[str]) -> str:
    """A job's words as a user would type them."""
    return " ".join(word[2:] if word.startswith("++") else word for word in overrides)


def typed_words(overrides: Sequence[str]) -> list[str]:
    """A job's words one by one, without those that say how Hydra starts it: they change no result."""
    words = (typed_value([word]) for word in overrides)
    return [word for word in words if not is_hydra(word.lstrip("+~").partition("=")[0])]


def job_words() -> tuple[int, str]:
    """Number and words of the job of a sweep that is running."""
    hydra = HydraConfig.get()
    return hydra.job.num, typed_value(_raw(hydra.overrides.task))


def is_refusal(error: Exception) -> bool:
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
        return [Problem(COMMAND_LINE, name, f"{what} (not shown)", "no secret on the command line", FIX)]
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
        COMMAND_LINE,
        word[:80],
        found,
        "key=value in Hydra's grammar",
        "put a value with spaces, commas, brackets, = or : in quotes twice: 'key=\"a, b\"'",
    )


def _width(override: Override, word: str) -> int:
    width = sum(1 for _ in override.sweep_iterator())
    if width == 0:
        raise ConfigError(
            TITLE,
            [
                Problem(
                    COMMAND_LINE,
                    override.key_or_group,
                    f"{word}: nothing to sweep over",
                    "at least one value",
                )
            ],
        )
    return width


def _quoted(text: str) -> str | None:
    found = re.search(r"'([^']+)'", text)
    return found[1] if found else None
