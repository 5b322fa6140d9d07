"""The command line: parses the arguments, composes with Hydra, validates, runs one task or a sweep, and returns the exit code."""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import re
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

from ragpipe.cli.process_streams import logging_kept, steady_streams
from ragpipe.core import registry
from ragpipe.core.errors import ConfigError, Interrupted, Problem, RagpipeError, interrupt_behind, user_fault
from ragpipe.core.version import __version__

if TYPE_CHECKING:
    from hydra.core.config_loader import ConfigLoader
    from omegaconf import DictConfig

    from ragpipe.cli.composer import ComposedSweep, Composer
    from ragpipe.report.console import Console
    from ragpipe.runs.settings import RunConfig

_HELP = """ragpipe {version}: evaluate RAG systems from config files

  python -m ragpipe +experiment=quickstart     the demonstration: no key, no network
  python -m ragpipe FILE                       your data: recognised, metrics chosen, evaluated
  python -m ragpipe +experiment=my judge=llm judge.model=openai/gpt-4o-mini-2024-07-18

tasks; task=NAME --help has its keys and an example; RUN: a name, NAME/latest, an id or a folder
{tasks}words
  group=option, key=value   dataset=jsonl dataset.limit=50 'metrics=[faithfulness,retrieval]'
  +experiment=NAME          put an experiment on top; +mode=NAME likewise; ~metrics.a takes one away
  -m key=a,b                a sweep: one run for every combination
  --cfg job, --info all     the composed configuration as YAML; how it was composed
  --config-dir DIR          a folder of your own options (./conf is found by itself)
  -sc install=bash, -V      shell completion (bash, fish, zsh); the version
exit codes
  0 fine   1 a bug   2 wrong configuration or data   3 a critical gate failed   4 incomplete
  5 provider unusable   6 output locked or unwritable   129, 130, 143 interrupted, resumable
"""
_TASKS = {
    "evaluate": {
        "evaluate": "the default: a run, or the rest of one that was stopped",
        "plan": "what the data hold, what looks wrong; calls, tokens, money",
        "init": "options for a file of yours (from=FILE dir=my), or an example",
        "rescore": "RUN under other thresholds, weights, gates; no call",
        "rejudge": "RUN's cases by another judge, compared",
    },
    "understand": {"explain": "everything behind one case's scores", "runs": "all runs of a name in one table"},
    "compare, gate": {
        "compare": "did the change make it better? case by case, with a verdict",
        "history": "the scores over all runs, each against the previous run",
    },
    "trust the judge": {
        "label": "cases for people to label, and their labels back",
        "calibrate": "how far to believe the judge, by people's labels",
        "verify": "compute every figure of RUN again and compare",
    },
    "data": {"store, schema": "the judge's stored replies; JSON Schemas for your editor"},
    "share": {"export": "tables, JUnit, pages or a site of RUN"},
}
"""The tasks by purpose, each with a few words; those of extras join them."""
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
    """How one job ended: exit code, a line about an error, whether it was started at all, and its run folder.

    `resume` are the arguments that the same command needs to go on where it stopped; None where a new start would end alike.
    `warnings` is what a job of a sweep in short warned of, to be printed at its end; None for a job that printed all itself.
    """

    code: int
    line: str = ""
    ran: bool = True
    folder: Path | None = None
    resume: tuple[str, ...] | None = ()
    warnings: tuple[str, ...] | None = ()


class _Arguments(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        from ragpipe.cli.overrides import near_word

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
            print(_help(args), end="")
            return 0
        files = [argument for argument in args.overrides if argument[:1] not in ("~", "+") and Path(argument).exists()]
        outcome = _start_file(files, args, before_task) if files else _start(args, before_task)
    except BaseException as error:
        if isinstance(error, SystemExit | GeneratorExit):
            raise
        outcome = report(error)
        if outcome.code not in INTERRUPTED:
            return outcome.code
    if outcome.code in RESUMABLE and outcome.resume is not None:
        # plugins are found in other folders by either command
        command = "ragpipe" if Path(sys.argv[0]).stem == "ragpipe" else "python -m ragpipe"
        arguments = shlex.join(with_words(argv, outcome.resume))
        print(_safe(f"to go on where it stopped: {command} {arguments}"), file=sys.stderr)
    return outcome.code


def _help(args: argparse.Namespace) -> str:
    """The help of the task that is named, or that of all. Raises ConfigError for a task that is not there."""
    task = next((argument.partition("=")[2] for argument in reversed(args.overrides) if argument.startswith("task=")), "")
    if not task:
        return _HELP.format(version=__version__, tasks="".join(_task_lines()))
    from ragpipe.cli.composer import composing

    with composing(args.config_dir) as composer:
        return task_help(composer, task)


def _task_lines() -> Iterator[str]:
    by_purpose = {purpose: dict(tasks) for purpose, tasks in _TASKS.items()}
    for of_extra in registry.help_of_extras():
        for purpose, tasks in of_extra.items():
            by_purpose.setdefault(purpose, {}).update(tasks)
    for purpose, tasks in by_purpose.items():
        for number, (task, words) in enumerate(tasks.items()):
            yield f"  {'' if number else purpose:<15}  {task:<14}  {words}\n"


def compose(overrides: Sequence[str], *, config_dir: str | None = None) -> RunConfig:
    """The checked configuration that the arguments of a command line describe; nothing is run. Raises ConfigError."""
    return compose_task(overrides, config_dir=config_dir)[1]  # type: ignore[no-any-return]


def compose_task(overrides: Sequence[str], *, config_dir: str | None = None) -> tuple[Any, Any]:
    """The module of the task that the arguments of a command line ask for, and its checked configuration. Raises ConfigError."""
    from ragpipe.cli.composer import composing

    with composing(config_dir) as composer:
        arguments, _ = composer.arguments(overrides)
        return _validated(composer.compose(arguments), composer.loader)


def report(error: BaseException) -> TaskResult:
    """Print an error: ragpipe's own without a traceback, any other, which is a bug, with one."""
    if interrupt := interrupt_behind(error):
        number = getattr(interrupt, "signal_number", int(signal.SIGINT))
        error = Interrupted({1: "the terminal was closed", 15: "terminated"}.get(number, "interrupted"), number)
    elif not isinstance(error, RagpipeError) or error.exit_code == 1:
        from ragpipe.store.files import outside_cause

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
    from ragpipe.report.console import Console

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


def _start_file(files: Sequence[str], args: argparse.Namespace, before_task: Callable[[], None]) -> TaskResult:
    """`ragpipe FILE`: options for the file in a folder of their own, then a run of them with the other arguments."""
    from ragpipe.cli.first_run import begin, brings_metrics, say_go_on, say_left_out

    if len(files) > 1 or args.config_dir:
        found = "--config-dir and a file" if args.config_dir else f"{len(files)} files: {', '.join(files)}"
        fix = "task=init from=FILE dir=NAME writes options that --config-dir NAME reads"
        if "task=compare" in args.overrides and len(files) > 1:
            fix = f"runs are named by keys: task=compare base={files[0]} candidate={files[1]}"
        raise ConfigError("one file is evaluated at a time", [Problem("command line", "FILE", found, "one file", fix)])
    arguments = [argument for argument in args.overrides if argument != files[0]]
    option = next((argument.partition("=")[2] for argument in arguments if argument.startswith("dataset=")), "")
    terminal = console()
    folder = begin(files[0], option, arguments, terminal)
    if folder is None:
        return TaskResult(2, "nothing was evaluated")
    args.overrides = [
        f"+experiment={folder.name}",
        *(argument for argument in arguments if not argument.startswith("dataset=")),
    ]
    args.config_dir = str(folder.root)
    if args.multirun or args.cfg or args.info or any(argument.startswith("task=") for argument in arguments):
        return _start(args, before_task)
    outcome = _start(args, before_task)
    if outcome.folder is not None and outcome.code in (0, 3, 4):
        if not brings_metrics(arguments):
            say_left_out(folder, terminal)
        say_go_on(folder, arguments, terminal)
    return outcome


def _start(args: argparse.Namespace, before_task: Callable[[], None]) -> TaskResult:
    from ragpipe.cli.composer import PRIMARY, HydraOrigins, composing
    from ragpipe.cli.overrides import check_interpolations

    _stopped.clear()
    with composing(args.config_dir) as composer:
        if args.shell_completion:
            with composer.refusals(KeyError):  # a query needs what the shell has in COMP_LINE
                composer.hydra.shell_completion(config_name=PRIMARY, overrides=args.overrides)
            return TaskResult(0)
        arguments, jobs = composer.arguments(args.overrides)
        if args.cfg or args.info:
            with composer.refusals():
                if args.resolve:
                    check_interpolations(composer.compose(arguments), HydraOrigins(composer.loader), secrets=False)
                return TaskResult(_show(composer.hydra, args, arguments))
        if args.multirun:
            before_task()
            sweep = composer.sweep(arguments, jobs)
            job = partial(_sweep_job, loader=composer.loader, sweep=(sweep.jobs, sweep.overrides))
            return _sweep(composer, job, sweep)
        task, checked = _validated(composer.compose(arguments), composer.loader)
    before_task()
    return _run_job(lambda: (task, checked))


def _show(hydra: Any, args: argparse.Namespace, overrides: list[str]) -> int:
    """`--cfg` and `--info`; values of secret environment variables that `--resolve` would print are masked."""
    from ragpipe.core.secrets import is_secret_name, redact, secrets_of_environment

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
    """Run all jobs, also after one fails, with a table at the end. The worst exit code, and every argument that one needs to go on."""
    from ragpipe.cli.composer import typed_words

    jobs = sweep.jobs
    print(f"sweep: {jobs:,} job{'s' if jobs != 1 else ''}", file=sys.stderr, flush=True)
    done = composer.run_sweep(sweep, job)
    from ragpipe.runs import sweep_comparison

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
        ended.append(sweep_comparison.ended_job(number, typed_words(ret.overrides), code, _safe(outcome.line), outcome.folder))
        if in_full:
            state = "ok" if outcome.code == 0 else f"exit {outcome.code}" if outcome.ran else "not started"
            line = f"  {number:>4}  {state:<12} {' '.join(typed_words(ret.overrides))}"
            print(_safe(line + (f"   {outcome.line}" if outcome.code else "")))
    try:
        said = [text for texts in warnings for text in texts or ()]
        sweep_comparison.compare_jobs(ended, typed_words(sweep.overrides), console(), said)
    except RagpipeError as error:
        codes.append(report(error).code)
    worst = max(codes, key=lambda code: SEVERITY.index(code) if code in SEVERITY else SEVERITY.index(1))
    arguments = tuple(dict.fromkeys(argument for resume in unfinished for argument in resume))
    return TaskResult(worst, resume=arguments if unfinished else None)


def _sweep_job(config: DictConfig, *, loader: ConfigLoader, sweep: tuple[int, Sequence[str]]) -> TaskResult:
    """One job, in this process or in a launcher's, and its line; `sweep` has the number of jobs and the arguments of all."""
    from ragpipe.cli.composer import job_words, typed_words
    from ragpipe.runs.event_loop import preemptible
    from ragpipe.runs.sweep_comparison import ended_job, ended_line

    number, arguments = job_words()
    began = time.monotonic()
    with preemptible() as preemption:
        outcome = _run_job(partial(_validated, config, loader), sweep=True)
    if preemption and preemption.arrived and outcome.code > 128:  # a job that ended all the same has its result
        preemption.end()
    if outcome.warnings is not None and outcome.ran:
        jobs, shared = sweep
        job = ended_job(number, arguments, outcome.code, _safe(outcome.line), outcome.folder)
        same = {argument.replace("\\", "") for argument in typed_words(shared)}  # Hydra may have added escapes
        own = [argument for argument in arguments if argument.replace("\\", "") not in same]
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
            from ragpipe.runs.sweep_comparison import console_of_job

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
    from ragpipe.cli.process_streams import keep_pandas_away
    from ragpipe.store.folder_lock import waiting

    if not getattr(checked, "plugins", ()):  # plugins may pass pandas objects to pyarrow
        keep_pandas_away()
    wait_s = getattr(checked, "lock_wait_s", None)
    with logging_kept(), waiting(wait_s if wait_s is not None else SWEEP_WAIT_S if sweep else 0):
        logging.basicConfig(level=getattr(checked, "log_level", "warning").upper(), stream=sys.stderr, force=True)
        return int(task.run(checked, terminal))


def _validated(config: DictConfig, loader: ConfigLoader) -> tuple[Any, Any]:
    """The task's module and its validated configuration. A task with settings of its own has its own `validate`."""
    from ragpipe.cli.composer import HydraOrigins
    from ragpipe.cli.overrides import resolved
    from ragpipe.runs.settings import RUN_KEYS
    from ragpipe.runs.validation import INVALID_CONFIGURATION, task_name, validate_config

    origins = HydraOrigins(loader)
    plain = resolved(config, origins)
    name = task_name(plain, origins)
    typed = {key.partition(".")[0] for key in origins.chosen}.difference(RUN_KEYS)
    if arguments := [key for key in plain if key in typed]:  # an evaluation need not wait for the import of all tasks
        from ragpipe.cli.tasks.schema import unknown_words

        if problems := unknown_words(name, arguments, origins):
            raise ConfigError(INVALID_CONFIGURATION, problems)
    task = registry.find("task", name)
    return task, getattr(task, "validate", validate_config)(plain, origins)


def _safe(text: str) -> str:
    """Without control characters, which could rewrite the terminal, and without anything that looks like a key."""
    from ragpipe.core.secrets import redact, secrets_of_environment

    printable = "".join(c if (c >= " " and c != "\x7f") or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)
    return redact(printable, secrets_of_environment())


def with_words(argv: Sequence[str], more: Sequence[str]) -> list[str]:
    """The arguments of a command line with further ones, each in the place of an older one for the same key."""
    keys = {argument.partition("=")[0] for argument in more}
    kept = [argument for argument in argv if argument in more or argument.partition("=")[0] not in keys]
    return [*kept, *(argument for argument in more if argument not in argv)]


_FOR_PROGRAMS = re.compile(r"# (@package|yaml-language-server:) ?.*")
_DEFAULT = re.compile(r"\s+- /(\w+): (\w+)")


def task_help(composer: Composer, name: str) -> str:
    """The help of a task. Raises ConfigError for one that is not there, with the names that are like it."""
    composer.compose(composer.arguments([f"task={name}"])[0])
    lines = list(_lines(composer, f"task/{name}"))
    said = [line[2:] for line in lines if line.startswith("# ")]
    keys = [f"  {line}" for line in lines if line.strip() and not line.startswith(("#", "task:"))]
    head = f"task={name}\n  " + "\n  ".join(said)
    body = "\n\nkeys, with their defaults (???: to be given)\n" + "\n".join(keys) if keys else ""
    return f"{head}{body}\n\n--help without a task: the tasks, options and exit codes\n"


def _lines(composer: Composer, option: str) -> Iterator[str]:
    """The lines of an option that are for people; those of an option that it takes in stand in the place of its name."""
    from ragpipe.cli.composer import option_file

    file = option_file(composer.loader, option)
    for line in file.read_text(encoding="utf-8").splitlines() if file else ():
        if taken := _DEFAULT.fullmatch(line):
            group, chosen = taken.groups()
            others = [name for name in composer.loader.get_group_options(group) if name != chosen]
            yield f"{group}:   # or {' or '.join(f'{group}={name}' for name in others)}"
            yield from (f"  {each}" for each in _lines(composer, f"{group}/{chosen}") if not each.startswith("#"))
        elif not _FOR_PROGRAMS.fullmatch(line) and line not in ("defaults:", "  - _self_"):
            yield line
