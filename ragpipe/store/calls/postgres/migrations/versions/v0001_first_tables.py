"""The first tables."""

from __future__ import annotations

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_SHARED = {
    "judges": ("label", "parts", "output_mode", "sent"),
    "served": ("model", "fingerprint"),
    "runs": ("run_id",),
    "models": ("model",),
}
_STATEMENTS = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    *(
        f"CREATE TABLE {name} (id INTEGER GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
        f"{', '.join(f'{column} TEXT' for column in columns)}, digest BYTEA NOT NULL UNIQUE)"
        for name, columns in _SHARED.items()
    ),
    # the wide columns first: no room is lost between them. `failed_in` is 0 for a reply, else the number of the run
    """CREATE TABLE calls (
        created_at BIGINT, tokens_in BIGINT, tokens_out BIGINT, tokens_cached BIGINT, tokens_reasoning BIGINT,
        tokens_written BIGINT, paid_usd DOUBLE PRECISION, latency_ms DOUBLE PRECISION,
        run INTEGER NOT NULL, judge INTEGER NOT NULL, served INTEGER NOT NULL, failed_in INTEGER NOT NULL,
        iteration INTEGER NOT NULL, attempts INTEGER NOT NULL, answers INTEGER NOT NULL,
        key BYTEA NOT NULL, digest BYTEA NOT NULL, wire_hash BYTEA, messages BYTEA,
        status TEXT NOT NULL, finish_reason TEXT, digits TEXT, message TEXT, text TEXT
    )""",
    "CREATE UNIQUE INDEX calls_by_key ON calls (key, failed_in)",
    """CREATE TABLE payments (
        mark BIGINT NOT NULL, at BIGINT, tokens_in BIGINT, tokens_out BIGINT, tokens_cached BIGINT,
        tokens_reasoning BIGINT, tokens_written BIGINT, usd DOUBLE PRECISION,
        run INTEGER NOT NULL, model INTEGER NOT NULL, iteration INTEGER NOT NULL, sum INTEGER NOT NULL
    )""",
    # few distinct values: entries of equal runs share their room in the index
    "CREATE INDEX payments_by_run ON payments (run)",
    """CREATE TABLE owners (
        id TEXT PRIMARY KEY, host TEXT NOT NULL, pid BIGINT NOT NULL, mark TEXT NOT NULL, run_id TEXT NOT NULL,
        beat_at TIMESTAMPTZ NOT NULL
    ) WITH (fillfactor = 50)""",
    "CREATE TABLE claims (key BYTEA PRIMARY KEY, owner TEXT NOT NULL)",
    # what each connection has committed last
    "CREATE TABLE commits (link TEXT PRIMARY KEY, number BIGINT NOT NULL, at TIMESTAMPTZ NOT NULL DEFAULT now()) WITH (fillfactor = 50)",
    # changed several times a second: without an index on the text, and with room beside it, no index has to follow
)


def upgrade() -> None:
    """Make the tables, in the schema that the connection works in."""
    from alembic import op

    for statement in _STATEMENTS:
        op.execute(statement)
