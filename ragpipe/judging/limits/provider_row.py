"""What all processes know of one provider under one key, in one row: its rate, its slots, whether it is down, whether it answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ragpipe.judging.limits.limit_headers import Unit
from ragpipe.judging.limits.limit_rules import LimitRules
from ragpipe.judging.limits.outage import KnownOutage
from ragpipe.judging.limits.rate_limit import RateState
from ragpipe.judging.limits.slot_shares import SlotShares
from ragpipe.judging.limits.width import LearnedWidth
from ragpipe.store.limits.limit_rows import Moment
from ragpipe.store.limits.row_owners import RowOwner

OwnLimits = Mapping[Unit, tuple[float, str]]
"""The limits that the user of a process sets: by unit so many per second, and the name of the setting."""

SLOWER = 1.04  # times: a start reaches the server some milliseconds later than it was reserved, now fewer, now more
LATE_S = 0.015  # by which a start may be late and not delay the next one
AT_ONCE_S = 0.02  # of a rate that a process takes at once
_FORGOTTEN_S = 600.0  # without anybody who asks, after which what was learned is forgotten
_PROVEN_S = 600.0  # for which an answer says that the provider can be used


@dataclass(slots=True)
class ProviderRow:
    """The row, read for one owner. Methods change it; `text` is what is written back."""

    me: RowOwner
    moment: Moment
    rate: RateState
    width: LearnedWidth = field(default_factory=LearnedWidth)
    pools: dict[str, SlotShares] = field(default_factory=dict)
    owners: dict[str, dict[str, Any]] = field(default_factory=dict)
    outage: KnownOutage | None = None
    prober: str = ""
    """Who may send the next probe of the outage."""
    first: dict[str, str] = field(default_factory=dict)
    """By form of a request who asks the first question of it alone."""
    proven: dict[str, float] = field(default_factory=dict)
    """By form of a request when it was last answered."""

    @staticmethod
    def read(
        text: str | None, me: RowOwner, moment: Moment, rules: LimitRules, own: OwnLimits, *, leaves: bool = False
    ) -> ProviderRow:
        """The row at this moment, without the dead.

        Args:
            text: what stands in it; None: there is none yet.
            me: this process.
            moment: now.
            rules: what is known of the provider's limits.
            own: the limits of this process; the lowest of all that are alive hold.
            leaves: whether this process uses the row no more.
        """
        row = ProviderRow(me, moment, RateState(rules, slower=SLOWER, late=LATE_S))
        values = {} if text is None else json.loads(text)
        same_clock = values.get("clock") == moment.clock
        set_back = max(0.0, values["at"] - moment.seconds) if same_clock else 0.0
        if same_clock:
            row.owners, row.first = values["owners"], values["first"]
            row.pools = {name: SlotShares.from_json(pool) for name, pool in values["pools"].items()}
            me.shift(row.owners, -set_back)
            for shares in row.pools.values():
                shares.shift(-set_back)
            me.catch_up(row.owners, moment)
            for name in me.dead(row.owners, moment, same_clock=True, may_be_silent=False):
                row.end(name)
        is_new = me.id not in row.owners
        if leaves:
            row.end(me.id)
        else:
            limits = {unit: [per_second, why] for unit, (per_second, why) in own.items()}
            row.owners[me.id] = {**me.beat(moment), "own": limits}
        for owner in row.owners.values():
            for unit, (per_second, why) in owner["own"].items():
                row.rate.limit_own(unit, per_second, why)
        if same_clock and moment.seconds - values["at"] < _FORGOTTEN_S:
            row.rate.restore(values["rate"])
            row.rate.shift(-set_back)
            row.width.restore(values["width"])
            row.width.shift(-set_back)
            row.proven = {form: answered - set_back for form, answered in values["proven"].items()}
            row.outage = None if values["outage"] is None else KnownOutage(**values["outage"]).shifted(-set_back)
            row.prober = values["prober"] if values["prober"] in row.owners else ""
            if not row.owners.keys() - {me.id} and is_new:
                row.outage = None  # nobody is left who has met it
                row.rate.pace.forget_answers()
        return row

    @property
    def text(self) -> str:
        """The row as it is written."""
        values = {
            "clock": self.moment.clock,
            "at": self.moment.seconds,
            "owners": self.owners,
            "pools": {name: pool.as_json() for name, pool in self.pools.items()},
            "rate": self.rate.as_json(),
            "width": self.width.as_json(),
            "outage": None if self.outage is None else asdict(self.outage),
            "prober": self.prober,
            "first": self.first,
            "proven": self.proven,
        }
        return json.dumps(values, separators=(",", ":"))

    def end(self, owner: str) -> None:
        """This owner is no more: its slots are free."""
        self.owners.pop(owner, None)
        for pool in self.pools.values():
            pool.end(owner)
        self.first = {form: name for form, name in self.first.items() if name != owner}

    def slots(self, pool: str, used: int, needed: int, most: int) -> tuple[int, int]:
        """As `SlotShares.ask`; `most` is what the settings allow, and the server may take fewer."""
        learned = self.width.limit
        allowed = most if learned is None else min(most, int(learned))
        shares = self.pools.setdefault(pool, SlotShares())
        return shares.ask(self.me.id, used, needed, allowed, self.moment.seconds)

    def elsewhere(self, used: int) -> int:
        """Requests in flight of all processes, where so many are of this one."""
        others = [p.shares[name].slots for p in self.pools.values() for name in p.shares if name != self.me.id]
        return used + sum(others)

    def start(self, tokens: Mapping[Unit, float] | None, count: int) -> int:
        """Reserve up to so many starts, now, of attempts with so many tokens each: as many as may start within 20 ms, at least one.
        0: none may start now."""
        now = self.moment.seconds
        if self.rate.next_start(now)[0] > now:
            return 0
        count = min(count, self.rate.most_at_once(AT_ONCE_S, tokens))
        self.rate.take(now, tokens, count)
        return count

    def silent(self, outage: KnownOutage) -> None:
        """More than one question of this process got no answer: the outage begins, or goes on after a probe."""
        known, prober = self.outage, self.prober
        if known is not None:
            outage = KnownOutage(
                min(known.since, outage.since),
                max(known.next_probe, outage.next_probe),
                max(known.wait, outage.wait),
                outage.error,
            )
        self.outage, self.prober = outage, "" if prober == self.me.id else prober

    def answered(self) -> None:
        """A request was answered: that ends the outage."""
        self.outage, self.prober = None, ""

    def may_probe(self) -> bool:
        """Whether this process may send the next probe of the outage; it has it then until it says what came of it."""
        if self.outage is None or self.prober not in ("", self.me.id) or self.outage.next_probe > self.moment.seconds:
            return False
        self.prober = self.me.id
        return True

    def give_up_probe(self) -> None:
        """The probe of this process has no result; another may go."""
        if self.prober == self.me.id:
            self.prober = ""

    def may_ask_first(self, form: str) -> bool:
        """Whether this process may ask a question in this form: it was answered lately, or nobody else asks the first one."""
        proven = self.proven.get(form)
        if proven is not None and self.moment.seconds - proven < _PROVEN_S:
            return True
        return self.first.setdefault(form, self.me.id) == self.me.id

    def asked_first(self, form: str, *, is_proven: bool) -> None:
        """The first question of this process was answered, or not."""
        if self.first.get(form) == self.me.id:
            del self.first[form]
        if is_proven:
            self.proven[form] = self.moment.seconds
