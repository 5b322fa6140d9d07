"""The functions for Python programs: evaluate, plan, score again, judge again, compare, verify, and read results.

Each does what the command line does with the same words, and raises the errors of `ragpipe.errors` instead of ending the
process. All of them work in a notebook, where an event loop is running already, and in any thread. An interrupt (Ctrl-C,
the stop button of a notebook) asks nothing new, waits for the calls in flight, and raises KeyboardInterrupt; a second one
gives those calls up. Running the same again goes on where it stopped.
"""

from __future__ import annotations

import io
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragpipe.core.errors import ConfigError, DataError, Interrupted, Problem

if TYPE_CHECKING:
    from ragpipe.report.console import Console
    from ragpipe.report.notebook import Comparison
    from ragpipe.report.run_data import Run
    from ragpipe.runs.plan import Plan
    from ragpipe.runs.verification import Verification

FROM_PYTHON = "the configuration from Python"
Config = Mapping[str, Any] | Sequence[str | Mapping[str, Any]]
"""One mapping, or a list of words (`"judge=llm"`) and mappings, where the later ones win."""
_PLAIN = re.compile(r"(?!(?i:null|true|false|nan|inf)$)[A-Za-z_][\w./-]*")


def run(config: Config = (), *, config_dir: str | None = None, quiet: bool = False) -> Run:
    """Evaluate, and return the results.

    A failed gate is not an error: it is in `.gates`. Judgements that failed are in the results, with the coverage beside
    every mean.

    Args:
        config: the words of a command line (`["+experiment=x", "judge=llm"]`), a mapping of the same keys
            (`{"experiment": "x", "judge": "llm", "dataset": {"limit": 10}}`), or a list of both, where the later wins.
        config_dir: a folder with options of your own; `./conf` is used without being named.
        quiet: print nothing; errors are still raised.

    Raises ConfigError, DataError and the other errors of `ragpipe.errors`.
    """
    return _results("evaluate", config, config_dir, quiet)


def plan(config: Config = (), *, config_dir: str | None = None, quiet: bool = False) -> Plan | None:
    """What `run` with this configuration would ask and cost: cases, calls, tokens. Spends nothing, writes nothing.

    Returns None where the number of calls depends on outputs that a live system has yet to give. Arguments as for `run`.
    Raises ConfigError, DataError.
    """
    from ragpipe.cli.tasks import plan as task

    with _started("plan", config, config_dir, quiet) as start:
        return task.plan_run(start.config, start.console)


def rescore(path: str | Path | Run, config: Config = (), *, config_dir: str | None = None, quiet: bool = False) -> Run:
    """Score a finished run again, with other weights, thresholds, gates or rules. Makes no call.

    Args:
        path: the folder of the run, or the results of `run` or `load`.
        config: what changes, for instance `{"scoring": {"thresholds": {"faithfulness": 0.9}}}`; forms as for `run`.
        config_dir, quiet: as for `run`.

    Returns the results of the run that this makes, in a folder beside the first. Raises ConfigError for a change that
    would need a new call, DataError for a folder that is not a finished run.
    """
    return _results("rescore", config, config_dir, quiet, path)


def rejudge(path: str | Path | Run, config: Config = (), *, config_dir: str | None = None, quiet: bool = False) -> Run:
    """Put the frozen cases of a finished run before another judge: `{"judge": "llm", "judge.model": "openai/..."}`.

    Returns the results of the run that this makes; its agreement with the first is in its folder. Arguments as for
    `rescore`. Raises ConfigError, DataError, and what a judge can raise.
    """
    return _results("rejudge", config, config_dir, quiet, path)


def compare(
    base: str | Path | Run,
    candidate: str | Path | Run | Sequence[str | Path | Run],
    config: Config = (),
    *,
    config_dir: str | None = None,
    quiet: bool = False,
) -> Comparison:
    """Whether the candidate is better than the base, case by case. Makes no call.

    Args:
        base: the run to compare with: a folder, a name, a run id, or the results of `run` or `load`.
        candidate: the run that may be better, or a list of them.
        config: what may differ and which effects matter (`{"compare": {"accept": ["judge"]}}`); forms as for `run`.
        config_dir, quiet: as for `run`.

    Returns the content of `comparison.json` as a `Comparison`, which shows the verdict and has `.differences` as a frame; the files are in `outputs/<name>/comparisons`. Raises ConfigError for runs that
    differ in what is not accepted, DataError.
    """
    from ragpipe.report.notebook import Comparison

    candidates = [candidate] if isinstance(candidate, str | Path) or not isinstance(candidate, Sequence) else candidate
    runs = {"base": _path_word(base), "candidate": [_path_word(item) for item in candidates]}
    with _started("compare", [*override_words(config), *override_words(runs)], config_dir, quiet) as start:
        return Comparison(start.module.compare_task(start.config, start.console))


def verify(path: str | Path | Run, *, quiet: bool = False) -> Verification:
    """Whether a run folder is what it was when the run ended, and its figures follow from its cases and replies.

    Makes every derived file again in a scratch folder and compares. Makes no call. Raises ConfigError, DataError.
    """
    from ragpipe.runs.verification import verify_run

    with _started("verify", (), None, quiet, path) as start:
        return verify_run(start.config.finished)


def stop() -> int:
    """Ask every evaluation of this process to end early, from another thread.

    Each asks nothing new, waits for the calls in flight, and raises `ragpipe.errors.Interrupted` where it was started.
    Returns how many there are; does not wait for them.
    """
    from ragpipe.runs.event_loop import stop_all

    return stop_all()


def load(path: str | Path, *, iteration: int | None = None) -> Run:
    """The results in a run folder, such as `outputs/<name>/latest`: `.cases`, `.records`, `.scores` and others as pandas frames,
    `.metrics`, `.cost`, `.gates` and `.final` as dictionaries (`Run`). By default those of the newest iteration.

    Raises DataError for what is not a run folder, FormatMismatch for one of another format.
    """
    from ragpipe.report.run_data import load_run as read

    return read(path, iteration=iteration, compare=lambda base, run: compare(base, run, quiet=True))


@dataclass(frozen=True)
class _Start:
    """One task that is about to run: its module, its checked configuration, and where it prints."""

    module: Any
    config: Any
    console: Console


def _results(task: str, config: Config, config_dir: str | None, quiet: bool, path: str | Path | Run | None = None) -> Run:
    """Run a task that leaves a run folder, and read that folder."""
    with _started(task, config, config_dir, quiet, path) as start:
        start.module.run(start.config, start.console)
    folder = start.console.folder
    if folder is None:
        raise DataError(f"task={task} left no run folder")
    return load(folder.resolve())


def _path_word(path: str | Path | Run) -> str:
    return str(getattr(path, "path", path))


@contextmanager
def _started(
    task: str, config: Config, config_dir: str | None, quiet: bool, path: str | Path | Run | None = None
) -> Iterator[_Start]:
    """Compose and check a task. Inside, the run can be stopped, and an interrupt is a KeyboardInterrupt."""
    from ragpipe.cli.command_line import compose_task, console
    from ragpipe.report.console import Console
    from ragpipe.runs.event_loop import INTERRUPTED_CELL, keyboard_raises, stoppable
    from ragpipe.store.folder_lock import waiting

    words = [f"task={task}", *override_words(config)]
    if path is not None:
        words += override_words({"run": _path_word(path)})
    with stoppable(), keyboard_raises():
        module, checked = compose_task(words, config_dir=config_dir)
        if module.__name__ != f"ragpipe.cli.tasks.{task}":
            function = module.__name__.rpartition(".")[2]
            actual = f"task={function}"
            fix = f"call ragpipe.{function}, or start it on the command line"
            raise ConfigError("this function runs another task", [Problem(FROM_PYTHON, "task", actual, f"task={task}", fix)])
        try:
            with waiting(getattr(checked, "lock_wait_s", None) or 0):
                yield _Start(module, checked, Console(out=Silence(), err=Silence()) if quiet else console())
        except Interrupted as interrupted:
            if interrupted.signal_number == signal.SIGINT:
                raise KeyboardInterrupt(INTERRUPTED_CELL) from interrupted
            raise


class Silence(io.StringIO):
    """A stream that drops what is written to it."""

    def write(self, text: str) -> int:
        return len(text)


def override_words(config: Config) -> list[str]:
    """The words that say the same as `config`.

    A mapping inside a mapping stands for its keys: `{"judge": {"model": "m"}}` is `judge.model=m`. Where a key begins
    with `+` its mapping is set as a whole. `experiment` and `mode` need no `+`. Strings stay strings ("007", "null").
    Raises ConfigError for what is neither words nor plain data.
    """
    if isinstance(config, str):
        raise _unreadable("config", config, "a list of words or a mapping")
    words: list[str] = []
    for part in [config] if isinstance(config, Mapping) else config:
        if not isinstance(part, str | Mapping):
            raise _unreadable("config", part, "words and mappings")
        words += [part] if isinstance(part, str) else _words(part)
    return words


def _words(section: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in section.items():
        if not isinstance(name, str) or not name:
            raise _unreadable(prefix or "config", name, "keys as strings")
        key = f"{prefix}.{name}" if prefix else name
        if isinstance(value, Mapping) and value and not key.startswith("+"):
            yield from _words(value, key)
        else:
            yield f"{'+' if key in ('experiment', 'mode') else ''}{key}={override_text(key, value)}"


def override_text(key: str, value: Any) -> str:
    """A value in the grammar of Hydra's overrides."""
    from hydra.core.override_parser.types import Quote, QuotedString

    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else QuotedString(value, Quote.double).with_quotes()
    if isinstance(value, Mapping):
        return (
            "{" + ",".join(f"{override_text(key, str(name))}:{override_text(key, item)}" for name, item in value.items()) + "}"
        )
    if isinstance(value, list | tuple):
        return "[" + ",".join(override_text(key, item) for item in value) + "]"
    if value is None or isinstance(value, bool | int | float):
        return "null" if value is None else str(value).lower()
    raise _unreadable(key, value, "text, numbers, lists and mappings")


def _unreadable(key: str, value: Any, expected: str) -> ConfigError:
    problem = Problem(FROM_PYTHON, str(key), f"{type(value).__name__} {value!r}"[:120], expected)
    return ConfigError("the configuration cannot be read", [problem])
