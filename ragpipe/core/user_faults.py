"""Unexpected errors in code of the user's: where they are, and what to say of them."""

from __future__ import annotations

import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path

_OURS = Path(__file__).resolve().parents[1]
_RECORD = "on_metric_error=record keeps such an error as the result of its case, and the run goes on"


def user_fault(error: BaseException) -> str:
    """What to print of an unexpected error that a plugin raised: the error, then file, line and text of each of the plugin's
    calls that led to it. Empty where no file of the user's is among them, or the error is raised deeper in ragpipe itself.

    The user's files are those outside this package, of the standard library and of installed packages.
    """
    if getattr(error, "exit_code", 1) != 1:
        return ""
    if from_worker := getattr(error, "user_fault", ""):  # found where the error was raised
        return str(from_worker)
    cause = _root(error)
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


def returned_fault(metric: str, case: str, refusal: str) -> str:
    """What to print of a metric that returned what it must not."""
    where = f"this is a fault of the metric {metric}, on case {case}"
    return f"metric {metric} on case {case}: {refusal}\n{where}\nfix: correct it; the same command then goes on. Or: {_RECORD}"


def _root(error: BaseException) -> BaseException:
    """The error that the others were raised for."""
    chain = list(_causes(error))
    return chain[-1]


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__


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
