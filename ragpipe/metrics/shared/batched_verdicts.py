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
    items: Sequence[Item], ask: Callable[[list[Item], bool], Awaitable[Sequence[N]]], *, ask_all_again: bool = False
) -> list[N]:
    """Exactly one verdict for each item, in order; `ask(items, again)` asks about items numbered from 1.

    Items without a verdict or with more than one are asked about once more, only those. A number that no item has says
    that the judge counted differently (from 0, or split an item), so then the whole batch is asked about once more;
    with `ask_all_again` that is always so, for replies that say something about all items together. Raises JudgeError
    (`unparsable`) naming the items that still have no single verdict.
    """
    verdicts, doubtful = _by_position(await ask(list(items), False), len(items))
    if doubtful:
        if ask_all_again:
            verdicts, doubtful = {}, list(range(len(items)))
        second, missing = _by_position(await ask([items[i] for i in doubtful], True), len(doubtful))
        if missing:
            names = ", ".join(str(doubtful[i] + 1) for i in missing)
            raise JudgeError("unparsable", f"no single verdict for the items {names} of {len(items)}, asked twice")
        verdicts |= {doubtful[i]: verdict for i, verdict in second.items()}
    return [verdicts[i] for i in range(len(items))]


async def verdicts_in_batches(
    items: Sequence[Item], size: int, ask: Callable[[list[Item], bool], Awaitable[Sequence[N]]]
) -> list[N]:
    """`verdicts_for` with at most `size` items per question; all batches are asked at once."""
    batches = [items[i : i + size] for i in range(0, len(items), size)]
    results = await gather_ordered(*(verdicts_for(batch, ask) for batch in batches))
    return [verdict for verdicts in results for verdict in verdicts]


def _by_position(verdicts: Sequence[N], count: int) -> tuple[dict[int, N], list[int]]:
    """The verdicts by position from 0, and the positions that have none, several, or a doubtful one."""
    times = Counter(verdict.index for verdict in verdicts)
    if any(not 1 <= index <= count for index in times):
        return {}, list(range(count))
    single = {verdict.index - 1: verdict for verdict in verdicts if times[verdict.index] == 1}
    return single, [position for position in range(count) if position not in single]
