"""The process that speaks to Ray for a run: it has slices measured by tasks until its driver is gone.

`python -m ragpipe.engine.runners.ray_process`, started by `ray_runner.py`, in a session of its own: with it ends all that it
started. The process of the run stays free of Ray, of its threads, signal handlers and output.
"""

from __future__ import annotations

import asyncio
import os
import queue
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from ragpipe.config.runner_settings import RunnerSettings
from ragpipe.engine.runners.plain_messages import own_streams, packed_message, read_message
from ragpipe.engine.runners.process_sessions import end_session
from ragpipe.engine.runners.ray_cluster import join_cluster, waits_for
from ragpipe.engine.runners.slice_messages import MOST_DEATHS, WorkerDied, failure_message
from ragpipe.stages.slices import Slice

MOST_NODES = 10
"""Nodes that may be lost while they measure the same slice before the run ends: they can be taken away by their provider."""

Jobs = queue.SimpleQueue[tuple[int, Slice]]


def main() -> None:
    """Have slices measured until the driver is gone."""
    incoming, answers = own_streams()
    order = read_message(incoming)
    settings = RunnerSettings.model_validate(order["settings"])
    folder, jobs = Path(order["files"]), Jobs()
    joined = threading.Event()
    threading.Thread(target=_receive, args=(incoming, jobs, joined, settings, folder), daemon=True).start()

    def send(message: bytes) -> None:
        answers.write(message)
        answers.flush()

    try:
        ray, width = join_cluster(
            settings, order["cores"], folder
        )  # in the main thread: what it starts ends with its thread
        joined.set()
        send(packed_message({"width": width}))
        if settings.address is not None and (notice := waits_for(ray.nodes(), settings)):
            send(packed_message({"notice": notice}))
        task = {**order["task"], "environment": {name: os.environ[name] for name in settings.env_vars}}
        asyncio.run(_serve(_SliceTasks(ray, settings, task, send), jobs))
    except Exception as error:
        send(failure_message(error))
    threading.Event().wait()  # for the end of the driver


def _receive(incoming: BinaryIO, jobs: Jobs, joined: threading.Event, settings: RunnerSettings, folder: Path) -> None:
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
    """Slices as tasks of Ray.

    Args:
        ray: the module, connected.
        settings: what a slice needs.
        task: what every task is told.
        send: takes messages for the driver.
    """

    def __init__(self, ray: Any, settings: RunnerSettings, task: dict[str, Any], send: Any):
        self._errors, self._task, self._send = ray.exceptions, task, send
        # No retries of Ray's: with any number of them a slice that kills its workers is done again for ever, with a few a lost
        # node counts as much as a killed worker.
        self._function = ray.remote(_measure).options(
            num_cpus=settings.num_cpus,
            num_gpus=settings.num_gpus,
            resources=settings.resources,
            num_returns="streaming",
            max_retries=0,
            scheduling_strategy="SPREAD",
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
    """The task. Ray sends this function to its workers as it stands, because it is in the main module: it can say what is wrong with a
    node that has no ragpipe. Variables travel as an argument: Ray writes those of a `runtime_env` into its log."""
    import os
    import platform
    import sys

    os.environ.update(order["environment"])
    sys.path += [path for path in order["paths"] if path not in sys.path]
    if os.path.isdir(order["folder"]):
        os.chdir(order["folder"])
    try:
        from ragpipe.engine.runners.ray_tasks import slice_messages
    except ImportError as error:
        fix = "install the same ragpipe in the environment of every node"
        raise ImportError(f"node {platform.node()}: ragpipe cannot be imported ({error}): {fix}") from None
    yield from slice_messages(order)


if __name__ == "__main__":
    main()
