"""The account of a run in one row: what it has spent, what its requests under way may still cost, how much each start has asked.

All processes of the run take from it before they send, so what is spent, what is held and the next hold fit together whatever their
number. A process that dies leaves its holds: they count as spent, for the provider may bill them. A request of a batch goes on without its
process: its hold has a row of its own, under a name by which a later start takes it over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ragpipe.schema.amount import Amount
from ragpipe.store.limits.limit_rows import Moment
from ragpipe.store.limits.row_owners import RowOwner

Limits = Mapping[str, float | None]
"""By part of an amount the limit of the account; None: this part has none."""

_STARTS = 8  # of which the row knows how much they asked
_CHUNK = 32  # questions that a process takes ahead at most


@dataclass(slots=True)
class _Holder:
    """What one process has under way: `held` without the named holds, `named` those, `requests` of both kinds. `since` is when the
    row first knew it: after it was taken for dead it has another one."""

    process: dict[str, Any]
    since: float
    held: Amount = field(default_factory=Amount)
    named: Amount = field(default_factory=Amount)
    requests: int = 0

    def as_json(self) -> dict[str, Any]:
        amounts = {
            "held": self.held.as_json(),
            "named": self.named.as_json(),
            "requests": self.requests,
            "since": self.since,
        }
        return self.process | amounts

    @staticmethod
    def from_json(values: dict[str, Any]) -> _Holder:
        held, named = Amount.from_json(values.pop("held")), Amount.from_json(values.pop("named"))
        requests, since = values.pop("requests"), values.pop("since")
        return _Holder(values, since, held, named, requests)


@dataclass(slots=True)
class HeldAmount:
    """What a request may cost, and the name of its hold where that outlives the process. `since` is when its process entered the
    account."""

    amount: Amount
    name: str = ""
    since: float = 0.0


Answer = Literal["held", "wait", "full"]
"""Result of a reservation: it is held; it fits when requests under way cost less than they may; it does not fit, and nothing is under way."""


@dataclass(slots=True)
class AccountRow:
    """The row, read for one owner. Methods change it; `text` is what is written back.

    `ledger` is what the ledger of payments said when the account was last balanced and `base` what was spent then. Since
    then requests have cost `answered`, and `lost` are the holds of those whose end nobody knows; `assumed` is the part of
    `base` that no answer confirms. `named` are all named holds that are open.
    """

    me: RowOwner
    moment: Moment
    ledger: Amount = field(default_factory=Amount)
    base: Amount = field(default_factory=Amount)
    answered: Amount = field(default_factory=Amount)
    lost: Amount = field(default_factory=Amount)
    base_assumed: Amount = field(default_factory=Amount)
    open_named: Amount = field(default_factory=Amount)
    holders: dict[str, _Holder] = field(default_factory=dict)
    asked: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    """By start and judge the questions that were handed out (under ""), and by owner those of them that it may not have asked."""
    is_balanced: bool = False
    waiting: list[str] = field(default_factory=list)
    """The owners whose next hold does not fit yet, the first to ask first."""
    closed: str = ""
    """The start that is admitted no more."""

    @staticmethod
    def read(text: str | None, me: RowOwner, moment: Moment) -> AccountRow:
        """The row at this moment: what dead processes held is spent."""
        if text is None:
            return AccountRow(me, moment)
        values = json.loads(text)
        fields: dict[str, Any] = {name: Amount.from_json(values[name]) for name in _AMOUNTS}
        fields |= {name: values[name] for name in _PLAIN}
        holders = {name: _Holder.from_json(holder) for name, holder in values["holders"].items()}
        row = AccountRow(me, moment, **fields, holders=holders)
        same_clock = values["clock"] == moment.clock
        processes = {name: holder.process for name, holder in holders.items()}
        if same_clock:
            me.catch_up(processes, moment)
        for name in me.dead(processes, moment, same_clock=same_clock, may_be_silent=True):
            row.end(name)
        return row

    @property
    def text(self) -> str:
        """The row as it is written."""
        values: dict[str, Any] = {name: getattr(self, name).as_json() for name in _AMOUNTS}
        values["holders"] = {name: holder.as_json() for name, holder in self.holders.items()}
        values |= {name: getattr(self, name) for name in _PLAIN} | {"clock": self.moment.clock}
        return json.dumps(values, separators=(",", ":"))

    @property
    def left_named(self) -> Amount:
        """The named holds that no live process has under way."""
        return self.open_named - sum((holder.named for holder in self.holders.values()), Amount())

    @property
    def spent(self) -> Amount:
        """What all starts have spent, with what nobody knows the end of."""
        return self.base + self.answered + self.lost + self.left_named

    @property
    def assumed(self) -> Amount:
        """The part of `spent` that no answer confirms."""
        return self.base_assumed + self.lost + self.left_named

    @property
    def held(self) -> Amount:
        """What the requests under way of all processes may cost."""
        return sum((holder.held + holder.named for holder in self.holders.values()), Amount())

    @property
    def under_way(self) -> int:
        """The requests under way of all processes."""
        return sum(holder.requests for holder in self.holders.values())

    def enter(self) -> _Holder:
        """This process is alive and uses the account."""
        holder = self.holders.setdefault(self.me.id, _Holder({}, self.moment.seconds))
        holder.process = self.me.beat(self.moment)
        return holder

    def end(self, name: str) -> None:
        """This owner is no more: what it held without a name counts as spent."""
        holder = self.holders.pop(name, None)
        if holder is not None:
            self.lost += holder.held
        self.wait_no_more(name)
        for judges in self.asked.values():
            for counts in judges.values():
                counts.pop(name, None)  # it may have asked them

    def balance(self, ledger: Amount) -> None:
        """Go on from the ledger of payments: whatever it gained beyond what was answered here, starts without a budget
        have paid. Nothing while another process uses the account: its payments are under way to the ledger."""
        if self.holders.keys() - {self.me.id}:
            return
        if not self.is_balanced:
            self.base, self.is_balanced = ledger, True
        else:
            gained = (ledger - self.ledger).at_least(Amount())
            self.base += self.lost + self.answered.at_least(gained)
            self.base_assumed += self.lost
        self.ledger, self.answered, self.lost = ledger, Amount(), Amount()

    def hold(self, hold: HeldAmount, named_before: Amount | None, limits: Limits, start: str) -> Answer:
        """Hold what a request may cost. `named_before` is what an earlier start held for the same request, which makes room.

        Requests are admitted in the order in which they ask, over all processes: what is cheap does not overtake. Where one
        does not fit although nothing is under way, its start is admitted no more.
        """
        if named_before is None:
            if self.closed == start:
                return "full"
            if self.waiting and self.waiting[0] != self.me.id:
                return self._wait()
        before = named_before or Amount()
        total = self.spent + self.held + (hold.amount - before).at_least(Amount())
        if not all(limit is None or getattr(total, part) <= limit for part, limit in limits.items()):
            if self.under_way:
                return self._wait()
            self.closed = start
            self.wait_no_more(self.me.id)
            return "full"
        self.wait_no_more(self.me.id)
        holder = self.enter()
        holder.requests += 1
        hold.since = holder.since
        if hold.name:
            self.open_named += hold.amount - before
            holder.named += hold.amount
        else:
            holder.held += hold.amount
        return "held"

    def _wait(self) -> Answer:
        if self.me.id not in self.waiting:
            self.waiting.append(self.me.id)
        return "wait"

    def wait_no_more(self, name: str) -> None:
        """This owner has no hold that waits."""
        if name in self.waiting:
            self.waiting.remove(name)

    def settle(self, hold: HeldAmount, cost: Amount | None) -> None:
        """A request of this process ended: what it has cost; None: nobody knows. Where this process was taken for dead meanwhile, its
        hold is spent already."""
        holder = self.enter()
        is_known = holder.since == hold.since
        if not is_known and not hold.name:
            return
        if is_known:
            holder.requests -= 1
        if not hold.name:
            holder.held -= hold.amount
        else:
            self.open_named -= hold.amount
            holder.named -= hold.amount if is_known else Amount()
        if not holder.requests:  # no rounding error is left behind
            holder.held = holder.named = Amount()
        if cost is None:
            self.lost += hold.amount
        else:
            self.answered += cost

    def drop(self, named_before: Amount) -> None:
        """The request of an earlier start was never sent: its hold costs nothing."""
        self.open_named -= named_before

    def questions(self, start: str, judge: str, most: int, needed: int) -> int | None:
        """Take questions of a start that may ask so many: at least those that are needed where as many are left, and some
        ahead. 0: none is left; None: none now, but another process may give some back."""
        judges = self.asked.pop(start, {})
        self.asked[start] = judges  # the newest stands last
        for old in list(self.asked)[:-_STARTS]:
            del self.asked[old]
        counts = judges.setdefault(judge, {"": 0})
        left = most - counts[""]
        if left <= 0:
            return None if any(counts[name] for name in counts if name and name != self.me.id) else 0
        ahead = min(_CHUNK - counts.get(self.me.id, 0), left // (4 * max(1, len(self.holders))))
        taken = min(left, max(needed, ahead))
        counts[""] += taken
        counts[self.me.id] = counts.get(self.me.id, 0) + taken
        return taken

    def give_back(self, start: str, judge: str, unused: int) -> None:
        """This process has asked all the questions that it took but these."""
        counts = self.asked.get(start, {}).get(judge)
        if counts is not None:
            counts[""] -= min(unused, counts.pop(self.me.id, 0))


_AMOUNTS = ("ledger", "base", "answered", "lost", "base_assumed", "open_named")
"""The amounts of a row, by the names of their fields."""
_PLAIN = ("asked", "is_balanced", "waiting", "closed")
"""The fields that are written as they are."""
