"""Groups of requests: many keys in one statement give what asking key by key gives."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.core.digest import sha256
from ragpipe.schema.call import Call
from ragpipe.store.calls.call_rows import packed, stored_keys
from ragpipe.store.calls.call_table import CallTable
from ragpipe.store.calls.store_requests import ClaimResult, Freshness, Lookup

KEYS = [sha256(f"key {n}") for n in range(12)]
GRANTED, HELD = ClaimResult.GRANTED, ClaimResult.HELD


@pytest.mark.slow
@given(present=st.sets(st.integers(0, 200)), asked=st.lists(st.integers(0, 200), max_size=150))
def test_the_keys_of_a_table_among_any_number(present: set[int], asked: list[int]) -> None:
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE calls (key)")
        db.executemany("INSERT INTO calls VALUES (?)", [(bytes([n]),) for n in present])
        assert stored_keys(db, "calls", [bytes([n]) for n in asked]) == {bytes([n]) for n in present & {*asked}}


def _call(key: str, status: str, run_id: str) -> Call:
    return Call(key, "", "judge", status, text=f"{status} of {run_id}", run_id=run_id)


def _lookups() -> list[Lookup]:
    """Every freshness for every key, in an order in which neighbours differ."""
    lookups = [
        Lookup(key, freshness) for freshness in (Freshness.ANY, Freshness.NO_FAILURES, Freshness.NONE) for key in KEYS
    ]
    return lookups[::2] + lookups[1::2]


def test_a_group_finds_what_each_look_up_finds_alone(tmp_path: Path) -> None:
    table = CallTable(tmp_path / "calls.sqlite", run_id="mine")
    calls = [_call(KEYS[n], "ok", "mine") for n in range(3)]
    calls += [_call(KEYS[n], "cut_short", "mine" if n < 6 else "another") for n in range(3, 9)]
    table.write([packed(call, "") for call in calls])
    lookups = _lookups()
    together = table.find(lookups)
    assert together == [table.find([lookup])[0] for lookup in lookups]
    texts = {(lookup.key, lookup.freshness): call.text for lookup, call in zip(lookups, together, strict=True) if call}
    assert texts == {
        **{(key, Freshness.ANY): "ok of mine" for key in KEYS[:3]},
        **{(key, Freshness.NO_FAILURES): "ok of mine" for key in KEYS[:3]},
        **{(key, Freshness.ANY): "cut_short of mine" for key in KEYS[3:6]},
    }
    table.close()


def test_a_group_of_claims_is_granted_key_by_key(tmp_path: Path) -> None:
    first = CallTable(tmp_path / "calls.sqlite", run_id="first")
    second = CallTable(tmp_path / "calls.sqlite", run_id="second")
    first.write([packed(_call(KEYS[0], "ok", "first"), "")])
    assert first.find_or_claim([Lookup(KEYS[1]), Lookup(KEYS[2]), Lookup(KEYS[1])]) == [GRANTED, GRANTED, HELD]

    reply, *others = second.find_or_claim([Lookup(KEYS[n]) for n in (0, 3, 1, 4, 3)])
    assert isinstance(reply, Call)
    assert reply.text == "ok of first"
    assert others == [GRANTED, HELD, GRANTED, HELD]

    first.close()  # its claims no longer count
    assert second.find_or_claim([Lookup(KEYS[n]) for n in (2, 1, 2, 3)]) == [GRANTED, GRANTED, HELD, HELD]
    second.close()


def test_failures_from_a_moment_on_may_answer(tmp_path: Path) -> None:
    table = CallTable(tmp_path / "calls.sqlite", run_id="mine")
    times = ["", "2026-11-22T08:00:00.000+00:00", "2026-11-22T08:00:00.001+00:00"]
    calls = [replace(_call(key, "cut_short", "mine"), created_at=time) for key, time in zip(KEYS, times, strict=False)]
    calls += [replace(_call(KEYS[3], "ok", "mine"), created_at=times[1])]
    table.write([packed(call, "") for call in calls])
    moment = datetime.fromisoformat(times[1]).timestamp() + 0.0005
    replies = table.find([Lookup(key, Freshness(failures_since=moment)) for key in KEYS[:4]])
    assert [call and call.status for call in replies] == [None, None, "cut_short", "ok"]
    table.close()
