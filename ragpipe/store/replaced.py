"""What was paid for calls that stand in the store no more: asked again after a failure, beaten by another, or pruned.

The table `replaced` has one row per run and iteration with sums, so that what a run has paid never shrinks.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

TABLE = (
    "CREATE TABLE replaced (run_id TEXT NOT NULL, iteration TEXT NOT NULL, calls INTEGER NOT NULL, "
    "attempts INTEGER NOT NULL, tokens_in INTEGER NOT NULL, tokens_out INTEGER NOT NULL, tokens_cached INTEGER NOT NULL, "
    "usd REAL NOT NULL, without_price INTEGER NOT NULL, without_usage INTEGER NOT NULL, "
    "PRIMARY KEY (run_id, iteration)) WITHOUT ROWID"
)
SUMS = (
    "COUNT(*), COALESCE(SUM(attempts), 0), COALESCE(SUM(tokens_in), 0), COALESCE(SUM(tokens_out), 0), "
    "COALESCE(SUM(tokens_cached), 0), COALESCE(SUM(cost_usd), 0.0), COALESCE(SUM(cost_usd IS NULL), 0), "
    "COALESCE(SUM(tokens_in IS NULL), 0)"
)
"""Calls, attempts, tokens in, out and cached, dollars, calls without a price, calls without usage."""

NAMES = ("calls", "attempts", "tokens_in", "tokens_out", "tokens_cached", "usd", "without_price", "without_usage")
_ADD = "ON CONFLICT DO UPDATE SET " + ", ".join(f"{name} = {name} + excluded.{name}" for name in NAMES)
_ITERATION = "COALESCE(json_extract(fields, '$.iteration'), '')"


def keep_payments(db: sqlite3.Connection, where: str, values: Sequence[Any]) -> None:
    """Add up the rows of `calls` that are about to go. To be done in the transaction that takes them away."""
    db.execute(
        f"INSERT INTO replaced SELECT run_id, {_ITERATION}, {SUMS} FROM calls WHERE {where} GROUP BY 1, 2 {_ADD}",
        values,
    )


def keep_payment(db: sqlite3.Connection, run_id: str, iteration: str, sums: Sequence[float]) -> None:
    """Add one call that was paid and is not stored, as another's reply stands there already."""
    db.execute(f"INSERT INTO replaced VALUES ({', '.join('?' * (2 + len(NAMES)))}) {_ADD}", (run_id, iteration, *sums))
