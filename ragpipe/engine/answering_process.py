"""The loop of a worker that answers messages until its driver is gone."""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any, BinaryIO

from ragpipe.core.process_memory import collect_new_garbage
from ragpipe.engine.plain_messages import own_streams, read_message


def answer_messages(opened: Callable[[Any], Callable[[Any], bytes]]) -> None:
    """Answer the messages of the driver, and end with it.

    Args:
        opened: makes of the first message what answers the others.
    """
    incoming, answers = own_streams()
    messages = queue.SimpleQueue[Any]()
    try:
        start = read_message(incoming)
        threading.Thread(target=_receive, args=(incoming, messages), name="ragpipe-driver", daemon=True).start()
        answer = opened(start)
        collect_new_garbage()
        while True:
            answers.write(answer(messages.get()))
            answers.flush()
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        sys.exit(0)


def _receive(incoming: BinaryIO, messages: queue.SimpleQueue[Any]) -> None:
    """Hand over the messages that come. When the driver is gone, so is this process: nobody would read what it still does."""
    try:
        while True:
            messages.put(read_message(incoming))
    except (EOFError, OSError):
        os._exit(0)
