"""The rooms of the tests: what a test may start follows from its folder.

`tests/unit` starts neither a process nor a run, `tests/integration` and `tests/extras` no process; `tests/slow` may start
anything. A single test with the marker `slow` may start anything where it is. `watch` wraps what starts one, once, before any test is imported.
"""

import functools
import multiprocessing.process
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ragpipe.cli.api
import ragpipe.cli.command_line

TESTS = Path(__file__).resolve().parents[1]
_PROCESS = "a test in tests/{room} started a process: it belongs in tests/slow"
_RUN = "a test in tests/{room} started a run: it belongs in tests/integration"
_RUNS = {"unit": _RUN}
_PROCESSES = {"unit": _PROCESS, "integration": _PROCESS, "extras": "a test of an extra that starts a process needs the marker slow"}
_STARTS: list[tuple[Any, str, dict[str, str]]] = [
    (subprocess.Popen, "__init__", _PROCESSES), (os, "fork", _PROCESSES), (os, "posix_spawn", _PROCESSES), (os, "system", _PROCESSES),
    (multiprocessing.process.BaseProcess, "start", _PROCESSES), (ragpipe.cli.command_line, "main", _RUNS), (ragpipe.cli.api, "_started", _RUNS),
]  # fmt: skip
_current = {"room": ""}


def room_of(path: Path) -> str:
    """`unit`, `integration` or `slow`; empty for a file outside of the rooms."""
    parts = path.relative_to(TESTS).parts if path.is_relative_to(TESTS) else ()
    return parts[0] if len(parts) > 1 else ""


def enter(item: pytest.Item) -> None:
    """Until `leave`, what the room of this test forbids fails."""
    _current["room"] = "" if item.get_closest_marker("slow") else room_of(item.path)


def leave() -> None:
    _current["room"] = ""


def watch() -> None:
    """Wrap all that starts a process or a run."""
    for owner, name, sentences in _STARTS:
        setattr(owner, name, _guarded(getattr(owner, name), sentences))


def _guarded(start: Callable[..., Any], sentences: dict[str, str]) -> Callable[..., Any]:
    @functools.wraps(start)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if sentence := sentences.get(_current["room"]):
            pytest.fail(sentence.format(room=_current["room"]))
        return start(*args, **kwargs)

    return checked
