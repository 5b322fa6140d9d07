"""The errors that ragpipe raises on purpose, and the exit code of a run that ends with one.

    RagpipeError                 1   (a plain one is a bug in ragpipe)
    ├── ConfigError              2   the configuration is wrong; nothing was spent
    ├── DataError                2   an input file is wrong; nothing was spent
    │   └── FormatMismatch       2   a run folder or call store of another format; it was not touched
    ├── PromptError              2   a template is wrong; nothing was spent
    ├── Incomplete               4   the run stopped early and can be resumed (budget used up, too many failures)
    ├── ProviderUnusable         5   the provider cannot be used at all (key, model, quota, outage)
    ├── OutputError              6   the output folder cannot be written
    │   └── FolderLocked         6   another process works in this folder
    ├── Interrupted    129/130/143   a signal ended the run; it can be resumed
    ├── PromptTooLong            -   the values of one case exceed a prompt's limit: becomes a score with status `error`
    ├── JudgeError               -   one judgement failed: becomes a score with status `error`
    └── Skipped                  -   a metric does not apply to this case: becomes a score with status `skipped`

`PromptTooLong`, `JudgeError` and `Skipped` never leave a run: the engine turns them into scores. `SignalReceived` is a
KeyboardInterrupt, so that no handler of errors catches it.
"""

from __future__ import annotations

import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

FailureKind = Literal[
    # permanent: asking again at temperature 0 gives the same; stored as the case's result until `retry_errors=true`
    "bad_request",
    "too_long",
    "refused",
    "cut_short",
    "unparsable",
    "slow_pattern",  # a regular expression of a metric exceeded its time limit; no judge was asked
    # transient: an unfinished run asks again
    "network",
    "rate_limit",
    "server_error",
    "deadline",
    "empty_reply",
    "not_an_api_answer",
    "breaker",
    "budget",
    "missing_reply",  # transport=stored and the store has none
    # fatal: the provider as a whole is unusable, the run stops
    "auth",
    "model_not_found",
    "quota",
    "unreachable",
]

TRANSIENT: frozenset[str] = frozenset(
    {"network", "rate_limit", "server_error", "deadline", "empty_reply", "not_an_api_answer", "breaker", "budget"}
    | {"missing_reply"}
)
FATAL: frozenset[str] = frozenset({"auth", "model_not_found", "quota", "unreachable"})


class RagpipeError(Exception):
    """Base of all errors raised on purpose. `exit_code` is the process's exit code when it ends a run."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault in a file or a configuration, as the user sees it.

    `where` is a file with a line (`conf/judge/llm.yaml:7`), a row, or `command line`; `key` is the dotted key, column or
    field; `found` is what is there, `expected` what should be; `fix` says what to do, and may be empty.
    `records` counts the places that have the fault: above 1, `where` is the first of them and `also` has up to two more.
    """

    where: str
    key: str
    found: str
    expected: str
    fix: str = ""
    records: int = 1
    also: tuple[str, ...] = ()

    def __str__(self) -> str:
        title = f"{self.where}: {self.key}"
        if self.records > 1:
            also = f", then {', '.join(self.also)}" if self.also else ""
            title = f"{self.key}: {self.records:,} records, first {self.where}{also}"
        text = f"{title}\n    found:    {self.found}\n    expected: {self.expected}"
        return text + (f"\n    fix:      {self.fix}" if self.fix else "")


class _ProblemListError(RagpipeError):
    """An error that lists all faults at once; its text has the first 20."""

    exit_code = 2
    listed = 20

    def __init__(self, title: str, problems: Sequence[Problem] = ()):
        self.title = title
        self.problems = tuple(problems)
        lines = [title, *(f"  {p}" for p in self.problems[: self.listed])]
        if len(self.problems) > self.listed:
            lines.append(f"  ... and {len(self.problems) - self.listed} more")
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[type, tuple[str, tuple[Problem, ...]]]:  # survives joblib's process boundary
        return type(self), (self.title, self.problems)


class ConfigError(_ProblemListError):
    """The composed configuration is wrong. Lists every fault with key, file and line, found, expected."""


class DataError(_ProblemListError):
    """An input file is wrong. Lists every fault with file, line or row, field, found, expected."""


class FormatMismatch(DataError):
    """A run folder, call store or exported file has another format number. It is neither read nor changed."""


class PromptError(_ProblemListError):
    """A prompt template is missing, malformed, or uses a variable that its metric does not provide."""


class PromptTooLong(RagpipeError):
    """A case's values exceed a prompt's limit. The engine records a score with status `error`, kind `too_long`."""


class Incomplete(RagpipeError):
    """The run stopped before its end and can be resumed by the same command."""

    exit_code = 4


class ProviderUnusable(RagpipeError):
    """The judge's provider cannot be used: wrong key, unknown model, no quota, or repeated fatal errors; or the system under
    test cannot be reached.

    `kind` is one of the fatal failure kinds or `breaker`.
    """

    exit_code = 5

    def __init__(self, message: str, kind: str = "unreachable"):
        self.kind = kind
        super().__init__(message)


class OutputError(RagpipeError):
    """Something could not be written (disk full, no permission, not a folder)."""

    exit_code = 6


class FolderLocked(OutputError):
    """Another live process works on this folder."""


class Interrupted(RagpipeError):
    """A signal, or `ragpipe.stop`, ended the run. `exit_code` is 130 for SIGINT, 143 for SIGTERM and 129 for SIGHUP."""

    def __init__(self, message: str, signal_number: int = 2):
        self.exit_code = 128 + signal_number
        self.signal_number = signal_number
        super().__init__(message)


class SignalReceived(KeyboardInterrupt):
    """A signal arrived while no stage could be stopped: while a run is composed, planned or scored."""

    def __init__(self, signal_number: int):
        self.signal_number = signal_number
        super().__init__(signal_number)


def causes(error: BaseException | None, *, context: bool = False) -> Iterator[BaseException]:
    """An error and what it was raised for, the outermost first; with `context` also what was being handled meanwhile. Ends where
    causes go round in a circle: `raise error.orig from error` makes such."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (error.__context__ if context else None)


def interrupt_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    """The interrupt that caused an error: OmegaConf's own clean-up fails when one hits it, and of one that comes while pydantic
    builds a schema only the text is left. None for `Interrupted`, which says so itself."""
    if isinstance(error, Interrupted):
        return None
    for cause in causes(error, context=True):
        if isinstance(cause, KeyboardInterrupt):
            return cause
        if not isinstance(cause, RagpipeError) and (text := re.search(r"\bSignalReceived: (\d+)", str(cause))):
            return SignalReceived(int(text[1]))
    return None


class JudgeError(RagpipeError):
    """One judgement failed. The engine records a score with status `error` and this kind and text.

    `text` is the raw reply, where there was one; it is kept in the records.
    """

    def __init__(self, kind: FailureKind, message: str, *, text: str | None = None):
        self.kind = kind
        self.message = message
        self.text = text
        super().__init__(f"{kind}: {message}")

    @property
    def transient(self) -> bool:
        """True when a later start of the same run should ask again."""
        return self.kind in TRANSIENT


class Skipped(RagpipeError):
    """The metric does not apply to this case, or this judge cannot answer. `reason` is a snake_case word or a short line."""

    def __init__(self, reason: str):
        self.reason = reason
        super().__init__(reason)


_OURS = Path(__file__).resolve().parents[1]
_RECORD = "on_metric_error=record keeps such an error as the result of its case, and the run goes on"


RUN_ENDING = (ConfigError, DataError, Incomplete, Interrupted, OutputError, ProviderUnusable)
"""Errors that end a run, whichever case they come from."""


def decisive_error(error: Exception) -> Exception:
    """The error that decides the outcome of a measurement. A metric that asks in a TaskGroup raises a group: an error that ends
    the run comes first, then a bug, then a failed judgement."""
    if not isinstance(error, ExceptionGroup):
        return error
    errors = [decisive_error(part) for part in error.exceptions]
    ending = (part for part in errors if isinstance(part, RUN_ENDING))
    bugs = (part for part in errors if not isinstance(part, Skipped | JudgeError))
    return next(ending, None) or next(bugs, None) or errors[0]


def user_fault(error: BaseException) -> str:
    """What to print of an unexpected error that a plugin raised: the error, then file, line and text of each of the plugin's
    calls that led to it. Empty where no file of the user's is among them, or the error is raised deeper in ragpipe itself.

    The user's files are those outside this package, of the standard library and of installed packages.
    """
    if getattr(error, "exit_code", 1) != 1:
        return ""
    if from_worker := getattr(error, "user_fault", ""):  # found where the error was raised
        return str(from_worker)
    *_, cause = causes(error)
    frames = traceback.extract_tb(cause.__traceback__)
    theirs = [place for place, frame in enumerate(frames) if _is_of_user(frame.filename)]
    if not theirs or any(Path(frame.filename).is_relative_to(_OURS) for frame in frames[theirs[-1] + 1 :]):
        return ""
    what = str(error).split("\n")[0] if error is not cause else ""
    named = f"{type(cause).__name__}: {cause}"
    lines = [named if not what or what == str(cause) else what if named in what else f"{what}: {named}"]
    for frame in frames[theirs[0] :]:
        lines.append(f"  {_shown(frame.filename)}:{frame.lineno}, in {frame.name}")
        if frame.line:
            lines.append(f"    {frame.line}")
    last = frames[theirs[-1]]
    lines.append(f"this is a fault in your own code, at {_shown(last.filename)}:{last.lineno}")
    if what.startswith("metric "):
        lines.append(f"fix: correct it; the same command then goes on. Or: {_RECORD}")
    return "\n".join(lines)


def user_place(error: BaseException) -> str:
    """`my_rag.py:12`: the last line of the user's own code on the way to an error; empty where there is none."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_of_user(frame.filename)]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


def returned_fault(metric: str, case: str, refusal: str) -> str:
    """What to print of a metric that returned what it must not."""
    where = f"this is a fault of the metric {metric}, on case {case}"
    return f"metric {metric} on case {case}: {refusal}\n{where}\nfix: correct it; the same command then goes on. Or: {_RECORD}"


def _is_of_user(name: str) -> bool:
    path = Path(name)
    if not path.is_absolute() or not path.is_file():
        return False
    path = path.resolve()
    libraries = {Path(folder).resolve() for folder in sysconfig.get_paths().values()} - {Path(sys.prefix).resolve()}
    return not any(path.is_relative_to(folder) for folder in (_OURS, *libraries))


def _shown(name: str) -> str:
    """A path as it is named from here."""
    path, here = Path(name).resolve(), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
