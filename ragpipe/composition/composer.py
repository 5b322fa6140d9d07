"""Composes a configuration with Hydra, by its public doors: `initialize`, the config loader, sweepers; its errors as ours.

Every file is checked when Hydra opens it (`option_source`), and every word of the command line before Hydra gets it: nothing
dangerous or secret reaches a file that Hydra writes.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from tempfile import mkdtemp
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
from hydra.errors import HydraException, MissingConfigException
from hydra.experimental.callback import Callback
from hydra.types import HydraContext, RunMode
from hydra.version import VersionBase
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ragpipe.composition.hydra_keys import is_hydra, word_faults
from ragpipe.composition.interpolations import TITLE, check_interpolations, interpolation_fault
from ragpipe.composition.option_source import (
    PRIMARY,
    SHIPPED,
    HydraOrigins,
    OptionFolders,
    OptionSource,
    installed_plugins_only,
    is_group,
    option_file,
    unresolved,
)
from ragpipe.composition.overrides import COMMAND_LINE, OVERLAYS, option_meant, parsed_word, unsafe
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.registry import SAFE_PATH, installed_modules_only, option_folders
from ragpipe.core.resources import conf_dir
from ragpipe.core.validation import did_you_mean
from ragpipe.core.yaml_files import key_path

MAX_JOBS = 10_000
_LOCK = threading.RLock()
_COMPOSITION = (HydraException, OmegaConfBaseException, yaml.YAMLError, ValueError, AssertionError, RecursionError)
"""What says that the composition is wrong; any other error is a bug."""
_RESOLVERS = ("now", "hydra", "python_version")  # those that Hydra registers


@dataclass(frozen=True)
class ComposedSweep:
    """A sweep that is composed: the words of all jobs in Hydra's form, the number of jobs, and Hydra's configuration."""

    overrides: list[str]
    jobs: int
    config: DictConfig


@contextmanager
def composing(config_dir: str | None = None) -> Iterator[Composer]:
    """A Hydra of our own, which keeps state for the whole process: other threads wait, and the program's own is put back."""
    with _LOCK, _hydra_put_back():
        installed_plugins_only()
        for plugin in (OptionSource, OptionFolders):
            Plugins.instance().register(plugin)
        OptionFolders.here.folders = _folders(config_dir)
        try:
            initialize(config_path=None, job_name=PRIMARY, version_base="1.3")
        finally:
            del OptionFolders.here.folders
        yield Composer(GlobalHydra.instance().hydra, GlobalHydra.instance().config_loader())


@dataclass
class Composer:
    """What is composed while `composing` is open."""

    hydra: Any
    loader: ConfigLoader
    _overlays: list[str] = field(default_factory=list)  # experiments and modes on top, as `experiment/x`

    def compose(self, overrides: list[str], mode: RunMode = RunMode.RUN) -> DictConfig:
        """The configuration of a single run, its interpolations not resolved; meanwhile they can be, Hydra's own too."""
        with self.refusals():
            config = self.loader.load_configuration(PRIMARY, overrides, mode)
        HydraConfig.instance().set_config(config)
        return config

    @contextmanager
    def refusals(self, *also: type[Exception]) -> Iterator[None]:
        """Turns errors of Hydra and OmegaConf about the composition, and of these types, into a ConfigError."""
        try:
            yield
        except (*_COMPOSITION, *also) as error:
            link: BaseException | None = error
            while link is not None and not isinstance(link, KeyboardInterrupt):
                link = link.__context__
            if link is not None:  # an interrupt that OmegaConf's own cleaning up has hidden
                raise link from None
            raise self._error(error) from error

    def words(
        self, typed: Sequence[str], where: Callable[[str], str] = lambda _: COMMAND_LINE
    ) -> tuple[list[str], int]:
        """The user's overrides in Hydra's form, checked, and over how many combinations they sweep. Raises ConfigError; `where` says
        from which place a key is."""
        problems = [problem for word in typed for problem in unsafe(word)]
        parser = OverridesParser.create(config_loader=self.loader)
        over_a_run = any(word.startswith("run=") for word in typed)
        taken: list[str] = []
        jobs = 1
        for text in () if problems else typed:
            override = parsed_word(parser, text)
            if isinstance(override, Problem) or (faults := self._misused(override)):
                problems += [override] if isinstance(override, Problem) else faults
                continue
            key, word = override.key_or_group, override.input_line or ""
            if over_a_run and override.is_delete() and key.startswith("metrics."):
                word = f"++{key}=null"  # the run has this metric, this composition does not
            elif not (word.startswith(("+", "~")) or override.package or is_hydra(key) or is_group(self.loader, key)):
                word = f"++{word}"  # Hydra knows only the keys that some YAML file lists, pydantic knows all
            taken.append(word)
            if override.is_add() and key in OVERLAYS:
                self._overlays.append(f"{key}/{override.value()}")
            if override.is_sweep_override() and override.is_discrete_sweep():
                jobs *= len(list(islice(override.sweep_iterator(), MAX_JOBS + 1)))
                if not 0 < jobs <= MAX_JOBS:
                    what = f"more than {MAX_JOBS:,} jobs" if jobs else "nothing to sweep over"
                    raise _refused(key, f"{override.input_line}: {what}", f"1 to {MAX_JOBS:,} jobs", "", where(key))
        if problems:
            raise ConfigError(TITLE, [replace(problem, where=where(problem.key)) for problem in problems])
        return taken, jobs

    def sweep(self, overrides: list[str], jobs: int) -> ComposedSweep:
        """The sweep that the words, and what a file says in `hydra.sweeper.params`, describe. Raises ConfigError."""
        config = self.compose(overrides, RunMode.MULTIRUN)
        OmegaConf.set_readonly(config.hydra, None)
        origins = HydraOrigins(self.loader)
        with self.refusals():
            check_interpolations(config, origins)
            sweeper, overrides = config.hydra.sweeper, unresolved(config.hydra.overrides.task)
            jobs = int(sweeper.get("n_trials", jobs))
            if config.hydra.runtime.choices["hydra/sweeper"] == "basic" and sweeper.params:
                typed = {word.lstrip("+").partition("=")[0] for word in overrides}
                listed = [f"{key}={value}" for key, value in sweeper.params.items() if key not in typed]
                section = "hydra.sweeper.params"
                more, times = self.words(listed, lambda key: origins.location(f"{section}.{key}"))
                overrides, jobs = [*more, *overrides], jobs * times
                OmegaConf.update(config, section, {}, merge=False)
        return ComposedSweep(overrides, jobs, config)

    def run_sweep(self, sweep: ComposedSweep, job: Callable[[DictConfig], Any]) -> list[Any]:
        """Run a job per combination by the chosen sweeper and launcher; returns Hydra's JobReturns.

        Each sweep has a folder of its own in `hydra.sweep.dir`: Hydra would replace files there. Of it only stays what a launcher
        writes (submitit's logs).
        """
        with self.refusals():
            place = Path(str(sweep.config.hydra.sweep.dir)).absolute()
            new = [path for path in (place, *place.parents) if not path.exists()]
            place.mkdir(parents=True, exist_ok=True)
            folder = Path(mkdtemp(dir=place))
        OmegaConf.update(sweep.config, "hydra.sweep.dir", str(folder))
        context = HydraContext(config_loader=self.loader, callbacks=Callback())  # type: ignore[arg-type]
        try:
            with self.refusals(), installed_modules_only() as path:
                sweeper = Plugins.instance().instantiate_sweeper(
                    hydra_context=context, task_function=_Job(job, path), config=sweep.config
                )
                batches = sweeper.sweep(arguments=sweep.overrides)
        finally:
            (folder / "multirun.yaml").unlink(missing_ok=True)
            for made in (folder, *new):
                with suppress(OSError):  # it is in use
                    made.rmdir()
        return list(chain(*batches)) if isinstance(batches, list) else []

    def _misused(self, override: Override) -> list[Problem]:
        """A word that Hydra can parse but not use, or not as it should."""
        key, word = override.key_or_group, override.input_line or ""
        if not key:
            return [Problem(COMMAND_LINE, word, "a word without a key", "key=value")]
        if faults := word_faults(override, COMMAND_LINE):
            return faults
        of_group = is_group(self.loader, key)
        if (of_group or is_hydra(key)) and (fault := interpolation_fault(word)):
            return [Problem(COMMAND_LINE, key, *fault)]  # Hydra resolves it while it composes
        value = None if override.is_sweep_override() else override.value()
        if of_group and not isinstance(value, str | list | None):
            return [Problem(COMMAND_LINE, key, repr(value), "the name of an option, or a list", f"write {key}=NAME")]
        return []

    def _error(self, error: Exception) -> ConfigError:
        """Any error of composing as a ConfigError."""
        cause = error.__cause__ or error.__context__
        if isinstance(error, MissingConfigException):
            return self._missing(error)
        if isinstance(cause, ConfigError):
            return cause
        text = (str(error) or str(cause or type(error).__name__)).replace("++", "")
        what, _, rest = text.strip().partition("\n")
        file = re.search(r"\b[Ii]n '?(\w+/[\w./-]*\w)", what)
        what = re.sub(r"^In '?[\w./-]+'?: ", "", what)
        named = re.search(r"'([^']+)'|^(\S+) appears", what.replace(f"'{file[1]}'" if file else "", ""))
        key = (named[1] or named[2]).partition("=")[0] if named else "the composition"
        if key in OVERLAYS and "Could not override" in what:
            return _refused(key, "an overlay without +", f"+{key}=NAME", f"write +{key}=NAME")
        if "--multirun" in text:
            fix = f"add -m for a sweep, or write a list as {key}=[a,b]"
            return _refused(key, named[1] if named else what, "one value, or a sweep with -m", fix)
        if isinstance(cause, OmegaConfBaseException) and str(cause).split("\n")[0] not in text:
            what = f"{what.rstrip('.')}: {str(cause).splitlines()[0]}"
        line, files = rf"^\s*-.*\b{re.escape(key)}\b", [file[1]] if file else []
        where = self._place(files or self._overlays, line) or self._place(files, "")
        return _refused(key, what, "words and files that Hydra can compose", " ".join(rest.split())[:300], where)

    def _missing(self, error: MissingConfigException) -> ConfigError:
        """For an option or an overlay that does not exist: the nearest name and the list of options."""
        path = error.missing_cfg_file or ""
        group, _, name = path.rpartition("/")
        if path.startswith("judge/"):  # `judge=openai/gpt-4o`
            group, name = "judge", path.removeprefix("judge/")
        options = self.loader.get_group_options(group) if group else []
        if not options:
            groups = [name for name in self.loader.list_groups("") if name != "hydra"]
            expected = f"an option of one of the groups {', '.join(groups)}"
            return _refused(group or path, f"{path!r}, which does not exist", expected, did_you_mean(group, groups))
        parent = re.findall(r"^In '([^']+/[^']+)'", str(error))
        line = rf"^\s*-.*\b{re.escape(group.rpartition('/')[2])}\b.*{re.escape(name)}"
        where = self._place([*parent, *self._overlays], line) or self._place(parent, "")
        fix = f"{did_you_mean(name, options)} {option_meant(group, name)}".strip()
        return _refused(group, repr(name), f"one of {', '.join(options)}", fix, where)

    def _place(self, options: Sequence[str], pattern: str) -> str:
        """File and line of the first match in the files of these options; empty where there is none."""
        for file in filter(None, (option_file(self.loader, option) for option in options)):
            text = file.read_text(encoding="utf-8-sig")
            if match := re.search(pattern, text, re.M):
                return f"{key_path(file)}:{text.count(chr(10), 0, match.start()) + 1}"
        return ""


def _folders(config_dir: str | None) -> list[tuple[str, Path]]:
    """The folders of options, with the names of their places on the search path."""
    folders = [(SHIPPED, folder) for folder in option_folders()]
    if config_dir is not None:
        folder = Path(config_dir).absolute()
        if not folder.is_dir():
            what, fix = f"{config_dir!r}, which is not a folder", "see task=init for a layout that works"
            raise _refused("--config-dir", what, "a folder with options", fix)
        folders.append(("command-line", folder))
    local = Path.cwd() / "conf"
    if local.is_dir() and local.resolve() != conf_dir().resolve():
        folders.append(("working-directory", local))
    return folders


def _refused(key: str, what: str, expected: str, fix: str, where: str = "") -> ConfigError:
    return ConfigError(TITLE, [Problem(where or COMMAND_LINE, key, what, expected, fix)])


class _Job:
    """A job of a sweep. A launcher may send it to another process, which then looks for Hydra's plug-ins itself."""

    def __init__(self, run: Callable[[DictConfig], Any], path: list[str]):
        self.run, self.path, self.is_path_safe = run, path, sys.flags.safe_path

    def __call__(self, config: DictConfig) -> Any:
        before, sys.path[:] = list(sys.path), self.path
        if not self.is_path_safe:  # for what the job itself starts
            os.environ.pop(SAFE_PATH, None)
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
