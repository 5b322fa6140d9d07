"""The process of one worker that reads parts of a data set until its driver is gone.

`python -m ragpipe.engine.load_process`, started by `engine/load_workers.py`: first comes the data set, then parts of its files, each
of which is answered with its cases, or with the word that something is not as it should be.
"""

from __future__ import annotations

import gc
import os
import queue
import sys
import threading
from typing import Any, BinaryIO

from ragpipe.core.process_memory import collect_new_garbage, give_memory_back


def main() -> None:
    """Read parts until the driver is gone."""
    give_memory_back()
    gc.disable()  # until the first part
    from ragpipe.engine.load_messages import part_of
    from ragpipe.engine.slice_messages import read_message
    from ragpipe.engine.slice_process import own_streams

    incoming, answers = own_streams()
    parts = queue.SimpleQueue[Any]()
    try:
        start = read_message(incoming)
        threading.Thread(target=_receive, args=(incoming, parts), name="ragpipe-driver", daemon=True).start()
        collect_new_garbage()
        while True:
            answers.write(_answer(start, part_of(parts.get())))
            answers.flush()
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        sys.exit(0)


def _receive(incoming: BinaryIO, parts: queue.SimpleQueue[Any]) -> None:
    """Hand over the parts that come. When the driver is gone, so is this process: nobody would read what it still does."""
    from ragpipe.engine.slice_messages import read_message

    try:
        while True:
            parts.put(read_message(incoming))
    except (EOFError, OSError):
        os._exit(0)


def _answer(start: dict[str, Any], part: Any) -> bytes:
    from ragpipe.engine.load_messages import loaded_message
    from ragpipe.engine.load_parts import load_part
    from ragpipe.engine.slice_messages import packed_message

    loaded = load_part(start, part)
    return packed_message({}) if loaded is None else loaded_message(loaded)


if __name__ == "__main__":
    main()
