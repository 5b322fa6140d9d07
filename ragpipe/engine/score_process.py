"""The process of one worker that describes blocks of cases for scoring until its driver is gone.

`python -m ragpipe.engine.score_process`, started by `engine/score_workers.py`: first comes what is scored and how, then row groups of the
outputs, each of which is answered with its blocks, or with the word that something is not as it should be.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ragpipe.core.errors import RagpipeError
from ragpipe.core.process_memory import give_memory_back

if TYPE_CHECKING:
    from ragpipe.engine.score_parts import RowGroupScoring


def main() -> None:
    """Describe row groups until the driver is gone."""
    give_memory_back()
    gc.disable()  # until the first row group
    from ragpipe.engine.answering_process import answer_messages

    answer_messages(_opened)


def _opened(start: dict[str, Any]) -> Callable[[Any], bytes]:
    from ragpipe.engine.score_messages import ScoreStart
    from ragpipe.engine.score_parts import RowGroupScoring

    return partial(_answer, RowGroupScoring(ScoreStart.from_values(start)))


def _answer(scoring: RowGroupScoring, values: Any) -> bytes:
    from ragpipe.engine.plain_messages import packed_message
    from ragpipe.engine.score_messages import RowGroupTask, described_message

    try:
        return described_message(scoring.described(RowGroupTask.of(values)))
    except RagpipeError:  # the driver meets it too, and says what it is
        return packed_message({})


if __name__ == "__main__":
    main()
