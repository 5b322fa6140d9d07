"""The command line: parses the words, composes with Hydra, validates, runs one task or a sweep, and returns the exit code."""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import shlex
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ragpipe.core import registry
from ragpipe.core.errors import ConfigError, Interrupted, Problem, RagpipeError, interrupt_behind, user_fault
from ragpipe.core.version import __version__
from ragpipe.process_streams import logging_kept, steady_streams

if TYPE_CHECKING:
    from hydra.core.config_loader import ConfigLoader
    from omegaconf import DictConfig

    from ragpipe.composition.composer import ComposedSweep, Composer
    from ragpipe.config.settings import RunConfig
    from ragpipe.reports.console import Console

_HELP = """ragpipe {version}: evaluate RAG systems from config files

  python -m ragpipe +experiment=quickstart                 the demonstration: no key, no network
  python -m ragpipe FILE                                   your data: recognised (ragas, deepeval, traces ...), evaluated
  python -m ragpipe task=init from=FILE dir=my             the options for it, written only; without from: an example
  python -m ragpipe +experiment=my judge=llm judge.model=openai/gpt-4o-mini-2024-07-18
                                                           evaluate with a language model as judge
  python -m ragpipe task=plan +experiment=my               what the data hold, what looks wrong; calls, tokens, money
  python -m ragpipe -m +experiment=my judge=a,b            a sweep: one run for every combination
  python -m ragpipe task=calibrate run=outputs/my/latest   how far to believe the judge, by people's labels
  python -m ragpipe task=rescore run=outputs/my/latest scoring.thresholds.faithfulness=0.9
                                                           a finished run under another scoring; no call
  python -m ragpipe task=rejudge run=outputs/my/latest judge=llm        the same cases by another judge, compared
  python -m ragpipe task=compare base=RUN candidate=RUN    did the change make it better? case by case, with a verdict
  python -m ragpipe task=explain run=outputs/my/latest case=ID metric=faithfulness
                                                           everything behind one figure, down to prompt and reply
  python -m ragpipe task=label run=outputs/my/latest label.metric=faithfulness
                                                           cases for people to label, and their labels back
  python -m ragpipe task=verify run=outputs/my/latest      compute every figure again and compare
  python -m ragpipe task=history name=my                   the scores over all runs, each against the run before
{extras}  also: task=runs, export, store, schema
  python -m ragpipe --cfg job +experiment=my               the composed configuration, as YAML

words
  group=option      choose an option: dataset, system, judge, transport, runner, embedder, metrics, scoring, report, task
  +experiment=NAME  put an experiment on top; +mode=NAME likewise
  key=value         set a key: dataset.limit=50, iterations=3, scoring.weights.faithfulness=0.5
  metrics=[a,b]     choose metrics; ~metrics.a takes one away

options
  -m, --multirun       run every combination of key=a,b
  --config-dir DIR     a folder of your own options; ./conf is found by itself
  --cfg job            print the composed configuration (also: hydra, all); -p KEY a part; --resolve
  --info TOPIC         how it was composed: searchpath, defaults, defaults-tree, config, plugins, all
  -sc install=bash     shell completion (bash, fish, zsh)
  -V, --version        print the version

exit codes
  0 fine   1 a bug   2 wrong configuration or data, nothing was spent   3 a critical gate failed   4 incomplete
  5 the provider is unusable   6 output locked or unwritable, or out of memory   129, 130, 143 interrupted, resumable
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
        warnings: what a job of a sweep in short warned of, to be printed at its end; None for a job that printed all itself.
    """

    code: int
    line: str = ""
    ran: bool = True
    folder: Path | None = None
    resume: tuple[str, ...] | None = ()
    warnings: tuple[str, ...] | None = ()


class _Arguments(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        from ragpipe.composition.overrides import near_word

        option = message.rpartition(": ")[2].split(" ")[0]
        fix = near_word(option) if message.startswith("unrecognized") else "--help lists the options"
        problem = Problem("command line", "options", message, "options of ragpipe", fix)
        raise ConfigError("the command line is wrong", [problem])


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
            print(_HELP.format(version=__version__, extras="".join(registry.help_of_extras())), end="")
            return 0
        files = [word for word in args.overrides if _is_file_word(word)]
        outcome = _start_file(files, args, before_task) if files else _start(args, before_task)
    except BaseException as error:
        if isinstance(error, SystemExit | GeneratorExit):
            raise
        outcome = report(error)
        if outcome.code not in INTERRUPTED:
            return outcome.code
    if outcome.code in RESUMABLE and outcome.resume is not None:
        words = shlex.join(with_words(argv, outcome.resume))
        print(_safe(f"to go on where it stopped: {_typed_command()} {words}"), file=sys.stderr)
    return outcome.code


def _typed_command() -> str:
    """How this process was started: they differ in the folder that plugins are found in."""
    return "ragpipe" if Path(sys.argv[0]).stem == "ragpipe" else "python -m ragpipe"


def compose(overrides: Sequence[str], *, config_dir: str | None = None) -> RunConfig:
    """The checked configuration that the words of a command line describe; nothing is run. Raises ConfigError."""
    return compose_task(overrides, config_dir=config_dir)[1]  # type: ignore[no-any-return]


def compose_task(overrides: Sequence[str], *, config_dir: str | None = None) -> tuple[Any, Any]:
    """The module of the task that the words of a command line ask for, and its checked configuration. Raises ConfigError."""
    from ragpipe.composition.composer import composing

    with composing(config_dir) as composer:
        words, _ = composer.words(overrides)
        return _validated(composer.compose(words), composer.loader)


def report(error: BaseException) -> TaskResult:
    """Print an error: ragpipe's own without a traceback, any other, which is a bug, with one."""
    if interrupt := interrupt_behind(error):
        number = getattr(interrupt, "signal_number", int(signal.SIGINT))
        error = Interrupted({1: "the terminal was closed", 15: "terminated"}.get(number, "interrupted"), number)
    elif not isinstance(error, RagpipeError) or error.exit_code == 1:
        from ragpipe.store.outside_causes import outside_cause

        error = outside_cause(error, any_file=True) or error
    if place := user_fault(error):
        print(_safe(place), file=sys.stderr)
        return TaskResult(1, place.split("\n")[0])
    if not isinstance(error, RagpipeError) or error.exit_code == 1:
        lines = "".join(traceback.format_exception(error))
        print(_safe(f"{lines}{BUG}"), file=sys.stderr)
        return TaskResult(1, f"{type(error).__name__}: {error}")
    text = str(error)
    print(_safe(text), file=sys.stderr)
    first = next((f": {problem.key}: {problem.found}" for problem in getattr(error, "problems", ())), "")
    return TaskResult(error.exit_code, text.split("\n")[0] + first, resume=getattr(error, "raised", ()))


def console() -> Console:
    """The terminal, or plain text when there is none; judged text is never markup."""
    from ragpipe.reports.console import Console

    return Console()


def _arguments() -> argparse.ArgumentParser:
    parser = _Arguments(prog="ragpipe", add_help=False, allow_abbrev=False)
    add = parser.add_argument
    add("overrides", nargs="*")
    add("-h", "--help", action="store_true")
    add("-V", "--version", action="store_true")
    add("-m", "--multirun", action="store_true")
    add("--config-dir", "-cd", metavar="DIR")
    add("--cfg", "-c", choices=["job", "hydra", "all"])
    add("--package", "-p")
    add("--resolve", action="store_true")
    add("--info", "-i", choices=["all", "config", "defaults", "defaults-tree", "plugins", "searchpath"])
    add("--shell-completion", "-sc", action="store_true")
    return parser


def _is_file_word(word: str) -> bool:
    """Whether a word of the command line names a file or folder of data: it exists."""
    return word[:1] not in ("~", "+") and Path(word).exists()


def _start_file(files: Sequence[str], args: argparse.Namespace, before_task: Callable[[], None]) -> TaskResult:
    """`ragpipe FILE`: options for the file in a folder of their own, then a run of them with the other words."""
    from ragpipe.starting.first_run import begin, end

    if len(files) > 1 or args.config_dir:
        found = "--config-dir and a file" if args.config_dir else f"{len(files)} files: {', '.join(files)}"
        fix = "task=init from=FILE dir=NAME writes options that --config-dir NAME reads"
        if "task=compare" in args.overrides and len(files) > 1:
            fix = f"runs are named by keys: task=compare base={files[0]} candidate={files[1]}"
        raise ConfigError("one file is evaluated at a time", [Problem("command line", "FILE", found, "one file", fix)])
    words = [word for word in args.overrides if word != files[0]]
    option = next((word.partition("=")[2] for word in words if word.startswith("dataset=")), "")
    terminal = console()
    folder = begin(files[0], option, words, terminal)
    if folder is None:
        return TaskResult(2, "nothing was evaluated")
    args.overrides = [f"+experiment={folder.name}", *(word for word in words if not word.startswith("dataset="))]
    args.config_dir = str(folder.root)
    if args.multirun or args.cfg or args.info or any(word.startswith("task=") for word in words):
        return _start(args, before_task)
    outcome = _start(args, before_task)
    if outcome.folder is not None and outcome.code in (0, 3, 4):
        end(folder, words, terminal)
    return outcome


def _start(args: argparse.Namespace, before_task: Callable[[], None]) -> TaskResult:
    from ragpipe.composition.composer import composing
    from ragpipe.composition.interpolations import check_interpolations
    from ragpipe.composition.option_source import PRIMARY, HydraOrigins

    _stopped.clear()
    with composing(args.config_dir) as composer:
        if args.shell_completion:
            with composer.refusals(KeyError):  # a query needs what the shell has in COMP_LINE
                composer.hydra.shell_completion(config_name=PRIMARY, overrides=args.overrides)
            return TaskResult(0)
        words, jobs = composer.words(args.overrides)
        if args.cfg or args.info:
            with composer.refusals():
                if args.resolve:
                    check_interpolations(composer.compose(words), HydraOrigins(composer.loader), secrets=False)
                return TaskResult(_show(composer.hydra, args, words))
        if args.multirun:
            before_task()
            sweep = composer.sweep(words, jobs)
            job = partial(_sweep_job, loader=composer.loader, sweep=(sweep.jobs, sweep.overrides))
            return _sweep(composer, job, sweep)
        task, checked = _validated(composer.compose(words), composer.loader)
    before_task()
    return _run_job(lambda: (task, checked))


def _show(hydra: Any, args: argparse.Namespace, overrides: list[str]) -> int:
    """`--cfg` and `--info`; values of secret environment variables that `--resolve` would print are masked."""
    from ragpipe.core.secret_detection import is_secret_name, redact, secrets_of_environment

    out = io.StringIO()
    kind, part = args.cfg, args.package
    if kind == "hydra" and args.resolve:  # it names keys outside
        kind, part = "all", part or "hydra"
    try:
        with logging_kept(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            if kind:
                hydra.show_cfg("ragpipe", overrides, cfg_type=kind, package=part, resolve=args.resolve)
            else:
                hydra.show_info(args.info, config_name="ragpipe", overrides=overrides)
    except SystemExit as error:
        problem = Problem("command line", "--package", str(part), "a key of the configuration")
        raise ConfigError("the command line is wrong", [problem]) from error
    short = {value: name for name, value in os.environ.items() if len(value) > 3 and is_secret_name(name)}
    print(redact(out.getvalue(), secrets_of_environment() | (short if args.resolve else {})), end="")
    return 0


def _sweep(composer: Composer, job: Any, sweep: ComposedSweep) -> TaskResult:
    """Run all jobs, also after one fails. Prints their count first and a table last; returns the worst exit code.

    The command to go on needs every word that one of them needs; there is none where no start can change a result."""
    from ragpipe.composition.composer import typed_words

    jobs = sweep.jobs
    print(f"sweep: {jobs:,} job{'s' if jobs != 1 else ''}", file=sys.stderr, flush=True)
    with _folder_errors():
        done = composer.run_sweep(sweep, job)
    from ragpipe.engine.runs import sweep_comparison

    warnings = [ret.return_value.warnings for ret in done]
    in_full = None in warnings
    if in_full:
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
        if in_full:
            state = "ok" if outcome.code == 0 else f"exit {outcome.code}" if outcome.ran else "not started"
            line = f"  {number:>4}  {state:<12} {' '.join(typed_words(ret.overrides))}"
            print(_safe(line + (f"   {outcome.line}" if outcome.code else "")))
    try:
        short = None if in_full else [text for texts in warnings for text in texts]
        sweep_comparison.compare_jobs(ended, typed_words(sweep.overrides), console(), short)
    except RagpipeError as error:
        codes.append(report(error).code)
    worst = max(codes, key=lambda code: SEVERITY.index(code) if code in SEVERITY else SEVERITY.index(1))
    words = tuple(dict.fromkeys(word for resume in unfinished for word in resume))
    return TaskResult(worst, resume=words if unfinished else None)


def _sweep_job(config: DictConfig, *, loader: ConfigLoader, sweep: tuple[int, Sequence[str]]) -> TaskResult:
    """One job of a sweep, in this process or in a launcher's. Prints its line when it ends; `sweep` has the number of jobs and the
    words of all."""
    from ragpipe.composition.composer import job_words, typed_words
    from ragpipe.engine.graceful_shutdown import preemptible
    from ragpipe.engine.runs.sweep_comparison import ended_job, ended_line

    number, words = job_words()
    began = time.monotonic()
    with preemptible() as preemption:
        outcome = _run_job(partial(_validated, config, loader), sweep=True)
    if preemption and preemption.arrived and outcome.code > 128:  # a job that ended all the same has its result
        preemption.end()
    if outcome.warnings is not None and outcome.ran:
        jobs, shared = sweep
        job = ended_job(number, words, outcome.code, _safe(outcome.line), outcome.folder)
        same = {word.replace("\\", "") for word in typed_words(shared)}  # Hydra may have added escapes
        own = [word for word in words if word.replace("\\", "") not in same]
        print(_safe(ended_line(job, jobs, " ".join(own), time.monotonic() - began)), flush=True)
    return outcome


def _run_job(check: Callable[[], tuple[Any, Any]], *, sweep: bool = False) -> TaskResult:
    """Run one job. Raises nothing that a job raises: an exception inside it would end the whole sweep."""
    if _stopped:
        return TaskResult(_stopped[0], "an earlier job was interrupted", ran=False)
    terminal: Console | None = None
    try:
        task, checked = check()
        terminal = console()
        if sweep:
            from ragpipe.engine.runs.sweep_comparison import console_of_job

            terminal = console_of_job(checked)
        result = TaskResult(_run_task(task, checked, terminal, sweep=sweep), resume=terminal.resume)
    except BaseException as error:
        if isinstance(error, GeneratorExit):
            raise
        if isinstance(error, SystemExit):
            result = TaskResult(error.code if isinstance(error.code, int) else 1, "ended by SystemExit")
        else:
            result = report(error)
            if result.code in INTERRUPTED:
                _stopped.append(result.code)
    return result if terminal is None else replace(result, folder=terminal.folder, warnings=terminal.kept_warnings)


def _run_task(task: Any, checked: Any, terminal: Console, *, sweep: bool) -> int:
    from ragpipe.store.files.lazy_pandas import keep_pandas_away
    from ragpipe.store.run.folder_lock import waiting

    if not getattr(checked, "plugins", ()):  # plugins may pass pandas objects to pyarrow
        keep_pandas_away()
    wait_s = getattr(checked, "lock_wait_s", None)
    with logging_kept(), waiting(wait_s if wait_s is not None else SWEEP_WAIT_S if sweep else 0):
        logging.basicConfig(level=getattr(checked, "log_level", "warning").upper(), stream=sys.stderr, force=True)
        return int(task.run(checked, terminal))


def _validated(config: DictConfig, loader: ConfigLoader) -> tuple[Any, Any]:
    """The task's module and its validated configuration. A task with settings of its own has its own `validate`."""
    from ragpipe.composition.interpolations import resolved
    from ragpipe.composition.option_source import HydraOrigins
    from ragpipe.config.run_validation import INVALID_CONFIGURATION, task_name, validate_config
    from ragpipe.config.settings import RUN_KEYS

    origins = HydraOrigins(loader)
    plain = resolved(config, origins)
    name = task_name(plain, origins)
    typed = {key.partition(".")[0] for key in origins.chosen}.difference(RUN_KEYS)
    if words := [key for key in plain if key in typed]:  # an evaluation need not wait for the import of all tasks
        from ragpipe.tasks.schema import unknown_words

        if problems := unknown_words(name, words, origins):
            raise ConfigError(INVALID_CONFIGURATION, problems)
    task = registry.find("task", name)
    return task, getattr(task, "validate", validate_config)(plain, origins)


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


def with_words(argv: Sequence[str], more: Sequence[str]) -> list[str]:
    """The words of a command line with further ones, each in the place of an older one for the same key."""
    keys = {word.partition("=")[0] for word in more}
    kept = [word for word in argv if word in more or word.partition("=")[0] not in keys]
    return [*kept, *(word for word in more if word not in argv)]
