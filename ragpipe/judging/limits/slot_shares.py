"""How the processes that ask one model share its slots: who may have how many requests in flight."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

_TURN_S = 1.0  # for which a process keeps a slot where there are fewer slots than processes


@dataclass(slots=True)
class SlotShare:
    """What one process has: `slots` of its own, `needed` by its requests and those that wait, `most` that may be in flight by its
    settings over all processes. `since` is when it last got one, or began to wait."""

    slots: int
    needed: int
    most: int
    since: float

    @property
    def is_short(self) -> bool:
        """Whether it waits for slots."""
        return self.needed > self.slots


class SlotShares:
    """The shares of all processes, by owner.

    While slots are free, a process gets what it needs. Where they are not, each gives back what is above an equal share; who has
    least and has waited longest is first. Where there are more processes than slots, they take turns.
    """

    def __init__(self, shares: dict[str, SlotShare] | None = None):
        self.shares = shares or {}

    @staticmethod
    def from_json(values: dict[str, dict[str, Any]]) -> SlotShares:
        return SlotShares({name: SlotShare(**share) for name, share in values.items()})

    def as_json(self) -> dict[str, dict[str, Any]]:
        """As it is written to the row of a provider."""
        return {name: asdict(share) for name, share in self.shares.items() if share.slots or share.needed}

    def shift(self, seconds: float) -> None:
        """Move all times to a clock that is so many seconds ahead."""
        for share in self.shares.values():
            share.since += seconds

    @property
    def total(self) -> int:
        """Slots that are given out."""
        return sum(share.slots for share in self.shares.values())

    def ask(self, owner: str, used: int, needed: int, most: int, now: float) -> tuple[int, int]:
        """Returns how many slots a process has now, and how many of its requests may be in flight: it sends none above that, and gives
        slots back as they become free.

        Args:
            owner: the process.
            used: slots that it has kept.
            needed: slots that it needs, with those.
            most: requests that may be in flight over all processes.
            now: the time in seconds.
        """
        known = self.shares.get(owner)
        is_new = known is None or known.slots > used or (known.needed <= known.slots and needed > used)
        mine = self.shares[owner] = SlotShare(used, needed, most, now if known is None or is_new else known.since)
        short = {name: share for name, share in self.shares.items() if share.is_short and name != owner}
        limit = min([most, *(share.most for share in short.values())])
        cap = self._cap(mine, short, limit, now) if short or self.total > most else most
        free = most - self.total - self._for_others_first(mine, short, cap)
        if (more := min(needed, cap) - used) > 0 and free > 0:
            mine.slots, mine.since = used + min(more, free), now
        return mine.slots, cap

    def _cap(self, mine: SlotShare, short: dict[str, SlotShare], limit: int, now: float) -> int:
        """How many slots a process may use where others wait, or where the server takes fewer than there are."""
        active = max(1, sum(share.needed > 0 for share in self.shares.values()))
        cap = max(1, math.ceil(limit / active))
        fewest = min((share.slots for share in short.values()), default=mine.slots)
        if fewest <= mine.slots - 2:
            cap = min(cap, max(1, limit // active, mine.slots - 1))
        if active > limit and fewest == 0 and mine.slots and now - mine.since > _TURN_S:
            return 0
        return cap

    @staticmethod
    def _for_others_first(mine: SlotShare, short: dict[str, SlotShare], cap: int) -> int:
        """Free slots that are left for those that have fewer, or have as few and have waited longer."""
        first = [s for s in short.values() if (s.slots, s.since) < (mine.slots, mine.since)]
        return sum(max(0, min(share.needed, cap) - share.slots) for share in first)

    def end(self, owner: str) -> None:
        """This process is no more."""
        self.shares.pop(owner, None)
