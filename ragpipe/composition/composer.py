"""Composes a configuration with Hydra: search path, checked YAML files, the user's overrides, and Hydra's errors as ours.

Every file that Hydra opens is checked first (`core/yaml_check.py`), and so is every word of the command line: nothing
dangerous or secret reaches a file that Hydra writes.
"""

from __future__ import annotations

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
from ragpipe.composition.config_sources import Loader, composed_words, word_faults
from ragpipe.composition.hydra_keys import is_hydra
from ragpipe.composition.interpolations import TITLE
from ragpipe.composition.near_words import near_word, option_meant, written_folder
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
    """The overrides of one start: in Hydra's form, and as typed after `=` for those that are not swept. `jobs` is the number of
    combinations."""

    overrides: list[str]
    texts: dict[str, str]
    jobs: int


class Composer:
    """A private Hydra: `with Composer(config_dir) as composer`. One at a time per process; other threads wait.

    Hydra and OmegaConf keep state for the whole process. Whatever this changes is restored at the end: resolvers, Hydra's
    version base, the name and the configuration of its running job. A Hydra that the program has initialised is not touched.
    """

    def __init__(self, config_dir: str | None = None):
        self._config_dir = config_dir
        self._overlays: list[str] = []  # experiments and modes on top, as `experiment/x`

    def __enter__(self) -> Composer:
        with ExitStack() as undo:
            undo.enter_context(_LOCK)
            undo.enter_context(_hydra_state_restored())
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
        running = HydraConfig.instance()
        running.set_config(config)  # a copy of Hydra's section, for which this configuration stays the root
        # what it takes from elsewhere is resolved (`Loader._close`)
        running.cfg.hydra._set_parent(running.cfg)  # type: ignore[union-attr]
        with read_write(config), open_dict(config):
            del config["hydra"]
        yield config

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """Turns errors of Hydra and OmegaConf about the composition into a ConfigError."""
        try:
            yield
        except Exception as error:
            if not isinstance(error, RagpipeError) and is_composition_error(error):
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
                            f"{self._config_dir!r}, which is not a folder",
                            "a folder with options",
                            "see task=init for a layout that works",
                        )
                    ],
                )
            path.append("command-line", f"file://{folder}")
        local = Path.cwd() / "conf"
        if local.is_dir() and local.resolve() != conf_dir().resolve():
            path.append("working-directory", f"file://{local}")
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
        for typed in overrides:
            override, word, faults = _parsed(parser, typed)
            if override is None or (faults := word_faults(override) or self._misused(override)):
                problems += faults
                continue
            if over_a_run and override.is_delete() and override.key_or_group.startswith("metrics."):
                taken.append(f"++{override.key_or_group}=null")  # the run has this metric, this composition does not
                continue
            taken.append(self._for_hydra(override, word))
            if override.is_add() and override.key_or_group in OVERLAYS:
                self._overlays.append(f"{override.key_or_group}/{override.value()}")
            if not override.is_sweep_override():
                texts[override.key_or_group] = typed.partition("=")[2]
            elif sweep and override.is_discrete_sweep():
                jobs *= _width(override, word)
        if problems:
            raise ConfigError(TITLE, problems)
        return ParsedWords(taken, texts, jobs)

    def _for_hydra(self, override: Override, word: str) -> str:
        """`key=value` becomes `++key=value`: Hydra knows only the keys that some YAML file lists, pydantic knows all."""
        key = override.key_or_group
        plain = not (override.is_add() or override.is_force_add() or override.is_delete())
        group = override.package is not None or self.is_group(key)
        return f"++{word}" if plain and not is_hydra(key) and not group else word

    @contextmanager
    def sweep_folder(self, overrides: list[str]) -> Iterator[None]:
        """Removes what Hydra's sweeper leaves on disk; what a launcher writes there (submitit's logs) stays.

        Raises ConfigError where Hydra's `multirun.yaml` would replace a file of the user's.
        """
        with self.refusals():
            config = self.loader.load_configuration(PRIMARY, overrides, RunMode.MULTIRUN)
        folder = Path(config.hydra.sweep.dir).absolute()
        is_default = folder == Path(str(config.output_dir)).absolute() / ".sweep"
        if folder.is_symlink() or (not is_default and (folder / "multirun.yaml").exists()):
            multirun = "a folder with a multirun.yaml, which Hydra would replace"
            kind = "a symbolic link" if folder.is_symlink() else multirun
            raise ConfigError(
                TITLE,
                [
                    Problem(
                        "the sweep",
                        "hydra.sweep.dir",
                        f"{config.hydra.sweep.dir!r}, {kind}",
                        "a folder of its own",
                        "name another folder, or remove what is there",
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
        """Whether a key names a group of options anywhere on the search path."""
        loader: Any = self.hydra.config_loader
        return bool(loader.repository.group_exists(key))

    def groups(self) -> list[str]:
        """All groups: `dataset`, `judge`, ... without Hydra's own."""
        loader = self.hydra.config_loader
        return [g for g in loader.list_groups("") if not g.startswith("hydra")]

    def options(self, group: str) -> list[str]:
        """The options of a group, over the whole search path."""
        options: list[str] = self.hydra.config_loader.get_group_options(group)
        return options

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
        return ConfigError(TITLE, [self._problem(error, cause)])

    def _problem(self, error: Exception, cause: BaseException | None) -> Problem:
        """An error whose only content is Hydra's message: what its first line names, and the rest as a hint."""
        text = (str(error) or str(cause or type(error).__name__)).replace("++", "")
        first, _, rest = text.strip().partition("\n")
        key = (_quoted(first) or "the composition").partition("=")[0]
        if key in OVERLAYS and "Could not override" in first:
            return Problem(COMMAND_LINE, key, "an overlay without +", f"+{key}=NAME", f"write +{key}=NAME")
        if "--multirun" in text:
            fix = f"add -m for a sweep, or write a list as {key}=[a,b]"
            return Problem(COMMAND_LINE, key, f"{_quoted(first)}", "one value, or a sweep with -m", fix)
        if isinstance(cause, OmegaConfBaseException) and str(cause).split("\n")[0] not in text:
            first = f"{first.rstrip('.')}: {str(cause).splitlines()[0]}"
        file = re.match(r"In '([^']+)'", first)
        where = f"{file[1]}.yaml" if file else COMMAND_LINE
        fix = (did_you_mean(key, self.groups()) if "." not in key else "") or " ".join(rest.split())[:300]
        return Problem(where, key, first, "words and files that Hydra can compose", fix)

    def _overlay_line(self, group: str, name: str) -> str | None:
        """File and line of `override /<group>: <name>` in an experiment or a mode that was put on top."""
        line = re.compile(rf"^\s*-\s*override\s+/{re.escape(group)}\s*:.*{re.escape(name)}", re.M)
        for source in self.hydra.config_loader.get_sources():
            for overlay in self._overlays:
                file = Path(source.path) / f"{overlay}.yaml"
                match = line.search(file.read_text(encoding="utf-8-sig")) if file.is_file() else None
                if match:
                    return f"{key_path(file)}:{match.string.count(chr(10), 0, match.start()) + 1}"
        return None

    def _missing(self, error: MissingConfigException) -> Problem:
        """For an option or an overlay that does not exist: the nearest name and the list of options."""
        path = error.missing_cfg_file or ""
        group, _, name = path.rpartition("/")
        options = self.options(group) if group else []
        if not options and path.startswith("judge/"):  # `judge=openai/gpt-4o`
            expected = f"one of {', '.join(self.options('judge'))}"
            name = path.removeprefix("judge/")
            return Problem(COMMAND_LINE, "judge", repr(name), expected, option_meant("judge", name))
        if not options:
            groups = self.groups()
            expected = f"an option of one of the groups {', '.join(groups)}"
            return Problem(
                COMMAND_LINE, group or path, f"{path!r}, which does not exist", expected, did_you_mean(group, groups)
            )
        parent = re.match(r"In '([^']+)'", str(error))
        inside = parent is not None and parent[1] not in (PRIMARY, "hydra/config")
        where = f"{parent[1]}.yaml" if parent and inside else self._overlay_line(group, name) or COMMAND_LINE
        fix = written_folder(group, name) or did_you_mean(name, options)
        fix = " ".join(filter(None, (fix, option_meant(group, name))))
        fix = fix or "--info searchpath shows the folders that were searched"
        return Problem(where, group, repr(name), f"one of {', '.join(options)}", fix)


@contextmanager
def _hydra_state_restored() -> Iterator[None]:
    """Afterwards the process-wide state of Hydra and OmegaConf is what it was before."""
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
    return HydraOrigins(loader, hydra.job.config_name or PRIMARY, composed_words(hydra), texts)


def _raw(words: Any) -> list[str]:
    """Hydra's list of words without resolving the interpolations in them."""
    return OmegaConf.to_container(words, resolve=False)  # type: ignore[return-value]


def typed_value(overrides: Sequence[str]) -> str:
    """A job's words as a user would type them."""
    return " ".join(word[2:] if word.startswith("++") else word for word in overrides)


def typed_words(overrides: Sequence[str]) -> list[str]:
    """A job's words one by one, without those about how Hydra starts it: they change no result."""
    words = (typed_value([word]) for word in overrides)
    return [word for word in words if not is_hydra(word.lstrip("+~").partition("=")[0])]


def job_words() -> tuple[int, list[str]]:
    """Number and words of the job of a sweep that is running."""
    hydra = HydraConfig.get()
    return hydra.job.num, typed_words(_raw(hydra.overrides.task))


def is_composition_error(error: Exception) -> bool:
    """Whether an error says that the composition is wrong; any other error is a bug."""
    return isinstance(error, HydraException | OmegaConfBaseException | yaml.YAMLError | ValueError)


def _parsed(parser: OverridesParser, typed: str) -> tuple[Override | None, str, list[Problem]]:
    """An override, the word that it was parsed from, and no problems; or None and why it cannot be parsed."""
    try:
        try:
            return parser.parse_override(typed), typed, []
        except HydraException:
            word = _in_quotes(typed)
            return parser.parse_override(word), word, []
    except HydraException as error:
        return None, typed, [_grammar_problem(typed, error)]
    except RecursionError:
        return None, typed, [Problem(COMMAND_LINE, typed[:60], "too many brackets", "key=value")]


def _unsafe(word: str) -> list[Problem]:
    """What a word of the command line may not hold: it must not even reach Hydra, which would write it to disk."""
    key, _, value = word.partition("=")
    key, value = key.strip().lstrip("+~"), value.strip().strip("'\"")
    if secret := _secret_in(word, key, value):
        name = key if re.fullmatch(r"[A-Za-z_][\w.@/\-]{0,60}", key) and not secret_at("", key) else "an argument"
        return [Problem(COMMAND_LINE, name, f"{secret} (not shown)", "no secret on the command line", FIX)]
    if "_target_" in word:
        return [Problem(COMMAND_LINE, key, "`_target_`", "nothing that is called", "name a class with `class`")]
    return []


def _secret_in(word: str, key: str, value: str) -> str | None:
    """What looks like a secret in a word; a mapping (`system.headers_env={X-Tenant: X_TENANT}`) is checked value by value."""
    secrets = secrets_of_environment()
    items = [("", "")] if value == "{}" else pairs(value)
    parts = [(f"{key}.{name}", item) for name, item in items] if items else [(key, value)]
    suspects = (secret_at(*part, secrets) for part in parts)
    return next((suspect for suspect in suspects if suspect), None) or secret_at("", word, secrets)


def _in_quotes(word: str) -> str:
    """The word with its value in quotes where that must be meant: Hydra cannot parse `path=größe.csv` or `x=a=b`."""
    key, equals, value = word.partition("=")
    is_plain = equals and value and not set(value) & set("'\"[]{}(),\\$")
    return f'{key}="{value}"' if is_plain else word


def _grammar_problem(word: str, error: Exception) -> Problem:
    message = str(error.message if isinstance(error, OverrideParseException) else error).split("\n")[0]
    if "=" not in word and not word.startswith("~"):
        return Problem(COMMAND_LINE, word[:80], "a word without =", "key=value, or a file that exists", near_word(word))
    return Problem(
        COMMAND_LINE,
        word[:80],
        message,
        "key=value in Hydra's grammar",
        "put a value with spaces, commas, brackets, = or : in quotes twice: 'key=\"a, b\"'",
    )


def _width(override: Override, word: str) -> int:
    """How many values a swept word has. Raises ConfigError for none."""
    width = sum(1 for _ in override.sweep_iterator())
    if width == 0:
        key = override.key_or_group
        raise ConfigError(TITLE, [Problem(COMMAND_LINE, key, f"{word}: nothing to sweep over", "at least one value")])
    return width


def _quoted(text: str) -> str | None:
    """The first text in single quotes."""
    match = re.search(r"'([^']+)'", text)
    return match[1] if match else None
