"""Every error that ragpipe raises on purpose, and the exit code it ends a run with.

    RagpipeError                 1   (a plain one is a bug of ours)
    ├── ConfigError              2   the composition is wrong; nothing was spent
    ├── DataError                2   an input file is wrong; nothing was spent
    │   └── OtherFormat          2   a run folder or a call store of another format; nothing of it was touched
    ├── PromptError              2   a template is wrong; nothing was spent
    ├── Incomplete               4   the run stopped early and can be resumed (budget used up, too many failures)
    ├── ProviderUnusable         5   the provider cannot be used at all (key, model, quota, dead)
    ├── OutputError              6   the output folder cannot be written
    │   └── Locked               6   another process works on this folder
    ├── Interrupted    129/130/143   a signal ended the run; resumable
    ├── TooLong                  -   the values of one case fit no question: becomes a score with status `error`
    ├── JudgeError               -   one judgement failed: becomes a score with status `error`
    └── Skipped                  -   a metric does not apply to this case: becomes a score with status `skipped`

`TooLong`, `JudgeError` and `Skipped` never leave a run: the engine turns them into scores. `Signalled` and `Abandoned` are
KeyboardInterrupts, so that nothing that catches errors catches them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Thread
from typing import Literal

FailureKind = Literal[
    # permanent: asking again at temperature 0 gives the same; kept as the case's result until `retry_errors=true`
    "bad_request",
    "too_long",
    "refused",
    "cut_short",
    "unparsable",
    "slow_pattern",  # a regular expression of a metric took longer than its time limit; nobody was asked
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
    """One fault in a file or a configuration, as it is shown to the user.

    `where` is a file with a line (`conf/judge/llm.yaml:7`), a row, or `command line`; `key` the dotted key, column or
    field; `found` and `expected` say what stands there and what should; `fix` says what to do.
    """

    where: str
    key: str
    found: str
    expected: str
    fix: str = ""

    def __str__(self) -> str:
        text = f"{self.where}: {self.key}\n    found:    {self.found}\n    expected: {self.expected}"
        return text + (f"\n    fix:     {self.fix}" if self.fix else "")


class _Problems(RagpipeError):
    """An error that lists all faults at once (the first 20 in its text)."""

    exit_code = 2
    shown = 20

    def __init__(self, title: str, problems: Sequence[Problem] = ()):
        self.title = title
        self.problems = tuple(problems)
        lines = [title, *(f"  {p}" for p in self.problems[: self.shown])]
        if len(self.problems) > self.shown:
            lines.append(f"  ... and {len(self.problems) - self.shown} more")
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[type, tuple[str, tuple[Problem, ...]]]:  # survives joblib's process boundary
        return type(self), (self.title, self.problems)


class ConfigError(_Problems):
    """The composed configuration is wrong. Lists every fault with key, file and line, found, expected."""


class DataError(_Problems):
    """An input file is wrong. Lists every fault with file, line or row, field, found, expected."""


class OtherFormat(DataError):
    """A run folder, a call store or an exported file has another format number: it is neither read nor changed."""


class PromptError(_Problems):
    """A prompt template is missing, malformed, or uses a variable its metric does not give."""


class TooLong(RagpipeError):
    """A case's values are longer than a question may be. The engine records a score with status `error`, kind `too_long`."""


class Incomplete(RagpipeError):
    """The run stopped before its end and can be resumed by the same command."""

    exit_code = 4


class ProviderUnusable(RagpipeError):
    """The judge's provider cannot be used: wrong key, unknown model, no quota, or a row of fatal errors.

    `kind` is one of the fatal failure kinds or `breaker`.
    """

    exit_code = 5

    def __init__(self, message: str, kind: str = "unreachable"):
        self.kind = kind
        super().__init__(message)


class OutputError(RagpipeError):
    """Something could not be written (disk full, no permission, not a folder)."""

    exit_code = 6


class Locked(OutputError):
    """Another live process works on this folder."""


class Interrupted(RagpipeError):
    """A signal, or `ragpipe.stop`, ended the run. `exit_code` is 130 for SIGINT, 143 for SIGTERM and 129 for SIGHUP."""

    def __init__(self, message: str, signal_number: int = 2):
        self.exit_code = 128 + signal_number
        self.signal_number = signal_number
        super().__init__(message)


class Signalled(KeyboardInterrupt):
    """A signal came where no stage is there to end well: while a run is composed, planned or scored."""

    def __init__(self, signal_number: int):
        self.signal_number = signal_number
        super().__init__(signal_number)


class Abandoned(KeyboardInterrupt):
    """A caller that was interrupted for the third time waits no longer for its run. `thread` is where that still works:
    until it ends, the run's folder stays locked."""

    def __init__(self, message: str, thread: Thread):
        self.thread = thread
        super().__init__(message)


class JudgeError(RagpipeError):
    """One judgement failed. The engine records a score with status `error` and this kind and text.

    `text` is the raw reply where there was one (kept in the records), `keys` the calls it rests on.
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
    """The metric does not apply to this case, or this judge cannot answer. `reason` is a short snake_case word or line."""

    def __init__(self, reason: str):
        self.reason = reason
        super().__init__(reason)
