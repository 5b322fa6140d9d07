"""The behaviour tests of the call store once more, over PostgreSQL, and what only a server can do to it."""

import asyncio
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg
import pytest

from ragpipe.core.digest import sha256
from ragpipe.core.errors import DataError, FolderLocked, FormatMismatch, OutputError
from ragpipe.extras.postgres import table as tables
from ragpipe.extras.postgres.connection import StoreUnreachable
from ragpipe.extras.postgres.database import PostgresDatabase
from ragpipe.extras.postgres.table import PostgresTable
from ragpipe.store.call_database import call_database
from ragpipe.store.call_store import CallStore, Choice, census, paid_by, prunable, prune, read_calls
from ragpipe.store.ledger import ClaimResult, Lookup
from ragpipe.store.transfer import export_calls, import_calls
from tests.extras.postgres.postgres_server import PostgresServer, postgres_server
from tests.support.waiting import HANGS_AFTER_S
from tests.unit.store import test_damage as damage
from tests.unit.store.test_calls import (
    K,
    test_a_call_that_cannot_be_stored_is_refused_and_others_are_not,  # noqa: F401
    test_a_cancelled_taker_leaves_no_claim,  # noqa: F401
    test_a_claim_of_a_loop_that_was_closed_is_given_back,  # noqa: F401
    test_a_claimed_key_is_waited_for,  # noqa: F401
    test_a_permanent_failure_is_served_to_the_run_that_paid_only,  # noqa: F401
    test_a_put_that_was_cancelled_is_committed,  # noqa: F401
    test_closing_ends_the_waiting,  # noqa: F401
    test_fresh_all_asks_again_and_the_new_reply_stands,  # noqa: F401
    test_text_that_is_no_unicode_is_stored_with_replacements,  # noqa: F401
    test_two_that_refuse_a_stored_reply_ask_once,  # noqa: F401
    test_what_may_pass_is_never_stored,  # noqa: F401
)
from tests.unit.store.test_ledger import (
    test_a_reply_that_comes_too_late_is_paid,  # noqa: F401
    test_every_answered_try_is_on_the_bill,  # noqa: F401
    test_money_is_added_exactly,  # noqa: F401
    test_prune_leaves_the_ledger_alone,  # noqa: F401
    test_what_was_paid_for_a_call_that_never_came_back_is_kept,  # noqa: F401
)

pytestmark = pytest.mark.slow
GRANTED, HELD = ClaimResult.GRANTED, ClaimResult.HELD


@dataclass
class Schemas:
    """Stands for the temporary folder of the tests of SQLite: each name in it is a schema of its own."""

    server: PostgresServer
    places: dict[str, PostgresDatabase] = field(default_factory=dict)

    def __truediv__(self, name: str) -> PostgresDatabase:
        return self.places.setdefault(name, self.server.place())


@pytest.fixture
def tmp_path(server: PostgresServer) -> Schemas:
    return Schemas(server)


@pytest.fixture
def place(server: PostgresServer) -> PostgresDatabase:
    return server.place()


SILENT_S = 3.0
"""How long an owner may be silent here; longer than a busy machine holds a process up."""


def table(place: PostgresDatabase, run_id: str, silent_after_s: float = 30.0) -> PostgresTable:
    opened = call_database(place).open_table(run_id, silent_after_s)
    assert isinstance(opened, PostgresTable)
    return opened


def causes_of(error: BaseException) -> list[BaseException]:
    """The error, its cause, that one's cause ... Fails where they go round in a circle."""
    causes = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None:
        assert cause not in causes, "a circle"
        causes.append(cause)
    return causes


def session(place: PostgresDatabase) -> psycopg.Connection[Any]:
    db = psycopg.connect(place.url, autocommit=True)
    db.execute(f"SET search_path TO {place.schema}".encode())
    return db


def test_stores_of_both_kinds_exchange_equal_calls(place, server, tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("files")
    file, back = folder / "calls.sqlite", server.place()
    damage.fill(file)
    export_calls(file, folder / "a.jsonl")
    assert import_calls(place, folder / "a.jsonl") == (damage.COUNT, 0)
    assert import_calls(place, folder / "a.jsonl") == (0, damage.COUNT)
    assert read_calls(place, damage.KEYS) == read_calls(file, damage.KEYS)
    assert paid_by(place, "0123456789ab") == paid_by(file, "0123456789ab")
    export_calls(place, folder / "b.jsonl")
    import_calls(folder / "again.sqlite", folder / "b.jsonl")
    import_calls(back, folder / "b.jsonl")
    for copy in (folder / "again.sqlite", back):
        assert read_calls(copy, damage.KEYS) == read_calls(file, damage.KEYS)
        assert paid_by(copy, "0123456789ab") == paid_by(file, "0123456789ab")
    figures = [census(of, {"0123456789ab"}) for of in (file, place, back)]
    assert [{**of, "file": "", "bytes": 0} for of in figures] == [{**figures[0], "file": "", "bytes": 0}] * 3


def test_what_is_pruned_is_what_was_chosen(place: PostgresDatabase) -> None:
    damage.fill(place)  # type: ignore[arg-type]
    choice = Choice(used=damage.KEYS[:10])
    assert prunable(place, choice)["calls"] == damage.COUNT - 10
    assert prune(place, choice)["calls"] == damage.COUNT - 10
    assert set(read_calls(place, damage.KEYS)) == set(damage.KEYS[:10])
    with CallStore(place, run_id="r"), pytest.raises(FolderLocked, match="in use by process"):
        prune(place, Choice(run_id="0123456789ab"))


def test_a_damaged_row_counts_as_missing(place: PostgresDatabase) -> None:
    damage.fill(place)  # type: ignore[arg-type]
    with session(place) as db:
        db.execute("UPDATE calls SET text = 'another' WHERE key = %s", (bytes.fromhex(damage.KEYS[0]),))
        db.execute("UPDATE payments SET usd = 9 WHERE mark = (SELECT min(mark) FROM payments)")
    found, damaged = asyncio.run(_all(place))
    assert (found, damaged) == (damage.COUNT - 1, 1)
    assert (paid_by(place, "0123456789ab").damaged, census(place, ())["damaged"]) == (1, 1)


async def _all(place: PostgresDatabase) -> tuple[int, int]:
    with CallStore(place, run_id="r") as store:
        calls = [await asyncio.wait_for(store.get_or_claim(key), HANGS_AFTER_S) for key in damage.KEYS]
        return sum(one is not None for one in calls), store.damaged


def test_a_group_of_claims_is_granted_key_by_key(place: PostgresDatabase) -> None:
    keys = [sha256(f"key {n}") for n in range(12)]
    first, second = table(place, "first"), table(place, "second")
    assert first.find_or_claim([Lookup(keys[1]), Lookup(keys[2]), Lookup(keys[1])]) == [GRANTED, GRANTED, HELD]
    assert second.find_or_claim([Lookup(keys[n]) for n in (3, 1, 4, 3)]) == [GRANTED, HELD, GRANTED, HELD]
    assert f"(run {first.run_id})" in second.holder(keys[1])
    first.close()  # its claims no longer count
    assert second.find_or_claim([Lookup(keys[n]) for n in (2, 1, 2, 3)]) == [GRANTED, GRANTED, HELD, HELD]
    second.close()


def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process can be looked up: all are on other hosts."""
    monkeypatch.setattr(tables, "is_alive", lambda process: None)


def test_a_silent_owner_is_proved_dead_by_the_clock_of_the_database(place: PostgresDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    _elsewhere(monkeypatch)
    frozen, heir = table(place, "frozen", SILENT_S), table(place, "heir", SILENT_S)
    assert frozen.find_or_claim([Lookup(K("k"))]) == [GRANTED]
    assert heir.find_or_claim([Lookup(K("k"))]) == [HELD]
    for _ in range(6):
        time.sleep(0.3 * SILENT_S)
        frozen.beat()
    assert heir.find_or_claim([Lookup(K("k"))]) == [HELD], "it was silent for less than that at a time"
    time.sleep(1.2 * SILENT_S)
    assert heir.find_or_claim([Lookup(K("k"))]) == [GRANTED]
    table(place, "third", SILENT_S).close()  # buries the frozen one
    assert frozen.find_or_claim([Lookup(K("k")), Lookup(K("new"))]) == [HELD, GRANTED]
    assert heir.find_or_claim([Lookup(K("new"))]) == [HELD], "the woken one is alive again"


def test_a_woken_process_is_not_granted_its_own_claim_again(place: PostgresDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another task of it has the claim, and asks. No other process took it over."""
    _elsewhere(monkeypatch)
    frozen = table(place, "frozen", SILENT_S)
    assert frozen.find_or_claim([Lookup(K("k"))]) == [GRANTED]
    time.sleep(1.2 * SILENT_S)
    assert frozen.find_or_claim([Lookup(K("k"))]) == [HELD]
    frozen.close()


def test_a_schema_may_have_the_name_of_a_word_of_sql(server: PostgresServer) -> None:
    place = PostgresDatabase(server.url, "user")
    one = damage.call(1)

    async def work() -> None:
        with CallStore(place, run_id="r") as store:
            assert await store.get_or_claim(one.key) is None
            await store.put(one)

    asyncio.run(work())
    with CallStore(place, run_id="again"):
        assert read_calls(place, [one.key]) == {one.key: one}
    assert census(place, ())["damaged"] == 0


def test_a_living_owner_in_an_old_snapshot_is_not_dead(place: PostgresDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """The statement that claims waits for a lock for longer than an owner may be silent: the beats meanwhile are not in its snapshot."""
    _elsewhere(monkeypatch)
    holder, heir = table(place, "holder", SILENT_S), table(place, "heir", SILENT_S)
    assert holder.find_or_claim([Lookup(K("k"))]) == [GRANTED]
    results: list[Any] = []
    with session(place) as lock, lock.transaction():
        lock.execute("SELECT * FROM claims FOR UPDATE")
        holder.beat()
        waiting = threading.Thread(target=lambda: results.extend(heir.find_or_claim([Lookup(K("k"))])))
        waiting.start()
        for _ in range(10):
            time.sleep(0.2 * SILENT_S)
            holder.beat()
        assert waiting.is_alive()
    waiting.join(HANGS_AFTER_S)
    assert results == [HELD]


def test_a_process_that_is_frozen_in_a_transaction_keeps_nobody_waiting(place: PostgresDatabase) -> None:
    opened = table(place, "one")
    assert opened._link.connection.execute("SHOW idle_in_transaction_session_timeout").fetchone() == ("15s",)
    opened.close()


def test_the_tables_are_made_once_by_processes_that_start_together(server: PostgresServer) -> None:
    for _ in range(3):
        place = server.place()
        with ThreadPoolExecutor(8) as pool:
            opened = list(pool.map(table, [place] * 8, map(str, range(8))))
        with session(place) as db:
            assert db.execute("SELECT count(*) FROM owners").fetchone() == (8,)
        for one in opened:
            one.close()


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize(("change", "error", "words"), [
    ("UPDATE meta SET value = '99' WHERE name = 'format'", FormatMismatch, "format 99"),
    ("DROP TABLE meta", DataError, "of another program"),
    ("ALTER TABLE calls RENAME COLUMN text TO words", (DataError, OutputError), "not those of a call store"),
])  # fmt: skip
def test_tables_of_another_kind_are_refused(place: PostgresDatabase, change: str, error: Any, words: str) -> None:
    table(place, "r").close()
    with session(place) as db:
        db.execute(change.encode())
    for use in (lambda: asyncio.run(_all(place)), lambda: read_calls(place, [K("k")])):
        with pytest.raises(error, match=words):
            use()


def test_a_user_without_the_right_to_make_tables_uses_those_of_another(place: PostgresDatabase) -> None:
    name = f"u{place.schema}"
    limited = replace(place, url=place.url.replace("postgres@", f"{name}@"))
    with session(place) as db:
        db.execute(f"CREATE USER {name}".encode())
        with pytest.raises(OutputError, match=r"permission denied(?s:.*)docs/extras/postgres\.md") as refused:
            table(limited, "r")
        assert len(causes_of(refused.value)) == 2, "the error and what PostgreSQL said"
        table(place, "r").close()
        db.execute(f"GRANT USAGE ON SCHEMA {place.schema} TO {name}".encode())
        rights = "SELECT, INSERT, UPDATE, DELETE"
        db.execute(f"GRANT {rights} ON ALL TABLES IN SCHEMA {place.schema} TO {name}".encode())
    damage.fill(limited)  # type: ignore[arg-type]
    assert len(read_calls(place, damage.KEYS)) == damage.COUNT


def test_a_server_that_is_not_there_is_named_at_once() -> None:
    place = PostgresDatabase("postgresql://u@127.0.0.1:1/nowhere")
    with pytest.raises(OutputError, match=r"postgresql://u@127\.0\.0\.1:1/nowhere(?s:.*)To fix"):
        CallStore(place, run_id="r")


@pytest.fixture
def durable() -> Iterator[PostgresServer]:
    with postgres_server(settings=()) as running:
        yield running


def test_a_server_that_goes_away_ends_the_run_and_loses_nothing(durable, tmp_path_factory, monkeypatch) -> None:
    folder = tmp_path_factory.mktemp("kept")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    place = durable.place()
    one = damage.call(1)

    async def work() -> None:
        store = CallStore(place, run_id="r")
        assert await store.get_or_claim(one.key) is None
        durable.stop("immediate")
        store.record_payment(one.key, 1, damage.Payment("m", damage.TIME, 1, 1, usd=0.5))
        with pytest.raises(StoreUnreachable, match=r"was lost(?s:.*)task=store action=import from=.* 'store.url="):
            await store.put(one)
        with pytest.raises(OutputError, match="was lost"):
            await store.get_or_claim(K("other"))
        with pytest.raises(OutputError):
            store.close()

    asyncio.run(work())
    durable.start()
    time.sleep(0.6)  # the start of the server is a sign of life of this process's own store
    (file,) = folder.iterdir()
    assert import_calls(place, file, silent_after_s=0.5) == (1, 0)
    assert (read_calls(place, [one.key]), paid_by(place, "r").replies) == ({one.key: one}, 1)
