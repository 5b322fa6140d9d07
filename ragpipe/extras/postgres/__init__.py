"""The call store in a PostgreSQL database, for runs on several hosts (docs/extras/postgres.md)."""

from __future__ import annotations

ENTRIES = {"store": dict.fromkeys(("postgresql", "postgres"), "ragpipe.extras.postgres.database:postgres_database")}
