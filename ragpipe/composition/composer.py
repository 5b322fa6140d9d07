"""Composes a configuration with Hydra, by its public doors: `initialize`, the config loader, sweepers; its errors as ours.

Every file is checked when Hydra opens it (`option_source`), and every word of the command line before Hydra gets it: nothing
dangerous or secret reaches a file that Hydra writes.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hydra import initialize
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.core.utils import JobRuntime
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.experimental.callback import Callback
from hydra.types import HydraContext, RunMode
from hydra.version import VersionBase
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from ragpipe.composition.config_origins import COMMAND_LINE, OVERLAYS, HydraOrigins
from ragpipe.composition.hydra_keys import JOB, is_hydra, section_fault, word_faults
from ragpipe.composition.interpolations import TITLE, check_interpolations, interpolation_fault
from ragpipe.composition.near_words import near_word, option_meant, written_folder
from ragpipe.composition.option_source import (
    PRIMARY,
    SHIPPED,
    OptionSource,
    installed_modules_only,
    installed_plugins_only,
    searched,
)
from ragpipe.core.errors import ConfigError, Problem, RagpipeError
from ragpipe.core.resources import conf_dir
from ragpipe.core.secret_detection import FIX, pairs, secret_at, secrets_of_environment
from ragpipe.core.validation import NoOrigins, did_you_mean
from ragpipe.core.yaml_files import key_path

_LOCK = threading.RLock()
_COMPOSITION = (HydraException, OmegaConfBaseException, yaml.YAMLError, ValueError, AssertionError, RecursionError)
"""What says that the composition is wrong; any other error is a bug."""
_RESOLVERS = ("now", "hydra", "python_version")  # those that Hydra registers


@dataclass(frozen=True)
class ParsedWords:
    """The overrides of one start: in Hydra's form, and as typed after `=` for those that are not swept. `jobs` is the number of
    combinations."""

    overrides: list[str]
    texts: dict[str, str]
    jobs: int


@dataclass(frozen=True)
class ComposedSweep:
    """A sweep that is composed: Hydra's configuration, the words of all jobs, and how many jobs there are."""

    config: DictConfig
    overrides: list[str]
    jobs: int


class Composer:
    """A Hydra of our own: `with Composer(config_dir) as composer`. One at a time per process; other threads wait.

    Hydra keeps state for the whole process. A Hydra that the program has initialised is put back at the end.
    """

    loader: ConfigLoader

    def __init__(self, config_dir: str | None = None):
        self._config_dir = config_dir
        self._overlays: list[str] = []  # experiments and modes on top, as `experiment/x`

    def __enter__(self) -> Composer:
        with ExitStack() as undo:
            undo.enter_context(_LOCK)
            undo.enter_context(_hydra_put_back())
            with searched(self._folders()):
                initialize(config_path=None, job_name=PRIMARY, version_base="1.3")
            self.loader = GlobalHydra.instance().config_loader()
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    @contextmanager
    def composed(self, overrides: list[str]) -> Iterator[DictConfig]:
        """The configuration of a single run, its interpolations not resolved; inside `with` Hydra's own can be."""
        with self.refusals():
            config = self.loader.load_configuration(PRIMARY, overrides, RunMode.RUN)
        HydraConfig.instance().set_config(config)
        yield config

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """Turns errors of Hydra and OmegaConf about the composition into a ConfigError."""
        try:
            yield
        except Exception as error:
            if isinstance(error, _COMPOSITION) and not isinstance(error, RagpipeError):
                raise self._error(error) from error
            raise

    def _folders(self) -> list[tuple[str, Path]]:
        """The folders of options, with the names of their places on the search path."""
        folders = [(SHIPPED, conf_dir())]
        if self._config_dir is not None:
            folder = Path(self._config_dir).absolute()
            if not folder.is_dir():
                what, fix = f"{self._config_dir!r}, which is not a folder", "see task=init for a layout that works"
                raise _refused("--config-dir", what, "a folder with options", fix)
            folders.append(("command-line", folder))
        local = Path.cwd() / "conf"
        if local.is_dir() and local.resolve() != conf_dir().resolve():
            folders.append(("working-directory", local))
        return folders

    def words(self, overrides: Sequence[str], *, sweep: bool) -> ParsedWords:
        """Parse and check the user's overrides. Raises ConfigError."""
        problems = [p for word in overrides for p in _unsafe(word)]
        if problems:
            raise ConfigError(TITLE, problems)
        parser = OverridesParser.create(config_loader=self.loader)
        over_a_run = any(word.startswith("run=") for word in overrides)
        taken, texts, jobs = [], {}, 1
        for typed in overrides:
            override, word, faults = _parsed(parser, typed)
            if override is None or (faults := self._misused(override, word)):
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

    def sweep(self, words: ParsedWords) -> ComposedSweep:
        """The sweep that the words, and what a file says in `hydra.sweeper.params`, describe. Raises ConfigError."""
        with self.refusals():
            config = self.loader.load_configuration(PRIMARY, words.overrides, RunMode.MULTIRUN)
            check_interpolations(config, NoOrigins())
            check_section(config)
            sweeper = config.hydra.sweeper
            overrides, jobs = _raw(config.hydra.overrides.task), int(sweeper.get("n_trials", words.jobs))
            if config.hydra.runtime.choices["hydra/sweeper"] == "basic" and sweeper.params:
                typed = {word.lstrip("+").partition("=")[0] for word in overrides}
                listed = [f"{key}={value}" for key, value in sweeper.params.items() if key not in typed]
                more = self.words(listed, sweep=True)
                overrides, jobs = [*more.overrides, *overrides], jobs * more.jobs
                with open_dict(config):
                    sweeper.params = {}
        return ComposedSweep(config, overrides, jobs)

    def run_sweep(self, sweep: ComposedSweep, job: Callable[[DictConfig], Any]) -> list[Any]:
        """Run a job per combination by the chosen sweeper and launcher; returns Hydra's JobReturns. Of what the sweeper leaves on
        disk all is removed but what a launcher writes (submitit's logs).

        Raises ConfigError where Hydra's `multirun.yaml` would replace a file of the user's.
        """
        with self.refusals():
            folder, output = (
                Path(sweep.config.hydra.sweep.dir).absolute(),
                Path(str(sweep.config.output_dir)).absolute(),
            )
        listed = folder / "multirun.yaml"
        is_taken = listed.is_symlink() or (folder != output / ".sweep" and listed.exists())
        leads_away = folder.is_relative_to(output) and not folder.resolve().is_relative_to(output.resolve())
        if (is_link := folder.is_symlink() or leads_away) or is_taken:
            kind = "behind a symbolic link" if is_link else "with a multirun.yaml, which Hydra would replace"
            fix = "name another folder, or remove what is there"
            raise _refused("hydra.sweep.dir", f"the folder {folder} {kind}", "a folder of its own", fix)
        checked: Any = _CheckedLoader(self.loader)
        context = HydraContext(config_loader=checked, callbacks=Callback())  # type: ignore[arg-type]
        new = [path for path in (folder, *folder.parents) if not path.exists()]
        try:
            with self.refusals(), installed_modules_only() as path:
                sweeper = Plugins.instance().instantiate_sweeper(
                    hydra_context=context, task_function=_Job(job, path), config=sweep.config
                )
                batches = sweeper.sweep(arguments=sweep.overrides)
        finally:
            (folder / "multirun.yaml").unlink(missing_ok=True)
            for made in new:
                with suppress(OSError):  # it is in use
                    made.rmdir()
        return [ended for batch in batches for ended in batch] if isinstance(batches, list) else []

    def is_group(self, key: str) -> bool:
        """Whether a key names a group of options anywhere on the search path."""
        return any(source.is_group(key) for source in self.loader.get_sources())

    def options(self, group: str) -> list[str]:
        """The options of a group, over the whole search path; of "" the groups."""
        if not group:
            return [name for name in self.loader.list_groups("") if not name.startswith("hydra")]
        return list(self.loader.get_group_options(group))

    def _misused(self, override: Override, word: str) -> list[Problem]:
        """A word that Hydra can parse but not use, or not as it should."""
        key = override.key_or_group
        if not key:
            return [Problem(COMMAND_LINE, override.input_line or "", "a word without a key", "key=value")]
        if faults := word_faults(override, COMMAND_LINE):
            return faults
        is_group = self.is_group(key)
        resolves_early = is_group or is_hydra(key)  # Hydra, while it composes
        if resolves_early and (fault := interpolation_fault(JOB.sub("", word))):
            return [Problem(COMMAND_LINE, key, *fault)]
        value = "" if override.is_sweep_override() else override.value()
        if is_group and value is not None and not isinstance(value, str | list):
            expected = f"one of {', '.join(self.options(key))}"
            return [Problem(COMMAND_LINE, key, f"{value!r}", expected, f"write {key}=NAME, or {key}.KEY=VALUE")]
        return []

    def _error(self, error: Exception) -> ConfigError:
        """Any error of composing as a ConfigError."""
        cause = error.__cause__ or error.__context__
        if isinstance(error, MissingConfigException):
            return self._missing(error)
        if isinstance(cause, ConfigError):
            return cause
        text = (str(error) or str(cause or type(error).__name__)).replace("++", "")
        first, _, rest = text.strip().partition("\n")
        named = re.search(r"'([^']+)'", first)
        key = named[1].partition("=")[0] if named else "the composition"
        if key in OVERLAYS and "Could not override" in first:
            return _refused(key, "an overlay without +", f"+{key}=NAME", f"write +{key}=NAME")
        if "--multirun" in text:
            fix = f"add -m for a sweep, or write a list as {key}=[a,b]"
            return _refused(key, named[1] if named else first, "one value, or a sweep with -m", fix)
        if isinstance(cause, OmegaConfBaseException) and str(cause).split("\n")[0] not in text:
            first = f"{first.rstrip('.')}: {str(cause).splitlines()[0]}"
        file = re.match(r"In '([^']+)'", first)
        fix = (did_you_mean(key, self.options("")) if "." not in key else "") or " ".join(rest.split())[:300]
        return _refused(key, first, "words and files that Hydra can compose", fix, f"{file[1]}.yaml" if file else "")

    def _overlay_line(self, group: str, name: str) -> str:
        """File and line of `override /<group>: <name>` in an experiment or a mode that was put on top; empty where it is in none."""
        line = re.compile(rf"^\s*-\s*override\s+/{re.escape(group)}\s*:.*{re.escape(name)}", re.M)
        sources = [source for source in self.loader.get_sources() if isinstance(source, OptionSource)]
        for file in (source.file(overlay) for source in sources for overlay in self._overlays):
            text = file.read_text(encoding="utf-8-sig") if file.is_file() else ""
            if match := line.search(text):
                return f"{key_path(file)}:{text.count(chr(10), 0, match.start()) + 1}"
        return ""

    def _missing(self, error: MissingConfigException) -> ConfigError:
        """For an option or an overlay that does not exist: the nearest name and the list of options."""
        path = error.missing_cfg_file or ""
        group, _, name = path.rpartition("/")
        if path.startswith("judge/"):  # `judge=openai/gpt-4o`
            group, name = "judge", path.removeprefix("judge/")
        options = self.options(group) if group else []
        if not options:
            groups = self.options("")
            expected = f"an option of one of the groups {', '.join(groups)}"
            return _refused(group or path, f"{path!r}, which does not exist", expected, did_you_mean(group, groups))
        parent = re.match(r"In '([^']+)'", str(error))
        inside = parent is not None and parent[1] not in (PRIMARY, "hydra/config")
        where = f"{parent[1]}.yaml" if parent and inside else self._overlay_line(group, name)
        fix = written_folder(group, name) or did_you_mean(name, options)
        fix = " ".join(filter(None, (fix, option_meant(group, name))))
        fix = fix or "--info searchpath shows the folders that were searched"
        return _refused(group, repr(name), f"one of {', '.join(options)}", fix, where)


def _refused(key: str, what: str, expected: str, fix: str, where: str = "") -> ConfigError:
    return ConfigError(TITLE, [Problem(where or COMMAND_LINE, key, what, expected, fix)])


class _CheckedLoader:
    """Hydra's loader for the jobs of a sweep; what a job's files say of Hydra's section is checked before Hydra goes by it."""

    def __init__(self, loader: ConfigLoader):
        self.loader = loader

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        config = self.loader.load_sweep_config(master_config, sweep_overrides)
        check_section(config)
        return config

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # it is asked for while the object is unpickled
            raise AttributeError(name)
        return getattr(self.loader, name)


def check_section(config: DictConfig) -> None:
    """Raises ConfigError where Hydra's own section is not what it is in every composition."""
    section: Any = OmegaConf.to_container(config.hydra, resolve=False)
    if key := section_fault(section):
        raise _refused(f"hydra.{key}", "a part of Hydra's section that a file sets", "nothing of it", "", "the sweep")


class _Job:
    """A job of a sweep. A launcher may send it to another process, which then looks for Hydra's plug-ins itself."""

    def __init__(self, run: Callable[[DictConfig], Any], path: list[str]):
        self.run, self.path = run, path

    def __call__(self, config: DictConfig) -> Any:
        before, sys.path[:] = list(sys.path), self.path
        try:
            return self.run(config)
        finally:
            sys.path[:] = before

    def __setstate__(self, state: dict[str, Any]) -> None:
        installed_plugins_only()
        self.__dict__.update(state)


@contextmanager
def _hydra_put_back() -> Iterator[None]:
    """No Hydra is initialised meanwhile; afterwards it is the one that was before, with its version and its job."""
    hydra, runtime = GlobalHydra.instance(), JobRuntime.instance()
    version, running = VersionBase.instance(), HydraConfig.instance()
    before = hydra.hydra, runtime.get("name"), version.version_base, running.cfg
    new = [name for name in _RESOLVERS if not OmegaConf.has_resolver(name)]
    hydra.clear()
    try:
        yield
    finally:
        hydra.hydra, name, version.version_base, running.cfg = before
        runtime.set("name", name)
        for resolver in new:
            OmegaConf.clear_resolver(resolver)


def running_hydra() -> Any:
    """The Hydra of the composer that is open: it shows what it composed, and completes words in a shell."""
    return GlobalHydra.instance().hydra


def hydra_origins(loader: ConfigLoader, texts: Mapping[str, str]) -> HydraOrigins:
    """The origins of the configuration of the job that is running."""
    words = HydraConfig.get().overrides
    return HydraOrigins(loader, [*_raw(words.hydra), *_raw(words.task)], texts)


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
    if "=" not in word and not word.startswith("~"):
        expected = "key=value, or a file that exists"
        return Problem(COMMAND_LINE, word[:80], "a word without =", expected, near_word(word))
    what = str(error.message if isinstance(error, OverrideParseException) else error).split("\n")[0]
    fix = "put a value with spaces, commas, brackets, = or : in quotes twice: 'key=\"a, b\"'"
    return Problem(COMMAND_LINE, word[:80], what, "key=value in Hydra's grammar", fix)


def _width(override: Override, word: str) -> int:
    """How many values a swept word has. Raises ConfigError for none."""
    if width := sum(1 for _ in override.sweep_iterator()):
        return width
    raise _refused(override.key_or_group, f"{word}: nothing to sweep over", "at least one value", "")
