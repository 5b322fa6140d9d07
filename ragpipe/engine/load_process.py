"""The process of one worker that reads parts of a data set until its driver is gone.

`python -m ragpipe.engine.load_process`, started by `engine/load_workers.py`: first comes the data set, then parts of its files, each
of which is answered with its cases, or with the word that something is not as it should be.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import Any

from ragpipe.core.process_memory import give_memory_back


def main() -> None:
    """Read parts until the driver is gone."""
    give_memory_back()
    gc.disable()  # until the first part
    from ragpipe.engine.answering_process import answer_messages

    answer_messages(_opened)


def _opened(start: dict[str, Any]) -> Callable[[Any], bytes]:
    return partial(_answer, start)


def _answer(start: dict[str, Any], values: Any) -> bytes:
    from ragpipe.engine.load_messages import loaded_message, part_of
    from ragpipe.engine.load_parts import load_part
    from ragpipe.engine.plain_messages import packed_message

    loaded = load_part(start, part_of(values))
    return packed_message({}) if loaded is None else loaded_message(loaded)


if __name__ == "__main__":
    main()
