"""One verdict for each item of a batch: every number is checked, nothing is padded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from ragpipe.core.errors import JudgeError
from ragpipe.metrics.shared.judge_metric import gather_ordered


class Numbered(Protocol):
    """A verdict on item number `index`, from 1."""

    @property
    def index(self) -> int: ...


Item = TypeVar("Item")
N = TypeVar("N", bound=Numbered)


async def verdicts_for(
    items: Sequence[Item], ask: Callable[[list[Item], bool], Awaitable[Sequence[N]]], *, whole: bool = False
) -> list[N]:
    """Exactly one verdict for each item, in order; `ask(items, again)` asks about items numbered from 1.

    Items without a verdict or with more than one are asked about once more, only those. A number that no item has says
    that the judge counted differently (from 0, or split an item), so then the whole batch is asked about once more;
    with `whole` that is always so, for replies that say something of all items together. Raises JudgeError
    (`unparsable`) naming the items that still have no single verdict.
    """
    found, doubtful = _sorted_out(await ask(list(items), False), len(items))
    if doubtful:
        if whole:
            found, doubtful = {}, list(range(len(items)))
        second, still = _sorted_out(await ask([items[i] for i in doubtful], True), len(doubtful))
        if still:
            names = ", ".join(str(doubtful[i] + 1) for i in still)
            raise JudgeError("unparsable", f"no single verdict for the items {names} of {len(items)}, asked twice")
        found |= {doubtful[i]: verdict for i, verdict in second.items()}
    return [found[i] for i in range(len(items))]


async def verdicts_in_batches(
    items: Sequence[Item], size: int, ask: Callable[[list[Item], bool], Awaitable[Sequence[N]]]
) -> list[N]:
    """`verdicts_for` with at most `size` items a question; all batches are asked at once."""
    batches = [items[i : i + size] for i in range(0, len(items), size)]
    return [v for some in await gather_ordered(*(verdicts_for(batch, ask) for batch in batches)) for v in some]


def _sorted_out(verdicts: Sequence[N], count: int) -> tuple[dict[int, N], list[int]]:
    """The verdicts by position from 0, and the positions that have none, several, or a doubtful one."""
    times = Counter(verdict.index for verdict in verdicts)
    if any(not 1 <= index <= count for index in times):
        return {}, list(range(count))
    found = {v.index - 1: v for v in verdicts if times[v.index] == 1}
    return found, [i for i in range(count) if i not in found]
