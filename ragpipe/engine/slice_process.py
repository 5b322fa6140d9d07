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
from typing import Any, BinaryIO

from ragpipe.core.process_memory import collect_new_garbage, give_memory_back
from ragpipe.engine.slice_messages import WorkerNotice, WorkerStart, packed_message, portable, read_message

Slices = queue.SimpleQueue[Any]


def main() -> None:
    """Measure slices until the driver is gone."""
    give_memory_back()
    gc.disable()  # until the first slice
    incoming, answers = _own_streams()
    start: WorkerStart = read_message(incoming)
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
            slices.put(read_message(incoming))
    except (EOFError, OSError):
        os._exit(0)


async def _serve(start: WorkerStart, slices: Slices, answers: BinaryIO) -> None:
    from ragpipe.engine.slice_measuring import open_measuring

    def send(content: Any) -> None:
        answers.write(packed_message(content))
        answers.flush()

    try:
        async with open_measuring(start, lambda text: send(WorkerNotice(text))) as measure:
            collect_new_garbage()
            while True:
                part = await asyncio.to_thread(slices.get)
                try:
                    send(await measure(part))
                except Exception as error:
                    send(portable(error))
    except Exception as error:  # it could not be opened: every slice would end alike
        while True:
            await asyncio.to_thread(slices.get)
            send(portable(error))


if __name__ == "__main__":
    main()
