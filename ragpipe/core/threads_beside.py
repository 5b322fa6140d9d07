"""Work beside the caller's in a thread of its own, in an order that does not depend on the threads.

Arrow, zlib and hashlib let other threads run while they work: reading, parsing and writing of a table then cost the second core and
not time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

_Item = TypeVar("_Item")


def made_ahead(items: Iterator[_Item]) -> Iterator[_Item]:
    """The items in their order. One is made while the caller works on the one before it. Raises what making one raises, when
    its turn comes."""
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix="ragpipe-ahead") as thread:
        following: Future[object] = thread.submit(next, items, end)
        while (item := following.result()) is not end:
            following = thread.submit(next, items, end)
            yield item  # type: ignore[misc]  # it is the end, or an item


@contextmanager
def done_behind(work: Callable[[_Item], object]) -> Iterator[Callable[[_Item], None]]:
    """A function that hands an item to `work` in a thread, one after the other in their order, at most one waiting.

    It raises what work on an earlier item raised; so does the end of the block, which waits for the last one.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="ragpipe-behind") as thread:
        last: Future[object] | None = None

        def hand_over(item: _Item) -> None:
            nonlocal last
            if last is not None:
                last.result()
            last = thread.submit(work, item)

        yield hand_over
        if last is not None:
            last.result()
