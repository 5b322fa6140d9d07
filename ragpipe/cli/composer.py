"""Composes a configuration with Hydra, by its public doors: `initialize`, the config loader, sweepers; its errors as ours.

Every file is checked when Hydra opens it (`option_source`), and every argument of the command line before Hydra gets it: nothing
dangerous or secret reaches a file that Hydra writes.

How Hydra reads the YAML options: by a source that checks each file when Hydra opens it; and which file has set a key.

Hydra's plug-ins cannot be taken out again. So the source has a scheme of its own, and the plug-in of the search path adds
folders only while ragpipe initialises Hydra in this thread: a programme's own Hydra sees neither.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import chain, islice
from pathlib import Path
from tempfile import mkdtemp
from types import ModuleType
from typing import Any

import yaml
from hydra import initialize
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.core.utils import JobRuntime
from hydra.errors import HydraException, MissingConfigException
from hydra.experimental.callback import Callback
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.types import HydraContext, RunMode
from hydra.version import VersionBase
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ragpipe.cli.overrides import (
    COMMAND_LINE,
    OVERLAYS,
    TITLE,
    check_interpolations,
    file_faults,
    interpolation_fault,
    is_hydra,
    option_meant,
    parsed_word,
    unsafe,
    word_faults,
)
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.registry import SAFE_PATH, installed_modules_only, option_folders
from ragpipe.core.resources import BESIDE_THE_FILE, conf_dir, placed_paths
from ragpipe.core.secrets import secrets_of_environment
from ragpipe.core.settings import did_you_mean
from ragpipe.core.yaml_files import FastLoader, check_text, key_path, lines_of, yaml_text

MAX_JOBS = 10_000
_LOCK = threading.RLock()
_COMPOSITION = (HydraException, OmegaConfBaseException, yaml.YAMLError, ValueError, AssertionError, RecursionError)
"""What says that the composition is wrong; any other error is a bug."""
_RESOLVERS = ("now", "hydra", "python_version")  # those that Hydra registers


@dataclass(frozen=True)
class ComposedSweep:
    """A sweep that is composed: the arguments of all jobs in Hydra's form, the number of jobs, and Hydra's configuration."""

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

    def arguments(self, typed: Sequence[str], where: Callable[[str], str] = lambda _: COMMAND_LINE) -> tuple[list[str], int]:
        """The user's overrides in Hydra's form, checked, and over how many combinations they sweep. Raises ConfigError; `where` says
        from which place a key is."""
        problems = [problem for argument in typed for problem in unsafe(argument)]
        parser = OverridesParser.create(config_loader=self.loader)
        over_a_run = any(argument.startswith("run=") for argument in typed)
        taken: list[str] = []
        jobs = 1
        for text in () if problems else typed:
            override = parsed_word(parser, text)
            if isinstance(override, Problem) or (faults := self._misused(override)):
                problems += [override] if isinstance(override, Problem) else faults
                continue
            key, argument = override.key_or_group, override.input_line or ""
            if over_a_run and override.is_delete() and key.startswith("metrics."):
                argument = f"++{key}=null"  # the run has this metric, this composition does not
            elif not (argument.startswith(("+", "~")) or override.package or is_hydra(key) or is_group(self.loader, key)):
                argument = f"++{argument}"  # Hydra knows only the keys that some YAML file lists, pydantic knows all
            taken.append(argument)
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
        """The sweep that the arguments, and what a file says in `hydra.sweeper.params`, describe. Raises ConfigError."""
        config = self.compose(overrides, RunMode.MULTIRUN)
        OmegaConf.set_readonly(config.hydra, None)
        origins = HydraOrigins(self.loader)
        with self.refusals():
            check_interpolations(config, origins)
            sweeper, overrides = config.hydra.sweeper, unresolved(config.hydra.overrides.task)
            jobs = int(sweeper.get("n_trials", jobs))
            if config.hydra.runtime.choices["hydra/sweeper"] == "basic" and sweeper.params:
                typed = {argument.lstrip("+").partition("=")[0] for argument in overrides}
                listed = [f"{key}={value}" for key, value in sweeper.params.items() if key not in typed]
                section = "hydra.sweeper.params"
                more, times = self.arguments(listed, lambda key: origins.location(f"{section}.{key}"))
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
        """An argument that Hydra can parse but not use, or not as it should."""
        key, argument = override.key_or_group, override.input_line or ""
        if not key:
            return [Problem(COMMAND_LINE, argument, "an argument without a key", "key=value")]
        if faults := word_faults(override, COMMAND_LINE):
            return faults
        of_group = is_group(self.loader, key)
        if (of_group or is_hydra(key)) and (fault := interpolation_fault(argument)):
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
        if "An item is already at" in what:
            return _refused(key, "a + before a key that has a value already", "the key alone", f"write {key}=VALUE")
        if "--multirun" in text:
            fix = f"add -m for a sweep, or write a list as {key}=[a,b]"
            return _refused(key, named[1] if named else what, "one value, or a sweep with -m", fix)
        if isinstance(cause, OmegaConfBaseException) and str(cause).split("\n")[0] not in text:
            what = f"{what.rstrip('.')}: {str(cause).splitlines()[0]}"
        line, files = rf"^\s*-.*\b{re.escape(key)}\b", [file[1]] if file else []
        where = self._place(files or self._overlays, line) or self._place(files, "")
        return _refused(key, what, "arguments and files that Hydra can compose", " ".join(rest.split())[:300], where)

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
    """A job's arguments one by one, without those about how Hydra starts it: they change no result."""
    arguments = (argument.removeprefix("++") for argument in overrides)
    return [argument for argument in arguments if not is_hydra(argument.lstrip("+~").partition("=")[0])]


def job_words() -> tuple[int, list[str]]:
    """Number and arguments of the job of a sweep that is running."""
    hydra = HydraConfig.get()
    return hydra.job.num, typed_words(unresolved(hydra.overrides.task))


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
        plain, header = _checked(path, text, known, beside, shipped=self.provider == SHIPPED)
        return ConfigResult(self.provider, self.full_path(), OmegaConf.create(plain), dict(header))

    def file(self, config_path: str) -> Path:
        """The path of an option, whether it is there or not."""
        return Path(self.path) / (config_path if config_path.endswith(".yaml") else f"{config_path}.yaml")


@lru_cache(maxsize=500)
def _checked(
    path: Path, text: str, secrets: frozenset[str], beside: Path | None, *, shipped: bool
) -> tuple[dict[str, Any], dict[str, str | None]]:
    """Content and header of a file, kept for the jobs of a sweep by all that they depend on. Raises ConfigError."""
    where = key_path(path)
    _refuse(check_text(text, where))
    plain = yaml.load(text, Loader=_Loader)
    header = OptionSource._get_header_dict(text[:512])
    if not shipped:
        _refuse(file_faults(plain, header["package"] or "", text, where))
    return {} if plain is None else placed_paths(plain, path.parent), header


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


def unresolved(arguments: Any) -> list[str]:
    """Hydra's list of arguments without resolving the interpolations in them."""
    return OmegaConf.to_container(arguments, resolve=False)  # type: ignore[return-value]


class HydraOrigins:
    """Where the keys of the composition were set that Hydra knows as the running one: in a line of a file, or by an argument. The last
    one counts: Hydra's defaults list has the files in the order in which they were merged, with the package of each."""

    def __init__(self, loader: ConfigLoader):
        arguments = HydraConfig.get().overrides
        self._loader = loader
        self._overrides = [*unresolved(arguments.hydra), *unresolved(arguments.task)]
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
        """What the user's arguments set, as dotted keys: a key, the section of a group's option, and whatever an experiment or
        a mode on top sets. Deleted keys are among them."""
        chosen: list[str] = []
        for argument in self._words:
            key = argument.key_or_group
            if key in OVERLAYS:
                value: Any = argument.value()
                for option in (
                    value if isinstance(value, list) else [value]
                ):  # the groups and keys that its file chooses and sets
                    lines = lines_of(path) if (path := option_file(self._loader, f"{key}/{option}")) else {}
                    chosen += (match[1].replace("/", ".") for line in lines if (match := _ITEM.fullmatch(line)))
                    above = {line.rpartition(".")[0] for line in lines}
                    chosen += (line for line in lines if line not in above and not line.startswith("defaults."))
            elif key != "task" and not key.startswith("hydra"):
                chosen.append(argument.package or key.replace("/", "."))
        return tuple(dict.fromkeys(chosen))

    @cached_property
    def _typed(self) -> dict[str, str]:
        """Key -> the text after `=`, for every override that sets a value."""
        set_here = (
            argument for argument in self._words if not argument.is_delete() and not argument.key_or_group.startswith("hydra.")
        )
        return {argument.key_or_group: argument.get_value_string() for argument in set_here}

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
