"""The row of a provider over a simulated clock and many owners: starts, slots, outages, the first call; owners come, die and come back."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.judging.limits.limit_rules import LimitRules
from ragpipe.judging.limits.outage import KnownOutage
from ragpipe.judging.limits.provider_row import OwnLimits, ProviderRow
from ragpipe.judging.limits.slot_shares import SlotShares
from ragpipe.store.files.processes import Process
from ragpipe.store.limits.limit_rows import Moment
from ragpipe.store.limits.row_owners import SILENT_S, RowOwner


class Rows:
    """One row and a clock."""

    def __init__(self) -> None:
        self.text: str | None = None
        self.now, self.clock = 1000.0, "boot"
        self.dead: set[int] = set()

    def owner(self, number: int) -> RowOwner:
        process = Process("host", number, f"boot.namespace.{number}")
        return RowOwner(f"owner {number}", process, lambda process: process.pid not in self.dead)

    def read(self, number: int, own: OwnLimits | None = None) -> ProviderRow:
        moment = Moment(self.now, self.clock)
        return ProviderRow.read(self.text, self.owner(number), moment, LimitRules(), own or {})

    def write(self, row: ProviderRow) -> None:
        self.text = row.text

    def pass_turns(self, seconds: float, number: int) -> None:
        """Time passes, in which this one alone gives signs of life."""
        end = self.now + seconds
        while self.now < end:
            self.now += 0.25
            self.write(self.read(number))


@pytest.mark.slow
@given(st.integers(0, 10_000), st.sampled_from([0.5, 1, 3, 5, 20, 49]), st.integers(1, 6))
def test_no_window_has_more_starts_than_the_rate_allows(seed: int, rate: float, owners: int) -> None:
    """Owners ask at random moments, each late by up to 15 ms; the window is one second, or one start where that is longer."""
    draw, rows, starts = random.Random(seed), Rows(), list[float]()
    own: OwnLimits = {"requests": (rate, "rpm")}
    while len(starts) < 60:
        row = rows.read(draw.randrange(owners), own)
        starts += [rows.now] * row.start(None, draw.randint(1, 5))
        rows.write(row)
        free_from = row.rate.next_start(rows.now)[0]
        rows.now = max(rows.now, free_from) + draw.choice([0.0, 0.002, 0.015, draw.uniform(0, 3 / rate)])
    window = max(1.0, 1 / rate)
    most = max(sum(start <= other < start + window for other in starts) for start in starts)
    assert most <= max(1, rate * window)


def test_a_rate_is_used_although_starts_are_late() -> None:
    """5 per second, each start up to 15 ms late: one every 208 ms on average, 96 % of the rate."""
    rows, draw, starts = Rows(), random.Random(1), 0
    while rows.now < 1100:
        row = rows.read(starts % 4, {"requests": (5.0, "rpm")})
        starts += row.start(None, 1)
        rows.write(row)
        rows.now = row.rate.next_start(rows.now)[0] + draw.uniform(0, 0.015)
    assert starts >= 0.95 * 500


def test_above_fifty_starts_a_second_some_are_reserved_together() -> None:
    rows = Rows()
    assert rows.read(1, {"requests": (49.0, "rpm")}).start(None, 10) == 1
    assert rows.read(1, {"requests": (520.0, "rpm")}).start(None, 100) == 10, "500 per second, for 20 ms"
    assert rows.read(1, {"requests": (520.0, "rpm")}).start(None, 3) == 3


def test_the_lowest_limit_holds_as_long_as_its_owner_lives() -> None:
    rows = Rows()
    rows.write(rows.read(1, {"requests": (1.0, "rpm")}))
    row = rows.read(2, {"requests": (10.0, "rpm")})
    assert row.rate.per_minute("requests") == pytest.approx(60)
    rows.dead = {1}
    assert rows.read(2, {"requests": (10.0, "rpm")}).rate.per_minute("requests") == pytest.approx(600)


def test_a_pause_holds_all_and_the_clock_of_another_boot_none() -> None:
    rows = Rows()
    row = rows.read(1)
    row.rate.pause_until(1060.0)
    rows.write(row)
    assert rows.read(2).rate.next_start(1001.0) == (1060.0, "429")
    rows.now, rows.clock = 5.0, "next boot"
    assert rows.read(2).rate.next_start(5.0)[0] == 5.0


@pytest.mark.parametrize("seconds", [0.001, 3600.0])
def test_a_clock_that_was_set_back_forgets_nothing(seconds: float) -> None:
    """The wall clock of a database: what is 60 s ahead stays so, and who is silent from now on is dead 15 s later."""
    rows = Rows()
    row = rows.read(1)
    row.rate.pause_until(1060.0)
    row.width.restore([8.0, 1000.0, 0])
    row.silent(KnownOutage(990.0, 1005.0, 10.0, "status 503"))
    row.asked_first("form", is_proven=True)
    assert row.slots("model", 0, 5, 16)[0] == 5
    rows.write(row)
    rows.now -= seconds
    row = rows.read(2)
    assert row.rate.paused_until == pytest.approx(1060.0 - seconds)
    assert row.width.limit == 8.0
    assert row.outage is not None
    assert row.outage.next_probe == pytest.approx(1005.0 - seconds)
    assert row.proven["form"] == pytest.approx(1000.0 - seconds)
    assert row.elsewhere(0) == 5
    rows.write(row)
    rows.pass_turns(SILENT_S - 1, 2)
    assert rows.read(2).elsewhere(0) == 5
    rows.pass_turns(2, 2)
    assert rows.read(2).elsewhere(0) == 0


def test_what_was_learned_is_forgotten_when_nobody_asked_for_long() -> None:
    rows = Rows()
    row = rows.read(1)
    row.width.restore([4.0, 1000.0, 0])
    rows.write(row)
    rows.now += 599
    assert rows.read(2).width.limit == 4.0
    rows.now += 2
    assert rows.read(2).width.limit is None


@pytest.mark.slow
@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(1, 5))
def test_slots_are_never_more_than_the_limit_and_all_get_some(seed: int, most: int, owners: int) -> None:
    """Owners need slots at random, use what they have and give back as they are told; some die and are followed by others. In the
    end all need more than there is: each gets one within some turns, and where there are enough, none has two less than another."""
    draw, shares, now = random.Random(seed), SlotShares(), 0.0
    kept, cap = dict.fromkeys(range(owners), 0), dict.fromkeys(range(owners), most)

    def turn(owner: int, needed: int) -> None:
        used = min(kept[owner], cap[owner], needed)  # requests above the cap end, and are not followed by others
        kept[owner], cap[owner] = shares.ask(f"{owner}", used, max(needed, used), most, now)
        assert shares.total <= most

    for _ in range(60):
        now += draw.uniform(0, 0.3)
        owner = draw.randrange(owners)
        turn(owner, draw.randint(0, 2 * most))
        if draw.random() < 0.1:
            shares.end(f"{owner}")
            kept[owner], cap[owner] = 0, most
    had = set[int]()
    for _ in range(20 * owners):
        for owner in range(owners):
            now += 0.1
            turn(owner, 2 * most)
            had |= {owner} if kept[owner] else set()
    assert had == set(range(owners))
    if owners <= most:
        assert shares.total == most
        assert max(kept.values()) - min(kept.values()) <= 1


@pytest.mark.parametrize(("first_is_dead", "rate"), [(True, 0.87 * 3 / 0.3), (False, 0.87 * 8 / 9.7)])
def test_the_seconds_before_a_new_start_are_no_slow_answers(first_is_dead: bool, rate: float) -> None:
    """Ten answers in a second; 8 s later another process has three, and a refusal. Where the first one lives, it was slow."""
    rows = Rows()
    for owner, start, count in ((1, 1000.0, 10), (2, 1009.8, 3)):
        for number in range(count):
            rows.now = start + number / 10
            row = rows.read(owner)
            row.rate.pace.record_answer(rows.now, is_held=False)
            rows.write(row)
        if first_is_dead:
            rows.dead.add(1)
    rows.now = 1010.1
    row = rows.read(2)
    row.rate.learn_refusal(1010.05, rows.now)
    assert row.rate.pace.rate == pytest.approx(rate, rel=0.02)


def test_a_process_with_a_lower_number_obeys_its_own() -> None:
    shares = SlotShares()
    assert shares.ask("wide", 0, 10, 8, 0.0) == (8, 8)
    assert shares.ask("narrow", 0, 4, 4, 0.1)[0] == 0, "eight are in flight, and it allows four"
    slots, cap = shares.ask("wide", 8, 10, 8, 0.2)
    assert (slots, cap) == (8, 2), "four for two processes"
    assert shares.ask("wide", 2, 10, 8, 0.3) == (2, 2)
    assert shares.ask("narrow", 0, 4, 4, 0.4)[0] == 2


def test_slots_of_the_dead_and_the_silent_are_free() -> None:
    rows = Rows()
    row = rows.read(1)
    assert row.slots("model", 0, 5, 8) == (5, 8)
    rows.write(row)
    row = rows.read(2)
    assert row.slots("model", 0, 5, 8)[0] == 3
    rows.dead = {1}
    row = rows.read(2)
    assert row.slots("model", 3, 5, 8)[0] == 5
    rows.write(row)
    rows.pass_turns(SILENT_S + 1, 3)  # the second one is stopped: it lives, and keeps no slots from others
    row = rows.read(3)
    assert row.slots("model", 0, 8, 8)[0] == 8


def test_after_an_outage_the_first_one_back_takes_no_slots_of_others() -> None:
    rows = Rows()
    row = rows.read(1, {"requests": (1.0, "rpm")})
    assert row.slots("model", 0, 5, 8) == (5, 8)
    rows.write(row)
    rows.write(rows.read(2))
    rows.now += 300
    rows.write(rows.read(2))
    rows.pass_turns(10, 2)
    row = rows.read(2)
    assert row.elsewhere(0) == 5
    assert row.rate.per_minute("requests") == pytest.approx(60), "the limit of the other holds"


def test_one_process_probes_an_outage_and_its_answer_ends_it_for_all() -> None:
    rows = Rows()
    row = rows.read(1)
    row.silent(KnownOutage(990.0, 1001.0, 1.0, "status 500"))
    rows.write(row)
    rows.write(rows.read(2))
    assert not rows.read(2).may_probe(), "it is too early"
    rows.now = 1001.5
    row = rows.read(2)
    assert row.may_probe()
    rows.write(row)
    assert not rows.read(1).may_probe(), "another has it"
    rows.dead = {2}
    row = rows.read(1)
    assert row.may_probe(), "the prober died"
    rows.write(row)
    row = rows.read(1)
    row.silent(KnownOutage(990.0, 1003.5, 2.0, "status 502"))
    assert row.outage == KnownOutage(990.0, 1003.5, 2.0, "status 502")
    row.answered()
    rows.write(row)
    assert rows.read(3).outage is None


def test_one_process_asks_first_and_the_others_wait_until_it_is_answered_or_dead() -> None:
    rows = Rows()
    row = rows.read(1)
    assert row.may_ask_first("model")
    rows.write(row)
    assert not rows.read(2).may_ask_first("model")
    rows.dead = {1}
    row = rows.read(2)
    assert row.may_ask_first("model")
    row.asked_first("model", is_proven=True)
    rows.write(row)
    assert rows.read(3).may_ask_first("model")
    assert rows.read(4).may_ask_first("model")
