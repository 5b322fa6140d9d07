"""The process that speaks to Ray for a run: it has slices measured by tasks until its driver is gone.

`python -m ragpipe.extras.ray.process`, started by `runner.py`, in a session of its own: with it ends all that it started. The process of
the run stays free of Ray, of its threads, signal handlers and output.
"""

from __future__ import annotations

import asyncio
import os
import queue
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from ragpipe.core.errors import ConfigError, Problem
from ragpipe.extras.ray.messages import MOST_DEATHS, WorkerDied, failure_message, packed_message, read_message
from ragpipe.extras.ray.settings import RaySettings
from ragpipe.runs.case_measuring import Slice

MOST_NODES = 10
"""Nodes that may be lost while they measure the same slice before the run ends: they can be taken away by their provider."""
_CONNECT_S = 10.0
_OBJECTS = 256 << 20
"""Bytes that a cluster of our own may hold of what came of slices and was not fetched yet; more goes to its folder."""
_SILENT = {"include_dashboard": False, "log_to_driver": False, "configure_logging": False, "logging_level": "ERROR"}
_END_S = 5.0  # for the processes of a session

Jobs = queue.SimpleQueue[tuple[int, Slice]]


def main() -> None:
    """Have slices measured until the driver is gone."""
    incoming, answers = _own_streams()
    order = read_message(incoming)
    settings = RaySettings.model_validate(order["settings"])
    folder, jobs = Path(order["files"]), Jobs()
    joined = threading.Event()
    threading.Thread(target=_receive, args=(incoming, jobs, joined, settings, folder), daemon=True).start()

    def send(message: bytes) -> None:
        answers.write(message)
        answers.flush()

    try:
        ray, width = join_cluster(settings, order["cores"], folder)  # in the main thread: what it starts ends with its thread
        joined.set()
        send(packed_message({"width": width}))
        if settings.address is not None and (notice := waits_for(ray.nodes(), settings)):
            send(packed_message({"notice": notice}))
        task = {**order["task"], "environment": {name: os.environ[name] for name in settings.env_vars}}
        asyncio.run(_serve(_SliceTasks(ray, settings, task, send), jobs))
    except Exception as error:
        send(failure_message(error))
    threading.Event().wait()  # for the end of the driver


def _receive(incoming: BinaryIO, jobs: Jobs, joined: threading.Event, settings: RaySettings, folder: Path) -> None:
    """Hand over the slices that come. When the driver is gone, so is this process, with all that it started."""
    with suppress(EOFError, OSError):
        while True:
            number, *part = read_message(incoming)
            jobs.put((number, Slice(*part)))
    if settings.address is not None and joined.is_set():
        with suppress(Exception):
            sys.modules["ray"].shutdown()  # its tasks end at once, on all nodes
    end_session(os.getpid())
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


async def _serve(tasks: _SliceTasks, jobs: Jobs) -> None:
    under_way = set[asyncio.Task[None]]()
    while True:
        job = asyncio.create_task(tasks.measure(*await asyncio.to_thread(jobs.get)))
        under_way.add(job)
        job.add_done_callback(under_way.discard)


class _SliceTasks:
    """Slices as tasks of `ray`, connected. `task` is what every task is told, `send` takes messages for the driver."""

    def __init__(self, ray: Any, settings: RaySettings, task: dict[str, Any], send: Any):
        self._errors, self._task, self._send = ray.exceptions, task, send
        # No retries of Ray's: with any number of them a slice that kills its workers is done again for ever, with a few a lost
        # node counts as much as a killed worker.
        self._function = ray.remote(_measure).options(
            num_cpus=1, num_gpus=settings.num_gpus, num_returns="streaming", max_retries=0, scheduling_strategy="SPREAD"
        )

    async def measure(self, number: int, part: Slice) -> None:
        """Have a slice measured, again where a worker or a node was lost."""
        deaths = lost = 0
        while True:
            try:
                await self._answers(number, part)
                return
            except (self._errors.WorkerCrashedError, self._errors.OutOfMemoryError) as error:
                deaths += 1
                how = "a worker of Ray died"
                if isinstance(error, self._errors.OutOfMemoryError):
                    how = "a worker of Ray was ended, because the memory of its node was used up"
            except (self._errors.NodeDiedError, self._errors.ObjectLostError):
                lost += 1
                how = "a node of the cluster was lost"
            except Exception as error:
                self._send(packed_message({"slice": number}, failure_message(_cause(error), part)))
                return
            if deaths == MOST_DEATHS or lost == MOST_NODES:
                self._send(packed_message({"slice": number}, failure_message(_given_up(part, deaths, lost), part)))
                return
            self._send(packed_message({"notice": f"{how}; {part} are measured again"}))

    async def _answers(self, number: int, part: Slice) -> None:
        async for answer in self._function.remote({**self._task, "slice": list(part)}):
            self._send(packed_message({"slice": number}, await answer))


def _given_up(part: Slice, deaths: int, lost: int) -> WorkerDied:
    what = f"{deaths} workers died over them (out of memory? runner.slice makes it less)"
    return WorkerDied(f"{part}: {what if deaths == MOST_DEATHS else f'{lost} nodes were lost over them'}")


def _cause(error: Exception) -> Exception:
    """What went wrong in a task, without Ray's frames around it."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, Exception) else error


def _measure(order: dict[str, Any]) -> Iterator[bytes]:
    """The task. Ray sends it as it stands, because it is in the main module: it can tell of a node that has no ragpipe."""
    import os
    import platform
    import sys

    # variables travel as an argument: Ray writes those of a `runtime_env` into its log
    os.environ.update(order["environment"])
    sys.path += [path for path in order["paths"] if path not in sys.path]
    if os.path.isdir(order["folder"]):
        os.chdir(order["folder"])
    try:
        from ragpipe.extras.ray.tasks import slice_messages
    except ImportError as error:
        fix = "install the same ragpipe in the environment of every node"
        raise ImportError(f"node {platform.node()}: ragpipe cannot be imported ({error}): {fix}") from None
    yield from slice_messages(order)


def _own_streams() -> tuple[BinaryIO, BinaryIO]:
    """The driver's messages, and where answers go. What anything in this process prints goes to stderr instead."""
    incoming, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)

    def leave() -> None:
        """In a child that code of the user's forks: it must not keep the driver's pipes open when this process has died."""
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (incoming, answers):
            os.dup2(nothing, stream, inheritable=False)
        os.close(nothing)

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=leave)
    return os.fdopen(incoming, "rb"), os.fdopen(answers, "wb")


def join_cluster(settings: RaySettings, cores: int, folder: Path) -> tuple[Any, int]:
    """Start a cluster or join the one that the settings name. Returns Ray, and how many slices are measured at once. `cores`
    are those that the run may use on this machine, `folder` gets the files of a cluster of our own. Raises ConfigError for
    a cluster that cannot be used."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # read when Ray is imported
    if settings.address is None:
        ray = _started(settings, cores, folder)
        if not slices_at_once(ray.nodes(), settings):
            has = {name: value for name, value in ray.nodes()[0]["Resources"].items() if name in ("CPU", "GPU")}
            fix = "lower runner.num_gpus, or name a cluster that has as much: runner.address=HOST:PORT"
            raise _unusable("runner", f"{_shown(has)} on this machine", f"{_shown(_needed(settings))} for a slice", fix)
        return ray, settings.workers or cores
    ray = _joined(settings.address)
    return ray, settings.workers or max(1, slices_at_once(ray.nodes(), settings))


def waits_for(nodes: Iterable[Mapping[str, Any]], settings: RaySettings) -> str | None:
    """What slices wait for where no node of a cluster has enough for one; None where one has."""
    if slices_at_once(nodes, settings):
        return None
    return f"no node of {settings.address} has {_shown(_needed(settings))}: slices wait for one"


def _started(settings: RaySettings, cores: int, folder: Path) -> Any:
    """A new cluster on this machine. Its ports are open to others, so every connection must show a token."""
    # only this user can read it; Ray would write it into the home
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(token))
    os.environ.pop("RAY_AUTH_TOKEN", None)
    ray: Any = import_module("ray")
    cpus = max(cores, settings.workers or 1)
    ray.init(address="local", num_cpus=cpus, object_store_memory=_OBJECTS, _temp_dir=str(folder), **_SILENT)
    return ray


def _joined(address: str) -> Any:
    """The cluster at an address. Ray itself waits for minutes where nobody listens."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    except (OSError, OverflowError) as error:
        fix = "start it (`ray start --head` prints its address), or leave runner.address out for a cluster on this machine"
        expected = "HOST:PORT of a cluster of Ray that runs"
        raise _unusable("runner.address", f"{address}: {error}", expected, fix) from error
    ray: Any = import_module("ray")
    try:
        ray.init(address=address, **{key: value for key, value in _SILENT.items() if key != "include_dashboard"})
    except Exception as error:  # other versions of Ray or Python, another token, no node on this machine
        expected = "a cluster with this Ray, this Python and this token (RAY_AUTH_TOKEN_PATH), of which this machine is a node"
        fix = "start this run on a node of the cluster, with the Ray, the Python and the token of the other nodes"
        raise _unusable("runner.address", f"{address}: {' '.join(str(error).split())}", expected, fix) from error
    return ray


def _unusable(key: str, state: str, expected: str, fix: str) -> ConfigError:
    return ConfigError("runner=ray cannot measure the cases", [Problem("runner=ray", key, state, expected, fix)])


def _needed(settings: RaySettings) -> dict[str, float]:
    """What a slice holds of a node."""
    needed = {"CPU": 1.0, "GPU": settings.num_gpus}
    return {name: value for name, value in needed.items() if value > 0}


def slices_at_once(nodes: Iterable[Mapping[str, Any]], settings: RaySettings) -> int:
    """How many slices fit into the nodes that live."""
    needed = _needed(settings)
    return sum(
        int(min(node["Resources"].get(name, 0.0) / value for name, value in needed.items())) for node in nodes if node["Alive"]
    )


def _shown(resources: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in resources.items())


def end_session(session: int) -> None:
    """Kill the processes of a session that this machine has, without the calling one, and wait for their end (5 s at most)."""
    end = time.monotonic() + _END_S
    while members := [pid for pid in members_of(session) if pid != os.getpid()]:
        for pid in members:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > end:
            return
        time.sleep(0.02)


def members_of(session: int) -> Iterator[int]:
    """The processes of a session on this machine that have not ended."""
    for pid, state in _processes():
        with suppress(ProcessLookupError, PermissionError):
            if not state.startswith("Z") and os.getsid(pid) == session:
                yield pid


def _processes() -> Iterator[tuple[int, str]]:
    """Number and state of every process that can be seen."""
    if sys.platform == "linux":
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                yield int(path.parent.name), path.read_text(errors="replace").rpartition(")")[2].strip()
        return
    listed = subprocess.run(["ps", "-axo", "pid=,stat="], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        pid, state = line.split(None, 1)
        yield int(pid), state


if __name__ == "__main__":
    main()
