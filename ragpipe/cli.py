"""The command line: parses the words, composes with Hydra, validates, runs one task or a sweep, and returns the exit code."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import logging
import os
import shlex
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ragpipe.core.errors import ConfigError, Interrupted, Problem, RagpipeError
from ragpipe.core.version import __version__
from ragpipe.process_streams import logging_kept, steady_streams

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from ragpipe.composition.composer import Composer
    from ragpipe.composition.config_sources import Loader
    from ragpipe.config.settings import RunConfig
    from ragpipe.reports.console import Console

HELP = f"""ragpipe {__version__}: evaluate RAG systems from config files

  python -m ragpipe +experiment=quickstart                 the demonstration: no key, no network
  python -m ragpipe task=init dir=my                       start with your own data: an experiment, a data file, a judge
  python -m ragpipe +experiment=my judge=llm judge.model=openai/gpt-4o-mini-2024-07-18
                                                           evaluate with a language model as judge
  python -m ragpipe task=plan +experiment=my               cases, calls, tokens and money; spends nothing
  python -m ragpipe -m +experiment=my judge=a,b            a sweep: one run for every combination
  python -m ragpipe task=calibrate run=outputs/my/latest   how far to believe the judge, by people's labels
  python -m ragpipe task=rescore run=outputs/my/latest scoring.thresholds.faithfulness=0.9
                                                           a finished run under another scoring; no call
  python -m ragpipe task=rejudge run=outputs/my/latest judge=llm judge.model=...
                                                           the same cases by another judge, compared
  python -m ragpipe task=selftest run=outputs/my/latest    would metrics and judge notice? cases changed in known ways
  python -m ragpipe task=compare base=RUN candidate=RUN    did the change make it better? case by case, with a verdict
  python -m ragpipe task=explain run=outputs/my/latest case=ID metric=faithfulness
                                                           everything behind one figure, down to prompt and reply
  python -m ragpipe task=weights run=outputs/my/latest     what the weights of the overall score decide
  python -m ragpipe task=label run=outputs/my/latest label.metric=faithfulness
                                                           cases for people to label, and their labels back
  python -m ragpipe task=verify run=outputs/my/latest      compute every figure again and compare
  python -m ragpipe task=history name=my                   the scores over all runs, each against the run before
  python -m ragpipe task=runs                              all runs; also: task=export, task=store, task=schema
  python -m ragpipe --cfg job +experiment=my               the composed configuration, as YAML

words
  group=option      choose an option: dataset, system, judge, transport, embedder, metrics, scoring, report, task
  +experiment=NAME  put an experiment on top; +mode=NAME likewise
  key=value         set a key: dataset.limit=50, judge.concurrency=8, scoring.weights.faithfulness=0.5
  metrics=[a,b]     choose metrics; ~metrics.a takes one away

options
  -m, --multirun       run every combination of key=a,b
  --config-dir DIR     a folder of your own options; ./conf is found by itself
  --cfg job            print the composed configuration (also: hydra, all); -p KEY a part; --resolve
  --info TOPIC         how it was composed: searchpath, defaults, defaults-tree, config, plugins, all
  -sc install=bash     shell completion (bash, fish, zsh)
  --version            print the version

exit codes
  0 fine   1 a bug   2 wrong configuration or data, nothing was spent   3 a critical gate failed   4 incomplete, resumable
  5 the provider is unusable   6 the output cannot be written, or is locked   129, 130, 143 interrupted, resumable
"""
SEVERITY = (0, 3, 4, 2, 6, 5, 1, 129, 143, 130)
"""Exit codes from the mildest to the worst: a sweep ends with its worst."""
SWEEP_WAIT_S = 86_400.0
"""How long a job of a sweep waits for a run folder in use: another job, or a second start of the sweep, may be writing it."""
INTERRUPTED = (129, 130, 143)
RESUMABLE = (4, 5, *INTERRUPTED)
BUG = "this is a bug in ragpipe (or in a plugin): please report it with the lines above"
_stopped: list[int] = []  # exit code of an interrupted job: the jobs after it are not started


@dataclass(frozen=True)
class TaskResult:
    """How one job ended.

    Attributes:
        code: the exit code.
        line: one line about an error; empty where there is none.
        ran: False for a job that was never started.
        folder: the run folder; None where the task has none, or ended before it had one.
        resume: the words that the same command needs to go on where it stopped; None where a new start would end alike.
    """

    code: int
    line: str = ""
    ran: bool = True
    folder: Path | None = None
    resume: tuple[str, ...] | None = ()


class _Arguments(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError("the command line is wrong", [Problem("command line", "options", message, "see --help")])


def main(argv: Sequence[str] | None = None, *, before_task: Callable[[], None] = lambda: None) -> int:
    """Run one start of ragpipe and return its exit code. Never raises, prints to stdout and stderr only.

    `before_task` is called once everything is imported and checked, before the task, or the first job of a sweep, begins.
    """
    with steady_streams():
        return _main(sys.argv[1:] if argv is None else argv, before_task)


def _main(argv: Sequence[str], before_task: Callable[[], None]) -> int:
    try:
        args = _arguments().parse_intermixed_args(list(argv))
        if args.version:
            print(f"ragpipe {__version__}")
            return 0
        if args.help or not (args.overrides or args.cfg or args.info or args.shell_completion or args.multirun):
            print(HELP, end="")
            return 0
        outcome = _start(args, before_task)
    except BaseException as error:
        if isinstance(error, SystemExit | GeneratorExit):
            raise
        outcome = report(error)
        if outcome.code not in INTERRUPTED:
            return outcome.code
    if outcome.code in RESUMABLE and outcome.resume is not None:
        words = [*argv, *(word for word in outcome.resume if word not in argv)]
        print(_safe(f"to go on where it stopped: python -m ragpipe {shlex.join(words)}"), file=sys.stderr)
    return outcome.code


def compose(overrides: Sequence[str], *, config_dir: str | None = None) -> RunConfig:
    """The checked configuration that the words of a command line describe; nothing is run. Raises ConfigError."""
    return compose_task(overrides, config_dir=config_dir)[1]  # type: ignore[no-any-return]


def compose_task(overrides: Sequence[str], *, config_dir: str | None = None) -> tuple[Any, Any]:
    """The module of the task that the words of a command line ask for, and its checked configuration. Raises ConfigError."""
    from ragpipe.composition.composer import Composer

    with Composer(config_dir) as composer:
        words = composer.words(overrides, sweep=False)
        with composer.composed(words.overrides) as config:
            return _validated(config, loader=composer.loader, texts=words.texts)


def report(error: BaseException) -> TaskResult:
    """Print an error: ragpipe's own without a traceback, any other, which is a bug, with one."""
    if interrupt := _interrupt_behind(error):
        number = getattr(interrupt, "signal_number", int(signal.SIGINT))
        error = Interrupted({1: "the terminal was closed", 15: "terminated"}.get(number, "interrupted"), number)
    elif not isinstance(error, RagpipeError) or error.exit_code == 1:
        from ragpipe.store.outside_causes import outside_cause

        error = outside_cause(error, any_file=True) or error
    if not isinstance(error, RagpipeError) or error.exit_code == 1:
        lines = "".join(traceback.format_exception(error))
        print(_safe(f"{lines}{BUG}"), file=sys.stderr)
        return TaskResult(1, f"{type(error).__name__}: {error}")
    text = str(error)
    print(_safe(text), file=sys.stderr)
    line, first = text.split("\n")[0], next(iter(getattr(error, "problems", ())), None)
    return TaskResult(error.exit_code, f"{line}: {first.key}: {first.found}" if first else line)


def _interrupt_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    """The interrupt that caused an error: OmegaConf's own clean-up fails when one hits it. None for `Interrupted`, which says
    so itself."""
    if isinstance(error, Interrupted):
        return None
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error


def console() -> Console:
    """The terminal, or plain text when there is none; judged text is never markup."""
    from ragpipe.reports.console import Console

    return Console()


def _arguments() -> argparse.ArgumentParser:
    parser = _Arguments(prog="ragpipe", add_help=False, allow_abbrev=False)
    add = parser.add_argument
    add("overrides", nargs="*")
    add("-h", "--help", action="store_true")
    add("--version", action="store_true")
    add("-m", "--multirun", action="store_true")
    add("--config-dir", "-cd", metavar="DIR")
    add("--cfg", "-c", choices=["job", "hydra", "all"])
    add("--package", "-p")
    add("--resolve", action="store_true")
    add("--info", "-i", choices=["all", "config", "defaults", "defaults-tree", "plugins", "searchpath"])
    add("--shell-completion", "-sc", action="store_true")
    return parser


def _start(args: argparse.Namespace, before_task: Callable[[], None]) -> TaskResult:
    from ragpipe.composition.composer import PRIMARY, Composer

    _stopped.clear()
    with Composer(args.config_dir) as composer:
        if args.shell_completion:
            with composer.refusals():
                composer.hydra.shell_completion(config_name=PRIMARY, overrides=args.overrides)
            return TaskResult(0)
        words = composer.words(args.overrides, sweep=args.multirun)
        if args.cfg or args.info:
            with composer.refusals():
                return TaskResult(_show(composer.hydra, args, words.overrides))
        if args.multirun:
            before_task()
            job = partial(_sweep_job, loader=composer.loader, texts=words.texts)
            return _sweep(composer, job, words.overrides, words.jobs)
        with composer.composed(words.overrides) as config:
            task, checked = _validated(config, loader=composer.loader, texts=words.texts)
    before_task()
    return _run_job(lambda: (task, checked))


def _show(hydra: Any, args: argparse.Namespace, overrides: list[str]) -> int:
    """`--cfg` and `--info`; values of secret environment variables that `--resolve` would print are masked."""
    from ragpipe.composition.interpolations import guarded
    from ragpipe.core.secret_detection import redact, secrets_of_environment

    out = io.StringIO()
    with logging_kept(), _full_errors(), guarded(hide=True), contextlib.redirect_stdout(out):
        if args.cfg:
            hydra.show_cfg("ragpipe", overrides, cfg_type=args.cfg, package=args.package, resolve=args.resolve)
        else:
            hydra.show_info(args.info, config_name="ragpipe", overrides=overrides)
    print(redact(out.getvalue(), secrets_of_environment()), end="")
    return 0


def _sweep(composer: Composer, job: Any, overrides: list[str], jobs: int) -> TaskResult:
    """Run all jobs, also after one fails. Prints their count first and a table last; returns the worst exit code.

    The command to go on needs every word that one of them needs; there is none where no start can change a result."""
    from ragpipe.composition.composer import PRIMARY, typed_value, typed_words

    print(f"sweep: {jobs:,} job{'s' if jobs != 1 else ''}", file=sys.stderr, flush=True)
    with _folder_errors(), composer.refusals(), composer.sweep_folder(overrides):
        batches = composer.hydra.multirun(PRIMARY, task_function=job, overrides=overrides)
    from ragpipe.engine import sweep_comparison

    done = [ret for batch in batches for ret in batch] if isinstance(batches, list) else []
    print(f"\nsweep: {len(done)} of {jobs:,} jobs")
    codes, ended = [0], []
    unfinished: list[tuple[str, ...]] = []
    for number, ret in enumerate(done):
        outcome: TaskResult = ret.return_value
        codes.append(outcome.code)
        if outcome.code in RESUMABLE and outcome.resume is not None:
            unfinished.append(outcome.resume)
        code = outcome.code if outcome.ran else None
        ended.append(
            sweep_comparison.ended_job(number, typed_words(ret.overrides), code, _safe(outcome.line), outcome.folder)
        )
        state = "ok" if outcome.code == 0 else f"exit {outcome.code}" if outcome.ran else "not started"
        print(
            _safe(
                f"  {number:>4}  {state:<12} {typed_value(ret.overrides)}"
                + (f"   {outcome.line}" if outcome.code else "")
            )
        )
    try:
        sweep_comparison.compare_jobs(ended, typed_words(overrides), console())
    except RagpipeError as error:
        codes.append(report(error).code)
    worst = max(codes, key=lambda code: SEVERITY.index(code) if code in SEVERITY else SEVERITY.index(1))
    words = tuple(dict.fromkeys(word for resume in unfinished for word in resume))
    return TaskResult(worst, resume=words if unfinished else None)


def _sweep_job(config: DictConfig, *, loader: Loader, texts: Mapping[str, str]) -> TaskResult:
    """One job of a sweep, in this process or in a launcher's."""
    from ragpipe.composition.composer import job_words

    if not _stopped:
        number, words = job_words()
        print(_safe(f"sweep: job {number}: {words}"), file=sys.stderr, flush=True)
    return _run_job(partial(_validated, config, loader=loader, texts=texts), sweep=True)


def _run_job(check: Callable[[], tuple[Any, Any]], *, sweep: bool = False) -> TaskResult:
    """Run one job. Raises nothing: an exception inside a job would end the whole sweep."""
    if _stopped:
        return TaskResult(_stopped[0], "an earlier job was interrupted", ran=False)
    terminal = console()
    try:
        task, checked = check()
        code = _run_task(task, checked, terminal, sweep=sweep)
        return TaskResult(code, folder=terminal.folder, resume=terminal.resume)
    except BaseException as error:
        if isinstance(error, GeneratorExit):
            raise
        if isinstance(error, SystemExit):
            return TaskResult(
                error.code if isinstance(error.code, int) else 1, "ended by SystemExit", folder=terminal.folder
            )
        outcome = replace(report(error), folder=terminal.folder)
        if outcome.code in INTERRUPTED:
            _stopped.append(outcome.code)
        return outcome


def _run_task(task: Any, checked: Any, terminal: Console, *, sweep: bool) -> int:
    from ragpipe.store.files.lazy_pandas import keep_pandas_away
    from ragpipe.store.run.folder_lock import waiting

    if not getattr(checked, "plugins", ()):  # plugins may pass pandas objects to pyarrow
        keep_pandas_away()
    wait_s = getattr(checked, "lock_wait_s", None)
    with logging_kept(), waiting(wait_s if wait_s is not None else SWEEP_WAIT_S if sweep else 0):
        logging.basicConfig(level=getattr(checked, "log_level", "warning").upper(), stream=sys.stderr, force=True)
        return int(task.run(checked, terminal))


def _validated(config: DictConfig, *, loader: Loader, texts: Mapping[str, str]) -> tuple[Any, Any]:
    """The task's module and its validated configuration. A task with settings of its own has its own `validate`."""
    from ragpipe.composition.composer import hydra_origins
    from ragpipe.composition.interpolations import resolved
    from ragpipe.config.run_validation import INVALID_CONFIGURATION, task_name, validate_config
    from ragpipe.config.secret_values import secrets_in

    origins = hydra_origins(loader, texts)
    plain = resolved(config, origins)
    if problems := secrets_in(plain, origins):
        raise ConfigError(INVALID_CONFIGURATION, problems)  # for every task, before it can print a value
    task = importlib.import_module(f"ragpipe.tasks.{task_name(plain, origins)}")
    return task, getattr(task, "validate", validate_config)(plain, origins)


@contextlib.contextmanager
def _full_errors() -> Iterator[None]:
    """Hydra raises its errors instead of printing them and exiting."""
    before = os.environ.get("HYDRA_FULL_ERROR")
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        os.environ.pop("HYDRA_FULL_ERROR")
        if before is not None:
            os.environ["HYDRA_FULL_ERROR"] = before


@contextlib.contextmanager
def _folder_errors() -> Iterator[None]:
    """Raises OutputError for a sweep folder that Hydra cannot create."""
    try:
        yield
    except OSError as error:
        if not error.filename:
            raise
        from ragpipe.store.files.atomic import output_error

        raise output_error(Path(str(error.filename)), error, "make") from error


def _safe(text: str) -> str:
    """Without control characters, which could rewrite the terminal, and without anything that looks like a key."""
    from ragpipe.core.secret_detection import redact, secrets_of_environment

    printable = "".join(c if (c >= " " and c != "\x7f") or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)
    return redact(printable, secrets_of_environment())
