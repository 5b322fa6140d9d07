"""Damage to the store's file: a row that is not what was stored is not there, and nothing ends in a traceback."""

import asyncio
import multiprocessing
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragpipe.core.call import Call, Payment
from ragpipe.core.digest import sha256
from ragpipe.core.errors import DataError, FolderLocked, OutputError, RagpipeError
from ragpipe.store import call_worker
from ragpipe.store.call_store import CallStore, Choice, StoredCalls, census, paid_by, prunable, prune, read_calls
from ragpipe.store.transfer import export_calls, import_calls
from tests.support.memory import quick_folder
from tests.support.waiting import HANGS_AFTER_S

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test
COUNT = 40
TIME = "2026-11-22T08:00:00.000+00:00"
JUDGE = {f"judge.{n}": sha256(n) for n in range(8)}


def call(number: int) -> Call:
    parts = {**JUDGE, "messages": sha256(f"m{number}"), "schema": sha256(f"s{number % 3}"), "iteration": sha256(1)}
    asked = {name: parts[name] for name in ("messages", "schema")}
    return Call(
        sha256(parts), sha256(asked), "openai/m-2026-01-01", "ok", text=f"reply {number} ".ljust(255, "x"), model="m-2026-01-01",
        fingerprint="fp_1234567890", finish_reason="stop", tokens_in=900 + number, tokens_out=60, tokens_cached=0,
        tokens_reasoning=0, paid_usd=0.000_171 + number / 1e9, latency_ms=812.125 + number, answers=1, output_mode="json_schema",
        sent={"temperature": 0.0}, wire_hash=sha256(f"w{number}"), fields=parts, run_id="0123456789ab", created_at=TIME,
    )  # fmt: skip


CALLS = [call(number) for number in range(COUNT)]
KEYS = [one.key for one in CALLS]


def fill(path: Path, calls: list[Call] = CALLS) -> None:
    async def work(store: CallStore) -> None:
        for start in range(0, len(calls), 100):
            some = calls[start : start + 100]
            for one in some:
                store.record_payment(one.key, 1, Payment("openai/m-2026-01-01", TIME, one.tokens_in, 60, 0, 0, 0, one.paid_usd))
            await asyncio.gather(*(store.put(one) for one in some))

    with CallStore(path, run_id="0123456789ab") as store:
        asyncio.run(work(store))


def taken(path: Path) -> tuple[dict[str, Call], int]:
    """What a run is served, how much of it stood there damaged; what is not there is put again."""

    async def work(store: CallStore) -> dict[str, Call]:
        found = {}
        for one in CALLS:
            stored = await asyncio.wait_for(store.get_or_claim(one.key), HANGS_AFTER_S)
            if stored is None:
                await store.put(one)
            else:
                found[one.key] = stored
        return found

    with CallStore(path, run_id="0123456789ab") as store:
        return asyncio.run(work(store)), store.damaged


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "calls.sqlite"
    fill(path)
    return path.read_bytes()


@pytest.mark.parametrize("change", [
    "text = 'another reply'", "text = CAST(x'ff00fe' AS TEXT)", "text = x'00'", "status = 'oj'", "tokens_in = 'many'",
    "tokens_in = tokens_in + 1", "paid_usd = 9e999", "key = 'k'", "judge = 77", "judge = 'x'", "run = NULL", "created_at = 'x'",
    "created_at = 1e300", "digest = NULL", "digest = x'00'", "messages = 5", "wire_hash = 1.5", "latency_ms = x'00'",
    "iteration = 'one'", "attempts = NULL",
])  # fmt: skip
def test_a_changed_row_is_not_there_and_counted(tmp_path: Path, whole: bytes, change: str) -> None:
    path = tmp_path / "calls.sqlite"
    path.write_bytes(whole)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"UPDATE calls SET {change} WHERE rowid = 7")
    assert census(path, ())["damaged"] == 1
    with closing(StoredCalls(path)) as stored:
        assert set(stored.read(KEYS)) == {*KEYS} - {KEYS[6]}
        assert stored.damaged == (change != "key = 'k'")  # nobody finds that one by its key
    assert export_calls(path, tmp_path / "calls.jsonl") == COUNT - 1
    found, damaged = taken(path)
    assert (set(found), damaged) == ({*KEYS} - {KEYS[6]}, int(change != "key = 'k'"))
    assert read_calls(path, KEYS) == dict(zip(KEYS, CALLS, strict=True)), "what was put again stands"


@pytest.mark.parametrize("table", ["judges", "served", "runs"])
def test_what_rows_share_is_checked_too_and_repairs_itself(tmp_path: Path, whole: bytes, table: str) -> None:
    path = tmp_path / "calls.sqlite"
    path.write_bytes(whole)
    column = {"judges": "parts", "served": "model", "runs": "run_id"}[table]
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"UPDATE {table} SET {column} = 'other'")
    assert read_calls(path, KEYS) == {}
    assert taken(path) == ({}, COUNT) or taken(path)[0]
    assert read_calls(path, KEYS) == dict(zip(KEYS, CALLS, strict=True))


def every_use(path: Path) -> None:
    """All that is ever done with a store. What it raises must be an error of ours."""
    uses = [
        lambda: read_calls(path, KEYS, run_id="0123456789ab"), lambda: taken(path), lambda: census(path, ()),
        lambda: paid_by(path, "0123456789ab", 1), lambda: prunable(path, Choice(used=())),
        lambda: export_calls(path, path.with_name("e.jsonl")), lambda: prune(path, Choice(older_than_days=0), silent_after_s=0.0),
    ]  # fmt: skip
    for use in uses:
        with suppress(DataError, OutputError):  # and nothing else
            use()


def true_or_gone(path: Path) -> None:
    """A reply that is served is the one that was stored, whatever happened to the file."""
    try:
        found = read_calls(path, KEYS)
    except RagpipeError:
        return
    assert all(found[key] == one for key, one in zip(KEYS, CALLS, strict=True) if key in found)


def test_a_schema_that_is_no_utf8_is_a_damaged_file(whole: bytes) -> None:
    """SQLite quotes the name of the table in its message, which Python then cannot decode."""
    content = whole.replace(b"tableclaimsclaims", b"table\xe3laimsclaims")
    assert content != whole
    with quick_folder() as folder:
        path = Path(folder) / "calls.sqlite"
        path.write_bytes(content)
        with pytest.raises(DataError, match="a damaged file"):
            read_calls(path, KEYS)
        every_use(path)


@given(data=st.data())
def test_random_damage_ends_in_no_traceback_and_serves_no_other_reply(whole: bytes, data: st.DataObject) -> None:
    content = bytearray(whole)
    kind = data.draw(st.sampled_from(["flip", "flip", "cut", "zero", "swap"]))
    place = data.draw(st.integers(0, len(content) - 1))
    if kind == "flip":
        for _ in range(data.draw(st.integers(1, 4))):
            content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    elif kind == "cut":
        del content[place:]
    elif kind == "zero":
        content[place : place + 512] = bytes(len(content[place : place + 512]))
    else:
        other = data.draw(st.integers(0, len(content) - 1))
        content[place : place + 64], content[other : other + 64] = (content[other : other + 64], content[place : place + 64])
    with quick_folder() as folder:
        path = Path(folder) / "calls.sqlite"
        path.write_bytes(content)
        true_or_gone(path)
        every_use(path)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_damage_to_the_log_beside_it(whole: bytes, data: st.DataObject) -> None:
    with quick_folder() as folder:
        path = Path(folder) / "calls.sqlite"
        path.write_bytes(whole)
        log = path.with_name(path.name + "-wal")
        other = path.with_name("other")
        other.write_bytes(whole)
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("ATTACH ? AS other", (str(other),))
            db.execute("DELETE FROM calls WHERE rowid <= 20")
            db.execute("INSERT INTO calls SELECT * FROM other.calls WHERE rowid <= 20")
            content = bytearray(log.read_bytes())
            kept = path.read_bytes()
        path.write_bytes(kept)
        if data.draw(st.booleans()):
            content[data.draw(st.integers(0, len(content) - 1))] ^= 255
        else:
            del content[data.draw(st.integers(0, len(content) - 1)) :]
        log.write_bytes(content)
        true_or_gone(path)
        every_use(path)


@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_file_that_is_gone_is_said_and_what_went_into_it_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(call_worker, "SYNC_S", 0.05)
    path = tmp_path / "calls.sqlite"
    fill(path, CALLS[:5])

    async def work(store: CallStore) -> None:
        for one in CALLS[5:10]:
            store.record_payment(one.key, 1, Payment("m", TIME, 1, 1, usd=1.0))
            await store.put(one)
        if how == "deleted":
            path.unlink()
        else:
            shutil.copy(path, tmp_path / "copy")
            os.replace(tmp_path / "copy", path)
        for _ in range(100):  # it is said while the store is in use, not only at its end
            await asyncio.sleep(0.02)
            await store.put(CALLS[10])

    store = CallStore(path, run_id="0123456789ab")
    with pytest.raises(OutputError, match=rf"was {how}.*replies of this start went into a file that is no more"):
        asyncio.run(work(store))
    with pytest.raises(OutputError, match="action=import"):
        store.close()
    for left in tmp_path.glob("calls.sqlite*"):
        left.unlink()
    (kept,) = (tmp_path / "tmp").iterdir()
    import_calls(path, kept)
    assert (set(read_calls(path, KEYS)), paid_by(path, "0123456789ab", 1).replies) == ({*KEYS[5:11]}, 5)


def test_a_store_that_breaks_under_a_run_keeps_the_replies_it_cannot_take_elsewhere(tmp_path, monkeypatch, caplog) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    path = tmp_path / "calls.sqlite"
    store = CallStore(path, run_id="0123456789ab")
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("DROP TABLE calls")
    with pytest.raises(OutputError, match="broke while this start used it") as found:
        asyncio.run(store.put(CALLS[0]))
    assert str(path) in str(found.value)
    with pytest.raises(OutputError, match="broke while this start used it"):
        store.close()
    assert "task=store action=import from=" in caplog.text
    (kept,) = (tmp_path / "tmp").iterdir()
    assert import_calls(tmp_path / "new" / "calls.sqlite", kept) == (1, 0)
    assert read_calls(tmp_path / "new" / "calls.sqlite", KEYS) == {KEYS[0]: CALLS[0]}


STOPPED = """
import asyncio, sys, time
from pathlib import Path
from ragpipe.store.call_store import CallStore
store = CallStore(Path(sys.argv[1]), run_id="stopped", beat_s=0.1)
assert asyncio.run(store.get_or_claim(sys.argv[2])) is None
print("claimed", flush=True)
time.sleep(600)
"""


def claiming(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", STOPPED, path, KEYS[0]], stdout=subprocess.PIPE, text=True)


async def test_a_stopped_process_keeps_its_claims_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "calls.sqlite"
    process = claiming(path)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "claimed\n"
        process.send_signal(signal.SIGSTOP)
        said: list[str] = []
        with CallStore(path, run_id="r", silent_after_s=0.3, patience_s=0.2, say=said.append) as store:
            task = asyncio.create_task(store.get_or_claim(KEYS[0]))
            await asyncio.sleep(1.5)
            assert not task.done(), "five times the silent time has passed, and it may go on at any moment"
            (line,) = said
            assert f"waiting for process {process.pid}" in line
            assert "which is stopped" in line
            process.kill()
            assert await asyncio.wait_for(task, HANGS_AFTER_S) is None
    finally:
        process.kill()
        process.wait()


def test_prune_sees_a_store_that_is_open_and_asks_nothing(tmp_path: Path) -> None:
    path = tmp_path / "calls.sqlite"
    fill(path)
    with CallStore(path, run_id="reader"), pytest.raises(FolderLocked, match=rf"process {os.getpid()} on .*run reader"):
        prune(path, Choice(used=()))
    assert len(read_calls(path, KEYS)) == COUNT
    assert prune(path, Choice(used=()))["calls"] == COUNT


def test_a_kill_while_a_store_is_made_loses_nothing_and_stops_nobody(tmp_path: Path) -> None:
    """Twice at once: at twenty moments one of two makers is killed. The other goes on, and so does the next one."""
    context = multiprocessing.get_context("fork")
    for moment in range(20):
        path = tmp_path / str(moment) / "calls.sqlite"
        path.parent.mkdir()
        killed, other = (context.Process(target=fill, args=(path, CALLS[:1])) for _ in range(2))
        killed.start()
        other.start()
        time.sleep(moment * 0.001)
        os.kill(killed.pid or 0, signal.SIGKILL)
        killed.join()
        other.join(60)
        assert (other.exitcode, read_calls(path, KEYS)) == (0, {KEYS[0]: CALLS[0]})
        fill(path, CALLS[1:2])
        assert set(read_calls(path, KEYS)) == {KEYS[0], KEYS[1]}
