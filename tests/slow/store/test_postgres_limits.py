"""The rows of limits in PostgreSQL: one transaction at a time, by the clock of the database."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from ragpipe.judging.limits.shared_limits import open_limits
from ragpipe.schema.amount import Amount
from ragpipe.store.calls.call_database import call_database
from ragpipe.store.calls.postgres import postgres_link
from ragpipe.store.calls.postgres.postgres_link import StoreUnreachable
from ragpipe.store.calls.store_place import PostgresPlace
from ragpipe.store.limits.account_row import HeldAmount
from ragpipe.store.limits.limit_rows import Moment, Texts
from ragpipe.store.limits.postgres_limits import PostgresLimits
from tests.support.postgres_server import PostgresServer, postgres_server


@pytest.fixture
def place(server: PostgresServer) -> PostgresPlace:
    place = server.place()
    call_database(place).make()
    return place


def _count(place: PostgresPlace, names: list[str]) -> list[float]:
    """Add one to each row, fifty times; the moments of it."""

    def change(texts: Texts, moment: Moment) -> tuple[Texts, float]:
        assert set(texts) == set(names)
        return {name: json.dumps(json.loads(text or "0") + 1) for name, text in texts.items()}, moment.seconds

    rows = PostgresLimits(place)
    seconds = [rows.update(names, change) for _ in range(50)]
    rows.close()
    return seconds


def test_no_change_is_lost_and_time_grows_with_the_order_of_the_changes(place: PostgresPlace) -> None:
    with ThreadPoolExecutor(4) as pool:
        moments = list(pool.map(_count, [place] * 4, [["a", "b"], ["b", "a"], ["b"], ["b", "c"]]))
    rows = PostgresLimits(place)
    assert rows.update(["a", "b", "c"], lambda texts, _: ({}, dict(texts))) == {"a": "100", "b": "200", "c": "50"}
    every = sorted(second for seconds in moments for second in seconds)
    assert len(set(every)) == 200, "row b is locked by one after the other"
    assert all(seconds == sorted(seconds) for seconds in moments)
    rows.close()


@pytest.mark.thorough
def test_a_change_that_fails_writes_nothing_and_a_row_can_end(place: PostgresPlace) -> None:
    rows = PostgresLimits(place)
    rows.update(["a"], lambda texts, _: ({"a": "nul \x00"}, None))
    with pytest.raises(ZeroDivisionError):
        rows.update(["a"], lambda texts, _: ({"a": str(1 // 0)}, None))
    assert rows.update(["a"], lambda texts, _: ({"a": None}, texts["a"])) == "nul \x00"
    assert rows.update(["a"], lambda texts, _: ({}, texts["a"])) is None
    rows.close()


@pytest.mark.thorough
def test_rows_that_exist_no_more_are_gone_and_may_be_fought_for(place: PostgresPlace) -> None:
    """Four processes make and end the same rows: each finds what the last one left. A row that was only looked at is not left behind."""

    def turn(texts: Texts, moment: Moment) -> tuple[Texts, str | None]:
        return {"count": str(int(texts["count"] or 0) + 1), "b": None if texts["b"] else "b"}, texts["b"]

    def work(_: int) -> list[str | None]:
        rows = PostgresLimits(place)
        found = [rows.update(["b", "count", "looked at"], turn) for _ in range(25)]
        rows.close()
        return found

    with ThreadPoolExecutor(4) as pool:
        found = [text for texts in pool.map(work, range(4)) for text in texts]
    assert (found.count(None), found.count("b")) == (50, 50)
    rows = PostgresLimits(place)
    assert rows._link.connection.execute("SELECT name, state FROM limits").fetchall() == [("count", "100")]
    rows.close()


@pytest.mark.thorough
def test_a_connection_that_the_server_ended_is_no_failure(place: PostgresPlace) -> None:
    rows = PostgresLimits(place)
    rows.update(["a"], lambda texts, _: ({"a": "1"}, None))
    beside = PostgresLimits(place)
    end = "SELECT pg_terminate_backend(?)"
    beside._link.connection.execute(end, (rows._link.connection.raw.info.backend_pid,))
    assert rows.update(["a"], lambda texts, _: ({"a": "2"}, texts["a"])) == "1"
    assert beside.update(["a"], lambda texts, _: ({}, texts["a"])) == "2"
    for opened in (rows, beside):
        opened.close()


@pytest.mark.thorough
def test_who_is_in_a_hurry_does_not_wait_for_a_server_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in an outage: nobody waits for 60 s, neither for the rows nor for the end of their thread."""
    monkeypatch.setattr(postgres_link, "HURRIED_S", 0.5)
    with postgres_server() as server:
        place, hurry = server.place(outage_s=60.0), Event()
        call_database(place).make()
        rows = PostgresLimits(place, hurry)
        with open_limits(place, print) as limits:
            limits.account("run").refresh()
            server.stop("immediate")
            began = time.monotonic()
            hurry.set()
            with pytest.raises(StoreUnreachable):
                rows.update(["a"], lambda texts, _: ({}, None))
            limits.account("run").settle(HeldAmount(Amount(calls=1)), None)
        assert time.monotonic() - began < 10
        rows.close()
