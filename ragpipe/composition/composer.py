"""Composes a configuration with Hydra, by its public doors: `initialize`, the config loader, sweepers; its errors as ours.

Every file is checked when Hydra opens it (`option_source`), and every word of the command line before Hydra gets it: nothing
dangerous or secret reaches a file that Hydra writes.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
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

from ragpipe.composition.config_origins import COMMAND_LINE, OVERLAYS, HydraOrigins, unresolved
from ragpipe.composition.hydra_keys import is_hydra, word_faults
from ragpipe.composition.interpolations import TITLE, check_interpolations, interpolation_fault
from ragpipe.composition.near_words import near_word, option_meant
from ragpipe.composition.option_source import (
    PRIMARY,
    SHIPPED,
    OptionSource,
    installed_plugins_only,
    searched,
)
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.registry import installed_modules_only, option_folders
from ragpipe.core.resources import conf_dir
from ragpipe.core.secret_detection import FIX, pairs, secret_at, secrets_of_environment
from ragpipe.core.validation import did_you_mean
from ragpipe.core.yaml_files import key_path

MAX_JOBS = 10_000
_LOCK = threading.RLock()
_COMPOSITION = (HydraException, OmegaConfBaseException, yaml.YAMLError, ValueError, AssertionError, RecursionError)
"""What says that the composition is wrong; any other error is a bug."""
_RESOLVERS = ("now", "hydra", "python_version")  # those that Hydra registers


@dataclass(frozen=True)
class ParsedWords:
    """The overrides of one start, in Hydra's form, and the number of combinations that they sweep over."""

    overrides: list[str]
    jobs: int


@dataclass(frozen=True)
class ComposedSweep(ParsedWords):
    """A sweep that is composed: the words of all jobs, and Hydra's configuration."""

    config: DictConfig


class Composer:
    """A Hydra of our own: `with Composer(config_dir) as composer`. One at a time per process; other threads wait.

    Hydra keeps state for the whole process. A Hydra that the program has initialised is put back at the end.
    """

    loader: ConfigLoader
    hydra: Any

    def __init__(self, config_dir: str | None = None):
        self._config_dir = config_dir
        self._overlays: list[str] = []  # experiments and modes on top, as `experiment/x`

    def __enter__(self) -> Composer:
        with ExitStack() as undo:
            undo.enter_context(_LOCK)
            undo.enter_context(_hydra_put_back())
            with searched(self._folders()):
                initialize(config_path=None, job_name=PRIMARY, version_base="1.3")
            self.hydra, self.loader = GlobalHydra.instance().hydra, GlobalHydra.instance().config_loader()
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    @contextmanager
    def composed(self, overrides: list[str]) -> Iterator[DictConfig]:
        """The configuration of a single run, its interpolations not resolved; inside `with` they can be, Hydra's own too."""
        with self.refusals():
            config = self.loader.load_configuration(PRIMARY, overrides, RunMode.RUN)
        HydraConfig.instance().set_config(config)
        yield config

    @contextmanager
    def refusals(self, *also: type[Exception]) -> Iterator[None]:
        """Turns errors of Hydra and OmegaConf about the composition, and of these types, into a ConfigError."""
        try:
            yield
        except (*_COMPOSITION, *also) as error:
            raise self._error(error) from error

    def _folders(self) -> list[tuple[str, Path]]:
        """The folders of options, with the names of their places on the search path."""
        folders = [(SHIPPED, folder) for folder in option_folders()]
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
        problems = [problem for word in overrides for problem in _unsafe(word)]
        parser = OverridesParser.create(config_loader=self.loader)
        over_a_run = any(word.startswith("run=") for word in overrides)
        taken: list[str] = []
        jobs = 1
        for typed in () if problems else overrides:
            override = _parsed(parser, typed)
            if isinstance(override, Problem) or (faults := self._misused(override)):
                problems += [override] if isinstance(override, Problem) else faults
                continue
            key = override.key_or_group
            if over_a_run and override.is_delete() and key.startswith("metrics."):
                taken.append(f"++{key}=null")  # the run has this metric, this composition does not
                continue
            taken.append(self._for_hydra(override))
            if override.is_add() and key in OVERLAYS:
                self._overlays.append(f"{key}/{override.value()}")
            if sweep and override.is_sweep_override() and override.is_discrete_sweep():
                jobs *= len(list(islice(override.sweep_iterator(), MAX_JOBS + 1)))
                if not 0 < jobs <= MAX_JOBS:
                    what = f"more than {MAX_JOBS:,} jobs" if jobs else "nothing to sweep over"
                    raise _refused(key, f"{override.input_line}: {what}", f"1 to {MAX_JOBS:,} jobs", "")
        if problems:
            raise ConfigError(TITLE, problems)
        return ParsedWords(taken, jobs)

    def _for_hydra(self, override: Override) -> str:
        """`key=value` becomes `++key=value`: Hydra knows only the keys that some YAML file lists, pydantic knows all."""
        key, word = override.key_or_group, override.input_line or ""
        plain = not (override.is_add() or override.is_force_add() or override.is_delete() or override.package)
        return f"++{word}" if plain and not is_hydra(key) and not self.is_group(key) else word

    def sweep(self, words: ParsedWords) -> ComposedSweep:
        """The sweep that the words, and what a file says in `hydra.sweeper.params`, describe. Raises ConfigError."""
        with self.refusals():
            config = self.loader.load_configuration(PRIMARY, words.overrides, RunMode.MULTIRUN)
            HydraConfig.instance().set_config(config)
            OmegaConf.set_readonly(config.hydra, None)
            origins = HydraOrigins(self.loader)
            check_interpolations(config, origins)
            sweeper = config.hydra.sweeper
            overrides, jobs = unresolved(config.hydra.overrides.task), int(sweeper.get("n_trials", words.jobs))
            if config.hydra.runtime.choices["hydra/sweeper"] == "basic" and sweeper.params:
                typed = {word.lstrip("+").partition("=")[0] for word in overrides}
                listed = [f"{key}={value}" for key, value in sweeper.params.items() if key not in typed]
                try:
                    more = self.words(listed, sweep=True)
                except ConfigError as error:
                    places = [origins.location(f"hydra.sweeper.params.{problem.key}") for problem in error.problems]
                    problems = map(lambda problem, place: replace(problem, where=place), error.problems, places)
                    raise ConfigError(TITLE, list(problems)) from error
                overrides, jobs = [*more.overrides, *overrides], jobs * more.jobs
                with open_dict(config):
                    sweeper.params = {}
        return ComposedSweep(overrides, jobs, config)

    def run_sweep(self, sweep: ComposedSweep, job: Callable[[DictConfig], Any]) -> list[Any]:
        """Run a job per combination by the chosen sweeper and launcher; returns Hydra's JobReturns. Of what the sweeper leaves on
        disk all is removed but what a launcher writes (submitit's logs).

        Raises ConfigError where Hydra's `multirun.yaml` would replace a file of the user's.
        """
        with self.refusals():
            paths = sweep.config.hydra.sweep.dir, sweep.config.output_dir
            folder, output = (Path(str(path)).absolute() for path in paths)
        listed = folder / "multirun.yaml"
        leads_away = folder.is_relative_to(output) and not folder.resolve().is_relative_to(output.resolve())
        is_link = leads_away or folder.is_symlink() or listed.is_symlink()
        if is_link or (folder != output / ".sweep" and listed.exists()):
            expected = "a folder without a symbolic link in it and without a multirun.yaml, which Hydra would replace"
            raise _refused("hydra.sweep.dir", f"{folder}", expected, "name another folder, or remove what is there")
        context = HydraContext(config_loader=self.loader, callbacks=Callback())  # type: ignore[arg-type]
        new = [path for path in (folder, *folder.parents) if not path.exists()]
        try:
            with self.refusals(), installed_modules_only() as path:
                sweeper = Plugins.instance().instantiate_sweeper(
                    hydra_context=context, task_function=_Job(job, path), config=sweep.config
                )
                batches = sweeper.sweep(arguments=sweep.overrides)
        finally:
            listed.unlink(missing_ok=True)
            for made in new:
                with suppress(OSError):  # it is in use
                    made.rmdir()
        return [ended for batch in batches for ended in batch] if isinstance(batches, list) else []

    def is_group(self, key: str) -> bool:
        """Whether a key names a group of options anywhere on the search path."""
        return any(source.is_group(key) for source in self.loader.get_sources())

    def options(self, group: str) -> list[str]:
        """The options of a group, over the whole search path; of "" the groups."""
        names = self.loader.get_group_options(group) if group else self.loader.list_groups("")
        return [name for name in names if group or not name.startswith("hydra")]

    def _misused(self, override: Override) -> list[Problem]:
        """A word that Hydra can parse but not use, or not as it should."""
        key, word = override.key_or_group, override.input_line or ""
        if not key:
            return [Problem(COMMAND_LINE, word, "a word without a key", "key=value")]
        if faults := word_faults(override, COMMAND_LINE):
            return faults
        is_group = self.is_group(key)
        if (is_group or is_hydra(key)) and (fault := interpolation_fault(word)):
            return [Problem(COMMAND_LINE, key, *fault)]  # Hydra resolves it while it composes
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
        file = re.search(r"\b[Ii]n '?(\w+/[\w./-]*\w)", first)
        first = re.sub(r"^In '?[\w./-]+'?: ", "", first)
        named = re.search(r"'([^']+)'|^(\S+) appears", first.replace(f"'{file[1]}'" if file else "", ""))
        key = (named[1] or named[2]).partition("=")[0] if named else "the composition"
        if key in OVERLAYS and "Could not override" in first:
            return _refused(key, "an overlay without +", f"+{key}=NAME", f"write +{key}=NAME")
        if "--multirun" in text:
            fix = f"add -m for a sweep, or write a list as {key}=[a,b]"
            return _refused(key, named[1] if named else first, "one value, or a sweep with -m", fix)
        if isinstance(cause, OmegaConfBaseException) and str(cause).split("\n")[0] not in text:
            first = f"{first.rstrip('.')}: {str(cause).splitlines()[0]}"
        where = self._place([file[1]] if file else self._overlays, rf"^\s*-.*\b{re.escape(key)}\b")
        where = where or (self._place([file[1]], "") if file else "")
        groups = self.options("")
        near = did_you_mean(key, groups) if "." not in key and key not in groups else ""
        fix = near or " ".join(rest.split())[:300]
        return _refused(key, first, "words and files that Hydra can compose", fix, where)

    def _place(self, options: Sequence[str], pattern: str) -> str:
        """File and line of the first match in the files of these options; empty where there is none."""
        sources = [source for source in self.loader.get_sources() if isinstance(source, OptionSource)]
        for file in (source.file(option) for option in options for source in sources if source.is_config(option)):
            text = file.read_text(encoding="utf-8-sig")
            if match := re.search(pattern, text, re.M):
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
        parent = re.findall(r"^In '([^']+/[^']+)'", str(error))
        line = rf"^\s*-.*\b{re.escape(group.rpartition('/')[2])}\b.*{re.escape(name)}"
        where = self._place([*parent, *self._overlays], line) or self._place(parent, "")
        fix = f"{did_you_mean(name, options)} {option_meant(group, name)}".strip()
        fix = fix or "--info searchpath shows the folders that were searched"
        return _refused(group, repr(name), f"one of {', '.join(options)}", fix, where)


def _refused(key: str, what: str, expected: str, fix: str, where: str = "") -> ConfigError:
    return ConfigError(TITLE, [Problem(where or COMMAND_LINE, key, what, expected, fix)])


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


def typed_words(overrides: Sequence[str]) -> list[str]:
    """A job's words one by one, without those about how Hydra starts it: they change no result."""
    words = (word.removeprefix("++") for word in overrides)
    return [word for word in words if not is_hydra(word.lstrip("+~").partition("=")[0])]


def job_words() -> tuple[int, list[str]]:
    """Number and words of the job of a sweep that is running."""
    hydra = HydraConfig.get()
    return hydra.job.num, typed_words(unresolved(hydra.overrides.task))


def _parsed(parser: OverridesParser, typed: str) -> Override | Problem:
    """An override, or why it cannot be parsed. Hydra cannot parse `path=größe.csv` or `x=a=b`: quotes must be meant there."""
    key, equals, value = typed.partition("=")
    is_plain = equals and value and not set(value) & set("'\"[]{}(),\\$")
    for word in (typed, f'{key}="{value}"') if is_plain else (typed,):
        try:
            return parser.parse_overrides([word])[0]
        except RecursionError:
            return Problem(COMMAND_LINE, typed[:60], "too many brackets", "key=value")
        except OverrideParseException as error:
            what = str(error.message).split("\n")[0]
    if not equals and not typed.startswith("~"):
        expected = "key=value, or a file that exists"
        return Problem(COMMAND_LINE, typed[:80], "a word without =", expected, near_word(typed))
    fix = "put a value with spaces, commas, brackets, = or : in quotes twice: 'key=\"a, b\"'"
    return Problem(COMMAND_LINE, typed[:80], what, "key=value in Hydra's grammar", fix)


def _unsafe(word: str) -> list[Problem]:
    """What a word of the command line may not hold: it must not even reach Hydra, which would write it to disk."""
    key, _, value = word.partition("=")
    key, value = key.strip().lstrip("+~"), value.strip().strip("'\"")
    secrets = secrets_of_environment()
    items = [] if value == "{}" else [(f"{key}.{name}", item) for name, item in pairs(value)] or [(key, value)]
    if secret := next(filter(None, (secret_at(*item, secrets) for item in [*items, ("", word)])), None):
        name = key if re.fullmatch(r"[A-Za-z_][\w.@/\-]{0,60}", key) and not secret_at("", key) else "an argument"
        return [Problem(COMMAND_LINE, name, f"{secret} (not shown)", "no secret on the command line", FIX)]
    if "_target_" in word:
        return [Problem(COMMAND_LINE, key, "`_target_`", "nothing that is called", "name a class with `class`")]
    return []
