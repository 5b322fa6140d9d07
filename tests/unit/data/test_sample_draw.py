"""Sampling from a log: rate, daily budget, seed. What another line, another day or another order changes, and what not."""

import datetime
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.core.errors import DataError
from ragpipe.core.sample import Sample
from ragpipe.data.dataset import calendar_day, drawn_ids, place_by_hash
from ragpipe.data.faults import Faults
from ragpipe.data.settings import SampleOf

LOG = st.dictionaries(st.text("abcdef", min_size=1, max_size=5), st.integers(1, 4), max_size=60)
"""Days (of a month) by id."""


def line(name, day):
    return Sample(id=name, question="?", meta={"time": f"2026-03-{day:02}T23:59:59Z"}), "log.jsonl:1"


def drawn(log, **selection):
    faults = Faults("log")
    lines = [line(name, day) for name, day in log.items()]
    selection.setdefault("seed", 7)
    names = drawn_ids(SampleOf(**selection), lines, faults)
    faults.raise_all()
    return names


def per_day(log, budget, **selection):
    return drawn(log, per_day=budget, time="meta.time", **selection)


@given(LOG, st.randoms(use_true_random=False))
def test_the_order_of_the_lines_changes_nothing(log, order):
    shuffled = list(log.items())
    order.shuffle(shuffled)
    assert per_day(dict(shuffled), 3, rate=0.7) == per_day(log, 3, rate=0.7)
    assert drawn(dict(shuffled), rate=0.5) == drawn(log, rate=0.5)


@given(LOG, st.integers(1, 4))
def test_lines_of_other_days_change_nothing(log, day):
    that_day = {name: number for name, number in log.items() if number == day}
    assert per_day(that_day, 3, rate=0.8) == {name for name in per_day(log, 3, rate=0.8) if log[name] == day}


@given(LOG, LOG)
def test_a_later_line_displaces_only_where_the_budget_is_full(log, later):
    more = {**later, **log}
    before, after = per_day(log, 4, rate=0.9), per_day(more, 4, rate=0.9)
    counts = Counter(more[name] for name in after)
    assert all(counts[more[name]] == 4 for name in before - after)
    assert (after & log.keys()) <= before  # who was passed over is not drawn because others came


@given(LOG)
def test_more_is_always_a_superset_and_the_budget_is_used(log):
    assert per_day(log, 2) <= per_day(log, 5) <= per_day(log, 100) == frozenset(log)
    assert drawn(log, rate=0.2) <= drawn(log, rate=0.6) <= drawn(log, rate=1.0) == frozenset(log)
    sizes = Counter(log[name] for name in per_day(log, 2))
    assert sizes == {day: min(2, number) for day, number in Counter(log.values()).items()}


@pytest.mark.slow
def test_a_rate_is_a_rate_and_seeds_are_independent():
    log = {f"trace-{number}": 1 for number in range(20_000)}
    first, second = drawn(log, rate=0.05), drawn(log, rate=0.05, seed=8)
    assert abs(len(first) - 1000) < 5 * (20_000 * 0.05 * 0.95) ** 0.5  # five standard deviations of a binomial
    assert abs(len(first & second) - 50) < 5 * 50**0.5  # 0.05 of 0.05 of them
    assert all(0 <= place_by_hash(7, name) < 0.05 for name in first)


@pytest.mark.parametrize(("value", "day"), [
    ("2026-03-01", "2026-03-01"),
    ("20260301", "2026-03-01"),
    ("2026-03-01T23:30:00", "2026-03-01"),
    ("2026-03-01 23:30:00Z", "2026-03-01"),
    ("2026-03-01T23:30:00-02:00", "2026-03-02"),
    ("2026-03-02T00:30:00+01:00", "2026-03-01"),
    ("2026-03-01T23:30:00.123456789+00:00", "2026-03-01"),
    (1772323199, "2026-02-28"),
    (1772323200, "2026-03-01"),  # date -u -d 2026-03-01 +%s
    (1772323200.5, "2026-03-01"),
    (1772323200123, "2026-03-01"),
    (1772323200123456, "2026-03-01"),
    (1772323200123456789, "2026-03-01"),
    ("1772323200123456789", "2026-03-01"),
    (0, "1970-01-01"),
])  # fmt: skip
def test_the_day_of_a_time(value, day):
    assert calendar_day(value) == datetime.date.fromisoformat(day)


@pytest.mark.parametrize("value", [None, "", "yesterday", "01.03.2026", True, -1, [], 10**30, float("inf")])
def test_what_is_no_time(value):
    with pytest.raises(ValueError, match=r".*"):
        calendar_day(value)


def test_a_sample_without_a_time_is_named(open_file):
    log = {"log.jsonl": '{"id": "a", "question": "?", "meta": {"time": "2026-03-01"}}\n{"id": "b", "question": "?"}\n'}
    chosen = {"per_day": 5, "time": "meta.time", "seed": 1}
    with pytest.raises(DataError, match=r"(?s)log\.jsonl:2 \(id 'b'\): sample\.time \(meta\.time\).*null.*dataset\.filter"):
        list(open_file(log, sample=chosen))
    assert [record.sample.id for record in open_file(log, sample=chosen, filter="meta.time")] == ["a"]


@pytest.mark.parametrize("selection", [
    {}, {"n": 3, "rate": 0.5}, {"n": 3, "per_day": 4, "time": "t"}, {"per_day": 4}, {"rate": 0.5, "time": "t"},
    {"rate": 0.0}, {"rate": 1.5}, {"per_day": 0, "time": "t"}, {"per_day": 4, "time": "a["},
])  # fmt: skip
def test_what_does_not_go_together(selection):
    with pytest.raises(ValueError, match=r"SampleOf"):
        SampleOf(**selection)
