"""Sealing a table by several processes: each takes the digests of row groups, this one puts them together in order.

A row group that no worker answers is digested by this process, and so are those after it: so errors, too, are those of one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq

from ragpipe.engine.workers.plain_messages import packed_message
from ragpipe.engine.workers.seal_parts import digests_of
from ragpipe.engine.workers.worker_processes import MOST_WAITING, Message, WorkerLost, WorkerPool, in_order
from ragpipe.store.run.seals import CellDigests, group_digests

FEWEST_ROWS = 20_000
"""Rows of a table from which on workers are worth their start: those that scored are there already."""
_AHEAD = 1  # row groups per worker that are digested before their turn


class _DigestAlone(Exception):
    """This process is to take the other digests."""


def digests_by_workers(
    path: Path, workers: WorkerPool, *, width: int, say: Callable[[str], None]
) -> Iterator[CellDigests]:
    """The digests of a table, row group by row group.

    Args:
        path: the table.
        workers: the processes that take them.
        width: the number of workers that there may be.
        say: prints what the user should know.

    Raises pyarrow's errors for an unreadable file.
    """
    with pq.ParquetFile(path) as file:
        groups, done = file.num_row_groups, 0
        width = min(width, MOST_WAITING)
        if width > 1 and file.metadata.num_rows >= FEWEST_ROWS:
            try:
                with workers.answering("seal", {"path": str(path.absolute())}, width) as ask:
                    for parts in in_order(partial(_asked, ask), range(groups), width, ahead=_AHEAD):
                        if parts is None:
                            raise _DigestAlone
                        yield from parts
                        done += 1
            except WorkerLost as error:
                say(f"a worker that sealed died ({error}); this process seals alone")
            except _DigestAlone:  # this process says what is wrong with the table
                pass
        for group in range(done, groups):
            yield from group_digests(file, group)


def _asked(ask: Callable[[bytes], Message], group: int) -> list[CellDigests] | None:
    return digests_of(*ask(packed_message({"group": group})))
