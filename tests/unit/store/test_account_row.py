"""The account of a run over many processes that come, send and die: never more than the limits, by the provider's own bill."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.schema.amount import Amount
from ragpipe.store.files.processes import Process
from ragpipe.store.limits import row_owners
from ragpipe.store.limits.account_row import AccountRow, HeldAmount
from ragpipe.store.limits.limit_rows import Moment
from ragpipe.store.limits.row_owners import RowOwner

LIMITS = {"usd": None, "tokens": 1000.0, "calls": 40.0}


class Rows:
    """One row and a clock. Processes on another host cannot be looked at."""

    def __init__(self) -> None:
        self.text: str | None = None
        self.now = 100.0
        self.dead: set[int] = set()
        self.elsewhere: set[int] = set()

    def owner(self, number: int) -> RowOwner:
        return RowOwner(f"owner {number}", Process("host", number, f"boot.namespace.{number}"), self._is_alive)

    def _is_alive(self, process: Process) -> bool | None:
        return None if process.pid in self.elsewhere else process.pid not in self.dead

    def read(self, number: int) -> AccountRow:
        row = AccountRow.read(self.text, self.owner(number), Moment(self.now, "boot"))
        row.enter()
        return row

    def pass_turns(self, seconds: float, *numbers: int, every: float = 2.0) -> None:
        """Time passes, in which these give their signs of life."""
        end = self.now + seconds
        while self.now < end:
            self.now += every
            for number in numbers:
                self.text = self.read(number).text


@pytest.mark.slow
@given(st.integers(0, 100_000), st.integers(1, 5))
def test_no_bill_exceeds_the_limits(seed: int, owners: int) -> None:
    """Each request is billed up to its hold; of those whose process dies, all are billed and none is told."""
    draw, rows, billed, alive = random.Random(seed), Rows(), Amount(), list(range(owners))
    under_way: dict[int, list[HeldAmount]] = {number: [] for number in alive}
    for step in range(150):
        number = draw.choice(alive)
        row = rows.read(number)
        held = under_way[number]
        if held and draw.random() < 0.45:
            hold = held.pop(draw.randrange(len(held)))
            cost = Amount(tokens=draw.randint(0, hold.amount.tokens), calls=1)
            outcome = draw.choice(["answered", "refused", "lost"])
            billed += Amount() if outcome == "refused" else cost
            row.settle(hold, {"answered": cost, "refused": Amount(), "lost": None}[outcome])
        else:
            hold = HeldAmount(Amount(tokens=draw.randint(1, 120), calls=1))
            if row.hold(hold, None, LIMITS, f"start {seed}") == "held":
                held.append(hold)
        rows.text, rows.now = row.text, rows.now + 0.1
        if draw.random() < 0.03:
            rows.dead.add(number)
            billed += sum((hold.amount for hold in under_way.pop(number)), Amount())
            alive[alive.index(number)] = new = owners + step
            under_way[new] = []
        assert billed.tokens <= 1000
        assert billed.calls <= 40
    row = rows.read(alive[0])
    assert row.spent.tokens + row.held.tokens <= 1000
    assert row.spent.tokens >= billed.tokens - row.held.tokens


@pytest.mark.slow
@given(st.integers(0, 100_000), st.integers(1, 5), st.integers(1, 120))
def test_questions_of_a_start_are_never_more_than_it_may_ask_and_none_is_kept(
    seed: int, owners: int, most: int
) -> None:
    draw, rows, kept, asked, lost = random.Random(seed), Rows(), dict.fromkeys(range(owners), 0), 0, 0
    alive = list(range(owners))
    for step in range(400):
        number = draw.choice(alive)
        if kept[number] and draw.random() < 0.8:
            kept[number], asked = kept[number] - 1, asked + 1
            continue
        row = rows.read(number)
        row.give_back("start", "judge", kept[number])
        kept[number] = row.questions("start", "judge", most, 1) or 0
        rows.text = row.text
        if draw.random() < 0.02 and step < 300:
            rows.dead.add(number)
            lost += kept.pop(number)
            alive[alive.index(number)] = new = owners + step
            kept[new] = 0
    assert asked + lost <= most
    for _ in range(most + owners):  # the living ask what is left
        for number in alive:
            row = rows.read(number)
            row.give_back("start", "judge", kept[number])
            kept[number] = 0
            if row.questions("start", "judge", most, 1):
                row.give_back("start", "judge", row.asked["start"]["judge"][row.me.id] - 1)
                asked += 1
            rows.text = row.text
    assert asked + lost == most


def test_a_clock_that_was_set_back_keeps_nobody_alive() -> None:
    """The wall clock of a database was set back by an hour: who has died since counts as dead 15 s later, not after the hour."""
    rows = Rows()
    rows.elsewhere = {1}
    row = rows.read(1)
    assert row.hold(HeldAmount(Amount(calls=38)), None, LIMITS, "start") == "held"
    rows.text = row.text
    rows.now -= 3600
    row = rows.read(2)
    assert row.hold(HeldAmount(Amount(calls=5)), None, LIMITS, "start") == "wait"
    rows.text = row.text
    rows.pass_turns(14, 2)
    assert rows.read(2).under_way == 1
    rows.pass_turns(2, 2)
    row = rows.read(2)
    assert (row.under_way, row.lost.calls) == (0, 38)


def test_another_start_asks_as_many_again() -> None:
    row = Rows().read(1)
    assert [row.questions("first", "judge", 1, 1), row.questions("first", "judge", 1, 1)] == [1, 0]
    assert row.questions("second", "judge", 1, 1) == 1
    assert row.questions("second", "other judge", 1, 1) == 1


def test_what_is_cheap_does_not_overtake_and_an_account_is_closed_for_its_start() -> None:
    rows = Rows()
    row = rows.read(1)
    first = HeldAmount(Amount(tokens=900))
    assert row.hold(first, None, LIMITS, "start") == "held"
    rows.text = row.text
    row = rows.read(2)
    assert row.hold(HeldAmount(Amount(tokens=200)), None, LIMITS, "start") == "wait"
    rows.text = row.text
    row = rows.read(3)
    assert row.hold(HeldAmount(Amount(tokens=10)), None, LIMITS, "start") == "wait", "it would fit"
    rows.text = row.text
    row = rows.read(1)
    row.settle(first, Amount(tokens=900))
    rows.text = row.text
    row = rows.read(2)
    assert row.hold(HeldAmount(Amount(tokens=200)), None, LIMITS, "start") == "full"
    rows.text = row.text
    assert rows.read(3).hold(HeldAmount(Amount(tokens=10)), None, LIMITS, "start") == "full"
    assert rows.read(3).hold(HeldAmount(Amount(tokens=10)), None, LIMITS, "next start") == "held"


def test_a_ledger_is_counted_once_and_the_holds_of_the_dead_are_assumed() -> None:
    """Before: 100 paid. A start holds 30 and 20, the first is answered for 10, then it is killed; the ledger says 110. A start without
    a budget pays 40 more."""
    rows = Rows()
    row = rows.read(1)
    row.balance(Amount(tokens=100))
    holds = [HeldAmount(Amount(tokens=30)), HeldAmount(Amount(tokens=20))]
    assert [row.hold(hold, None, LIMITS, "a") for hold in holds] == ["held", "held"]
    row.settle(holds[0], Amount(tokens=10))
    rows.text = row.text
    busy = rows.read(2)
    busy.balance(Amount(tokens=105))
    assert busy.spent.tokens == 110, "the first is alive, its payments are under way to the ledger"
    rows.dead = {1}
    row = rows.read(2)
    row.balance(Amount(tokens=110))
    assert (row.spent.tokens, row.assumed.tokens, row.held.tokens) == (130, 20, 0)
    rows.text = row.text
    rows.dead = {1, 2}
    row = rows.read(3)
    row.balance(Amount(tokens=150))
    assert (row.spent.tokens, row.assumed.tokens) == (170, 20)


def test_a_process_that_was_taken_for_dead_and_comes_back_frees_nothing_twice() -> None:
    rows = Rows()
    rows.elsewhere = {1}
    row = rows.read(1)
    hold = HeldAmount(Amount(tokens=30))
    row.hold(hold, None, LIMITS, "a")
    rows.text = row.text
    rows.pass_turns(20, 2)  # it was frozen
    row = rows.read(2)
    assert row.spent.tokens == 30
    rows.text, rows.now = row.text, rows.now + 1
    row = rows.read(1)
    row.settle(hold, Amount(tokens=5))
    assert (row.spent.tokens, row.held.tokens, row.under_way) == (30, 0, 0)


@pytest.mark.parametrize("elsewhere", [set(), {1, 2}])
def test_after_an_outage_the_first_one_back_takes_nobody_for_dead(elsewhere: set[int]) -> None:
    """For five minutes nobody reached the row. The second process is back first; the requests of the other were refused meanwhile."""
    rows = Rows()
    rows.elsewhere = elsewhere
    row = rows.read(1)
    holds = [HeldAmount(Amount(calls=1)) for _ in range(38)]
    assert {row.hold(hold, None, LIMITS, "a") for hold in holds} == {"held"}
    rows.text, rows.now = row.text, rows.now + 1
    rows.text, rows.now = rows.read(2).text, rows.now + 300
    rows.text = rows.read(2).text
    rows.pass_turns(10, 2, every=0.05)
    row = rows.read(1)
    for hold in holds:
        row.settle(hold, Amount())
    assert (row.spent.calls, row.held.calls, row.under_way) == (0, 0, 0)


def test_who_is_known_to_live_keeps_its_holds_however_long_it_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_owners, "_CLOSED", set())
    rows = Rows()
    row = rows.read(1)
    hold = HeldAmount(Amount(calls=38))
    row.hold(hold, None, LIMITS, "a")
    rows.text = row.text
    rows.pass_turns(600, 2)  # it is stopped
    row = rows.read(2)
    assert (row.lost.calls, row.held.calls) == (0, 38)
    rows.owner(1).close()
    rows.text = row.text
    row = rows.read(2)
    assert (row.lost.calls, row.held.calls) == (38, 0), "its process lives, but has closed the account"


def test_a_process_without_a_mark_may_be_another_one_with_its_number() -> None:
    rows = Rows()
    unmarked = RowOwner("unmarked", Process("host", 1), lambda process: True)
    row = AccountRow.read(None, unmarked, Moment(rows.now, "boot"))
    row.hold(HeldAmount(Amount(calls=38)), None, LIMITS, "a")
    rows.text = row.text
    rows.pass_turns(16, 2)
    row = rows.read(2)
    assert (row.lost.calls, row.held.calls) == (38, 0)


@pytest.mark.parametrize(("idle", "every", "turns"), [(0, 0.05, 15), (3600, 0.05, 15), (3600, 2.0, 16), (0, 60.0, 480)])
def test_the_room_of_one_who_died_elsewhere_comes_back(idle: float, every: float, turns: float) -> None:
    """The only survivor gets it after 15 s in which it takes turns, also where it did nothing for an hour before; of the time
    between turns that are far apart two seconds count."""
    rows = Rows()
    rows.elsewhere = {1}
    rows.text = rows.read(2).text
    row = rows.read(1)
    row.hold(HeldAmount(Amount(calls=38)), None, LIMITS, "a")
    rows.text, rows.now = row.text, rows.now + idle
    rows.pass_turns(turns - 2 * every - 2.0, 2, every=every)
    assert rows.read(2).under_way == 1
    rows.pass_turns(2 * every + 2.0, 2, every=every)
    row = rows.read(2)
    assert (row.lost.calls, row.held.calls) == (38, 0)


def test_a_named_hold_outlives_its_process_and_is_taken_over() -> None:
    rows = Rows()
    row = rows.read(1)
    hold = HeldAmount(Amount(tokens=600), "batch/key")
    row.hold(hold, None, LIMITS, "a")
    rows.text, rows.dead = row.text, {1}
    row = rows.read(2)
    assert (row.spent.tokens, row.assumed.tokens, row.held.tokens) == (600, 600, 0)
    again = HeldAmount(Amount(tokens=700), "batch/key")
    assert row.hold(HeldAmount(Amount(tokens=700)), None, LIMITS, "b") == "full"
    assert row.hold(again, hold.amount, LIMITS, "b") == "held"
    assert (row.spent.tokens, row.held.tokens) == (0, 700)
    row.settle(again, Amount(tokens=50, calls=1))
    assert (row.spent.tokens, row.held.tokens, row.open_named.tokens) == (50, 0, 0)
