"""The ledger: what was paid is never forgotten, whatever becomes of the calls."""

import asyncio
import json
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from ragpipe.core.call import Call, Payment
from ragpipe.core.digest import sha256
from ragpipe.core.errors import DataError, OutputError
from ragpipe.store.call_rows import packed
from ragpipe.store.call_store import CallStore, Choice, paid_by, prune, read_calls
from ragpipe.store.call_table import CallTable
from ragpipe.store.ledger import ClaimResult, Freshness, Lookup
from ragpipe.store.transfer import DIGEST, import_calls, row_of_call, row_of_payment


def call(name: str, status: str = "ok") -> Call:
    return Call(sha256(name), "", "judge", status, text="reply", attempts=2, answers=1, fields={"iteration": sha256(1)})


def payment(usd: float | None = 0.5, tokens: int | None = 10) -> Payment:
    return Payment("openai/m", "2026-01-02T03:04:05.678+00:00", tokens, tokens, 1 if tokens else None, None, None, usd)


def ask(path: Path, run_id: str, *asked: tuple[Call, list[Payment]], freshness: Freshness = Freshness.ANY, iteration: int = 1) -> None:
    async def work(store: CallStore) -> None:
        for one, payments in asked:
            assert await store.get_or_claim(one.key, freshness=freshness) is None
            for paid in payments:
                store.record_payment(one.key, iteration, paid)
            await store.put(one)

    with CallStore(path, run_id=run_id) as store:
        asyncio.run(work(store))


def test_every_answered_try_is_on_the_bill(tmp_path: Path) -> None:
    path = tmp_path / "calls.sqlite"
    ask(
        path, "one", (call("a", "refused"), [payment()]), (call("b", "empty_reply"), [payment(), payment(None)]),
        (call("c"), [payment(None, None), payment()]), (call("d", "rate_limit"), []),
    )  # fmt: skip
    assert paid_by(path, "one", 1).as_json() == {
        "calls": 3, "replies": 5, "tokens_in": 40, "tokens_out": 40, "tokens_cached": 4, "tokens_reasoning": 0, "tokens_written": 0, "usd": None,
        "usd_known": 1.5, "unpriced": 2, "without_usage": 1,
    }  # fmt: skip
    ask(path, "one", (call("a"), [payment(0.25)]), (call("b"), [payment(0.25)]), freshness=Freshness.NO_FAILURES)  # they were failures
    after = paid_by(path, "one", 1)
    assert (after.calls, after.replies, after.usd_known) == (3, 7, 2.0)
    assert paid_by(path, "two", 1).replies == paid_by(path, "one", 2).replies == 0
    assert paid_by(tmp_path / "missing", "one", 1).usd == 0


def test_money_is_added_exactly(tmp_path: Path) -> None:
    path = tmp_path / "calls.sqlite"
    ask(path, "one", *((call(str(n)), [payment(0.1)]) for n in range(10)))
    assert paid_by(path, "one", 1).usd == 1.0  # the sum of ten floats one by one is 0.9999999999999999


def test_a_reply_that_comes_too_late_is_paid(tmp_path: Path) -> None:
    path = tmp_path / "calls.sqlite"

    async def work(slow: CallStore, fast: CallStore) -> None:
        one = call("a")
        slow.record_payment(one.key, 1, payment(1.0))
        await slow.put(one)
        fast.record_payment(one.key, 1, payment(4.0))
        assert (await fast.put(one)).run_id == "slow"  # it holds no claim: the first reply stands

    with CallStore(path, run_id="slow") as slow, CallStore(path, run_id="fast") as fast:
        asyncio.run(work(slow, fast))
    assert (paid_by(path, "fast", 1).usd, paid_by(path, "slow", 1).usd) == (4.0, 1.0)


def test_what_was_paid_for_a_call_that_never_came_back_is_kept(tmp_path: Path) -> None:
    """Its task was cancelled between two tries: nothing is put."""
    path = tmp_path / "calls.sqlite"
    with CallStore(path, run_id="one") as store:
        store.record_payment(sha256("a"), 3, payment())
    assert paid_by(path, "one", 3).usd == 0.5


def test_prune_leaves_the_ledger_alone(tmp_path: Path) -> None:
    path = tmp_path / "calls.sqlite"
    ask(path, "one", (call("a"), [payment(), payment()]), (call("b", "refused"), [payment()]))
    before = paid_by(path, "one", 1)
    found = prune(path, Choice(run_id="one"))
    assert (found["calls"], found["paid"]["replies"], found["paid"]["usd"]) == (2, 3, 1.5)
    assert read_calls(path, [sha256("a"), sha256("b")], run_id="one") == {}
    assert paid_by(path, "one", 1) == before


@pytest.mark.parametrize("column", ["usd", "tokens_in", "run", "model", "mark", "at", "sum"])
@pytest.mark.parametrize("value", ["'x'", "7.25", "x'00'", "NULL"])
def test_a_damaged_payment_is_in_no_sum_and_counted(tmp_path: Path, column: str, value: str) -> None:
    path = tmp_path / "calls.sqlite"
    ask(path, "one", (call("a"), [payment()]), (call("b"), [payment()]))
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"UPDATE payments SET {column} = {value} WHERE rowid = 1")
    found = paid_by(path, "one", 1)
    assert (found.replies, found.usd) == (1, 0.5)
    assert found.damaged == (column != "run")  # whose it was is not known


@pytest.mark.parametrize("gone", [False, True])
def test_a_payment_after_the_store_was_closed_is_kept_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: bool) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    path = tmp_path / "calls.sqlite"
    store = CallStore(path, run_id="one")
    store.close()
    store.record_payment(sha256("a"), 1, payment())
    (file,) = (tmp_path / "tmp").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    for _ in range(2):  # once is enough
        assert (import_calls(path, file), paid_by(path, "one", 1).usd) == ((0, 0), 0.5)


KEYS = [sha256(f"key {n}") for n in range(12)]
GRANTED, HELD = ClaimResult.GRANTED, ClaimResult.HELD


def _call(key: str, status: str, run_id: str) -> Call:
    return Call(key, "", "judge", status, text=f"{status} of {run_id}", run_id=run_id)


@pytest.mark.parametrize("paid_only", [False, True])
def test_what_cannot_be_stored_is_told_of_once(tmp_path, monkeypatch, caplog, paid_only: bool) -> None:
    """On a full disk: replies, and payments that are written at the end, when no event loop runs any more."""

    def refuse(*_: object) -> None:
        raise OutputError("the disk is full")

    async def work(store: CallStore) -> None:
        for key in KEYS[:2]:
            if paid_only:
                await store.get_or_claim(key)
                store.record_payment(key, 1, payment())
                continue
            with pytest.raises(OutputError, match=r"the disk is full.*action=import"):
                await store.put(_call(key, "ok", "mine"))

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = CallStore(tmp_path / "calls.sqlite", run_id="mine")
    monkeypatch.setattr(store._worker.table, "write", refuse)
    asyncio.run(work(store))
    if paid_only:
        with pytest.raises(OutputError, match=r"the disk is full.*action=import"):
            store.close()
    else:
        store.close()
    (kept,) = tmp_path.glob("ragpipe-replies-*.jsonl")
    command = f"task=store action=import from={kept}"
    assert caplog.messages == [f"what was paid for and could not be stored is kept in {kept}: `{command}` takes it in"]


def test_a_group_finds_what_each_look_up_finds_alone(tmp_path: Path) -> None:
    table = CallTable(tmp_path / "calls.sqlite", run_id="mine")
    calls = [_call(KEYS[n], "ok", "mine") for n in range(3)]
    calls += [_call(KEYS[n], "cut_short", "mine" if n < 6 else "another") for n in range(3, 9)]
    table.write([packed(call, "") for call in calls])
    lookups = [Lookup(key, freshness) for freshness in (Freshness.ANY, Freshness.NO_FAILURES, Freshness.NONE) for key in KEYS]
    lookups = lookups[::2] + lookups[1::2]  # neighbours differ
    together = table.find(lookups)
    assert together == [table.find([lookup])[0] for lookup in lookups]
    texts = {(lookup.key, lookup.freshness): call.text for lookup, call in zip(lookups, together, strict=True) if call}
    assert texts == {
        **{(key, freshness): "ok of mine" for key in KEYS[:3] for freshness in (Freshness.ANY, Freshness.NO_FAILURES)},
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
    assert (reply.text, others) == ("ok of first", [GRANTED, HELD, GRANTED, HELD])
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


FIELDS = {"messages": sha256("m"), "schema": sha256("s")}
CALL = row_of_call(Call(sha256(FIELDS), sha256(FIELDS), "j", "ok", fields=FIELDS, run_id="r"))
PAYMENT = row_of_payment(Payment("m", "2026-01-01T00:00:00.000+00:00", 1, 2, usd=0.5, mark=7, run_id="r"))


def sealed(given: dict[str, Any], **changed: Any) -> dict[str, Any]:
    row = {**given, **changed}
    del row[DIGEST]
    return {**row, DIGEST: sha256(row)}


@pytest.mark.parametrize(("changed", "told"), [
    ('"paid_usd": NaN', "cells that are not those of its row_sha256"),
    ('"text": "\\ud800"', "cells that are not those of its row_sha256"),
    ('"key": 7', "cells that are not those of its row_sha256"),
    (f'"{DIGEST}": null', "a digest that is no text"),
])  # fmt: skip
def test_a_row_without_its_digest_is_refused(tmp_path: Path, changed: str, told: str) -> None:
    file = tmp_path / "calls.jsonl"
    file.write_text(json.dumps(CALL)[:-1] + ", " + changed + "}\n")  # of two equal names the last one counts
    with pytest.raises(DataError, match=rf"row 1(?s:.*){told}"):
        import_calls(tmp_path / "store" / "calls.sqlite", file)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(("row", "told"), [
    (sealed(CALL, key="k"), "cells that are no call"),
    (sealed(CALL, key=sha256("other")), "a key that is not that of its fields"),
    (sealed(CALL, payload_id="p"), "a payload_id that is not that of its fields"),
    (sealed(CALL, fields="{"), "cells that are no call"),
    (sealed(CALL, fields='{"messages": "\\ud800"}'), "cells that are no call"),
    (sealed(CALL, created_at="yesterday"), "cells that are no call"),
    (sealed(CALL, tokens_in=2**70), "cells that are no call"),
    (sealed(CALL, row="reply"), "a row of the kind 'reply'"),
    (sealed(PAYMENT, mark="7"), "cells that are no payment"),
    (sealed(PAYMENT, at="yesterday"), "cells that are no payment"),
    (sealed(PAYMENT, usd="0.5"), "cells that are no payment"),
])  # fmt: skip
def test_a_row_that_says_what_no_store_wrote_is_refused(tmp_path: Path, row: dict[str, Any], told: str) -> None:
    file = tmp_path / "calls.jsonl"
    file.write_text(json.dumps(CALL) + "\n" + json.dumps(row) + "\n")
    with pytest.raises(DataError, match=rf"row 2(?s:.*){told}"):
        import_calls(tmp_path / "store" / "calls.sqlite", file)
    assert not (tmp_path / "store").exists()


def test_a_line_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    file.write_text("[" * 100_000 + "\n")
    with pytest.raises(DataError, match="cannot be taken in"):
        import_calls(tmp_path / "calls.sqlite", file)
