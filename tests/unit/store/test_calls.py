import asyncio
import multiprocessing
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.core.call import Call
from ragpipe.core.digest import sha256
from ragpipe.core.errors import FATAL, TRANSIENT, DataError, RagpipeError
from ragpipe.core.version import FORMAT
from ragpipe.store import call_table, owners
from ragpipe.store.call_store import AcceptedReplies, CallStore, StoredCalls, read_calls
from ragpipe.store.files import is_network_folder
from ragpipe.store.ledger import Freshness
from ragpipe.store.processes import Process
from tests.support.memory import quick_folder
from tests.support.waiting import HANGS_AFTER_S


def K(name: str) -> str:
    return sha256(name)


def call(name: str = "k", status: str = "ok", **more: object) -> Call:
    return Call(K(name), "", "judge", status, text="reply", **more)  # type: ignore[arg-type]


texts = st.none() | st.text() | st.just("nul \x00 and \u2028")
whole = st.none() | st.integers(0, 2**63 - 1)
real = st.none() | st.floats(0, 1e9)
hashes = st.sampled_from([K(str(n)) for n in range(5)])
times = st.just("") | st.datetimes(
    datetime(1971, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)
).map(lambda time: time.isoformat(timespec="milliseconds"))  # fmt: skip


@st.composite
def made(draw: st.DrawFn) -> Call:
    """Any call. Its payload's id is that of two of the parts of its key."""
    iteration = draw(st.integers(1, 9))
    parts = draw(st.dictionaries(st.text(), st.text(), max_size=4))
    parts |= draw(st.fixed_dictionaries({}, optional={
        "messages": hashes | st.text(), "schema": hashes, "judge.model": hashes,
        "iteration": st.just(sha256(iteration)) | st.text(),
    }))  # fmt: skip
    asked = {name: parts[name] for name in ("messages", "schema") if name in parts}
    return draw(st.builds(
        Call, key=st.just(K("k")), payload_id=st.just(sha256(asked) if asked else ""), judge=st.text(), status=st.just("ok"),
        text=texts, message=texts, model=texts, finish_reason=texts, tokens_in=whole, tokens_out=whole, tokens_cached=whole,
        tokens_reasoning=whole, fingerprint=texts, paid_usd=real, latency_ms=real, attempts=st.integers(0, 99),
        answers=st.integers(0, 99), output_mode=texts,
        sent=st.dictionaries(st.text(), st.none() | st.integers() | st.text() | st.lists(st.booleans(), max_size=2), max_size=4),
        wire_hash=texts | hashes, fields=st.just(parts), run_id=st.just("r"), iteration=st.just(iteration), created_at=times,
    ))  # fmt: skip


@pytest.mark.slow
@given(made())
def test_every_field_comes_back(one: Call) -> None:
    async def go(path: Path) -> list[Call | None]:
        with CallStore(path, run_id="r") as store:
            assert await store.get_or_claim(K("k")) is None
            await store.put(one)
            return [await store.get_or_claim(K("k"))]

    with quick_folder() as folder:
        path = Path(folder) / "calls.sqlite"
        assert asyncio.run(go(path)) == [one]
        assert read_calls(path, [K("k")]) == {K("k"): one}


async def test_text_that_is_no_unicode_is_stored_with_replacements(tmp_path: Path) -> None:
    with CallStore(tmp_path / "c", run_id="r") as store:
        put = await store.put(replace(call(), text="bad \ud800 here", message="\udfff"))
        found = await store.get_or_claim(K("k"))
        assert found == put
        assert (found.text, found.message) == ("bad ? here", "?")


async def test_a_call_that_cannot_be_stored_is_refused_and_others_are_not(tmp_path: Path) -> None:
    with CallStore(tmp_path / "c", run_id="r") as store:
        for number in (2**63, -(2**63) - 1):
            with pytest.raises(ValueError, match="64 bits"):
                await store.put(replace(call(), tokens_in=number))
        with pytest.raises(ValueError, match="not the key of a question"):
            await store.put(replace(call(), key="k"))
        with pytest.raises(ValueError, match="JSON compliant"):
            await store.put(replace(call(), sent={"temperature": float("nan")}))
        assert await store.put(call()) == replace(call(), run_id="r")


@pytest.mark.thorough(tried=4)  # on PostgreSQL, where these are slow
@pytest.mark.parametrize("status", sorted(TRANSIENT | FATAL))
async def test_what_may_pass_is_never_stored(tmp_path: Path, status: str) -> None:
    with CallStore(tmp_path / "c", run_id="r") as store:
        assert await store.get_or_claim(K("k")) is None
        await store.put(call(status=status))
        assert await store.get_or_claim(K("k")) is None  # and the claim was freed
        assert read_calls(tmp_path / "c", [K("k")], run_id="r") == {}


@pytest.mark.thorough(tried=2)  # on PostgreSQL, where these are slow
@pytest.mark.parametrize("status", ["bad_request", "too_long", "refused", "cut_short", "unparsable"])
async def test_a_permanent_failure_is_served_to_the_run_that_paid_only(tmp_path: Path, status: str) -> None:
    with CallStore(tmp_path / "c", run_id="one") as one, CallStore(tmp_path / "c", run_id="two", silent_after_s=3600) as two:
        failure = call(status=status)
        assert await one.get_or_claim(K("k")) is None
        await one.put(failure)
        assert await one.get_or_claim(K("k")) == replace(failure, run_id="one")
        assert await two.get_or_claim(K("k")) is None
        await two.put(call(status="refused"))
        assert (await one.get_or_claim(K("k"))).status == status  # type: ignore[union-attr]
        assert (await two.get_or_claim(K("k"))).status == "refused"  # type: ignore[union-attr]
        assert read_calls(tmp_path / "c", [K("k")]) == {}
        assert read_calls(tmp_path / "c", [K("k")], run_id="one")[K("k")].status == status
        assert await two.get_or_claim(K("k"), freshness=Freshness.NO_FAILURES) is None
        await two.put(call())
        for store in (one, two):  # a good reply ends the failures of all runs
            assert await store.get_or_claim(K("k")) == replace(call(), run_id="two")


async def test_fresh_all_asks_again_and_the_new_reply_stands(tmp_path: Path) -> None:
    with CallStore(tmp_path / "c", run_id="r") as store:
        await store.put(call())
        assert await store.get_or_claim(K("k"), freshness=Freshness.NO_FAILURES) is not None
        assert await store.get_or_claim(K("k"), freshness=Freshness.NONE) is None
        await store.put(replace(call(), text="second"))
        assert (await store.get_or_claim(K("k"))).text == "second"  # type: ignore[union-attr]
        assert await store.get_or_claim(K("k"), freshness=Freshness.NONE) is None
        await store.put(call(status="refused"))
        assert (await store.get_or_claim(K("k"))).text == "second"  # type: ignore[union-attr]


async def test_a_claimed_key_is_waited_for(tmp_path: Path) -> None:
    with CallStore(tmp_path / "c", run_id="one") as one, CallStore(tmp_path / "c", run_id="two", silent_after_s=3600) as two:
        assert await one.get_or_claim(K("k")) is None
        waiting = [asyncio.create_task(store.get_or_claim(K("k"))) for store in (two, two, one)]
        await asyncio.sleep(0.1)
        assert not any(task.done() for task in waiting)
        await one.put(call())
        assert {task.text for task in await asyncio.gather(*waiting) if task} == {"reply"}
        assert await one.get_or_claim(K("other")) is None
        task = asyncio.create_task(two.get_or_claim(K("other")))
        await asyncio.sleep(0.05)
        await one.release_claim(K("other"))
        assert await asyncio.wait_for(task, HANGS_AFTER_S) is None  # now the other one asks


async def test_two_that_refuse_a_stored_reply_ask_once(tmp_path: Path) -> None:
    """Both find the reply of another model; one asks, the other waits for it and takes what it got."""
    path = tmp_path / "c"
    with CallStore(path, run_id="old") as old:
        await old.get_or_claim(K("k"))
        await old.put(replace(call("k"), model="another"))
    with CallStore(path, run_id="one") as one, CallStore(path, run_id="two", silent_after_s=3600) as two:
        first, second = (AcceptedReplies(store, lambda found: found.model == "another") for store in (one, two))
        assert await asyncio.wait_for(first.get_or_claim(K("k")), HANGS_AFTER_S) is None
        waiting = asyncio.create_task(second.get_or_claim(K("k")))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        stands = await first.put(replace(call("k"), model="asked", text="again"))
        assert await asyncio.wait_for(waiting, HANGS_AFTER_S) == stands
    with closing(StoredCalls(path)) as only_read:
        assert await AcceptedReplies(only_read, lambda found: True).get_or_claim(K("k")) is None


async def test_a_reader_sees_what_is_stored_after_it_was_opened(tmp_path: Path) -> None:
    """Also values that rows share and that are new to the file: another judge's, another model's, another run's."""
    path = tmp_path / "c"
    sqlite3.connect(path).close()  # a file without tables
    expected: dict[str, Call] = {}
    with closing(StoredCalls(path, run_id="late")) as reader:
        assert reader.read([K("a"), K("b"), K("c")]) == {}
        for number, (run, name, status) in enumerate([("one", "a", "ok"), ("late", "b", "refused"), ("other", "c", "refused")]):
            with CallStore(path, run_id=run) as store:
                await store.get_or_claim(K(name))
                stored = replace(call(name, status), judge=f"judge {number}", model=f"model {number}", run_id=run)
                stored = await store.put(stored)
            if run != "other":  # whose failure answers nobody else
                expected[K(name)] = stored
            assert reader.read([K("a"), K("b"), K("c")]) == expected


@pytest.mark.slow
async def test_a_cancelled_taker_leaves_no_claim(tmp_path: Path) -> None:
    with CallStore(tmp_path / "c", run_id="one") as one, CallStore(tmp_path / "c", run_id="two", silent_after_s=3600) as two:
        for delay in (0, 0, 0.0005, 0.001, 0.002, 0.005):
            tasks = [asyncio.create_task(one.get_or_claim(K(f"k{n}"))) for n in range(50)]
            await asyncio.sleep(delay)
            for task in tasks:
                task.cancel()
            claimed = [n for n, r in enumerate(await asyncio.gather(*tasks, return_exceptions=True)) if r is None]
            for n in claimed:
                await one.release_claim(K(f"k{n}"))
            for n in range(50):
                assert await asyncio.wait_for(two.get_or_claim(K(f"k{n}")), HANGS_AFTER_S) is None
                await two.release_claim(K(f"k{n}"))
        assert await one.get_or_claim(K("k")) is None  # cancelled while it waits for another's claim
        task = asyncio.create_task(two.get_or_claim(K("k")))
        await asyncio.sleep(0.05)
        task.cancel()
        await one.release_claim(K("k"))
        assert await asyncio.wait_for(one.get_or_claim(K("k")), HANGS_AFTER_S) is None


async def test_a_put_that_was_cancelled_is_committed(tmp_path: Path) -> None:
    store = CallStore(tmp_path / "c", run_id="r")
    task = asyncio.create_task(store.put(call()))
    await asyncio.sleep(0)
    task.cancel()
    store.close()
    assert read_calls(tmp_path / "c", [K("k")])[K("k")].text == "reply"


def test_a_claim_of_a_loop_that_was_closed_is_given_back(tmp_path: Path) -> None:
    async def claim(store: CallStore, key: str) -> None:
        assert await asyncio.wait_for(store.get_or_claim(key), HANGS_AFTER_S) is None

    with CallStore(tmp_path / "c", run_id="r") as store:
        asyncio.run(claim(store, K("k")))
        asyncio.run(claim(store, K("k")))  # whoever had the claim can neither store a reply nor give it back


async def test_closing_ends_the_waiting(tmp_path: Path) -> None:
    with CallStore(tmp_path / "c", run_id="one") as one:
        await one.get_or_claim(K("k"))
        two = CallStore(tmp_path / "c", run_id="two", silent_after_s=3600)
        task = asyncio.create_task(two.get_or_claim(K("k")))
        await asyncio.sleep(0.05)
        two.close()
        with pytest.raises(RagpipeError, match="closed"):
            await asyncio.wait_for(task, HANGS_AFTER_S)


async def test_the_thread_dying_of_a_bug_leaves_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CallStore(tmp_path / "c", run_id="r")
    monkeypatch.setattr(call_table.CallTable, "find", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(store.get_or_claim(K("k")), HANGS_AFTER_S)
    with pytest.raises(RagpipeError):
        await store.get_or_claim(K("k"))
    with pytest.raises(ZeroDivisionError):
        store.close()


@pytest.mark.slow
async def test_a_claim_of_another_host_is_dead_when_its_beat_stands_still(tmp_path: Path) -> None:
    path = tmp_path / "c"
    CallStore(path, run_id="r").close()
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("INSERT INTO owners VALUES ('far', 'another-host', 1, 'x.y.z', 5, 'r')")
    db.execute("INSERT INTO claims VALUES (?, 'far')", (bytes.fromhex(K("k")),))
    with CallStore(path, run_id="r", silent_after_s=0.4) as store:
        task = asyncio.create_task(store.get_or_claim(K("k")))
        for _ in range(8):
            db.execute("UPDATE owners SET beat = beat + 1 WHERE id = 'far'")
            await asyncio.sleep(0.1)
        assert not task.done(), "twice the silent time has passed, but it is alive"
        assert await asyncio.wait_for(task, HANGS_AFTER_S) is None
    db.close()


async def test_a_reply_that_comes_before_that_of_the_taker_stands_for_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stopped process wakes and answers first: the taker gets that reply and does not put its own in its place."""
    with CallStore(tmp_path / "c", run_id="one") as one, CallStore(tmp_path / "c", run_id="two", silent_after_s=3600) as two:
        assert await one.get_or_claim(K("k")) is None
        with monkeypatch.context() as patch:
            patch.setattr(owners, "is_alive", lambda _: False)
            assert await asyncio.wait_for(two.get_or_claim(K("k")), HANGS_AFTER_S) is None
        first = await one.put(replace(call(), text="woken"))
        assert await two.put(replace(call(), text="taker")) == first == replace(call(), text="woken", run_id="one")
        for store in (one, two):
            assert (await store.get_or_claim(K("k"))).text == "woken"  # type: ignore[union-attr]


@pytest.mark.slow
def test_liveness() -> None:
    me = owners.this_process()
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    for process, alive in [
        (me, True),
        (Process(me.host, me.pid), True),
        (Process(me.host, me.pid, me.mark + "1"), False),
        (Process(me.host, child.pid), False),
        (Process(me.host, -1), False),
        (Process("another-host", me.pid, me.mark), None),
        (Process(me.host, me.pid, "otherboot.1.1"), None),
    ]:
        assert owners.is_alive(process) is alive


@pytest.mark.parametrize(("make", "words"), [
    (lambda p: p.write_bytes(b"this is no database at all, but text " * 40), "damaged"),
    (lambda p: p.write_bytes(bytes(8192)), "damaged"),
    (lambda p: sqlite3.connect(p).execute("CREATE TABLE t (a)"), "tables"),
], ids=["text", "zeros", "another application"])  # fmt: skip
def test_what_is_no_call_store_is_refused_and_left_alone(tmp_path: Path, make: Any, words: str) -> None:
    path = tmp_path / "calls.sqlite"
    make(path)
    before = path.read_bytes()
    for use in (lambda: CallStore(path, run_id="r"), lambda: read_calls(path, [K("k")])):
        with pytest.raises(DataError, match=words) as found:
            use()
        assert str(path) in str(found.value)
        assert "store.path" in str(found.value)
    assert path.read_bytes() == before


def open_together(path: Path, start: Any, notices: Any) -> None:
    start.wait(30)
    try:
        with CallStore(path, run_id="r") as store:
            notices.put(store.notices)
    except BaseException as error:
        notices.put([repr(error)])


@pytest.mark.slow
def test_a_new_store_is_made_once_by_processes_that_start_together(tmp_path: Path) -> None:
    """The file is whole from its first moment: nobody meets one without tables, or without a write-ahead log."""
    context = multiprocessing.get_context("fork")
    for attempt in range(10):
        path = tmp_path / str(attempt) / "c"
        path.parent.mkdir()
        start, notices = context.Barrier(8), context.Queue()
        processes = [context.Process(target=open_together, args=(path, start, notices)) for _ in range(8)]
        for process in processes:
            process.start()
        assert [notices.get(timeout=HANGS_AFTER_S) for _ in processes] == [[]] * 8
        for process in processes:
            process.join(60)
        head = path.read_bytes()[:100]  # https://www.sqlite.org/fileformat2.html: write version 2 is the log
        assert (head[18], int.from_bytes(head[60:64], "big")) == (2, FORMAT)
        assert [left.name for left in path.parent.iterdir()] == ["c"]


async def test_an_empty_file_and_a_store_cut_off_in_the_making_are_new(tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(b"")
    assert read_calls(tmp_path / "c", [K("k")]) == {}
    with CallStore(tmp_path / "c", run_id="r") as store:
        await asyncio.gather(*(store.put(call(f"k{n}")) for n in range(2)))
    assert set(read_calls(tmp_path / "c", [K("k0"), K("k1"), K("k2")])) == {K("k0"), K("k1")}
    assert read_calls(tmp_path / "missing", [K("k")]) == {}


async def test_reads_beside_a_live_writer_and_from_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    with CallStore(tmp_path / "c", run_id="r") as store:
        await store.put(call())
        assert set(read_calls(tmp_path / "c", [K("k")])) == {K("k")}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c"]
    os.chmod(tmp_path, 0o555)
    try:
        assert set(read_calls(tmp_path / "c", [K("k")])) == {K("k")}
    finally:
        os.chmod(tmp_path, 0o755)


async def test_a_rollback_journal_where_there_is_no_write_ahead_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_table, "is_network_folder", lambda _: True)
    with CallStore(tmp_path / "c", run_id="one") as one, CallStore(tmp_path / "c", run_id="two", silent_after_s=3600) as two:
        assert "rollback journal" in one.notices[0]
        await asyncio.gather(*(one.put(call(f"k{n}")) for n in range(50)))
        assert len(read_calls(two.place, [K(f"k{n}") for n in range(60)])) == 50
        assert not (tmp_path / "c-wal").exists()


def test_network_folders_are_told_by_the_mount_table(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(
        "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        "23 22 0:20 / /mnt/my\\040share rw - nfs4 server:/x rw\n"
        "24 23 0:21 / /mnt/my\\040share/local rw - tmpfs tmpfs rw\n"
        "25 22 0:22 / /mnt/s3 rw shared:2 - fuse.s3fs s3fs rw\n"
    )
    for folder, network in [
        ("/home", False), ("/mnt/my share/a/b", True), ("/mnt/my share/local/a", False), ("/mnt/s3/a", True), ("/mnt/s3x", False),
    ]:  # fmt: skip
        assert is_network_folder(Path(folder), table) is network
    assert is_network_folder(Path("/mnt/s3"), tmp_path / "missing") is False
