"""The process of one worker that answers messages until its driver is gone.

`python -m ragpipe.engine.workers.answering_process`, started by `worker_processes.py`. The first message names a role and what it is
played with; those after it are answered, until one says that the role ends. Then the next message names a role again: so reading,
scoring and sealing share one start.
"""

from __future__ import annotations

import gc
import os
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any, BinaryIO

from ragpipe.core.process_memory import collect_new_garbage, give_memory_back
from ragpipe.engine.workers.plain_messages import own_streams, read_message

Answer = Callable[[Any], bytes]
"""Answers a message of the driver."""


def main() -> None:
    """Answer the messages of the driver, and end with it."""
    give_memory_back()
    gc.disable()  # until the first role
    incoming, answers = own_streams()
    messages = queue.SimpleQueue[Any]()
    threading.Thread(target=_receive, args=(incoming, messages), name="ragpipe-driver", daemon=True).start()
    try:
        while True:
            start = messages.get()
            _play(_opened(start["role"], start["start"]), messages, answers)
    except (BrokenPipeError, KeyboardInterrupt):
        sys.exit(0)


def _play(answer: Answer, messages: queue.SimpleQueue[Any], answers: BinaryIO) -> None:
    """Answer messages until the role ends."""
    collect_new_garbage()
    while (message := messages.get()) is not None:
        answers.write(answer(message))
        answers.flush()


def _opened(role: str, start: Any) -> Answer:
    """What answers the messages of a role. Of all roles only what this one needs is imported."""
    match role:
        case "load":
            from ragpipe.engine.workers.load_parts import open_loading

            return open_loading(start)
        case "score":
            from ragpipe.engine.workers.score_parts import open_scoring

            return open_scoring(start)
        case "seal":
            from ragpipe.engine.workers.seal_parts import open_sealing

            return open_sealing(start)
    raise ValueError(f"no role {role!r}")


def _receive(incoming: BinaryIO, messages: queue.SimpleQueue[Any]) -> None:
    """Hand over the messages that come. When the driver is gone, so is this process: nobody would read what it still does."""
    try:
        while True:
            messages.put(read_message(incoming))
    except (EOFError, OSError):
        os._exit(0)


if __name__ == "__main__":
    main()
