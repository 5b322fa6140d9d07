"""The process of one worker: it measures slices of a run until its driver is gone.

`python -m ragpipe.engine.slice_process`, started by `engine/slice_workers.py`: first comes a WorkerStart, then slices, each of which
is answered with what came of it, or with what went wrong.
"""

from __future__ import annotations

import asyncio
import gc
import os
import queue
import sys
import threading
from typing import BinaryIO

from ragpipe.core.process_memory import collect_new_garbage, give_memory_back
from ragpipe.engine.slice_messages import WorkerStart, failure_message, measured_message, packed_message, read_message
from ragpipe.stages.slices import Slice

Slices = queue.SimpleQueue[Slice]


def main() -> None:
    """Measure slices until the driver is gone."""
    give_memory_back()
    gc.disable()  # until the first slice
    incoming, answers = _own_streams()
    start = WorkerStart.of(read_message(incoming))
    slices = Slices()
    threading.Thread(target=_receive, args=(incoming, slices), name="ragpipe-driver", daemon=True).start()
    try:
        asyncio.run(_serve(start, slices, answers))
    except (BrokenPipeError, KeyboardInterrupt):
        sys.exit(0)


def _own_streams() -> tuple[BinaryIO, BinaryIO]:
    """The driver's messages, and where answers go. What anything in this process prints goes to stderr instead."""
    incoming, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return os.fdopen(incoming, "rb"), os.fdopen(answers, "wb")


def _receive(incoming: BinaryIO, slices: Slices) -> None:
    """Hand over the slices that come. When the driver is gone, so is this process: nobody would read what it still does."""
    try:
        while True:
            slices.put(Slice(*read_message(incoming)))
    except (EOFError, OSError):
        os._exit(0)


async def _serve(start: WorkerStart, slices: Slices, answers: BinaryIO) -> None:
    from ragpipe.engine.slice_measuring import open_measuring

    def send(message: bytes) -> None:
        answers.write(message)
        answers.flush()

    try:
        async with open_measuring(start, lambda text: send(packed_message({"notice": text}))) as measure:
            collect_new_garbage()
            while True:
                part = await asyncio.to_thread(slices.get)
                try:
                    send(measured_message(await measure(part)))
                except Exception as error:
                    send(failure_message(error))
    except Exception as error:  # it could not be opened: every slice would end alike
        while True:
            await asyncio.to_thread(slices.get)
            send(failure_message(error))


if __name__ == "__main__":
    main()
