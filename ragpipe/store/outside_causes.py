"""Errors caused by the machine, which ran out of memory, threads, files or disk, and not by ragpipe or a metric."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

from ragpipe.core.errors import OutputError, RagpipeError
from ragpipe.store.files.atomic import output_error

_KEPT = "what was answered is kept, and the same command goes on"
_MEMORY = f"no memory is left. To fix: free memory, raise the limit (`ulimit -v`, the container's) or lower `judge.concurrency`; {_KEPT}"
_THREADS = f"the system lets this process start no more threads. To fix: raise `ulimit -u` or the memory limit; {_KEPT}"
_WORKER = (
    f"a worker process was killed by the system, most often because no memory was left. To fix: free memory; {_KEPT}"
)
_JOB = (
    "a job of the sweep left no result: it could not be submitted, was stopped by the scheduler (its time, its memory, a more urgent job), or "
    f"was killed. Its logs are below hydra.sweep.dir (<output_dir>/.sweep) in .submitit. To fix: what they say; {_KEPT}"
)
_NO_ROOM = re.compile("failed to map segment|[Cc]annot allocate memory")  # a library that could not be loaded
_KILLED = frozenset({"TerminatedWorkerError", "BrokenProcessPool"})
_SUBMITTED = frozenset({"UncompletedJobError", "FailedJobError", "FailedSubmissionError"})  # submitit's
_USED_UP = frozenset({errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN})


def outside_cause(error: BaseException | None, *, any_file: bool = False) -> RagpipeError | None:
    """The OutputError that says what the machine lacks, where `error` or one of its causes does; None otherwise.

    With `any_file` also for a file that cannot be read or written for any reason.
    """
    if any_file and isinstance(error, OSError) and error.filename is not None:
        return output_error(Path(os.fsdecode(error.filename)), error, "read or write")
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if lack := _lack(error):
            return lack
        error = error.__cause__
    return None


def _lack(error: BaseException) -> OutputError | None:
    """What the machine lacks by this error alone."""
    if isinstance(error, MemoryError) or (isinstance(error, ImportError) and _NO_ROOM.search(str(error))):
        return OutputError(_MEMORY)
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return OutputError(_THREADS)
    if type(error).__name__ in _KILLED:
        return OutputError(_WORKER)
    if type(error).__name__ in _SUBMITTED:
        return OutputError(f"{_JOB}\n  {error}".split("\n" + "-" * 40)[0])
    if isinstance(error, OSError) and error.errno in _USED_UP and not isinstance(error, BlockingIOError):
        return output_error(Path(error.filename or "any more files"), error, "open")
    return None
