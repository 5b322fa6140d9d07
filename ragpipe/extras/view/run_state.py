"""Whether a run is going on, has stalled or is done: from the lock of its folder and the counters in its progress file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ragpipe.core.errors import RagpipeError
from ragpipe.engine.runs.manifest import COMPLETE, INCOMPLETE, JUDGING_DONE
from ragpipe.extras.view.run_files import bytes_below, json_below
from ragpipe.store.files.processes import Process, is_alive
from ragpipe.store.run.progress_state import SILENT_S, ProgressState

State = Literal["running", "stalled", "stopped", "incomplete", "complete", "broken", "refused"]
UNFINISHED: tuple[State, ...] = ("running", "stalled", "stopped")
"""States of runs that have no final figures yet."""
_PROGRESS_MAX = 16 << 20  # bytes of .progress.json
_LOCK_MAX = 64 << 10
_CONFIG_MAX = 4 << 20
_SPEAKS = ("collecting", "judging")  # the phases in which counters are written every 2 s
_ITERATIONS = re.compile(rb"^iterations: (\d{1,6})\s*$", re.MULTILINE)
_RAGPIPE = re.compile(r"(^|[/\\])ragpipe([/\\]__main__\.py|(-script)?(\.exe|\.py)?)?$")


@dataclass(frozen=True)
class Counters:
    """What a run says of itself, and its cases over all iterations: `done` of `total`. `state` is None before it says anything."""

    state: ProgressState | None
    done: int
    total: int

    @property
    def phase(self) -> str:
        """What it does; empty where it does not say."""
        return self.state.phase if self.state else ""

    @property
    def silent_s(self) -> float:
        """Seconds since it last said something; 0 where it never did."""
        return self.state.silent_s() if self.state else 0.0


@dataclass(frozen=True)
class RunState:
    """The state of a run with its reason in words. `resume` is the command that goes on with it; empty where it is not known, or
    nothing is to be resumed. `is_gone`: the process that worked on it has ended, so that nothing of it is in flight."""

    state: State
    reason: str = ""
    counters: Counters | None = None
    resume: str = ""
    is_gone: bool = False


@dataclass(frozen=True)
class LockHolder:
    """The process that holds, or held, the lock of a run folder, and the words it was started with."""

    process: Process
    command: str

    @property
    def alive(self) -> bool | None:
        """None where this machine cannot tell."""
        return is_alive(self.process)


def lock_holder(root: Path) -> LockHolder | None:
    """Who the lock file of a run folder names; None for no file, or one without a process."""
    try:
        content = json_below(root, ".lock", limit=_LOCK_MAX)
    except RagpipeError:
        return None
    pid = content.get("pid")
    if not isinstance(pid, int) or isinstance(pid, bool):
        return None
    process = Process(str(content.get("host")), pid, str(content.get("mark") or ""))
    return LockHolder(process, str(content.get("command") or ""))


def run_state(root: Path, states: Mapping[str, str], *, has_figures: bool) -> RunState:
    """The state of a run folder.

    Args:
        root: the run folder.
        states: how far each iteration is, as the manifest says; empty before the first one is judged.
        has_figures: whether the figures over all iterations are there.
    """
    holder = lock_holder(root)
    is_done = has_figures and bool(states) and all(state in (COMPLETE, INCOMPLETE) for state in states.values())
    if is_done and (holder is None or not holder.alive):
        return _ended(root, states)
    counters = read_counters(root, states)
    if is_done and (counters is None or counters.phase in ("", "done")):
        return _ended(root, states)  # a task over the finished run holds the lock
    if holder is None:
        reason = "ended before all was judged; start its command again to go on"
        return RunState("stopped", reason, counters, _last_command(counters), is_gone=True)
    return _started(holder, counters)


def _ended(root: Path, states: Mapping[str, str]) -> RunState:
    if INCOMPLETE in states.values():
        command = _last_command(read_counters(root, states))
        return RunState(
            "incomplete",
            "some calls failed for a passing reason; start its command again",
            resume=command,
            is_gone=True,
        )
    return RunState("complete", is_gone=True)


def _last_command(counters: Counters | None) -> str:
    """The command that goes on with a run, from what its last process said of itself."""
    return resume_command(counters.state.command) if counters and counters.state else ""


def _started(holder: LockHolder, counters: Counters | None) -> RunState:
    process, alive = f"process {holder.process.pid}", holder.alive
    if alive is False:
        return RunState("stalled", f"{process} is gone", counters, resume_command(holder.command), is_gone=True)
    silent_s = 0.0 if counters is None else counters.silent_s
    speaks = counters is not None and counters.phase in _SPEAKS
    if silent_s <= SILENT_S or not (speaks or alive is None):
        return RunState("running", "", counters)
    silence = f"no sign for {rough_duration(silent_s)}"
    if alive:
        return RunState(
            "stalled",
            f"{silence}, though {process} is still there: end it before you start it again",
            counters,
            resume_command(holder.command),
        )
    return RunState(
        "stalled", f"{silence} from {process} on {holder.process.host}", counters, resume_command(holder.command)
    )


def resume_command(command: str) -> str:
    """The words of a start as a command that goes on with it; empty for those of another program.

    The folder may come from anybody: only a start of ragpipe is repeated, each word quoted for a shell.
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    if not words or not _RAGPIPE.search(words[0]):
        return ""
    return f"python -m ragpipe {shlex.join(words[1:])}"


def read_counters(root: Path, states: Mapping[str, str]) -> Counters | None:
    """The counters of the newest iteration, its cases counted over all iterations; None where there is no progress file."""
    number = _newest_iteration(root)
    try:
        content = json_below(root, f"iteration-{number}", ".progress.json", limit=_PROGRESS_MAX)
    except RagpipeError:
        return None
    try:
        state = ProgressState.from_json(content["state"])
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        return Counters(None, 0, 0)
    total, done = state.cases.total, state.cases.done
    if state.phase == "collecting":
        return Counters(state, done, total)
    judged = sum(value in JUDGING_DONE for key, value in states.items() if key != str(number))
    return Counters(state, done + judged * total, max(_planned_iterations(root), judged + 1) * total)


def _newest_iteration(root: Path) -> int:
    try:
        names = [path.name for path in root.iterdir()]
    except OSError:
        return 1
    numbers = [int(match[1]) for name in names if (match := re.fullmatch(r"iteration-([1-9]\d{0,5})", name))]
    return max(numbers, default=1)


def _planned_iterations(root: Path) -> int:
    """`iterations` of the run's configuration; 1 where it cannot be read."""
    try:
        match = _ITERATIONS.search(bytes_below(root, "config.yaml", limit=_CONFIG_MAX))
    except RagpipeError:
        return 1
    return int(match[1]) if match else 1


def rough_duration(seconds: float) -> str:
    """`41 s`, `3 min`, `2 h 05 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
