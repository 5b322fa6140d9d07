"""`dataset.sample`: which samples of a data set are taken, by hashes of seed and id.

Every sample has a place between 0 and 1 by its hash, the same whatever else the file holds. `n` takes the n lowest places, `rate`
those below it, `per_day` of each day at most so many, the lowest first. A line more or less therefore changes nothing for the
others, with two exceptions: with `n` and on a day whose budget is full, a new sample with a lower place takes that of the highest.
"""

from __future__ import annotations

import datetime
import heapq
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from ragpipe.core.digest import sha256
from ragpipe.datasets.fault_list import Faults, named_fields, shown_value
from ragpipe.datasets.path_expressions import BadExpression, Expression
from ragpipe.datasets.settings import SampleOf
from ragpipe.schema.sample import Sample

_EPOCH_UNITS = ((10**11, 1), (10**14, 10**3), (10**17, 10**6), (10**20, 10**9))
"""(limit, ticks per second): a number below the first limit that fits counts seconds since 1970 (to the year 5138), then ms, µs, ns."""


def place_by_hash(seed: int | None, name: str) -> float:
    """The place of a name, from 0 to below 1: the first 53 bits of the sha256 of seed and name."""
    return int(sha256(f"{seed}:{name}")[:14], 16) // 8 / 2**53


def drawn_ids(selection: SampleOf, samples: Iterable[tuple[Sample, str]], faults: Faults) -> frozenset[str]:
    """The ids of the samples that are taken, from the samples with their places in the data; each comes with all its outputs.

    With `per_day` a sample without a time, or with one that cannot be read, is a fault: it belongs to no day.
    """
    if selection.n is not None:
        ids = {sample.id for sample, _ in samples}
        return frozenset(heapq.nsmallest(selection.n, ids, key=lambda name: sha256(f"{selection.seed}:{name}")))
    rate = 1.0 if selection.rate is None else selection.rate
    time = Expression(selection.time) if selection.time is not None else None
    days: dict[datetime.date | None, dict[str, float]] = defaultdict(dict)
    for sample, where in samples:
        day = _day_of(sample, where, time, faults) if time is not None else None
        if (place := place_by_hash(selection.seed, sample.id)) < rate:
            days[day][sample.id] = place
    drawn: set[str] = set()
    for places in days.values():
        budget = len(places) if selection.per_day is None else selection.per_day
        drawn.update(heapq.nsmallest(budget, places, key=lambda name: (places[name], name)))
    return frozenset(drawn)


def calendar_day(value: Any) -> datetime.date:
    """The day of a time: an ISO 8601 text, or a number of seconds, ms, µs or ns since 1970 (told apart by its size).

    A time with an offset, and a number, counts by the day in UTC; a time without one by the day that is written.
    Raises ValueError for anything else.
    """
    if isinstance(value, str):
        text = value.strip()
        if text.isdigit() and len(text) > 8:  # eight digits are an ISO date
            return calendar_day(int(text))
        moment = datetime.datetime.fromisoformat(text)
        return (moment.astimezone(datetime.UTC) if moment.tzinfo else moment).date()
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        for limit, per_second in _EPOCH_UNITS:
            if value < limit:
                return datetime.datetime.fromtimestamp(value / per_second, datetime.UTC).date()
    raise ValueError("no time")


def _day_of(sample: Sample, where: str, time: Expression, faults: Faults) -> datetime.date | None:
    """The day of a sample; None, and a fault, without one."""
    expected = "an ISO 8601 time, or seconds, ms, µs or ns since 1970"
    place, key = named_fields(where, {"id": sample.id}), f"sample.time ({time.text})"
    try:
        value = time(sample.model_dump(mode="json"))
    except BadExpression as error:
        faults.add(place, key, str(error), expected)
        return None
    try:
        return calendar_day(value)
    except (ValueError, OverflowError, OSError):
        fix = (
            "name where it stands (dataset.sample.time=meta.asked_at), take all of the file (dataset.sample=null), or leave such "
            f'records out (dataset.filter="{time.text}")'
            if value is None
            else ""
        )
        faults.add(place, key, shown_value(value), expected, fix)
        return None
