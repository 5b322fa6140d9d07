"""The comparison of a run's judge inputs with the call store: any cell that differs is found."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ragpipe.core.call import Call
from ragpipe.core.digest import sha256
from ragpipe.runs.measured_before import rows_hold
from ragpipe.store.call_store import CallStore
from ragpipe.store.table_rows import JUDGE_INPUTS, table_of

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

CALLS = [
    Call(
        sha256(f"question {i}"), "", "provider/model", "ok", text=f"Grüße {i}", model="model", finish_reason="stop",
        tokens_in=10 + i, tokens_out=2, tokens_cached=0, tokens_reasoning=None, fingerprint="fp", paid_usd=0.25 * i,
        latency_ms=12.5, attempts=1, answers=1, output_mode="json_schema", sent={"temperature": 0.0, "max_tokens": 5},
        wire_hash=sha256(f"wire {i}"), fields={"messages": sha256(f"messages {i}")}, created_at="2026-01-01T00:00:00.000+00:00",
    )
    for i in range(3)
]  # fmt: skip


def row(call: Call) -> dict[str, Any]:
    names = ("status", "message", "model", "finish_reason", "tokens_in", "tokens_out", "tokens_cached", "tokens_reasoning",
             "fingerprint", "paid_usd", "latency_ms", "attempts", "output_mode", "wire_hash", "judge", "key")  # fmt: skip
    return {
        **dict.fromkeys(JUDGE_INPUTS.names), **{name: getattr(call, name) for name in names}, "reply": call.text, "flags": [],
        "paid_by": "run/1", "sent": '{"max_tokens":5,"temperature":0.0}',
    }  # fmt: skip


@pytest.fixture
async def store(tmp_path: Path) -> Path:
    path = tmp_path / "calls.sqlite"
    with CallStore(path, run_id="run") as opened:
        for call in CALLS:
            assert await opened.get_or_claim(call.key) is None
            await opened.put(call)
    return path


def unchanged(store: Path, rows: list[dict[str, Any]]) -> bool:
    path = store.with_name("judge_inputs.parquet")
    pq.write_table(table_of(rows, JUDGE_INPUTS), path)
    return rows_hold(path, store, "run", lambda _: True)


def test_the_same_replies(store: Path) -> None:
    assert unchanged(store, [row(call) for call in CALLS])
    assert unchanged(store, [row(CALLS[0])] * 1100), "a question that several metrics share; more rows than are read at once"
    assert unchanged(store, [])


@pytest.mark.parametrize(("column", "value"), [
    ("reply", "Grüße 1 "), ("model", "other"), ("fingerprint", None), ("finish_reason", "length"), ("tokens_in", 12),
    ("tokens_out", 3), ("tokens_cached", None), ("tokens_reasoning", 1), ("paid_usd", 0.5), ("latency_ms", 12.6),
    ("attempts", 2), ("output_mode", "plain"), ("wire_hash", sha256("other")), ("judge", "other"), ("paid_by", "run/2"),
    ("paid_by", "other/1"), ("paid_by", None), ("sent", '{"max_tokens":6,"temperature":0.0}'), ("status", "refused"),
    ("message", "noted"), ("key", sha256("no such question")),
])  # fmt: skip
def test_any_cell_that_differs(store: Path, column: str, value: Any) -> None:
    rows = [row(call) for call in CALLS]
    rows[1][column] = value
    assert not unchanged(store, rows)


def test_a_row_that_may_not_be_used(store: Path) -> None:
    path = store.with_name("judge_inputs.parquet")
    pq.write_table(table_of([row(call) for call in CALLS], JUDGE_INPUTS), path)
    assert not rows_hold(path, store, "run", lambda row: row["model"] != "model")


def test_a_damaged_row_of_the_store_is_no_reply(store: Path) -> None:
    with closing(sqlite3.connect(store)) as db, db:
        db.execute("UPDATE calls SET created_at = created_at + 1 WHERE rowid = 3")
    assert not unchanged(store, [row(call) for call in CALLS])
